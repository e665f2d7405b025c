"""What an attack costs on a model: measured by a short run on a few images, its distance included."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from ..core import Attack
from ..core.model import Model, steady

IMAGES = 32
LARGE = 3 * 96 * 96
"""Numbers in an image from which two images are measured and not ``IMAGES``."""
QUERIES, QUERIES_LARGE = 20, 4


def seconds_per_pass(model: Model, x: Tensor, labels: Tensor, times: int = 3) -> float:
    """Seconds of one image's forward and backward pass of a bare model, the best of some.

    Args:
        model: from images to logits (B, K).
        x: images, shape (B, ...); the first few are used.
        labels: classes, shape (B,).
        times: number of measurements.
    """
    x, labels = _few(x, labels)
    return min(_bare_pass(model, x, labels) for _ in range(times)) / len(x)


def seconds_per_query(attack: Attack, model: Model, x: Tensor, labels: Tensor) -> float:
    """Seconds of one query of one image inside an attack: passes of the model, gradients of the distance and the
    attack's own arithmetic.

    Args:
        attack: the attack, which is run for a few queries.
        model: from images to logits (B, K).
        x: images in [0, 1], shape (B, ...); the first few are used.
        labels: classes, shape (B,).
    """
    x, labels = _few(x, labels)
    fixed = steady(model, x.device)
    began = time.perf_counter()
    result = attack(fixed, x, labels, budget=QUERIES if len(x) > 2 else QUERIES_LARGE, check=False)
    return (time.perf_counter() - began) / max(1, int(result.forwards.sum()))


def _few(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    count = 2 if x[0].numel() > LARGE else IMAGES
    return x[:count], labels[:count]


def _bare_pass(model: Model, x: Tensor, labels: Tensor) -> float:
    began = time.perf_counter()
    leaf = x.clone().requires_grad_()
    torch.autograd.grad(torch.nn.functional.cross_entropy(model(leaf), labels), leaf)
    return time.perf_counter() - began
