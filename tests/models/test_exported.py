"""Exported programs read by almakit give what torch's own loader gives, bit for bit, layer by layer."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from almakit import models
from almakit.errors import BadModel
from almakit.models.exported import exported
from almakit.models.exported_ops import ATEN


class Residual(nn.Module):
    """In-place activations, grouped and strided convolutions, pooling, a shuffle of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.group, self.down = nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.Conv2d(8, 8, 1, stride=2)
        self.last = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu(self.norm(self.first(x)), inplace=True)
        y = y + nn.functional.hardswish(self.group(y))
        batch, channels, high, wide = y.shape
        y = y.view(batch, 2, channels // 2, high, wide).transpose(1, 2).reshape(batch, channels, high, wide)
        y = nn.functional.max_pool2d(nn.functional.pad(self.down(y), (1, 1, 1, 1)), 2) * torch.sigmoid(
            y.mean((2, 3), keepdim=True)
        )
        found: Tensor = self.last(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))
        return found


class Attention(nn.Module):
    """Patches, a class token, encoder layers: what vision transformers are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 16, 4, stride=4), nn.Parameter(torch.randn(1, 1, 16))
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, activation="gelu", batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 10)
        self.register_buffer("scale", torch.tensor([0.5]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).mT
        y = self.layers(torch.cat([self.token.expand(len(x), -1, -1), tokens], 1))
        found: Tensor = self.head(nn.functional.layer_norm(y[:, 0], (16,))) * self.scale
        return found


class Resize(nn.Module):
    """Interpolation, normalisation by group and by instance, a lookup, sorting, comparison."""

    def __init__(self) -> None:
        super().__init__()
        self.group, self.instance = nn.GroupNorm(3, 3), nn.InstanceNorm2d(3, affine=True)
        self.table, self.last = nn.Embedding(4, 10), nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.interpolate(self.group(x), size=(8, 8), mode="bilinear") + nn.functional.interpolate(
            self.instance(x), (8, 8)
        )
        y = torch.where(y > 0, y, nn.functional.leaky_relu(y)).clamp(-2, 2).unfold(2, 2, 2).amax(-1)[:, :, :, ::2]
        y = y.flatten(1).topk(48).values
        return self.last(y) + self.table(x.flatten(1)[:, :1].mul(3).long().clamp(0, 3)).squeeze(1).softmax(-1)


def save(model: nn.Module, path: Path, free: bool, decomposed: bool) -> Path:
    shapes = {"x": {0: torch.export.Dim.AUTO}} if free else None
    program = torch.export.export(model, (torch.rand(2, 3, 16, 16),), dynamic_shapes=shapes)
    torch.export.save(program.run_decompositions() if decomposed else program, path)
    return path


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("kind", [Residual, Attention, Resize])
def test_every_layer_is_what_torch_makes_of_it(tmp_path, kind, free, decomposed):
    torch.manual_seed(0)
    model = kind().eval()
    path = save(model, tmp_path / "net.pt2", free, decomposed)
    # Frozen as models.load does it: attention takes another kernel where weights want gradients.
    ours, theirs = exported(path, trust=False).requires_grad_(False), exported(path, trust=True).requires_grad_(False)
    assert set(ours.state_dict()) == set(theirs.state_dict()), (
        "the weights have other names, so that older runs would not resume"
    )
    x = torch.rand(5, 3, 16, 16, requires_grad=True)
    found, expected = ours(x), theirs(x)
    assert torch.equal(found, expected)
    assert torch.equal(*(torch.autograd.grad(value.square().sum(), x)[0] for value in (found, expected)))
    assert models.load(str(path)).weights_sha256 == models.load(str(path), trust=True).weights_sha256


def test_a_program_can_be_copied_sent_and_put_into_double(tmp_path):
    path = save(Residual().eval(), tmp_path / "net.pt2", True, False)
    ours, x = exported(path, trust=False), torch.rand(3, 3, 16, 16)
    assert torch.equal(copy.deepcopy(ours)(x), ours(x)) and torch.equal(pickle.loads(pickle.dumps(ours))(x), ours(x))
    assert torch.allclose(copy.deepcopy(ours).double()(x.double()).float(), ours(x), atol=1e-5)


def test_images_of_another_shape_are_a_sentence(tmp_path):
    ours = exported(save(Residual().eval(), tmp_path / "net.pt2", True, False), trust=False)
    with pytest.raises(BadModel, match=r"exported for images of shape \(3, 16, 16\), not \(3, 20, 20\)"):
        ours(torch.rand(2, 3, 20, 20))


def test_operators_that_are_not_on_the_list_are_named(tmp_path):
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.svdvals(x.flatten(2)).flatten(1)

    with pytest.raises(BadModel, match=r"aten\.linalg_svdvals\.default.*--trust"):
        exported(save(Odd(), tmp_path / "net.pt2", False, False), trust=False)


def test_a_program_that_changes_its_buffers_is_a_sentence(tmp_path):
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.seen + 1
            return x.flatten(1)[:, :5] * self.seen

    with pytest.raises(BadModel, match="changes its own buffers"):
        exported(save(Counts(), tmp_path / "net.pt2", False, True), trust=False)


def test_the_list_holds_operators_of_torch_and_none_that_reaches_out():
    missing = [name for name in ATEN if not hasattr(torch.ops.aten, name)]
    assert not missing
    for name in ATEN:
        for overload in getattr(torch.ops.aten, name).overloads():
            texts = [
                each.name
                for each in getattr(getattr(torch.ops.aten, name), overload)._schema.arguments
                if str(each.type) == "str"
            ]
            assert not {"filename", "path", "file", "name"} & set(texts), name
    assert not {"from_file", "set", "save", "_print", "resize", "as_strided_", "record_stream"} & ATEN
