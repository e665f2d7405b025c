"""What an attack costs on a model: measured by a short run on a few images, its distance included."""

from __future__ import annotations

import time
import warnings

import torch
from torch import Tensor

from ..core import Attack
from ..core.oracle import Model, pass_seconds, steady

IMAGES = 32
LARGE = 3 * 96 * 96
"""Numbers in an image from which two images are measured and not ``IMAGES``."""
QUERIES, QUERIES_LARGE = 20, 8


def seconds_per_pass(model: Model, x: Tensor) -> float:
    """Seconds of one image's forward and backward pass of a bare model, the best of three, on the first few of the
    images ``x`` (B, ...)."""
    return min(pass_seconds(model, _few(x)) for _ in range(3)) / len(_few(x))


def seconds_per_image(attack: Attack, model: Model, x: Tensor, queries: int) -> float:
    """Seconds of one image's attack of so many queries: passes of the model, gradients of the distance and the attack's
    own arithmetic, extrapolated from two short runs on images that count as classified correctly.

    Args:
        attack: the attack, which is run for a few queries.
        model: from images to logits (B, K).
        x: images in [0, 1], shape (B, ...); the first few are used.
        queries: number of queries of an image.
    """
    x = _few(x)
    fixed, budget = steady(model, x.device), QUERIES if len(x) > 2 else QUERIES_LARGE
    with torch.no_grad():
        labels = fixed(x).argmax(1)

    def timed(budget: int) -> tuple[float, int]:
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run itself says what is wrong with labels and settings
            result = attack(fixed, x, labels, budget=budget, check=False)
        return time.perf_counter() - began, int(result.forwards.sum())

    # An attack's cost has a part that does not depend on its budget.
    (longer, many), (shorter, few) = timed(budget), timed(budget // 4)
    slope = max(longer - shorter, longer / 10) / (many - few) if many > few else longer / max(1, many)
    return max(shorter, shorter + slope * (queries * len(x) - few)) / len(x)


def _few(x: Tensor) -> Tensor:
    return x[: 2 if x[0].numel() > LARGE else IMAGES]
