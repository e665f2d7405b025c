"""Square: random search with square patches inside l1, l2 and linf balls, with forward passes only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core import Problem, Query
from ..core.attack import DistanceLike
from ..optim import bounds, length, onto_ball
from ..tensors import per_image, unit
from .fixed_epsilon import FixedEpsilon, onto_grid, reached, safe_radius

# After these parts of the steps the share of the pixels in a patch is halved.
HALVED_AT = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
# l2: tiles along each side of the image at the start, and the smallest side of a patch.
TILES, SMALLEST = 5, 3
# Of a trial: the share of the pixels in its first patches, and the gain, relative to that of gradient steps, that
# indicates masking.
TRIAL_SHARE, MASKED = 0.1, 0.02

Change = Callable[[Problem, Tensor, Tensor, tuple[int, int]], Tensor]


@dataclass(frozen=True)
class _Best:
    """The best change (B, C, H, W), its margin (B,) and other values."""

    delta: Tensor
    margin: Tensor

    def with_query(self, query: Query, x: Tensor) -> _Best:
        better = query.margin < self.margin
        delta = torch.where(per_image(better, self.delta), _as_images(query.point - x), self.delta)
        return _Best(delta, torch.where(better, query.margin, self.margin))


@dataclass(frozen=True)
class Square(FixedEpsilon):
    """Random search for a smaller margin inside |x' - x| <= epsilon: each step changes a square at a random position
    and keeps the change if the margin falls.

    linf: stripes of +-epsilon at the start; then a square of ``share`` of the pixels, halved at 0.1, 0.5, 2, 5, 10, 20,
    40, 60 and 80 % of the steps, becomes +-epsilon in each channel. l1 and l2: bumps eta on 5 x 5 tiles at the start;
    then the mass of two squares, and what the ball leaves, goes into the first, along its old content and +-eta.
    Andriushchenko et al., *Square Attack: a query-efficient black-box adversarial attack via random search*, ECCV 2020,
    Algorithms 1 to 3; l1 as in Croce and Hein, *Mind the box*, ICML 2021. ``share`` is AutoAttack's by default.

    ``trial=100`` first tests whether gradients are masked. It makes ``trial / 5`` gradient steps and then ``trial``
    random steps from their best point. If gradients work, the random steps hardly lower the margin. Images on which
    they gain less than 2 % of the gradient steps' gain are released; the others get the full search, which starts at
    their best point.

    Args:
        steps: queries of each image, a forward each.
        share: share of the pixels in the first squares.
        trial: steps of the test for masked gradients; none for the full search on every image.
    """

    title = "Square"
    does = ("l1", "l2", "linf")
    cost = "steps forwards per restart and the clean pass, no backwards; an image leaves when it is found"
    paper = "Andriushchenko et al., ECCV 2020"
    presets: ClassVar[dict[str, dict[str, object]]] = {"paper": {"steps": 10_000, "share": 0.05}}
    ranges = {"[1, inf)": "restarts", "(0, 1]": "share", "[5, inf)": "trial"}

    distance: DistanceLike = "linf"
    steps: int = 1000
    share: float = 0.8
    restarts: int = 1
    trial: int | None = None

    def needs_gradients(self) -> bool:
        return self.trial is not None

    def run_at(self, problem: Problem, epsilon: Tensor) -> None:
        x, norm = problem.x, self.measure.norm
        assert norm is not None
        radius = safe_radius(problem, epsilon, norm)
        flat = norm == float("inf")
        begin, change = (self._stripes, self._recoloured) if flat else (self._tiles, self._moved)
        start = None if self.trial is None else self._trial(problem, epsilon, radius, self.trial, change)
        for _ in range(self.restarts):
            best = start or _Best(torch.zeros_like(_as_images(x)), torch.full_like(radius, float("inf")))
            for step in range(self.steps):
                share = self.share * 0.5 ** sum(step > part * self.steps for part in HALVED_AT)
                first = step == 0 and start is None
                side = self._window(best.delta, share)
                delta = begin(problem, best.delta, radius) if first else change(problem, best.delta, radius, side)
                best = self._tried(problem, epsilon, delta, best, step)

    def _tried(self, problem: Problem, epsilon: Tensor, delta: Tensor, best: _Best, step: int) -> _Best:
        """``best`` after a query at the change ``delta`` (B, C, H, W)."""
        x, norm = problem.x, self.measure.norm
        assert norm is not None
        query = problem.query(onto_grid(problem, x + delta.reshape(x.shape), epsilon, norm), grad=False)
        problem.release(reached(problem, epsilon))
        problem.record(step, epsilon=epsilon, distance=query.distance, margin=query.margin, success=query.success)
        return best.with_query(query, x)

    def _trial(self, problem: Problem, epsilon: Tensor, radius: Tensor, steps: int, change: Change) -> _Best:
        """Gradient steps, then random steps; releases the images whose gradients are not masked."""
        x, norm, (low, high) = problem.x, self.measure.norm, bounds(problem.box, problem.x)
        assert norm is not None
        point, clean = x, radius
        best = _Best(torch.zeros_like(_as_images(x)), torch.full_like(radius, float("inf")))
        count = steps // 5
        for step in range(count):
            query = problem.query(onto_grid(problem, point, epsilon, norm)) if step else problem.start()
            problem.release(reached(problem, epsilon))
            best, clean = best.with_query(query, x), query.margin if step == 0 else clean
            slope = query.margin_gradient()
            direction = slope.sign() if norm == float("inf") else unit(slope)
            size = radius / (4 if step < count // 2 else 16)
            point = x + onto_ball(point - x - per_image(size, x) * direction, radius, low, high, norm)
        by_gradient = best.margin
        for step in range(steps):
            side = self._window(best.delta, TRIAL_SHARE * 0.5 ** (4 * step // steps))
            best = self._tried(problem, epsilon, change(problem, best.delta, radius, side), best, step)
        problem.release(by_gradient - best.margin < MASKED * (clean - by_gradient))
        return best

    def _window(self, delta: Tensor, share: float) -> tuple[int, int]:
        """Height and width of a window with ``share`` of the pixels of ``delta`` (B, C, H, W), as square as they
        allow."""
        height, width = delta.shape[2:]
        least = 1 if self.measure.norm == float("inf") else SMALLEST
        high = min(height, max(least, round((share * height * width) ** 0.5)))
        return high, min(width, max(least, round(share * height * width / high)))

    def _stripes(self, problem: Problem, delta: Tensor, radius: Tensor) -> Tensor:
        """(B, C, H, W) +-radius in each column and channel."""
        channels, width = delta.shape[1], delta.shape[3]
        signs = _signs(_numbers(problem, channels * width)).reshape(-1, channels, 1, width)
        return (per_image(radius, delta) * signs).expand_as(delta)

    def _recoloured(self, problem: Problem, delta: Tensor, radius: Tensor, side: tuple[int, int]) -> Tensor:
        """``delta`` (B, C, H, W) with +-radius in each channel of a window."""
        numbers = _numbers(problem, 2 + delta.shape[1])
        inside = _places(numbers[:, :2], delta, side)[0]
        patch = per_image(radius, delta) * _signs(numbers[:, 2:])[..., None, None]
        reach = _clipper(problem)
        same = (torch.where(inside, reach(patch.expand_as(delta)), delta) == delta).flatten(1).all(1)
        patch = torch.where(per_image(same, patch), -patch, patch)
        return torch.where(inside, patch, delta)

    def _tiles(self, problem: Problem, delta: Tensor, radius: Tensor) -> Tensor:
        """(B, C, H, W) of norm radius: bumps of a random sign on a grid of tiles."""
        size, channels, height, width = delta.shape
        high, wide = max(1, height // TILES), max(1, width // TILES)
        rows, columns = -(-height // high), -(-width // wide)
        signs = _signs(_numbers(problem, channels * rows * columns)).reshape(size, channels, rows, columns)
        bumps = bump(high, wide).to(delta).repeat(rows, columns)[:height, :width]
        spread = signs.repeat_interleave(high, 2).repeat_interleave(wide, 3)[..., :height, :width]
        tiles, norm = spread * bumps, self.measure.norm
        assert norm is not None
        return per_image(radius / length(tiles, norm), delta) * tiles

    def _moved(self, problem: Problem, delta: Tensor, radius: Tensor, side: tuple[int, int]) -> Tensor:
        """``delta`` (B, C, H, W) after the mass of two windows was moved into the first one, in a new shape."""
        numbers = _numbers(problem, 5 + delta.shape[1])
        first, down, right = _places(numbers[:, :2], delta, side)
        second = _places(numbers[:, 2:4], delta, side)[0]
        shapes = torch.stack([bump(*side).to(delta), bump(side[1], side[0]).T.to(delta)])
        down, right = down.clamp(0, side[0] - 1).unsqueeze(2), right.clamp(0, side[1] - 1).unsqueeze(1)
        shape = shapes[(numbers[:, 4] < 0.5).long()[:, None, None], down, right]
        norm = self.measure.norm
        assert norm is not None
        mass = delta.flatten(2).abs() ** norm
        unused = (radius**norm - mass.flatten(1).sum(1)).clamp_min(0) / delta.shape[1]
        available = ((mass * (first | second).flatten(2)).sum(2) + unused.unsqueeze(1)) ** (1 / norm)
        old = _normed((delta * first).flatten(2), norm)
        new = old + _normed((shape.unsqueeze(1) * first).flatten(2), norm) * _signs(numbers[:, 5:]).unsqueeze(2)
        new = _normed(new, norm) * available.unsqueeze(2)
        return torch.where(first | second, torch.zeros_like(delta), delta) + new.reshape(delta.shape)


def _normed(values: Tensor, norm: float) -> Tensor:
    """``values`` (B, C, N) with the rows of each channel at norm 1, or zero."""
    size = torch.linalg.vector_norm(values, ord=norm, dim=2, keepdim=True)
    return values / torch.where(size > 0, size, torch.ones_like(size))


def bump(high: int, wide: int) -> Tensor:
    """(high, wide) eta of unit length: a pyramid up in the first half of the rows, one down in the other."""
    shape = torch.cat([_pyramid(high // 2, wide), -_pyramid(high - high // 2, wide)]) if high > 1 else _pyramid(1, wide)
    return unit(shape.unsqueeze(0))[0]


def _pyramid(high: int, wide: int) -> Tensor:
    """(high, wide) sums of 1/(k + 1)^2 over the square rings k around the middle that hold a value; unit length."""
    down, right = (torch.arange(high) - high // 2).abs(), (torch.arange(wide) - wide // 2).abs()
    ring = torch.maximum(down.unsqueeze(1), right.unsqueeze(0))
    parts = 1 / (torch.arange(max(high, wide) // 2 + 1) + 1.0).square()
    return unit(parts.flip(0).cumsum(0).flip(0)[ring].unsqueeze(0))[0]


def _places(where: Tensor, delta: Tensor, side: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """(B, 1, H, W) whether a value of ``delta`` (B, C, H, W) is in the window whose place ``where`` (B, 2) in [0, 1)
    says, and (B, H), (B, W) its row and column there."""
    begin = [(where[:, axis] * (delta.shape[2 + axis] - side[axis] + 1)).long().unsqueeze(1) for axis in (0, 1)]
    down, right = (torch.arange(delta.shape[2 + axis], device=delta.device) - begin[axis] for axis in (0, 1))
    tall, broad = (down >= 0) & (down < side[0]), (right >= 0) & (right < side[1])
    return (tall.unsqueeze(2) & broad.unsqueeze(1)).unsqueeze(1), down, right


def _as_images(x: Tensor) -> Tensor:
    """``x`` (B, ...) as (B, C, H, W): values without rows and columns are one row, further dimensions belong to the
    columns."""
    lead = {2: (1, 1), 3: (1, x.shape[1])}.get(x.ndim) or tuple(x.shape[1:3])
    return x.reshape(len(x), *lead, -1)


def _numbers(problem: Problem, count: int) -> Tensor:
    """(B, count) uniform in [0, 1) from the generators of the images that still take part."""
    return problem.random.numbers(count, problem.active.nonzero().flatten().tolist())


def _signs(numbers: Tensor) -> Tensor:
    return torch.where(numbers < 0.5, -1.0, 1.0).to(numbers)


def _clipper(problem: Problem) -> Callable[[Tensor], Tensor]:
    """A function that projects a change (B, C, H, W) into the domain."""
    x = problem.x
    return lambda delta: _as_images(problem.box.project(x + delta.reshape(x.shape), x) - x)
