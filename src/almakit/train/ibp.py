"""Certified training with interval bounds: the cross-entropy of the worst logits the intervals allow."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..certify import verified
from ..certify.backward import Known, bounds, margins
from ..certify.graph import Graph, read
from ..certify.intervals import Ball
from ..models.classifier import Classifier
from . import pgd
from .loop import Objective, Recipe
from .schedule import ramp

RECIPES = {
    "mnist/smallcnn-tiny-ibp": Recipe(
        "mnist/smallcnn-tiny-ibp",
        kind="ibp",
        epochs=10,
        batch_size=128,
        learning_rate=1.5e-3,
        weight_decay=0.0,
        shift=0,
        channels_last=True,
        options={"radius": 0.2, "train_radius": 0.22, "begin": 0.08, "end": 0.7},
    ),
    "mnist/mlp-2x100": Recipe(
        "mnist/mlp-2x100",
        kind="ibp",
        epochs=12,
        batch_size=128,
        learning_rate=1.5e-3,
        weight_decay=0.0,
        shift=0,
        options={"radius": 0.08, "kappa_last": 0.5},
    ),
}
NORM = "linf"


def objective(
    radius: float = 0.2,
    train_radius: float | None = None,
    kappa_last: float = 0.5,
    begin: float = 0.05,
    end: float = 0.6,
) -> Objective:
    """kappa CE(f(x), y) + (1 - kappa) CE(-m, y), with m_j a lower bound of z_y - z_j over |x' - x|_inf <= epsilon.

    From ``begin`` to ``end`` of the training epsilon grows from 0 to ``train_radius`` (``radius`` where not given) and
    kappa falls from 1 to ``kappa_last``. Gowal et al., *On the Effectiveness of Interval Bound Propagation for Training
    Verifiably Robust Models*, 2018, eq. 12. Dropout is left out of the bounds: they are those of the network as it is
    used.
    """
    most = radius if train_radius is None else train_radius
    followed = Followed()

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        kappa, now = ramp(progress, begin, end, 1.0, kappa_last), ramp(progress, begin, end, 0.0, most)
        clean = F.cross_entropy(model(x), labels)
        if now == 0:
            return clean
        graph, known = followed.over(model, x, now)
        return kappa * clean + (1 - kappa) * F.cross_entropy(-margins(graph, known, labels, "ibp"), labels)

    return loss


class Followed:
    """The steps of the model in training, read once for each training; bounds follow its parameters from then on."""

    def __init__(self) -> None:
        self.model: nn.Module | None = None
        self.graph: Graph | None = None

    def over(self, model: nn.Module, x: Tensor, radius: float) -> tuple[Graph, Known]:
        """The steps, and their intervals within linf ``radius`` of the images ``x`` (B, C, H, W)."""
        if self.graph is None or self.model is not model:
            self.model, self.graph = model, read(model, x, training=True)
        return self.graph, bounds(self.graph, Ball(x, x.new_full((len(x),), radius)), tight=False)


def measure(model: Classifier, x: Tensor, labels: Tensor, radius: float = 0.2, **_: Any) -> dict[str, float]:
    """Verified accuracy and PGD accuracy in percent at ``radius``, on images ``x`` (N, C, H, W) with ``labels``
    (N,)."""
    share = float(verified(model, x, labels, radius).double().mean())
    return pgd.measure(model, x, labels, radius) | {"verified_accuracy": 100 * share}
