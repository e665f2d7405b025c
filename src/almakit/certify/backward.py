"""Bounds of a network over a ball: intervals forward, rows of coefficients backward (CROWN), and the slopes between
them optimised."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .affine import Affine
from .graph import Graph, count
from .intervals import UNIT, Ball, Interval
from .nonlinear import Choice, Lines, Relu
from .windows import propagate_in_windows

MEMORY = 2**28
"""Bytes of the rows that are propagated together; a bound needs about three times this memory."""
PREFIX = 2**27
"""Entries of the largest matrix from image to first layer that is kept (1 GB); beyond it l2 and l1 balls are bounded
there by their pixels' intervals."""

Slopes = dict[int, Tensor]
"""For a step: other lower slopes of an unstable ReLU, one for each row."""


@dataclass
class Known:
    """Bounds of a network over a ball: the interval of each step and the relaxation of each nonlinear step."""

    ball: Ball
    intervals: dict[int, Interval] = field(default_factory=dict)
    relaxed: dict[int, Lines | Choice] = field(default_factory=dict)
    sizes: dict[int, Tensor] = field(default_factory=dict)


def propagate_backward(
    graph: Graph,
    rows: dict[int, Tensor],
    images: Tensor | None,
    relaxed: dict[int, Lines | Choice],
    sizes: dict[int, Tensor] | None = None,
    slopes: Slopes | None = None,
    stop: bool = False,
) -> tuple[dict[int, Tensor], Tensor]:
    """Propagate rows (P, ...) of the steps in ``rows``, each of image ``images[p]``, back to the input, or with
    ``stop`` to the last nonlinear steps.

    Returns the propagated rows and a constant (P,): a.y >= sum of propagated rows . their step's value + constant.
    ``sizes`` are used to count rounding.
    """
    rows, ended = dict(rows), {}
    first = next(iter(rows.values()))
    constant = first.new_zeros(len(first))
    for index in range(len(graph.steps) - 1, -1, -1):
        a = rows.pop(index, None)
        if a is None:
            continue
        step = graph.steps[index]
        if step.layer is None or (stop and not isinstance(step.layer, Affine)):
            ended[index] = a
            continue
        if sizes is not None and index in sizes and images is not None:
            constant = constant - torch.linalg.vector_norm(a.flatten(1), 1, dim=1) * sizes[index][images]
        if isinstance(step.layer, Affine):
            parts, added = step.layer.back(a, [graph.steps[source].shape for source in step.sources])
        else:
            part, added = relaxed[index].back(a, lambda values: values[images], (slopes or {}).get(index))
            parts = [part]
        constant = constant + added
        for source, part in zip(step.sources, parts, strict=True):
            rows[source] = rows[source] + part if source in rows else part
    return ended, constant


def lower_bound(
    graph: Graph,
    known: Known,
    rows: dict[int, Tensor],
    images: Tensor,
    slopes: Slopes | None = None,
    stop: bool = False,
) -> Tensor:
    """(P,) lower bounds of the rows' values over the balls of ``images``: by linear relaxation down to the image, or
    with ``stop`` over intervals."""
    sizes = known.sizes if graph.outward else None
    ended, constant = propagate_backward(graph, rows, images, known.relaxed, sizes, slopes, stop)
    for index, a in ended.items():
        flat = a.flatten(1)
        interval = known.intervals[index]
        if index == 0:
            found = known.ball.lower_bound(flat, images)
        else:
            found = (flat * interval.middle.flatten(1)[images] - flat.abs() * interval.radius.flatten(1)[images]).sum(1)
        if graph.outward:
            found = found - (flat.shape[1] + 16) * UNIT * (flat.abs() * interval.size.flatten(1)[images]).sum(1) * 2
        constant = constant + found
    return constant


def bounds(graph: Graph, ball: Ball, tight: bool, optimise: bool = False) -> Known:
    """The intervals and relaxations of every step over the ball.

    Args:
        graph: the network.
        ball: the images it is bounded over.
        tight: bound the inputs of nonlinear steps by CROWN, else by intervals alone.
        optimise: optimise the slopes for each entry on top, for small networks.
    """
    known = Known(ball)
    for index, step in enumerate(graph.steps):
        if step.layer is None:
            known.intervals[index] = ball.interval
            continue
        before = [known.intervals[source] for source in step.sources]
        if isinstance(step.layer, Affine):
            known.intervals[index] = step.layer.interval(*before)
            if graph.outward and step.layer.units:
                known.sizes[index] = step.layer.units * step.layer.size(*(part.size for part in before)).flatten(
                    1
                ).amax(1)
            continue
        source = step.sources[0]
        if index in graph.first and ball.norm != "linf":
            known.intervals[source] = before[0].meet(_prefix(graph, known, source))
        elif tight and graph.steps[source].affine and not (index in graph.first and graph.depth(source) <= 1):
            known.intervals[source] = _tightened(graph, known, source, step.layer.open(before[0]), optimise)
        now = known.intervals[source]
        known.relaxed[index], known.intervals[index] = step.layer.relax(now), step.layer.interval(now)
        if graph.outward:
            known.sizes[index] = 32 * UNIT * (1 + now.size.flatten(1).amax(1))
    return known


def _prefix(graph: Graph, known: Known, index: int) -> Interval:
    """The interval of a step that is an affine function of the image, from that function's rows: in l2 and l1 much
    tighter than the pixels' intervals."""
    size, pixels = count(graph.steps[index].shape), count(graph.steps[0].shape)
    if size * pixels > PREFIX:
        return known.intervals[index]
    if index not in graph.prefix:
        entries = torch.arange(size, device=known.ball.x.device)
        chunks = entries.split(max(1, 2**25 // max(graph.widest, size)))
        parts = [propagate_backward(graph, {index: _unit_rows(graph, index, part)}, None, {})[0][0] for part in chunks]
        graph.prefix[index] = torch.cat(parts).flatten(1)
    centre = graph.values(known.ball.x, index)[index]
    fall, rise = (part.reshape(centre.shape) for part in known.ball.spread(graph.prefix[index]))
    slack = 1e-12 * (1 + known.intervals[index].size) if graph.outward else 0.0
    return Interval(centre - fall - slack, centre + rise + slack)


def _tightened(graph: Graph, known: Known, index: int, where: Tensor, optimise: bool = False) -> Interval:
    """The interval of a step after its entries ``where`` (B, ...) are bounded by CROWN."""
    interval = known.intervals[index]
    pairs = where.flatten(1).nonzero()
    if not len(pairs):
        return interval
    lower, upper = interval.lower.flatten(1).clone(), interval.upper.flatten(1).clone()
    for chunk in pairs.split(max(1, MEMORY // (8 * graph.widest))):
        images, entries = chunk.unbind(1)
        low, high = (_lower_bound_of_entries(graph, known, index, images, entries, sign) for sign in (1.0, -1.0))
        if optimise:
            row = _unit_rows(graph, index, entries)
            low, high = (
                torch.fmax(part, _optimised(graph, known, {index: sign * row}, images))
                for part, sign in ((low, 1.0), (high, -1.0))
            )
        lower[images, entries] = torch.maximum(lower[images, entries], low)
        upper[images, entries] = torch.minimum(upper[images, entries], -high)
    return Interval(lower.reshape(interval.lower.shape), upper.reshape(interval.upper.shape))


def _lower_bound_of_entries(
    graph: Graph, known: Known, index: int, images: Tensor, entries: Tensor, sign: float
) -> Tensor:
    """(P,) lower bounds of ``sign`` times entry ``entries[p]`` of a step, over the ball of ``images[p]``."""
    shape = graph.steps[index].shape
    local = len(shape) == 3 and shape[1] * shape[2] > 1
    sizes = known.sizes if graph.outward else {}
    carry = propagate_in_windows(graph, index, images, entries, sign, known.relaxed, sizes) if local else None
    if carry is None:
        return lower_bound(graph, known, {index: sign * _unit_rows(graph, index, entries)}, images)
    window, rows, constant = carry
    if window is None:
        return constant + lower_bound(graph, known, rows, images)
    pixels = known.intervals[0]
    flat = (window.rows * window.axes(tuple(known.ball.x.shape[1:]))[2]).flatten(1)
    centre, lower, upper = (window.look(part, images).flatten(1) for part in (known.ball.x, pixels.lower, pixels.upper))
    slack = (
        (flat.shape[1] + 16) * UNIT * 2 * (flat.abs() * torch.maximum(lower.abs(), upper.abs())).sum(1)
        if graph.outward
        else 0.0
    )
    return constant + known.ball.lower_bound_of(flat, centre, lower, upper, known.ball.radius[images]) - slack


def _unit_rows(graph: Graph, index: int, entries: Tensor) -> Tensor:
    """(P, ...) one row for each of a step's ``entries``."""
    shape = graph.steps[index].shape
    rows = torch.zeros(len(entries), count(shape), dtype=torch.float64, device=entries.device).scatter(
        1, entries[:, None], 1.0
    )
    return rows.reshape(-1, *shape)


def differences(graph: Graph, labels: Tensor, images: Tensor, rivals: Tensor, like: Tensor) -> dict[int, Tensor]:
    """The rows (P, K) e_label - e_rival of the logits."""
    unit = torch.eye(graph.classes, dtype=like.dtype, device=like.device)
    return {len(graph.steps) - 1: unit[labels[images]] - unit[rivals]}


def margins(graph: Graph, known: Known, labels: Tensor, method: str) -> Tensor:
    """Lower bounds (B, K) of z_label - z_j over the balls, 0 where j is the label.

    ibp joins the last affine steps with the difference of logits, over the interval of what comes before (Gowal et al.,
    arXiv 1810.12715, section 3.2). crown carries the rows down to the image (Zhang et al. 2018, arXiv 1811.00866).
    alpha-crown optimises its lower slopes for each pair of image and rival (Xu et al. 2021, arXiv 2011.13824). Each
    takes what the one before proved. crown-alone, which CROWN-IBP trains with, does not. Gradients flow through ibp and
    crown-alone.

    Args:
        graph: the network.
        known: its intervals and relaxations over the balls.
        labels: the classes of the images, shape (B,).
        method: ibp, crown, alpha-crown or crown-alone.
    """
    batch, classes = len(labels), graph.classes
    images = torch.arange(batch, device=labels.device).repeat_interleave(classes)
    rivals = torch.arange(classes, device=labels.device).repeat(batch)
    like = known.intervals[0].lower
    rows = differences(graph, labels, images, rivals, like)
    if method == "crown-alone":
        return lower_bound(graph, known, rows, images).reshape(batch, classes)
    found = lower_bound(graph, known, rows, images, stop=True)
    if method != "ibp":
        open_pairs = ((found <= 0) & (rivals != labels[images])).nonzero().flatten()
        for chunk in open_pairs.split(max(1, MEMORY // (8 * graph.widest))):
            rows = differences(graph, labels, images[chunk], rivals[chunk], like)
            proved = lower_bound(graph, known, rows, images[chunk])
            if method == "alpha-crown":
                proved = torch.maximum(proved, _optimised(graph, known, rows, images[chunk]))
            found[chunk] = torch.maximum(found[chunk], proved)
    return found.reshape(batch, classes).scatter(1, labels[:, None], 0.0)


def _optimised(
    graph: Graph, known: Known, rows: dict[int, Tensor], images: Tensor, iterations: int = 20, rate: float = 0.25
) -> Tensor:
    """(P,) the largest lower bound during gradient ascent on the lower slopes of unstable ReLUs, separately for each
    row; any slope in [0, 1] is sound."""
    unstable = {
        index: step.layer.open(known.intervals[step.sources[0]])[images]
        for index, step in enumerate(graph.steps)
        if isinstance(step.layer, Relu) and index in known.relaxed
    }
    fixed = {index: known.relaxed[index].below[images] for index in unstable}  # type: ignore[union-attr]
    best = torch.full((len(images),), -torch.inf, dtype=torch.float64, device=images.device)
    free = {index: slope.clone().requires_grad_(True) for index, slope in fixed.items() if bool(unstable[index].any())}
    if not free:
        return best
    ascent = torch.optim.Adam(free.values(), lr=rate)
    for number in range(iterations):
        for group in ascent.param_groups:
            group["lr"] = rate * 0.9**number
        with torch.enable_grad():
            slopes = {
                index: torch.where(unstable[index], free[index], fixed[index]) if index in free else fixed[index]
                for index in fixed
            }
            bound = lower_bound(graph, known, rows, images, slopes)
            ascent.zero_grad()
            (-bound.sum()).backward()
            for slope in free.values():
                assert slope.grad is not None
                slope.grad = torch.nan_to_num(slope.grad, 0.0, 0.0, 0.0)
        best = torch.fmax(best, bound.detach())
        ascent.step()
        for slope in free.values():
            slope.data.clamp_(0, 1)
    return best
