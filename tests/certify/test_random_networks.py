"""Random networks over all supported layers, and supported layers with unusual arguments: an attack beyond the
certified radius finds no point of another class within it, or the network is refused."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from almakit.certify import METHODS, certified_radius
from almakit.certify.intervals import NORMS
from almakit.errors import BadModel

NETWORKS, QUICK = 500, 6
SHAPE, CLASSES = (2, 8, 8), 4


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Branches(nn.Module):
    """a(x) + k b(x), or both beside each other."""

    def __init__(self, one: nn.Module, two: nn.Module, factor: float | None):
        super().__init__()
        self.one, self.two, self.factor = one, two, factor

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.one(x), self.two(x)
        return torch.cat([a, b], 1) if self.factor is None else torch.add(a, b, alpha=self.factor)


def random_layer(draw: random.Random, channels: int, side: int) -> nn.Module:
    """One supported layer for images (channels, side, side)."""
    out = draw.randint(1, 4)
    kernel = draw.randint(1, min(3, side))
    constant = torch.rand(channels, 1, 1, generator=torch.Generator().manual_seed(draw.randrange(10**6)))
    kinds: list[Callable[[], nn.Module]] = [
        lambda: nn.Conv2d(channels, out, kernel, draw.randint(1, 2), draw.randint(0, 1), bias=draw.random() < 0.7),
        lambda: nn.Conv2d(channels, out, min(2, (side + 1) // 2), dilation=2 if side > 2 else 1),
        lambda: nn.Conv2d(channels, 2 * channels, kernel, groups=channels),
        lambda: nn.BatchNorm2d(channels, affine=draw.random() < 0.7),
        lambda: nn.MaxPool2d(min(2, side), draw.randint(1, 2)),
        lambda: nn.AvgPool2d(kernel, draw.randint(1, 2), count_include_pad=draw.random() < 0.5),
        lambda: nn.AdaptiveAvgPool2d(draw.randint(1, side)),
        lambda: nn.Dropout(0.5),
        lambda: nn.Sequential(Apply(lambda x: x.clone()), nn.ReLU(inplace=True)),
        lambda: nn.ReLU(),
        lambda: Apply(lambda x: 2 * (x - constant) / 0.7),
        lambda: Apply(lambda x: 1 - x),
        lambda: Apply(lambda x: F.pad(x, (0, 1, 1, 0), value=0.3)),
        lambda: Apply(lambda x: x[:, :, :: 2 if side > 1 else 1].transpose(2, 3).clone()),
        lambda: Branches(nn.Conv2d(channels, out, 1), nn.Conv2d(channels, out, 1), draw.choice((1.0, -1.0, 0.5))),
        lambda: Branches(nn.ReLU(), Apply(lambda x: -x), None),
    ]
    return draw.choice(kinds)()


def settle(model: nn.Module) -> nn.Module:
    """The network in evaluation mode, with statistics and weights of batch norm that are not those of the start."""
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d) and part.running_mean is not None:
            part.running_mean.normal_()
            part.running_var.uniform_(0.3, 2)
            if part.affine:
                nn.init.normal_(part.weight)
    return model.eval()


def with_head(body: nn.Module) -> nn.Module:
    width = settle(body)(torch.rand(2, *SHAPE)).flatten(1).shape[1]
    return nn.Sequential(body, nn.Flatten(), nn.Linear(width, CLASSES)).eval()


def random_network(seed: int) -> nn.Module:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    layers: list[nn.Module] = [Apply(lambda x: (x - 0.4) / 0.8)]
    x = layers[0](torch.rand(2, *SHAPE))
    for _ in range(draw.randint(2, 5)):
        layer = settle(random_layer(draw, x.shape[1], min(x.shape[2:])))
        layers.append(layer)
        x = layer(x.clone()).detach()
    if draw.random() < 0.3:
        layers += [nn.Flatten(), nn.Linear(x[0].numel(), 6), nn.ReLU()]
    return with_head(nn.Sequential(*layers))


def nearest_success(model: nn.Module, x: Tensor, labels: Tensor, radius: Tensor, norm: str) -> Tensor:
    """(B,) the distance of the nearest point of another class that signed or normalised gradient steps find in balls of
    1.01 to 1.5 times ``radius`` (B,), untargeted and towards each class; infinite where there is none."""
    best = torch.full_like(radius, math.inf)
    for factor in (1.01, 1.1, 1.5):
        reach = (factor * radius)[:, None, None, None]
        for target in (None, *range(CLASSES)):
            delta = torch.zeros_like(x)
            for step in range(12):
                point = (x + delta).clamp(0, 1).requires_grad_(True)
                logits = model(point)
                own = logits.gather(1, labels[:, None])[:, 0]
                others = logits.scatter(1, labels[:, None], -math.inf)
                rival = others.amax(1) if target is None else logits[:, target]
                best = torch.minimum(best, crossing(model, x, point.detach(), labels, norm))
                (gradient,) = torch.autograd.grad((rival - own).sum(), point)
                delta = project(point.detach() - x + reach * (0.4 * 0.85**step) * steepest(gradient, norm), reach, norm)
    return best


def steepest(gradient: Tensor, norm: str) -> Tensor:
    if norm == "linf":
        return gradient.sign()
    if norm == "l2":
        return gradient / gradient.flatten(1).norm(dim=1).clamp_min(1e-300)[:, None, None, None]
    largest = gradient.abs().flatten(1).argmax(1, keepdim=True)
    return (
        torch.zeros_like(gradient)
        .flatten(1)
        .scatter(1, largest, gradient.flatten(1).gather(1, largest).sign())
        .view_as(gradient)
    )


def project(delta: Tensor, reach: Tensor, norm: str) -> Tensor:
    """Into the ball (l1: by scaling, which stays inside)."""
    if norm == "linf":
        return delta.clamp(-reach, reach)
    size = torch.linalg.vector_norm(delta.flatten(1), NORMS[norm], dim=1)[:, None, None, None]
    return delta * (reach / size.clamp_min(1e-300)).clamp(max=1)


@torch.no_grad()
def crossing(model: nn.Module, x: Tensor, point: Tensor, labels: Tensor, norm: str) -> Tensor:
    """(B,) the distance at which the line from ``x`` to ``point`` leaves the class, found by bisection; infinite where
    ``point`` has the label."""
    wrong = model(point).argmax(1) != labels
    near, far = torch.zeros(len(x), dtype=x.dtype), torch.ones(len(x), dtype=x.dtype)
    if not bool(wrong.any()):
        return torch.full_like(near, math.inf)
    for _ in range(20):
        middle = (near + far) / 2
        out = model(x + middle[:, None, None, None] * (point - x)).argmax(1) != labels
        near, far = torch.where(out, near, middle), torch.where(out, middle, far)
    away = torch.linalg.vector_norm((far[:, None, None, None] * (point - x)).flatten(1), NORMS[norm], dim=1)
    return torch.where(wrong, away, math.inf)


def check_sound(model: nn.Module, seed: int) -> Tensor:
    """Certifies two images, one with pixels on the border of the box, and attacks them; returns the radii."""
    norm, method = list(NORMS)[seed % 3], METHODS[seed // 3 % 3]
    dtype = torch.float32 if seed % 2 else torch.float64
    model = model.to(dtype)
    torch.manual_seed(seed)
    x = (torch.rand(2, *SHAPE, dtype=dtype) * torch.tensor([1.0, 1.4])[:, None, None, None].to(dtype) - 0.1).clamp(0, 1)
    with torch.no_grad():
        labels = model(x).argmax(1)
    radius = certified_radius(model, x, labels, norm, method)
    proved = (radius > 0) & radius.isfinite()
    if bool(proved.any()):
        exact = model.double()
        found = nearest_success(exact, x.double()[proved], labels[proved], radius[proved], norm)
        assert bool((found > radius[proved]).all()), f"seed {seed}: {norm} {method}: {found} within {radius[proved]}"
    for corner in (0.0, 1.0):  # an infinite radius speaks about the whole box
        whole = radius.isinf()
        assert bool(
            (model(torch.full_like(x, corner).to(next(model.parameters()).dtype)).argmax(1) == labels)[whole].all()
        )
    return radius


@pytest.mark.parametrize("seed", range(QUICK))
def test_attacks_beyond_the_radius_find_nothing_within_it(seed: int) -> None:
    check_sound(random_network(seed), seed)


@pytest.mark.slow
def test_attacks_beyond_the_radius_find_nothing_within_it_on_hundreds_of_networks() -> None:
    proved = 0
    for seed in range(QUICK, QUICK + NETWORKS):
        proved += int((check_sound(random_network(seed), seed) > 0).sum())
    print(f"{NETWORKS} networks, {proved} of {2 * NETWORKS} images certified")
    assert proved > NETWORKS, "more than half of the images are certified"


def conv(*arguments: object, **settings: object) -> nn.Module:
    return nn.Conv2d(2, *arguments, **settings)  # type: ignore[arg-type]


class OneLine(nn.Module):
    """The image as one row, through a layer for sequences."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(2))


NEAR_MISSES: dict[str, Callable[[], nn.Module]] = {
    "padding by name": lambda: conv(3, 3, padding="same"),
    "no padding by name": lambda: conv(3, 3, padding="valid"),
    "reflected border": lambda: conv(3, 3, padding=1, padding_mode="reflect"),
    "circular border": lambda: conv(3, 3, padding=1, padding_mode="circular"),
    "replicated border": lambda: conv(3, 3, padding=1, padding_mode="replicate"),
    "stride larger than the kernel": lambda: conv(3, 2, 3),
    "padding larger than the kernel": lambda: conv(3, 2, padding=3),
    "a kernel of two sides": lambda: conv(3, (1, 5), (2, 1), (0, 2), (1, 1)),
    "dilation and stride": lambda: conv(3, 3, 2, 2, 3),
    "a transposed convolution": lambda: nn.ConvTranspose2d(2, 3, 3, 2),
    "a convolution of rows": lambda: OneLine(nn.Conv1d(2, 3, 5)),
    "a convolution of volumes": lambda: Apply(
        lambda x: F.conv3d(x[:, None], torch.ones(1, 1, 2, 2, 2, dtype=x.dtype) / 8)
    ),
    "means that round up": lambda: nn.AvgPool2d(3, 2, ceil_mode=True),
    "means without their border": lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "means by a small divisor": lambda: nn.AvgPool2d(2, divisor_override=1),
    "means by a negative divisor": lambda: nn.AvgPool2d(2, divisor_override=-1),
    "means of unequal windows": lambda: nn.AdaptiveAvgPool2d((3, 5)),
    "means that keep a side": lambda: nn.AdaptiveAvgPool2d((None, 3)),
    "maxima that round up": lambda: nn.MaxPool2d(3, 2, ceil_mode=True),
    "maxima apart": lambda: nn.MaxPool2d(2, 1, 1, 2),
    "maxima of a strip": lambda: nn.MaxPool2d((1, 4), (3, 2)),
    "maxima that adapt": lambda: nn.AdaptiveMaxPool2d(3),
    "indices of maxima": lambda: Apply(lambda x: F.max_pool2d(x, 2, return_indices=True)[1].to(x.dtype)),
    "batch norm without statistics": lambda: nn.BatchNorm2d(2, track_running_stats=False),
    "batch norm with a large epsilon": lambda: nn.BatchNorm2d(2, eps=10.0),
    "batch norm without weights": lambda: nn.BatchNorm2d(2, affine=False),
    "batch norm of rows": lambda: OneLine(nn.BatchNorm1d(2)),
    "instance norm": lambda: nn.InstanceNorm2d(2),
    "group norm": lambda: nn.GroupNorm(1, 2),
    "layer norm": lambda: nn.LayerNorm([2, 8, 8]),
    "a linear layer of many rows": lambda: nn.Linear(8, 3),
    "half precision": lambda: Apply(lambda x: x.half().to(x.dtype)),
    "bfloat16": lambda: Apply(lambda x: x.bfloat16().to(x.dtype)),
    "float8": lambda: Apply(lambda x: x.to(torch.float8_e4m3fn).to(x.dtype)),
    "whole numbers": lambda: Apply(lambda x: (x * 10).int().to(x.dtype)),
    "rounding": lambda: Apply(lambda x: (x * 10).round() / 10),
    "division downwards": lambda: Apply(lambda x: torch.div(x, 0.3, rounding_mode="floor")),
    "division by a negative number": lambda: Apply(lambda x: x / -0.3),
    "division by the image": lambda: Apply(lambda x: 1 / (x + 1)),
    "a difference with a factor": lambda: Apply(lambda x: torch.sub(x, x.flip(3) * 0 + 0.5, alpha=3)),
    "a constant less a factor": lambda: Apply(lambda x: torch.rsub(x, 2, alpha=-3)),
    "a negative factor": lambda: Apply(lambda x: x * torch.tensor([-2.0, 3.0], dtype=x.dtype)[:, None, None]),
    "a square": lambda: Apply(lambda x: x * x),
    "a power": lambda: Apply(lambda x: x**2),
    "an absolute value": lambda: Apply(lambda x: (x - 0.5).abs()),
    "a negative border": lambda: Apply(lambda x: F.pad(x, (-1, -2, 1, 0), value=-0.4)),
    "a border of channels": lambda: Apply(lambda x: F.pad(x, (0, 0, 0, 0, 1, 2), value=0.7)),
    "a border of images": lambda: Apply(lambda x: F.pad(x, (0, 0, 0, 0, 0, 0, 1, 0))[1:]),
    "a slice of images": lambda: Apply(lambda x: torch.cat([x[:1], x[1:]], 0)),
    "a slice from the end": lambda: Apply(lambda x: x[..., -5:-1:2]),
    "a mean that keeps its place": lambda: Apply(lambda x: x.mean((-1, 1), keepdim=True)),
    "a mean of images": lambda: Apply(lambda x: x - x.mean(0, keepdim=True)),
    "a sum of everything": lambda: Apply(lambda x: x.sum((1, 2, 3))[:, None]),
    "a mean of everything": lambda: Apply(lambda x: x - x.mean()),
    "channels last": lambda: Apply(lambda x: x.permute(0, -2, 3, 1)),
    "images and channels swapped": lambda: Apply(lambda x: x.transpose(0, 1).transpose(0, 1)),
    "the same bits as another type": lambda: Apply(
        lambda x: x.view(torch.int64 if x.dtype == torch.float64 else torch.int32).to(x.dtype) / 1e9
    ),
    "something beside a constant": lambda: Apply(lambda x: torch.cat([x, torch.ones_like(x)], 1)),
    "a first step in place": lambda: nn.ReLU(inplace=True),
    "leaky ReLU": lambda: nn.LeakyReLU(-0.5),
    "ReLU with a ceiling": lambda: nn.ReLU6(),
    "sigmoid": lambda: nn.Sigmoid(),
    "hard tanh": lambda: nn.Hardtanh(-0.2, 0.4),
    "GELU": lambda: nn.GELU(),
    "softmax within": lambda: nn.Softmax(1),
    "channels mixed": lambda: nn.ChannelShuffle(2),
    "pixels shuffled": lambda: nn.PixelUnshuffle(2),
    "a larger image": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "a rolled image": lambda: Apply(lambda x: x.roll(2, 3)),
    "a dropout that stays": lambda: Apply(lambda x: F.dropout(x, 0.5, training=False)),
}


def certified_or_refused(name: str, seed: int) -> str:
    torch.manual_seed(seed)
    body = nn.Sequential(NEAR_MISSES[name](), nn.ReLU())
    try:
        check_sound(with_head(body), seed)
    except BadModel as error:
        assert len(str(error)) > 30, error
        return "refused"
    return "certified"


@pytest.mark.parametrize("name", list(NEAR_MISSES)[::9])
def test_a_layer_with_an_unusual_argument_is_refused_or_certified_soundly(name: str) -> None:
    certified_or_refused(name, 0)


@pytest.mark.slow
def test_every_layer_with_an_unusual_argument_is_refused_or_certified_soundly() -> None:
    assert len(NEAR_MISSES) >= 60
    endings = {name: {certified_or_refused(name, seed) for seed in range(6)} for name in NEAR_MISSES}
    refused = sum(ending == {"refused"} for ending in endings.values())
    print(f"{len(NEAR_MISSES)} unusual layers, {refused} refused, {len(endings) - refused} certified")
    assert all(len(ending) == 1 for ending in endings.values()), endings
    assert {"refused", "certified"} == set().union(*endings.values())
    for name in (
        "half precision",
        "bfloat16",
        "float8",
        "whole numbers",
        "means by a negative divisor",
        "GELU",
        "sigmoid",
    ):
        assert endings[name] == {"refused"}, name
