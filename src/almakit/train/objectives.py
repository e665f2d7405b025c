"""The kinds of training: each is a function of its options that returns an ``Objective``, the loss of a batch."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attacks.pgd import PGD
from ..certify import verified
from ..certify.backward import bounds, margins
from ..certify.graph import Graph, read
from ..certify.intervals import Ball
from ..core.oracle import borrowed
from ..data.dataset import IGNORED
from ..models.classifier import Classifier
from ..optim.steps import cosine_decay
from ..tensors import per_image, unit

Objective = Callable[[nn.Module, Tensor, Tensor, torch.Generator, float], Tensor]
"""loss = objective(model, x, labels, generator, progress): the model takes images in [0, 1] (B, C, H, W), ``progress``
runs from 0 to 1."""


@dataclass(frozen=True)
class Kind:
    """A kind of training.

    Args:
        objective: options -> ``Objective``.
        norm: the norm of its radius, None for training without robustness.
        certified: whether its robustness is measured with interval bounds too.
    """

    objective: Callable[..., Objective]
    norm: str | None = None
    certified: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.objective).parameters)

    def measure(self, model: Classifier, x: Tensor, labels: Tensor, options: dict[str, float]) -> dict[str, float]:
        """PGD accuracy and verified accuracy in percent within the training radius, on images ``x`` (N, C, H, W) with
        ``labels`` (N,)."""
        if self.norm is None:
            return {}
        radius = options.get("radius", inspect.signature(self.objective).parameters["radius"].default)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # early in a training most images are wrong without an attack
            result = PGD(distance=self.norm, epsilon=radius, steps=40)(model, x, labels, batch_size=100)
        found = {"epsilon": radius, "pgd_accuracy": round(100 * (1 - float(result.success.double().mean())), 3)}
        if self.certified:
            found["verified_accuracy"] = round(100 * float(verified(model, x, labels, radius).double().mean()), 3)
        return found


def regular(balance: float = 0.0) -> Objective:
    """The mean over the batch of -log softmax(logits)_label; each label with the weight (its number in the
    batch)^-``balance``: 0 for the most frequent pixels, 1 for all classes alike."""

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        """Of images ``x`` (B, C, H, W) with ``labels`` (B,), or of all labelled pixels with label maps (B, H, W)."""
        logits, ignored = model(x), IGNORED if labels.ndim > 1 else -100
        if not balance:
            return F.cross_entropy(logits, labels, ignore_index=ignored)
        numbers = labels[labels != ignored].bincount(minlength=logits.shape[1])
        return F.cross_entropy(logits, labels, numbers.clamp_min(1).to(logits) ** -balance, ignore_index=ignored)

    return loss


def ddn(radius: float = 2.0, steps: int = 5, gamma: float = 0.2, warm_up: float = 0.1) -> Objective:
    """The mean over the batch of -log softmax(f(x'))_label with x' from DDN, |x' - x|_2 <= radius, which grows from 0
    during ``warm_up``.

    Rony et al., *Decoupling Direction and Norm for Efficient Gradient-Based L2 Adversarial Attacks and Defenses*, CVPR
    2019, section 4 and Table 5. Deviations: few steps with a larger ``gamma`` instead of 100, and the radius grows.
    """

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        now = ramp(progress, 0, warm_up, 0.05 * radius, radius)
        return F.cross_entropy(model(ddn_steps(model, x, labels, now, int(steps), gamma)), labels)

    return loss


def pgd(radius: float = 0.2, steps: int = 7, warm_up: float = 0.3) -> Objective:
    """The mean over the batch of max -log softmax(f(x'))_label over |x' - x|_inf <= radius, which grows from 0 during
    ``warm_up``.

    Madry et al., *Towards Deep Learning Models Resistant to Adversarial Attacks*, ICLR 2018, eq. 2.1. Deviation: the
    radius grows.
    """

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        def to_raise(logits: Tensor) -> Tensor:
            return F.cross_entropy(logits, labels, reduction="sum")

        now = ramp(progress, 0, warm_up, 0.0, radius)
        return F.cross_entropy(model(pgd_steps(model, x, to_raise, now, int(steps), generator)), labels)

    return loss


def trades(radius: float = 0.3, steps: int = 6, beta: float = 1.0, warm_up: float = 0.4) -> Objective:
    """CE(f(x), y) + beta max KL(softmax f(x) || softmax f(x')) over |x' - x|_inf <= radius, which grows from 0 during
    ``warm_up``.

    Zhang et al., *Theoretically Principled Trade-off between Robustness and Accuracy*, ICML 2019, eq. 5. Deviations:
    few inner steps from a uniform start, a radius that grows.
    """

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        with borrowed(model), torch.no_grad():
            clean = model(x).softmax(1)

        def to_raise(logits: Tensor) -> Tensor:
            return F.kl_div(logits.log_softmax(1), clean, reduction="sum")

        now = ramp(progress, 0, warm_up, 0.0, radius)
        both = model(torch.cat([x, pgd_steps(model, x, to_raise, now, int(steps), generator)]))
        near, far = both[: len(x)], both[len(x) :]
        divergence = F.kl_div(far.log_softmax(1), near.softmax(1), reduction="batchmean")
        return F.cross_entropy(near, labels) + beta * divergence

    return loss


def ibp(
    radius: float = 0.2,
    train_radius: float | None = None,
    kappa_last: float = 0.5,
    begin: float = 0.05,
    end: float = 0.6,
) -> Objective:
    """kappa CE(f(x), y) + (1 - kappa) CE(-m, y), with m_j a lower bound of z_y - z_j over |x' - x|_inf <= epsilon.

    From ``begin`` to ``end`` of the training epsilon grows from 0 to ``train_radius`` (``radius`` by default) and kappa
    falls from 1 to ``kappa_last``. Gowal et al., *On the Effectiveness of Interval Bound Propagation for Training
    Verifiably Robust Models*, 2018, eq. 12. The bounds are those of the network without dropout.
    """
    return _certified(radius if train_radius is None else train_radius, kappa_last, None, begin, end)


def crown_ibp(
    radius: float = 0.2,
    train_radius: float | None = None,
    kappa_last: float = 0.0,
    beta_last: float = 0.0,
    begin: float = 0.05,
    end: float = 0.6,
) -> Objective:
    """The loss of ``ibp`` with m = (1 - beta) m_IBP + beta m_CROWN-IBP; beta falls from 1 to ``beta_last``.

    Zhang et al., *Towards Stable and Efficient Training of Verifiably Robust Neural Networks*, ICLR 2020, eq. 8 and
    section 3.
    """
    return _certified(radius if train_radius is None else train_radius, kappa_last, beta_last, begin, end)


def _certified(radius: float, kappa_last: float, beta_last: float | None, begin: float, end: float) -> Objective:
    graphs: dict[nn.Module, Graph] = {}  # the model's operations, read once; bounds follow its parameters

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        kappa, now = ramp(progress, begin, end, 1.0, kappa_last), ramp(progress, begin, end, 0.0, radius)
        beta = 0.0 if beta_last is None else ramp(progress, begin, end, 1.0, beta_last)
        clean = F.cross_entropy(model(x), labels) if kappa > 0 or now == 0 else x.new_zeros(())
        if now == 0:
            return clean
        if model not in graphs:
            graphs[model] = read(model, x, training=True)
        known = bounds(graphs[model], Ball(x, x.new_full((len(x),), now)), tight=False)
        worst = margins(graphs[model], known, labels, "ibp")
        if beta > 0:
            worst = (1 - beta) * worst + beta * margins(graphs[model], known, labels, "crown-alone")
        return kappa * clean + (1 - kappa) * F.cross_entropy(-worst, labels)

    return loss


KINDS = {
    "regular": Kind(regular),
    "ddn": Kind(ddn, "l2"),
    "pgd": Kind(pgd, "linf"),
    "trades": Kind(trades, "linf"),
    "ibp": Kind(ibp, "linf", certified=True),
    "crown-ibp": Kind(crown_ibp, "linf", certified=True),
}


# Inner maximisation. almakit's attacks return the nearest verified point; training needs the hardest point near the
# image, whether it fools the network or not.


def pgd_steps(
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
            (gradient,) = torch.autograd.grad(loss(model(point)), point)
            point = torch.minimum(torch.maximum(point.detach() + 2.5 * radius / steps * gradient.sign(), low), high)
    return point.detach()


def ddn_steps(model: nn.Module, x: Tensor, labels: Tensor, radius: float, steps: int, gamma: float) -> Tensor:
    """Images (B, C, H, W) that DDN finds in ``steps`` steps, none further from ``x`` in l2 than ``radius``.

    The norm of the perturbation starts at half the radius and changes by 1 -+ gamma with success and failure. Rony et
    al., *Decoupling Direction and Norm*, CVPR 2019, section 4: the nearest adversarial point, or the last one where
    none was found, scaled to the largest norm.
    """
    delta, best = torch.zeros_like(x), torch.zeros_like(x)
    norm = torch.full((len(x),), radius / 2)
    nearest = torch.full((len(x),), math.inf)
    with borrowed(model):
        for step in range(steps):
            point = (x + delta).requires_grad_(True)
            logits = model(point)
            (gradient,) = torch.autograd.grad(F.cross_entropy(logits, labels, reduction="sum"), point)
            fooled = logits.detach().argmax(1) != labels
            length = delta.flatten(1).norm(dim=1)
            closer = fooled & (length < nearest)
            nearest, best = torch.where(closer, length, nearest), torch.where(per_image(closer, x), delta, best)
            if step:
                norm = norm * torch.where(fooled, 1 - gamma, 1 + gamma)
            moved = delta + radius * cosine_decay(step, steps) * unit(gradient)
            delta = (x + unit(moved) * per_image(norm, x)).clamp(0, 1) - x
    delta = torch.where(per_image(nearest.isfinite() & (nearest > 0), x), best, delta)
    length = delta.flatten(1).norm(dim=1).clamp_min(1e-12)
    return x + delta * per_image((radius / length).clamp_max(1), x)


def ramp(progress: float, begin: float, end: float, first: float, last: float) -> float:
    """``first`` until ``begin`` of the training, ``last`` from ``end`` on, linear in between; ``progress`` runs from 0
    to 1."""
    if progress >= end:
        return last
    if progress <= begin:
        return first
    return first + (last - first) * (progress - begin) / (end - begin)
