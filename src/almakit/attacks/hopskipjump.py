"""HopSkipJump: follows the decision boundary towards the image by decisions alone, without gradients or scores."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..core import Attack, DistanceLike, Problem
from ..core.box import Box
from ..optim.projections import clip
from ..tensors import unit

Answer = tuple[Tensor, Tensor]
"""(n,) whether each candidate reaches the goal, and (n, ...) the candidates projected into the domain."""
Walk = Generator[Tensor, Answer, None]
"""Yields candidates (n, ...) of one image and receives their answers."""

# Most rows of one model call that queues several candidates per image, and most candidates per image.
ROWS, PACK = 128, 32
# Smallest number of random directions for an estimate.
FEWEST = 8
# Sides of the blocks of one colour in the random images of the start, in turn; last the image as one block.
BLOCKS = (1, 2, 4, 8)


@dataclass(frozen=True)
class HopSkipJump(Attack):
    """Each iteration t: bisect to the boundary point x_t, estimate its normal v, leave along it, all by whether a point
    reaches the goal.

    v = sum_b (phi_b - mean phi) u_b over B_t = ``evaluations`` sqrt(t) random directions u_b, phi_b = +-1 the decision
    at x_t + delta u_b, delta = |x_t - x| / sqrt(d) for d values; then x_t + xi v / |v| (sign(v) in linf), xi = |x_t -
    x| / sqrt(t) halved until the goal is reached. Chen et al., *HopSkipJumpAttack: a query-efficient decision-based
    attack*, IEEE S&P 2020, Algorithms 1 and 2. A budget of ``steps`` queries for each image; the last iteration gets
    the directions that are left.

    It starts at a point that the problem knows already, else it tries up to ``start_tries`` random images: noise in
    blocks of 1, 2, 4 and 8 values and uniform images, first with any values of the box, then only with its ends. On a
    grid of levels delta is at least one of them. Unlike the original: delta is sqrt(d) times larger, so that float32
    can resolve it, and log2(d) bisections suffice; the first iterations use fewer directions; images are in different
    iterations, so that no model call waits for another image; successes among the directions count.

    Args:
        steps: queries of each image, a forward each.
        evaluations: random directions of the first estimate of the boundary's normal.
        start_tries: random images tried until one reaches the goal.
    """

    title = "HopSkipJump"
    does = ("l2", "linf")
    cost = "at most steps forwards, no backwards"
    paper = "Chen et al., S&P 2020"
    presets = {"paper": {"steps": 25_000, "evaluations": 100}}
    ranges = {f"[{FEWEST}, inf)": "evaluations", "[1, inf)": "start_tries"}

    distance: DistanceLike = "l2"
    steps: int = 2000
    evaluations: int = 30
    start_tries: int = 100

    def needs_gradients(self) -> bool:
        return False

    def run(self, problem: Problem) -> None:
        images = {row: _Image.of(problem, row) for row in problem.active.nonzero().flatten().tolist()}
        walks = {row: self._walk(image) for row, image in images.items()}
        # By image: the candidates that wait for an answer, and the answers to those before them in the same pack.
        waiting = {row: (pack, list[Answer]()) for row, walk in walks.items() if (pack := next(walk, None)) is not None}
        call = 0
        while waiting:
            most = max(1, ROWS // len(waiting))
            parts = [pack[:most] for pack, _ in waiting.values()]
            sizes = [len(part) for part in parts]
            owners = torch.tensor(list(waiting), device=problem.x.device).repeat_interleave(
                torch.tensor(sizes, device=problem.x.device)
            )
            query = problem.query(torch.cat(parts), grad=False, images=owners)
            problem.record(call, best=problem.best_distance)
            call += 1
            sent = set(owners.tolist() if query.sent is None else owners[query.sent].tolist())
            answered = zip(list(waiting), query.success.split(sizes), query.point.split(sizes), strict=True)
            for row, success, points in answered:
                pack, answers = waiting.pop(row)
                images[row].queried += len(success)
                answers.append((success, points))
                if row not in sent:  # its budget is spent
                    continue
                if len(success) < len(pack):
                    waiting[row] = (pack[len(success) :], answers)
                    continue
                with suppress(StopIteration):
                    joined = torch.cat([part for part, _ in answers]), torch.cat([part for _, part in answers])
                    waiting[row] = (walks[row].send(joined), [])

    def _walk(self, image: _Image) -> Walk:
        """The queries of one image, in groups of independent queries."""
        x, size, flat = image.x, image.x.numel(), self.measure.norm == float("inf")
        point, bisections, iteration = image.known, math.ceil(math.log2(size + 1)), 0
        for attempt in range(0 if point is not None else min(self.start_tries, self.steps - 1)):
            success, points = yield image.noise(attempt).unsqueeze(0)
            if bool(success):
                point = points[0]
                break
        while point is not None:
            iteration += 1
            point = yield from self._to_boundary(image, point, bisections)
            distance = float(torch.linalg.vector_norm(point - x, ord=self.measure.norm))
            left = self.steps - image.queried - bisections - 2
            count = min(round(self.evaluations * math.sqrt(iteration)), left)
            if count < FEWEST or distance == 0:
                return
            # On a grid, a change below half a level has no effect.
            level = image.box.spacing.to(x) * (1 if flat else math.sqrt(size))
            reach = level.clamp_min(distance / math.sqrt(size))
            normal = yield from self._normal(image, point, reach, count)
            stride = distance / math.sqrt(iteration)
            while image.queried < self.steps and stride > distance / size:
                success, points = yield (point + stride * normal).unsqueeze(0)
                if bool(success):
                    point = points[0]
                    break
                stride /= 2

    def _normal(self, image: _Image, point: Tensor, reach: Tensor, count: int) -> Generator[Tensor, Answer, Tensor]:
        """(...) the direction into the goal at ``point`` (...), by the decisions at ``count`` points ``reach`` (...)
        away."""
        flat, signs = self.measure.norm == float("inf"), 0.0
        weighted, plain = torch.zeros_like(point), torch.zeros_like(point)
        for begin in range(0, count, PACK):
            noise = image.directions(min(PACK, count - begin), flat)
            success, points = yield point + reach * noise
            sign = success.to(point) * 2 - 1
            weighted = weighted + (sign.reshape(-1, *[1] * point.ndim) * (points - point)).sum(0)
            plain, signs = plain + (points - point).sum(0), signs + float(sign.sum())
        mean = signs / count
        # If all decisions agree, use the mean direction.
        normal = weighted - mean * plain if abs(mean) < 1 else weighted
        return normal.sign() if flat else unit(normal.unsqueeze(0))[0]

    def _to_boundary(self, image: _Image, point: Tensor, bisections: int) -> Generator[Tensor, Answer, Tensor]:
        """The point (...) nearest to the image between it and ``point`` (...) that reaches the goal: the change scaled
        (l2) or clipped (linf)."""
        far, inner, outer = point - image.x, 0.0, 1.0
        largest = float(far.abs().amax())
        for _ in range(bisections):
            if image.queried >= self.steps:
                break
            middle = (inner + outer) / 2
            level = torch.full_like(far, middle * largest)
            part = clip(far, -level, level) if self.measure.norm == float("inf") else middle * far
            success, points = yield (image.x + part).unsqueeze(0)
            if bool(success):
                outer, point = middle, points[0]
            else:
                inner = middle
        return point


@dataclass
class _Image:
    """One image (...) of a problem: random numbers, domain, adversarial point if one is known, number of queries."""

    x: Tensor
    generator: torch.Generator
    box: Box
    known: Tensor | None
    queried: int = field(default=1)  # the clean pass is one

    @classmethod
    def of(cls, problem: Problem, row: int) -> _Image:
        here = torch.tensor([row], device=problem.x.device)
        known = problem.best_point[row] if bool(problem.found[row]) else None
        box = problem.box.take(here, problem.x.shape[1:])
        return cls(problem.x[row], problem.random.generators[row], box, known)

    def noise(self, attempt: int) -> Tensor:
        """(...) a random image in the box: one of each kind of noise, then the box's ends alone, in those blocks that
        fit in twice and as a flat image."""
        picture, longest = self.x.ndim > 2, max(self.x.shape[-2:], default=1)
        fitting = [block for block in BLOCKS if block == 1 or (picture and 2 * block <= longest)] + [longest]
        later = attempt - len(BLOCKS)
        block = BLOCKS[attempt] if later < 0 else fitting[later % len(fitting)]
        coarse = [-(-side // block) if axis >= self.x.ndim - 2 else side for axis, side in enumerate(self.x.shape)]
        values = torch.rand(coarse, generator=self.generator, dtype=self.x.dtype)
        values = values if later < 0 else values.round()
        for axis in range(max(0, self.x.ndim - 2), self.x.ndim):
            values = values.repeat_interleave(block, axis).narrow(axis, 0, self.x.shape[axis])
        return self.box.lo + self.box.sides * values.to(self.x.device)

    def directions(self, count: int, flat: bool) -> Tensor:
        """(count, ...) random directions where the mask allows change: uniform in [-1, 1] each value, or of unit
        length."""
        draw = torch.rand if flat else torch.randn
        noise = draw((count, *self.x.shape), generator=self.generator, dtype=self.x.dtype).to(self.x.device)
        noise = self.box.free(2 * noise - 1 if flat else noise)
        return noise if flat else unit(noise)
