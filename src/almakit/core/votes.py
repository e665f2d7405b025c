"""What counts as a success on a random model: the goal reached in a stated share of fresh passes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..goals.base import Goal
from ..tensors import per_image
from .box import Box
from .model import Draws, Oracle
from .result import Result, Status

if TYPE_CHECKING:
    from .attack import Attack

# How far along its perturbation a point is moved until the votes hold it.
OUTWARDS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0)
Z = 1.959964  # of a 95 % interval


def wilson(reached: float, passes: int) -> tuple[float, float]:
    """The 95 % interval of a share of which ``reached`` of ``passes`` were seen (Wilson, JASA 1927)."""
    seen, scale = reached / passes, 1 + Z**2 / passes
    middle = (seen + Z**2 / (2 * passes)) / scale
    half = Z / scale * math.sqrt(seen * (1 - seen) / passes + Z**2 / (4 * passes**2))
    return max(0.0, middle - half), min(1.0, middle + half)


@torch.no_grad()
def shares(oracle: Oracle, draws: Draws, goal: Goal, points: Tensor, purpose: str) -> Tensor:
    """(R,) in which share of fresh passes each of the ``points`` (R, ...) reaches the ``goal`` of its row, float64."""
    found = []
    for row, point in enumerate(points):
        outputs = oracle.drawn(point, draws.votes, purpose)
        finite = torch.isfinite(outputs).flatten(1).all(1)
        wanted = goal.take(torch.full((len(outputs),), row, device=points.device))
        clean = torch.where(per_image(finite, outputs), outputs, torch.zeros_like(outputs))
        found.append((finite & (wanted.margin(clean) < 0)).double().mean())
    return torch.stack(found) if found else torch.zeros(0, dtype=torch.float64)


def _held(oracle: Oracle, draws: Draws, goal: Goal, points: Tensor) -> tuple[Tensor, Tensor]:
    """(R,) the shares of the votes for the ``points`` (R, ...), and (R,) whether they hold: the lower end of the
    interval reaches the stated share, twice. Of several reaches that are tried one passes once by luck alone."""
    votes, holds = _surely(oracle, draws, goal, points, "hold")
    rows = holds.nonzero().flatten()
    if len(rows):
        again, still = _surely(oracle, draws, goal.take(rows), points[rows], "hold again")
        votes[rows], holds[rows] = torch.minimum(votes[rows], again), still
    return votes, holds


def _surely(oracle: Oracle, draws: Draws, goal: Goal, points: Tensor, purpose: str) -> tuple[Tensor, Tensor]:
    """(R,) shares of the votes, and (R,) whether the lower end of the interval reaches the stated one."""
    votes = shares(oracle, draws, goal, points, purpose)
    lower = torch.tensor([wilson(share * draws.votes, draws.votes)[0] for share in votes.tolist()])
    return votes, (lower.to(votes) >= draws.share) | (votes == 1)


def voted(result: Result, attack: Attack, oracle: Oracle, x: Tensor, goal: Goal, box: Box) -> Result:
    """``result`` with every success held to the votes: moved outwards (but not at a given radius) until the goal is
    reached in the stated share of passes with the lower end of its interval, twice, or given up.

    ``x`` (B, ...) are the clean images. The passes belong to no image's budget; they are counted as probes.
    """
    draws = oracle.draws
    assert draws is not None and result.shares is not None
    rows = (result.status == Status.SUCCESS).nonzero().flatten()
    before, seen = oracle.asked, result.shares.clone()
    adversarials, distances, status, reasons = (
        result.adversarials.clone(),
        result.distances.clone(),
        result.status.clone(),
        list(result.reasons),
    )
    open_rows = rows
    for reach in OUTWARDS if attack.minimal else OUTWARDS[:1]:
        if not len(open_rows):
            break
        clean, found = x[open_rows], result.adversarials[open_rows]
        within = box.take(open_rows, x.shape[1:])
        points = found if reach == 1.0 else within.project(clean + reach * (found - clean), clean)
        votes, holds = _held(oracle, draws, goal.take(open_rows), points)
        taken = open_rows[holds]
        adversarials[taken], seen[taken] = points[holds], votes[holds]
        distances[taken] = attack.measure(clean, points)[holds]
        seen[open_rows[~holds]] = votes[~holds]
        open_rows = open_rows[~holds]
    for row in open_rows.tolist():
        adversarials[row], distances[row], status[row] = x[row], float("inf"), int(Status.FAILED)
        reasons[row] = (
            f"the point that was found reaches the goal in {float(seen[row]):.0%} of {draws.votes} fresh passes, fewer "
            f"than {draws.share:.0%} for sure"
        )
    return replace(
        result,
        adversarials=adversarials,
        distances=distances,
        status=status,
        reasons=reasons,
        shares=seen,
        probes=result.probes + oracle.asked - before,
        course=None,
    )
