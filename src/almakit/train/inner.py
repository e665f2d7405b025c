"""The inner maximisation of adversarial training: a few gradient steps per batch, the last iterate taken as it is.

The attacks of ``almakit.attacks`` return the nearest *verified* point and the clean image where they failed; training
wants the opposite, the hardest point near the image whether it fools the network or not, so its few steps stand here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attacks.pgd import PGD
from ..core.model import borrowed
from ..models.classifier import Classifier
from ..optim.steps import cosine_decay
from ..tensors import per_image, unit


def climb_linf(
    model: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor], radius: float, steps: int, generator: torch.Generator
) -> Tensor:
    """Images (B, C, H, W) within linf ``radius`` of ``x`` and [0, 1] after ``steps`` sign steps of 2.5 radius / steps
    on ``loss(logits)``.

    The start is uniform in the ball: Madry et al., *Towards Deep Learning Models Resistant to Adversarial Attacks*,
    ICLR 2018, section 2.1.
    """
    low, high = (x - radius).clamp_min(0), (x + radius).clamp_max(1)
    point = torch.minimum(torch.maximum(x + radius * (2 * torch.rand(x.shape, generator=generator) - 1), low), high)
    with borrowed(model):
        for _ in range(steps):
            point.requires_grad_(True)
            (slope,) = torch.autograd.grad(loss(model(point)), point)
            point = torch.minimum(torch.maximum(point.detach() + 2.5 * radius / steps * slope.sign(), low), high)
    return point.detach()


def ddn(model: nn.Module, x: Tensor, labels: Tensor, radius: float, steps: int, gamma: float) -> Tensor:
    """Images (B, C, H, W) that DDN finds in ``steps`` steps, none further from ``x`` in l2 than ``radius``.

    The norm of the perturbation starts at half the radius and changes by 1 -+ gamma with success and failure. Rony et
    al., *Decoupling Direction and Norm*, CVPR 2019, section 4: the nearest adversarial point, or the last one where
    none was found, cut to the largest norm.
    """
    delta, best = torch.zeros_like(x), torch.zeros_like(x)
    norm = torch.full((len(x),), radius / 2)
    nearest = torch.full((len(x),), math.inf)
    with borrowed(model):
        for step in range(steps):
            point = (x + delta).requires_grad_(True)
            logits = model(point)
            (slope,) = torch.autograd.grad(F.cross_entropy(logits, labels, reduction="sum"), point)
            fooled = logits.detach().argmax(1) != labels
            length = delta.flatten(1).norm(dim=1)
            closer = fooled & (length < nearest)
            nearest, best = torch.where(closer, length, nearest), torch.where(per_image(closer, x), delta, best)
            if step:
                norm = norm * torch.where(fooled, 1 - gamma, 1 + gamma)
            moved = delta + radius * cosine_decay(step, steps) * unit(slope)
            delta = (x + unit(moved) * per_image(norm, x)).clamp(0, 1) - x
    delta = torch.where(per_image(nearest.isfinite() & (nearest > 0), x), best, delta)
    length = delta.flatten(1).norm(dim=1).clamp_min(1e-12)
    return x + delta * per_image((radius / length).clamp_max(1), x)


def robust_accuracy(
    model: Classifier, x: Tensor, labels: Tensor, distance: str, radius: float, steps: int = 40
) -> float:
    """The share of the images ``x`` (N, C, H, W) with ``labels`` (N,) that are right and stay so under PGD in the ball
    of ``radius``."""
    result = PGD(distance=distance, epsilon=radius, steps=steps)(model, x, labels, batch_size=100)
    return 1 - float(result.success.double().mean())
