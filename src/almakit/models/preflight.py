"""What is checked before every run: does the model classify these images at all, and can an attack learn anything from
its gradients?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from ..core.model import borrowed
from ..errors import BadInput, UnknownName
from .findings import WAYS_OUT, Finding, Preflight
from .looks import Look

__all__ = ["WAYS_OUT", "Finding", "Preflight", "preflight"]

_GRAVEST_FIRST = {"refuse": 0, "warn": 1, "note": 2}


def preflight(
    model: Callable[[Tensor], Tensor],
    x: Tensor,
    labels: Tensor,
    *,
    allow: Collection[str] = (),
    batch_size: int = 64,
    measure: bool = True,
    class_names: Sequence[str] | None = None,
    alphabetical: bool = False,
    eot: int | None = None,
    gradients: bool = True,
) -> Preflight:
    """Looks at a model from images in [0, 1] to logits with the help of images ``x`` (N, C, H, W) and their ``labels``
    (N,).

    Clean accuracy is measured on all images, the rest on the first ``batch_size``. The model leaves as it came: mode,
    ``requires_grad``, gradients, buffers, the random generators' state. ``allow`` names findings that shall not refuse;
    ``measure=False`` leaves out the timing. ``class_names`` are the data's; ``alphabetical``: the labels are nothing
    but their places in alphabetical order. ``gradients``: whether anybody will need the model's; findings about them
    are notes where not. ``eot``: the model is random, and so many passes are averaged.
    """
    unknown = sorted(set(allow) - set(WAYS_OUT))
    if unknown:
        raise UnknownName(f"there is no finding called {unknown[0]!r} to allow; known: {', '.join(WAYS_OUT)}.")
    if (
        x.ndim < 2
        or labels.shape not in (x.shape[:1], (len(x), *x.shape[2:]))
        or len(x) == 0
        or labels.is_floating_point()
    ):
        got = f"images {tuple(x.shape)} and labels {tuple(labels.shape)} of type {labels.dtype}"
        raise BadInput(f"{got} do not belong together; give one integer label per image, or per pixel.")
    if not x.is_floating_point():
        raise BadInput(f"the images are {x.dtype}; give floats in [0, 1], e.g. x.float() / 255.")
    look = Look(model, batch_size, class_names, alphabetical, gradients, eot)
    look.at_training_mode()
    # Whatever randomness the model uses comes from a copy of the generators' state.
    devices = sorted({tensor.get_device() for tensor in (x, *look.weights) if tensor.is_cuda})
    with torch.random.fork_rng(devices=devices), borrowed(model):
        look.at_precision()
        look.at_images(x)
        look.at_logits(look.place(x), labels)
        if look.classes is not None:
            sample = look.place(x[:batch_size])
            look.at_randomness(sample)
            look.at_gradients(sample, labels[:batch_size].to(sample.device))
            if measure and look.differentiable:
                look.at_cost(sample)
    return Preflight(
        findings=tuple(sorted(look.findings, key=lambda finding: _GRAVEST_FIRST[finding.severity])),
        allowed=frozenset(allow),
        images=len(x),
        classes=look.classes,
        clean_accuracy=look.accuracy,
        batch_size=min(batch_size, len(x)),
        seconds=look.seconds,
        bytes_per_image=look.bytes_per_image,
        bytes_of_weights=sum(tensor.numel() * tensor.element_size() for tensor in look.weights),
    )
