"""Kinds of training that almakit does not offer: Gaussian noise, PGD in l1, and magnitude pruning."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from almakit.core.oracle import borrowed
from almakit.optim import onto_ball
from almakit.train.objectives import KINDS, Kind, Objective, ramp


def noise(deviation: float = 0.25) -> Objective:
    """Cross-entropy at x + N(0, ``deviation``^2), not clipped: Cohen, Rosenfeld, Kolter, *Certified Adversarial
    Robustness via Randomized Smoothing*, ICML 2019, section 3.3."""

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        return F.cross_entropy(model(x + deviation * torch.randn(x.shape, generator=generator)), labels)

    return loss


def l1(radius: float = 8.0, steps: int = 4, share: float = 0.03, warm_up: float = 0.3) -> Objective:
    """Cross-entropy after ``steps`` projected steps in the l1 ball, each along the signs of the ``share`` of values
    with the largest gradient (Tramer and Boneh, NeurIPS 2019); the radius grows during ``warm_up``."""

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        now, delta = ramp(progress, 0, warm_up, 0.05 * radius, radius), torch.zeros_like(x)
        count = max(1, round(share * x[0].numel()))
        with borrowed(model):
            for _ in range(int(steps)):
                point = (x + delta).requires_grad_(True)
                (gradient,) = torch.autograd.grad(F.cross_entropy(model(point), labels, reduction="sum"), point)
                gradient = torch.where(((gradient > 0) & (point < 1)) | ((gradient < 0) & (point > 0)), gradient, 0.0)
                smallest = gradient.flatten(1).abs().topk(count, dim=1).values[:, -1].view(-1, 1, 1, 1)
                step = gradient.sign() * (gradient.abs() >= smallest) * (2 * now / steps / count)
                delta = onto_ball(delta + step, torch.full((len(x),), now), -x, 1 - x, 1)
        return F.cross_entropy(model(x + delta), labels)

    return loss


def pruned(share: float = 0.9, begin: float = 0.3) -> Objective:
    """Cross-entropy; from ``begin`` of the training on the ``share`` of each layer's weights that were smallest then
    stay zero: Han et al., *Learning both Weights and Connections for Efficient Neural Networks*, NeurIPS 2015."""
    masks: dict[nn.Parameter, Tensor] = {}

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        for weight in model.parameters() if progress >= begin else ():
            if weight.ndim > 1:
                if weight not in masks:
                    smallest = weight.detach().abs().flatten().kthvalue(round(share * weight.numel())).values
                    masks[weight] = mask = (weight.detach().abs() > smallest).to(weight.dtype)
                    weight.register_hook(mask.mul)
                with torch.no_grad():
                    weight.mul_(masks[weight])
        return F.cross_entropy(model(x), labels)

    return loss


KINDS.update({"noise": Kind(noise), "l1": Kind(l1, "l1"), "pruned": Kind(pruned)})
