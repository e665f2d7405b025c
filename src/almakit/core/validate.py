"""Checks of what the caller gives, before the model is called: each failure is a sentence that says what to do."""

from __future__ import annotations

import math
from numbers import Real

import torch
from torch import Tensor

from ..errors import BadInput, BadModel
from .box import Box


def images(x: object, box: Box) -> tuple[Tensor, Box]:
    """``x`` as a float32 or float64 tensor (B, ...) inside the box, and the box in the shape of its images."""
    if not isinstance(x, Tensor):
        try:
            x = (
                torch.stack(list(x))
                if isinstance(x, (list, tuple)) and x and isinstance(x[0], Tensor)
                else torch.as_tensor(x)
            )
        except (TypeError, ValueError, RuntimeError):
            raise BadInput(
                f"images must be a tensor or an array of shape (batch, ...), not a {type(x).__name__}; loaders, data "
                "sets and image files are for almakit.attack(model, data) and almakit.evaluate."
            ) from None
    if not x.is_floating_point():
        raise BadInput(
            f"images are {x.dtype}; convert to floats in [{box.ends[0]:g}, {box.ends[1]:g}], e.g. x.float() / 255 for "
            "8-bit images."
        )
    if x.ndim < 2:
        raise BadInput(
            f"images must have a batch dimension: shape (batch, ...), not {tuple(x.shape)}; use x.unsqueeze(0) for "
            "one image."
        )
    if x.device.type == "meta":
        raise BadInput(
            "the images are on the device meta, which holds shapes and no values; give them on the CPU or a GPU."
        )
    x = x.detach()
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    flat = x.flatten(1)
    if flat.shape[1] == 0:
        raise BadInput(f"images of shape {tuple(x.shape)} have no pixels.")
    bad = ~torch.isfinite(flat).all(1)
    if bool(bad.any()):
        raise BadInput(f"image {int(bad.nonzero()[0])} contains NaN or infinite values; remove or repair it.")
    if box.mask is not None and box.mask.shape not in (x.shape, x.shape[1:]):
        raise BadInput(
            f"the mask has shape {tuple(box.mask.shape)}; it must be {tuple(x.shape)} or {tuple(x.shape[1:])}."
        )
    box = box.around(x)
    inside(x, box)
    return x, box


def inside(x: Tensor, box: Box) -> None:
    """Raises where one of the images ``x`` (B, ...) leaves the box, or where a value is not on its grid."""
    outside = ((x < box.lo) | (x > box.hi)).flatten(1)
    if bool(outside.any()):
        row, place = (int(number) for number in outside.nonzero()[0])
        if isinstance(box.lo, Tensor) and isinstance(box.hi, Tensor):
            low, high = (float(bound.flatten()[place]) for bound in (box.lo, box.hi))
            raise BadInput(
                f"value {place} of image {row} is {float(x[row].flatten()[place]):.6g}, outside its box [{low:.6g}, "
                f"{high:.6g}]; widen the box, or bring the value into it."
            )
        low, high = float(x[row].min()), float(x[row].max())
        looks = (
            "0-255 data: divide by 255"
            if high > 2.5 * max(abs(box.ends[1]), 1) and low >= 0
            else ("normalised data: give images in the box and put the normalisation inside the model")
        )
        raise BadInput(
            f"image {row} has values in [{low:.4g}, {high:.4g}], outside the box [{box.ends[0]:g}, {box.ends[1]:g}]; "
            f"this looks like {looks}."
        )
    if box.step is not None and not bool(box.contains(x, x).all()):
        row, place = (int(number) for number in (box.project(x, x) != x).flatten(1).nonzero()[0])
        raise BadInput(
            f"value {place} of image {row} is {float(x[row].flatten()[place]):.6g}, which is not on its grid of steps "
            f"of {float(torch.as_tensor(box.step).expand(x.shape[1:]).flatten()[place]):.6g} from the box's lower end; "
            "round it, or give it the step 0."
        )


def steps(count: object) -> None:
    """Raises where a number of steps is not a positive integer."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise BadInput(f"steps={count!r}: an attack needs a whole number of steps, at least 1.")


def call(
    model: object,
    confidence: float,
    batch_size: int | None,
    budget: int | None,
    tolerance: float | None = None,
    surrogate: object = None,
) -> None:
    """Raises where the model or an option of an attack's call cannot be used."""
    for what, given in (("model", model), ("surrogate", surrogate)):
        if not callable(given) and not (what == "surrogate" and given is None):
            raise BadModel(
                f"the {what} is a {type(given).__name__}; give a torch module or a function from images to logits."
            )
    if isinstance(confidence, bool) or not isinstance(confidence, Real) or not 0 <= confidence < math.inf:
        raise BadInput(f"confidence={confidence!r}: the logit lead demanded must be a finite number, 0 or more.")
    for name, value in (("batch_size", batch_size), ("budget", budget)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise BadInput(f"{name}={value!r}: give a whole number, at least 1, or None.")
    if tolerance is not None and (
        isinstance(tolerance, bool) or not isinstance(tolerance, Real) or not 0 <= tolerance < 1
    ):
        raise BadInput(
            f"tolerance={tolerance!r}: give a share of the distance, from 0 to below 1, or None to go on to the end."
        )


PLAIN: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
    "None": type(None),
}


def setting(owner: str, name: str, value: object, annotation: object) -> None:
    """Raises where the value of a setting is not of its plain annotated kind, e.g. ``"float | None"``; other
    annotations are let be."""
    kinds = [kind.strip() for kind in str(annotation).split("|")]
    if not all(kind in PLAIN for kind in kinds):
        return
    fits = any(isinstance(value, PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool)) for kind in kinds)
    if name != "steps" and not fits:
        raise BadInput(f"{owner} cannot take {name}={value!r}; it must be {' or '.join(kinds)}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"{owner} cannot take {name}={value!r}; it must be a finite number.")


def within(name: str, value: object, interval: str) -> None:
    """Raises where a setting that is a number lies outside ``interval``, such as ``(0, 1]`` or ``[1, inf)``."""
    if not isinstance(value, (int, float)):
        return
    low, high = (float(end) for end in interval[1:-1].split(","))
    closed, shut = interval[0] == "[", interval[-1] == "]"
    if (low < value or (closed and low == value)) and (value < high or (shut and value == high)):
        return
    words = f"at least {low:g}" if closed else "positive" if low == 0 else f"above {low:g}"
    raise BadInput(f"{name}={value}: it must be {words if math.isinf(high) else f'in {interval}'}.")
