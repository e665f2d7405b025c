"""``dtype=auto``: bfloat16 autocast where the device is faster with it and the attack finds what it finds in
float32."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import Attack, Box, Result
from ..core.model import borrowed, pass_seconds
from ..data.dataset import Chunk
from .subject import Subject

FASTER = 1.3
"""Autocast must save this much of a pass; below it the casts cost what the arithmetic gains."""
WITHIN = 0.01
SAMPLE = 64


def measured_dtype(subject: Subject, sample: Chunk, attack: Attack, size: int) -> tuple[str, str]:
    """``bfloat16`` or ``float32`` for the attacks of a run, and why, measured on the first images with the run's first
    attack."""
    x = subject.place(sample.x[: min(size, SAMPLE)])
    gain = speedup(subject, x)
    if gain < FASTER:
        return "float32", f"a pass in bfloat16 is {gain:.2f} times as fast here, which is not worth it"
    labels = sample.labels[: len(x)]
    exact, low = (_run(subject, attack, x, labels, autocast) for autocast in (None, torch.bfloat16))
    worse = deviation(exact, low)
    if worse > WITHIN:
        return "float32", f"in bfloat16 the attack's distances are off by {100 * worse:.1f} % here"
    return "bfloat16", f"{gain:.1f} times as fast here, distances within {100 * WITHIN:g} %"


def speedup(subject: Subject, x: Tensor) -> float:
    """How many times as fast a forward and backward pass of ``x`` (B, ...) is under bfloat16 autocast: the fastest of
    three of each."""
    best = {None: float("inf"), torch.bfloat16: float("inf")}
    with borrowed(subject.model):
        for _ in range(3):
            for autocast in best:
                best[autocast] = min(best[autocast], pass_seconds(subject.model, x, autocast))
                if best[torch.bfloat16] > 2 * best[None] and autocast is not None:
                    return best[None] / best[torch.bfloat16]  # emulated: no need to look again
    return best[None] / best[torch.bfloat16]


def _run(subject: Subject, attack: Attack, x: Tensor, labels: Tensor, autocast: torch.dtype | None) -> Result:
    return attack(subject.model, x.to(subject.working), labels, box=Box(), check=False, autocast=autocast)


def deviation(exact: Result, low: Result) -> float:
    """How far the median distance of one result is off another's, as a part of it; images that only one of them found
    count as infinite."""
    attacked = (exact.forwards > 1) | (low.forwards > 1)
    medians = [
        result.distances[attacked].double().quantile(0.5, interpolation="lower")
        if bool(attacked.any())
        else torch.tensor(0.0)
        for result in (exact, low)
    ]
    lost = int((exact.success & ~low.success).sum()) / max(int(attacked.sum()), 1)
    if not bool(torch.isfinite(medians[0])) or float(medians[0]) == 0:
        return max(lost, 0.0 if torch.equal(medians[0], medians[1]) else float("inf"))
    return max(lost, abs(float(medians[1] / medians[0]) - 1))
