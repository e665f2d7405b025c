"""``check_distance`` tests on a few images the properties of a distance that attacks rely on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import BadInput
from .base import Distance, DistanceLike, FunctionDistance, resolve

_ROUNDING = 1e-4  # how far two float32 evaluations of one quantity may lie apart, relative to it
_SHARES = (1e-5, 1e-3, 0.03, 0.1, 0.3, 0.6, 1.0)


@dataclass(frozen=True)
class Finding:
    """A violated requirement: its name, the measured values and a remedy."""

    law: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.law}: {self.sentence}"


@dataclass(frozen=True)
class DistanceReport:
    """The findings of ``check_distance``, one line each when printed; ``ok`` if there are none."""

    distance: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        if self.ok:
            return f"{self.distance} satisfies every invariant of a distance."
        count = "1 invariant" if len(self.findings) == 1 else f"{len(self.findings)} invariants"
        return "\n".join(
            [f"{self.distance} violates {count} of a distance:", *(f"  {finding}" for finding in self.findings)]
        )


def check_distance(f: DistanceLike, x: Tensor | None = None) -> DistanceReport:
    """Test whether ``f`` has the properties of a distance that attacks rely on.

    It must return shape (B,), be zero at identity, never negative, finite with finite gradients at and near x, depend
    on each image alone, keep dtype and device, not decrease when a perturbation is scaled up, be deterministic, and
    leave its inputs unchanged. The check finds violations on these images; it proves nothing about others.

    Args:
        f: a name, a ``Distance``, or a function f(x, y) -> (B,).
        x: images, shape (B, ...); default: four images of 3 x 32 x 32 (192 x 192 if 32 is too small) with noise,
            colours, black next to white, and grey.

    Examples:
        >>> import almakit
        >>> almakit.check_distance("l2").ok
        True
    """
    distance = resolve(f)
    images = _images_for(distance) if x is None else x.detach()
    if images.ndim < 2 or not images.is_floating_point() or len(images) == 0:
        raise BadInput(
            f"check_distance needs floating-point images of shape (B, ...), not {tuple(images.shape)} of "
            f"{images.dtype}."
        )
    distance.check(images)
    return DistanceReport(repr(distance), tuple(_findings(_Trial(distance, images))))


def _images_for(distance: Distance) -> Tensor:
    with suppress(BadInput):
        distance.check(small := _images(32))
        return small
    return _images(192)


def _images(size: int) -> Tensor:
    """(4, 3, size, size): noise, a smooth colour field, black beside white, a grey ramp; always the same."""
    generator = torch.Generator().manual_seed(0)
    ramp = torch.linspace(0, 1, size)
    down, across = torch.meshgrid(ramp, ramp, indexing="ij")
    smooth = torch.stack(
        [0.5 + 0.4 * torch.sin(3 * down + phase + 2 * across * (1 + phase)) for phase in (0.0, 1.0, 2.0)]
    )
    edge, grey = (across > 0.5).to(ramp.dtype), 0.2 + 0.6 * across
    return torch.stack(
        [torch.rand(3, size, size, generator=generator), smooth, edge.expand(3, -1, -1), grey.expand(3, -1, -1)]
    )


class _Trial:
    """A distance, images, and a random perturbation that stays in [0, 1] when it is scaled down."""

    def __init__(self, distance: Distance, x: Tensor):
        self.distance, self.x = distance, x
        noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)).to(x)
        self.direction = 0.3 * (noise - x)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        # A user's function is called directly, to see its result before other checks raise errors.
        return self.distance.function(x, y) if isinstance(self.distance, FunctionDistance) else self.distance(x, y)

    def at(self, share: float) -> Tensor:
        return self.x + share * self.direction

    def places(self) -> Iterator[tuple[str, Tensor]]:
        """Points to test, with their names."""
        yield from ((f"{share:g} of a perturbation", self.at(share)) for share in _SHARES)
        for name, value in (("black", 0.0), ("white", 1.0), ("grey", 0.5)):
            yield f"a {name} image", torch.full_like(self.x, value)

    def gradient(self, y: Tensor) -> Tensor | None:
        """The gradient in ``y``, or None if the value does not depend on it through torch."""
        with torch.enable_grad():
            leaf = y.clone().requires_grad_(True)
            value = self(self.x, leaf)
            if not value.requires_grad:
                return None
            return torch.autograd.grad(value.sum(), leaf, allow_unused=True)[0]


def _findings(trial: _Trial) -> Iterator[Finding]:
    for name, law in _LAWS:
        try:
            sentence = law(trial)
        except Exception as error:  # a user's function may raise any exception; the finding names the requirement
            sentence = f"it raised {type(error).__name__}: {error}"
        if sentence:
            yield Finding(name, sentence)
            if name in ("runs", "shape"):
                return  # no further test is possible


def _runs(trial: _Trial) -> str | None:
    trial(trial.x, trial.at(1))
    return None


def _shape(trial: _Trial) -> str | None:
    value, size = trial(trial.x, trial.at(1)), len(trial.x)
    if not isinstance(value, Tensor):
        return f"it returned a {type(value).__name__}; return a torch tensor of shape ({size},), one number per image."
    if value.shape != (size,):
        return (
            f"it returned shape {tuple(value.shape)} for {size} images; sum or average over all dimensions but the "
            f"first, to get ({size},)."
        )
    return None


def _batch_of_one(trial: _Trial) -> str | None:
    if (value := trial(trial.x[:1], trial.at(1)[:1])).shape != (1,):
        return (
            f"for a single image it returned shape {tuple(value.shape)} instead of (1,); do not squeeze the batch "
            "dimension away."
        )
    return None


def _identity(trial: _Trial) -> str | None:
    value, scale = trial(trial.x, trial.x.clone()), trial(trial.x, trial.at(1)).abs().max()
    if bool((value.abs() <= 1e-6 * scale).all()):
        return None
    return (
        f"D(x, x) = {value.abs().max():.3g} instead of 0; subtract what it has at y = x, or compute it from y - x "
        "without adding a constant."
    )


def _not_negative(trial: _Trial) -> str | None:
    if (lowest := min(float(trial(trial.x, trial.at(share)).min()) for share in _SHARES)) < 0:
        return (
            f"it returned {lowest:.3g}; a distance is at least 0 (a small negative number is cancellation: write "
            "it in terms of y - x)."
        )
    return None


def _finite(trial: _Trial) -> str | None:
    for what, y in trial.places():
        if not bool(torch.isfinite(trial(trial.x, y)).all()):
            return (
                f"it is not finite at {what}; look for a division by zero, a logarithm or a root of a number that "
                "may reach 0."
            )
    return None


def _gradient_at(trial: _Trial) -> str | None:
    gradient = trial.gradient(trial.x)
    if gradient is None:
        return (
            "its value does not depend on y through torch operations; compute it from y, without detach, numpy or "
            "no_grad."
        )
    if not bool(torch.isfinite(gradient).all()):
        return (
            "its gradient at y = x is not finite; a root or norm at 0 needs a mask (take the root of 1 there and "
            "multiply by 0)."
        )
    return None


def _gradient_near(trial: _Trial) -> str | None:
    for what, y in trial.places():
        gradient = trial.gradient(y)
        if gradient is not None and not bool(torch.isfinite(gradient).all()):
            return (
                f"its gradient is not finite at {what}; look for a root, a division or an angle at a pixel or "
                "channel that is 0 there."
            )
    return None


def _per_image(trial: _Trial) -> str | None:
    y = trial.at(1)
    together, alone = trial(trial.x, y), torch.cat([trial(trial.x[i : i + 1], y[i : i + 1]) for i in range(len(y))])
    flipped = trial(trial.x.flip(0), y.flip(0)).flip(0)
    for other, how in ((alone, "alone"), (flipped, "in another order")):
        if not torch.allclose(together, other, rtol=_ROUNDING, atol=0):
            worst = (together - other).abs().argmax()
            return (
                f"an image gave {together[worst]:.6g} in its batch and {other[worst]:.6g} {how}; "
                "reduce each image by itself, over all dimensions but the first."
            )
    return None


def _dtype(trial: _Trial) -> str | None:
    for dtype in (torch.float32, torch.float64):
        try:
            returned = trial(trial.x.to(dtype), trial.at(1).to(dtype)).dtype
        except Exception as error:  # call the user's function again
            return (
                f"with {dtype} images it raised {type(error).__name__}: {error}; make constants and weights in the "
                "dtype of y."
            )
        if returned != dtype:
            return (
                f"for {dtype} images it returned {returned}; make constants and weights in the dtype of y, and do "
                "not convert the result."
            )
    return None


def _device(trial: _Trial) -> str | None:
    if (returned := trial(trial.x, trial.at(1)).device) != trial.x.device:
        return f"for images on {trial.x.device} it returned a result on {returned}; leave the result where y is."
    return None


def _monotone(trial: _Trial) -> str | None:
    values = torch.stack([trial(trial.x, trial.at(share)) for share in _SHARES])
    falls = values[1:] < values[:-1] * (1 - _ROUNDING)
    if not bool(falls.any()):
        return None
    step, image = (int(index) for index in falls.nonzero()[0])
    return (
        f"image {image} gave {values[step, image]:.6g} at {_SHARES[step]:g} of a perturbation and less, "
        f"{values[step + 1, image]:.6g}, at "
        f"{_SHARES[step + 1]:g} of it; an attack that shrinks a perturbation relies on a distance that shrinks with it."
    )


def _deterministic(trial: _Trial) -> str | None:
    first, second = trial(trial.x, trial.at(1)), trial(trial.x, trial.at(1))
    if not torch.equal(first, second):
        return (
            f"twice the same images gave values {(first - second).abs().max():.3g} apart; switch off dropout and "
            "other random parts (eval())."
        )
    return None


def _inputs_kept(trial: _Trial) -> str | None:
    x, y = trial.x.clone(), trial.at(1)
    trial(x, y)
    if not torch.equal(x, trial.x) or not torch.equal(y, trial.at(1)):
        return "it changed its inputs; use operations without a trailing underscore, or clone first."
    return None


_LAWS: tuple[tuple[str, Callable[[_Trial], str | None]], ...] = (
    ("runs", _runs),
    ("shape", _shape),
    ("inputs kept", _inputs_kept),
    ("batch of one", _batch_of_one),
    ("deterministic", _deterministic),
    ("dtype", _dtype),
    ("device", _device),
    ("finite", _finite),
    ("zero at identity", _identity),
    ("not negative", _not_negative),
    ("gradient at x", _gradient_at),
    ("gradient near x", _gradient_near),
    ("per image", _per_image),
    ("monotone", _monotone),
)
