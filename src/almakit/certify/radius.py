"""Certified radii of a network, one per image."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.oracle import predict
from ..errors import BadInput, BadModel
from .backward import bounds, margins
from .graph import Graph, read
from .intervals import NORMS, Ball

METHODS = ("ibp", "crown", "alpha-crown")
OWN_ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-6}
"""The amount by which a margin must exceed zero, relative to the largest logit. It covers rounding of the model itself,
which the bounds do not count."""
AGREES = {torch.float64: 1e-9, torch.float32: 1e-3}
"""Largest difference between an image's logits and those of the exported steps, relative to the logits' spread, in
addition to rounding."""
EVALUATIONS = 40


@dataclass(frozen=True)
class Certifier:
    """A network read once, ready to bound its margins over balls of ``norm`` by ``method``."""

    graph: Graph
    model: nn.Module | Callable[[Tensor], Tensor]
    norm: str
    method: str

    def own_rounding(self, x: Tensor) -> Tensor:
        """(B,) the amount by which the margins of images ``x`` must exceed zero: ``OWN_ROUNDING`` of the largest logit,
        or four times the difference between the model's logits and those of its steps if that is larger.

        Raises an error if the model's logits differ from those of its steps.
        """
        logits = predict(self.model, x)
        if not isinstance(logits, Tensor):
            logits = logits[0] if isinstance(logits, (tuple, list)) else next(iter(logits.values()))
        logits = logits.double()
        with torch.no_grad():
            exact = self.graph.values(x.double())[-1]
        away = (exact - logits).abs().amax(1)
        rounding = OWN_ROUNDING[self.graph.precision] * exact.abs().amax(1)
        spread = logits.amax(1) - logits.amin(1)
        if not bool((away <= AGREES[self.graph.precision] * spread + 10 * rounding).all()):
            raise BadModel(
                f"{self.graph.name} gives other logits than its steps do one image at a time, so its bounds would be "
                "those of another network."
            )
        return torch.where(away > rounding, 4 * away, rounding)

    def excess(self, x: Tensor, labels: Tensor, radius: Tensor, own: Tensor) -> Tensor:
        """(B,) the smallest margin bound over each ball minus the model's ``own`` rounding (B,); positive for certified
        images."""
        with torch.no_grad():
            x = x.to(torch.float64)
            ball = Ball(x, radius * (1 + 1e-12), self.norm)
            known = bounds(self.graph, ball, self.method != "ibp")
            found = margins(self.graph, known, labels, self.method)
            others = torch.ones_like(found, dtype=torch.bool).scatter(1, labels[:, None], False)
            return torch.where(others, found, math.inf).amin(1) - own

    def radii(self, x: Tensor, labels: Tensor, guess: Tensor | None = None, tolerance: float = 1e-3) -> Tensor:
        """(B,) see ``certified_radius``."""
        reach = torch.maximum(x, 1 - x).double().flatten(1)
        # A ball of this radius contains the box.
        limit = torch.linalg.vector_norm(reach, NORMS[self.norm], dim=1) * (1 + 1e-9)
        start = limit * 1e-3 if guess is None else guess.double().clamp(limit * 1e-6, limit)
        own = self.own_rounding(x)
        return _search(
            lambda rows, radius: self.excess(x[rows], labels[rows], radius, own[rows]), start, limit, tolerance
        )


def _search(excess: Callable[[Tensor, Tensor], Tensor], start: Tensor, limit: Tensor, tolerance: float) -> Tensor:
    """The largest radius found (B,) at which ``excess(rows, radius)`` is positive; infinite where that holds at
    ``limit``.

    Starts at ``start`` and moves outwards until the condition fails or inwards until it holds; then uses false
    position, kept a tenth away from both ends. Every returned radius was evaluated, so the search affects only
    tightness.
    """
    everyone = torch.arange(len(start))
    low, high = torch.zeros_like(start), limit.clone()
    at_low, at_high = excess(everyone, low), torch.full_like(start, math.nan)
    radius, todo = start.clone(), at_low > 0
    result = torch.zeros_like(start)
    for _ in range(EVALUATIONS):
        rows = todo.nonzero().flatten()
        if not len(rows):
            break
        value = excess(rows, radius[rows])
        holds = value > 0
        good, bad = rows[holds], rows[~holds]
        low[good], at_low[good], result[good] = radius[good], value[holds], radius[good]
        high[bad], at_high[bad] = radius[bad], value[~holds]
        whole = good[radius[good] >= limit[good]]
        result[whole] = math.inf
        todo[whole] = False
        closed = todo & at_high.isfinite() & (high - low <= tolerance * high)
        todo &= ~closed & (high > 1e-9 * limit)
        share = (at_low / (at_low - at_high)).clamp(0.1, 0.9)
        # If no radius has failed, grow by increasing factors; if none has held and the failure is clear, shrink by the
        # same.
        inside = torch.where(low > 0, low + share * (high - low), torch.maximum(share * high, high / 8))
        radius = torch.where(at_high.isfinite(), inside, torch.minimum(2 * radius, limit))
    return result


def certifier(
    model: nn.Module | Callable[[Tensor], Tensor], x: Tensor, norm: str = "linf", method: str = "crown"
) -> Certifier:
    """A certifier of ``model`` for images like ``x`` (N, C, H, W) in [0, 1]."""
    if norm not in NORMS:
        raise BadInput(
            f"there are no certified radii in {norm}; known: {', '.join(NORMS)}. Every distance can be attacked, few "
            "can be certified."
        )
    if method not in METHODS:
        raise BadInput(f"there is no bound called {method!r}; known: {', '.join(METHODS)}.")
    return Certifier(read(model, x), model, norm, method)


def certified_radius(
    model: nn.Module | Callable[[Tensor], Tensor],
    x: Tensor,
    labels: Tensor,
    norm: str = "linf",
    method: str = "crown",
    *,
    guess: Tensor | None = None,
    tolerance: float = 1e-3,
    batch_size: int = 32,
) -> Tensor:
    """A radius for each image within which no image inside [0, 1] gets another class than the label.

    The bound is one of the network's weights as they are, in exact arithmetic: everything is computed in float64, each
    step's rounding is counted and subtracted, and a margin must also exceed ``OWN_ROUNDING`` of the largest logit,
    which covers the rounding of the model's own type.

    Args:
        model: a network of layers that have bounds.
        x: images in [0, 1], shape (N, C, H, W).
        labels: their classes, shape (N,).
        norm: linf, l2 or l1.
        method: ibp (intervals), crown (linear bounds) or alpha-crown (linear bounds with optimised slopes).
        guess: radii at which the search begins, shape (N,), such as distances found by an attack.
        tolerance: relative difference of a radius to the largest that the method can prove.
        batch_size: images that are bounded together.

    Returns:
        Radii, float64, shape (N,): 0 if the image is misclassified or nothing could be proved, infinite if all images
        have its class.
    """
    made = certifier(model, x, norm, method)
    _check(x, labels, made.graph.classes, guess)
    parts = [
        made.radii(x[rows], labels[rows], None if guess is None else guess[rows], tolerance)
        for rows in torch.arange(len(x)).split(batch_size)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def verified(
    model: nn.Module | Callable[[Tensor], Tensor],
    x: Tensor,
    labels: Tensor,
    radius: float | Tensor,
    norm: str = "linf",
    method: str = "ibp",
    batch_size: int = 250,
) -> Tensor:
    """Whether no image within a radius and inside [0, 1] gets another class than the label.

    Args:
        model, x, labels, norm, method, batch_size: as for ``certified_radius``.
        radius: a number, or one for each image, shape (N,).

    Returns:
        Truth values, shape (N,).
    """
    made = certifier(model, x, norm, method)
    _check(x, labels, made.graph.classes, None)
    reach = radius.double() if isinstance(radius, Tensor) else torch.full((len(x),), float(radius), dtype=torch.float64)
    return torch.cat(
        [
            made.excess(x[rows], labels[rows], reach[rows], made.own_rounding(x[rows])) > 0
            for rows in torch.arange(len(x)).split(batch_size)
        ]
    )


def _check(x: Tensor, labels: Tensor, classes: int, guess: Tensor | None) -> None:
    if (
        labels.ndim != 1
        or len(labels) != len(x)
        or labels.is_floating_point()
        or bool(((labels < 0) | (labels >= classes)).any())
    ):
        raise BadInput(f"labels must be {len(x)} class numbers from 0 to {classes - 1}, one for each image.")
    if not bool(((x >= 0) & (x <= 1)).all()):
        raise BadInput("images must lie in [0, 1]; scale them first and keep the normalisation inside the model.")
    if guess is not None and (guess.shape != (len(x),) or bool((guess.isnan()).any())):
        raise BadInput(
            f"the guess must be {len(x)} radii, one for each image, as an attack's result has them in .distances."
        )
