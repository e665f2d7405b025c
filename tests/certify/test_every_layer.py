"""Random networks of every kind of layer: no point of the ball crosses a bound, a tighter method is never looser,
windows are whole rows."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from fuzz.amount import examples
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from almakit.certify import METHODS, certified_radius
from almakit.certify.backward import bounds, lower_bound, margins
from almakit.certify.graph import read
from almakit.certify.intervals import NORMS, Ball


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.short = nn.Conv2d(2, 3, 3, 2, 1), nn.Conv2d(3, 3, 3, 1, 1), nn.Conv2d(2, 3, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        return torch.relu(self.two(F.relu(self.one(x))) - self.short(x)) + 0.3


class Odd(nn.Module):
    """Scalars, in-place steps, slices, padding, concatenation and means, as foreign code has them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.rand(2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = 2 * (x - self.mean) / 0.7
        y = x[:, :, ::2, ::2].clone()
        z = y.view(len(y), -1)
        z.relu_()
        y = torch.cat([F.pad(y, (0, 0, 0, 0, 1, 0)), 1 - y], 1)
        return torch.cat([y.mean((2, 3)), y.permute(0, 2, 3, 1).reshape(y.size(0), -1)], 1)


LAYERS = {
    "conv": lambda: nn.Sequential(nn.Conv2d(2, 3, 3, 2, 1), nn.ReLU(), nn.Conv2d(3, 4, 2, dilation=2), nn.ReLU()),
    "grouped": lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2, bias=False), nn.ReLU(inplace=True)),
    "batch-norm": lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 2), nn.BatchNorm2d(3), nn.ReLU()
    ),
    "max-pool": lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 3, 2), nn.ReLU()),
    "max-first": lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(3, 2, 1), nn.Conv2d(3, 2, 2), nn.ReLU()),
    "mean-pool": lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2), nn.ReLU()
    ),
    "residual": lambda: nn.Sequential(nn.Conv2d(2, 2, 3, 1, 1), Residual(), nn.ReLU()),
    "odd": lambda: nn.Sequential(nn.Conv2d(2, 2, 3), Odd(), nn.ReLU()),
    "dense": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(128, 6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 6, bias=False), nn.ReLU()
    ),
    "two-linear": lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 3), nn.Flatten(), nn.ReLU()),
}


def network(kind: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    body = LAYERS[kind]()
    for part in body.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.3, 2)
            nn.init.normal_(part.weight)
    width = body.eval()(torch.rand(1, 2, 8, 8)).flatten(1).shape[1]
    return nn.Sequential(body, nn.Flatten(), nn.Linear(width, 4)).double().eval()


def points(ball: Ball, count: int) -> Tensor:
    """(count, B, C, H, W) inside the balls, most of them on the border."""
    shape = (count, *ball.x.shape)
    delta = torch.randn(shape, dtype=torch.float64) * (torch.rand(shape) < torch.rand(count, 1, 1, 1, 1))
    if ball.norm == "linf":
        delta = delta.sign()
    size = torch.linalg.vector_norm(delta.flatten(2), NORMS[ball.norm], dim=2).clamp_min(1e-9)
    return (ball.x + delta * (ball.radius * (1 - 1e-12) / size)[:, :, None, None, None]).clamp(0, 1)


@pytest.mark.parametrize("kind", LAYERS)
@examples(3)
@given(seed=st.integers(0, 10**6), norm=st.sampled_from(list(NORMS)), radius=st.floats(1e-4, 0.3))
def test_no_point_of_the_ball_crosses_a_bound_of_any_layer(kind: str, seed: int, norm: str, radius: float) -> None:
    model = network(kind, seed)
    # Some pixels on the border of the box, where half of the ball is cut off.
    x = (torch.rand(2, 2, 8, 8, dtype=torch.float64) * 1.4 - 0.2).clamp(0, 1)
    radius *= {"linf": 1, "l2": 5, "l1": 20}[norm]
    graph = read(model, x)
    ball = Ball(x, torch.tensor([radius, radius / 3], dtype=torch.float64), norm)
    near = points(ball, 60)
    with torch.no_grad():
        values = [graph.values(batch) for batch in near]
        logits = torch.stack([model(batch) for batch in near])
        labels = logits[0].argmax(1)
        torch.testing.assert_close(torch.stack([steps[-1] for steps in values]), logits, atol=1e-9, rtol=1e-9)
        true = (logits.gather(2, labels.expand(len(near), -1)[..., None]) - logits).amin(0)
        before = torch.full_like(true, -torch.inf)
        for method in METHODS:
            known = bounds(graph, ball, method != "ibp")
            for index, interval in known.intervals.items():
                seen = torch.stack([steps[index] for steps in values])
                assert bool((seen >= interval.lower).all() and (seen <= interval.upper).all()), (
                    f"step {index} of {kind} leaves its interval ({method})"
                )
            found = margins(graph, known, labels, method)
            assert bool((true >= found).all()), f"{method} claims more than is true"
            assert bool((found >= before - 1e-9).all()), f"{method} is looser than the method before it"
            before = found


@pytest.mark.parametrize("kind", ["conv", "grouped", "batch-norm", "max-pool", "max-first", "residual"])
@pytest.mark.parametrize("norm", NORMS)
def test_windows_give_the_bounds_of_whole_rows(kind: str, norm: str) -> None:
    from almakit.certify.backward import _lower_bound_of_entries

    model = network(kind, 3)
    x = torch.rand(2, 2, 8, 8, dtype=torch.float64)
    graph = read(model, x)
    with torch.no_grad():
        known = bounds(graph, Ball(x, torch.tensor([0.05, 0.02], dtype=torch.float64), norm), True)
        compared = 0
        for index, step in enumerate(graph.steps):
            if len(step.shape) != 3 or step.shape[1] * step.shape[2] == 1 or not index:
                continue
            count = step.shape[0] * step.shape[1] * step.shape[2]
            images, entries = torch.arange(2).repeat_interleave(count), torch.arange(count).repeat(2)
            rows = torch.eye(count, dtype=torch.float64)[entries].reshape(-1, *step.shape)
            for sign in (1.0, -1.0):
                torch.testing.assert_close(
                    _lower_bound_of_entries(graph, known, index, images, entries, sign),
                    lower_bound(graph, known, {index: sign * rows}, images),
                )
                compared += 1
        assert compared >= 2


@pytest.mark.parametrize("norm", NORMS)
def test_the_mean_radius_grows_with_the_method(norm: str) -> None:
    model = network("conv", 0)
    x = torch.rand(2, 2, 8, 8, dtype=torch.float64)
    labels = model(x).argmax(1)
    means = [float(certified_radius(model, x, labels, norm, method).mean()) for method in METHODS]
    assert 0 < means[0] <= means[1] * 1.001 and means[1] <= means[2] * 1.001, means
