"""Does a model answer the same twice, and an image alone as in company; and where it is random, do seeds hold it?"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ..core.model import probe_rows
from .findings import Severity

TOLERANCE = {torch.bfloat16: 0.1, torch.float16: 0.05}
Said = tuple[str, Severity, str]


def random_findings(
    ask: Callable[[list[Tensor]], list[Tensor] | None], x: Tensor, kind: torch.dtype | None, eot: int | None
) -> Iterator[Said]:
    """What asking about ``x`` (B, ...) several times shows; ``ask`` gives the logits of batches, ``kind`` is the
    weights' type, and with ``eot`` the model is meant to be random."""
    rows = probe_rows(len(x))
    if (passes := ask([x, x, *(x[row : row + 1] for row in rows)])) is None:
        return
    first, again, *single = passes
    size = float(first.double().abs().nan_to_num(0.0, 0.0, 0.0).amax().clamp_min(1e-6))
    allowed = TOLERANCE.get(kind or first.dtype, 1e-3) * size
    if (gap := _apart(first, again)) > allowed and eot is None:
        yield (
            "not-deterministic",
            "refuse",
            f"The same images got logits that differ by up to {gap:.3g} when asked twice.",
        )
    elif gap > allowed:
        yield (
            "random",
            "note",
            f"The model is random (logits differ by up to {gap:.3g}): means over {eot} passes count.",
        )
        if (held := _seeded(ask, x)) is not None and _apart(*held) > allowed:
            yield (
                "randomness-elsewhere",
                "warn",
                "With torch's, NumPy's and Python's generators set alike it still answers otherwise: another run will "
                "give other numbers, and a result depends on its batch.",
            )
    elif eot is not None:
        yield "not-random", "note", f"The model answers the same every time: {eot} passes show no more than one."
    elif any(alone.shape != first[:1].shape for alone in single):
        yield (
            "batch-dependent",
            "refuse",
            f"An image alone gets logits of shape {tuple(single[0].shape)}, not {tuple(first[:1].shape)}.",
        )
    elif len(x) > 1 and (gap := _apart(first[rows], torch.cat(single))) > allowed:
        yield (
            "batch-dependent",
            "refuse",
            f"An image's logits differ by up to {gap:.3g} between a batch of {len(x)} and alone.",
        )


def _seeded(ask: Callable[[list[Tensor]], list[Tensor] | None], x: Tensor) -> tuple[Tensor, Tensor] | None:
    """The logits of ``x`` (B, ...) twice with all seeds alike; torch's state is the caller's to put back."""
    state, python, found = np.random.get_state(), random.getstate(), []
    try:
        for _ in range(2):
            torch.manual_seed(0)
            np.random.seed(0)
            random.seed(0)
            if (answer := ask([x])) is None:
                return None
            found.append(answer[0])
    finally:
        np.random.set_state(state)
        random.setstate(python)
    return found[0], found[1]


def _apart(a: Tensor, b: Tensor) -> float:
    """The largest difference between two sets of logits where both are numbers."""
    difference = (a.double() - b.double()).abs()
    return float(difference[difference.isfinite()].max()) if bool(difference.isfinite().any()) else 0.0
