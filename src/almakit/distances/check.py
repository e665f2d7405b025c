"""``check_distance`` tests on a few images the properties of a distance that attacks rely on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor

from ..errors import BadInput, CheckReport
from .base import Distance, DistanceLike, FunctionDistance, resolve

_ROUNDING = 1e-4  # how far two float32 evaluations of one quantity may lie apart, relative to it
_SHARES = (1e-5, 1e-3, 0.03, 0.1, 0.3, 0.6, 1.0)


def check_distance(f: DistanceLike, x: Tensor | None = None) -> CheckReport:
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
    return CheckReport(repr(distance), "a distance", tuple(_findings(_Trial(distance, images))))


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
            return torch.autograd.grad(value.sum(), leaf, allow_unused=True)[0] if value.requires_grad else None


def _findings(trial: _Trial) -> Iterator[tuple[str, str]]:
    for name, (law, remedy) in _LAWS.items():
        try:
            violation = law(trial)
        except Exception as error:  # a user's function may raise any exception; the finding names the requirement
            violation = f"it raised {type(error).__name__}: {error}"
        if violation:
            yield name, f"{violation}; {remedy}."
            if name in ("runs", "shape"):
                return  # no further test is possible


def _runs(trial: _Trial) -> str | None:
    trial(trial.x, trial.at(1))
    return None


def _shape(trial: _Trial) -> str | None:
    for size in (len(trial.x), 1):
        value = trial(trial.x[:size], trial.at(1)[:size])
        if not isinstance(value, Tensor):
            return f"it returned a {type(value).__name__} for a batch of {size}"
        if value.shape != (size,):
            return f"it returned shape {tuple(value.shape)} instead of ({size},)"
    return None


def _inputs_kept(trial: _Trial) -> str | None:
    x, y = trial.x.clone(), trial.at(1)
    trial(x, y)
    return None if torch.equal(x, trial.x) and torch.equal(y, trial.at(1)) else "it changed its inputs"


def _deterministic(trial: _Trial) -> str | None:
    first, second = trial(trial.x, trial.at(1)), trial(trial.x, trial.at(1))
    apart = float((first - second).abs().max())
    return f"twice the same images gave values {apart:.3g} apart" if apart else None


def _dtype(trial: _Trial) -> str | None:
    for dtype in (torch.float32, torch.float64):
        try:
            value = trial(trial.x.to(dtype), trial.at(1).to(dtype))
        except Exception as error:  # call the user's function again
            return f"for {dtype} images it raised {type(error).__name__}: {error}"
        if value.dtype != dtype or value.device != trial.x.device:
            return f"for {dtype} images on {trial.x.device} it returned {value.dtype} on {value.device}"
    return None


def _identity(trial: _Trial) -> str | None:
    value, scale = trial(trial.x, trial.x.clone()), trial(trial.x, trial.at(1)).abs().max()
    return None if bool((value.abs() <= 1e-6 * scale).all()) else f"D(x, x) = {value.abs().max():.3g} instead of 0"


def _not_negative(trial: _Trial) -> str | None:
    lowest = min(float(trial(trial.x, trial.at(share)).min()) for share in _SHARES)
    return f"it returned {lowest:.3g}, and a distance is at least 0" if lowest < 0 else None


def _finite(trial: _Trial) -> str | None:
    broken = (what for what, y in trial.places() if not bool(torch.isfinite(trial(trial.x, y)).all()))
    what = next(broken, None)
    return None if what is None else f"it is not finite at {what}"


def _gradient(trial: _Trial) -> str | None:
    for what, y in (("y = x", trial.x), *trial.places()):
        gradient = trial.gradient(y)
        if gradient is None:
            return "its value does not depend on y through torch operations"
        if not bool(torch.isfinite(gradient).all()):
            return f"its gradient is not finite at {what}"
    return None


def _per_image(trial: _Trial) -> str | None:
    y = trial.at(1)
    together, alone = trial(trial.x, y), torch.cat([trial(trial.x[i : i + 1], y[i : i + 1]) for i in range(len(y))])
    flipped = trial(trial.x.flip(0), y.flip(0)).flip(0)
    for other, how in ((alone, "alone"), (flipped, "in another order")):
        if not torch.allclose(together, other, rtol=_ROUNDING, atol=0):
            worst = (together - other).abs().argmax()
            return f"an image gave {together[worst]:.6g} in its batch and {other[worst]:.6g} {how}"
    return None


def _monotone(trial: _Trial) -> str | None:
    values = torch.stack([trial(trial.x, trial.at(share)) for share in _SHARES])
    falls = values[1:] < values[:-1] * (1 - _ROUNDING)
    if not bool(falls.any()):
        return None
    step, image = (int(index) for index in falls.nonzero()[0])
    return (
        f"image {image} gave {values[step, image]:.6g} at {_SHARES[step]:g} of a perturbation and less, "
        f"{values[step + 1, image]:.6g}, at {_SHARES[step + 1]:g} of it"
    )


# Each invariant with the function that describes a violation, and the remedy.
_LAWS: dict[str, tuple[Callable[[_Trial], str | None], str]] = {
    "runs": (_runs, "give a function of two batches of images"),
    "shape": (_shape, "sum or average over all dimensions but the first, and keep a batch of one"),
    "inputs kept": (_inputs_kept, "use operations without a trailing underscore, or clone first"),
    "deterministic": (_deterministic, "switch off dropout and other random parts (eval())"),
    "dtype": (_dtype, "make constants and weights in the dtype and on the device of y, and do not convert the result"),
    "finite": (_finite, "look for a division by zero, a logarithm or a root of a number that may reach 0"),
    "zero at identity": (_identity, "compute it from y - x without adding a constant"),
    "not negative": (_not_negative, "write it in terms of y - x, so that nothing cancels"),
    "gradient": (_gradient, "mask the root of 0, and leave out detach, numpy and no_grad"),
    "per image": (_per_image, "reduce each image by itself, over all dimensions but the first"),
    "monotone": (_monotone, "an attack that shrinks a perturbation relies on a distance that shrinks with it"),
}
