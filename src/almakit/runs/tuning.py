"""The batch size of a run, by rule or measured, halved where memory runs out."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from ..core.model import borrowed, out_of_memory, pass_seconds
from ..errors import BadModel
from .checks import looked_at
from .environment import physical_memory
from .model import Subject
from .plan import Job
from .progress import Silent
from .spec import AUTO, DEFAULT

SIZES = (16, 32, 64, 128, 256)
# seconds that a step of an attack spends outside the model beside a real one, whatever the size of the batch
OUTSIDE = 0.0025
T = TypeVar("T")


def settle(job: Job, show: Silent) -> Job:
    """The job with what the user left open decided: from here on it is part of the run."""
    spec, subject, sample = job.spec, job.subject, looked_at(job.dataset)
    if spec.batch_size == DEFAULT:
        spec = replace(spec, batch_size=usual_batch_size(subject.device.type, sample.x[0].numel(), len(job.dataset)))
    elif spec.batch_size == AUTO:
        spec = replace(spec, batch_size=min(measured_batch_size(subject, sample.x), len(job.dataset)))
        show.note(f"Batch size {spec.batch_size} (measured).")
    return replace(job, spec=spec)


def usual_batch_size(device: str, pixels: int, images: int) -> int:
    """The batch size nobody asked for: the same wherever the same command runs on such a device. ``pixels``: values of
    one image."""
    most, room = (64, 2_400_000) if device == "cpu" else (256, 40_000_000)
    return max(1, min(most, max(8, room // pixels), images))


# Batch sizes.


def within_memory(work: Callable[[int], T], size: int) -> tuple[T, int]:
    """``work(size)``, with the size halved as often as memory runs out; also the size that did it."""
    while True:
        try:
            return work(size), size
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            if size == 1:
                raise BadModel(
                    "memory runs out even with one image at a time; use smaller images, a smaller model, or another "
                    "device."
                ) from error
        size = max(1, size // 2)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def measured_batch_size(subject: Subject, x: Tensor) -> int:
    """The smallest batch size within 5 % of the best rate of an attack's steps on ``x`` (B, ...); a few seconds at
    most.

    Growing stops where memory runs out or a quarter of it would be taken, where a pass takes seconds, and where the
    rate falls.
    """
    rates: dict[int, float] = {}
    before, began = _peak_memory(), time.perf_counter()
    with borrowed(subject.model):
        for size in SIZES:
            seconds = _attempt(subject, x, size) if size <= len(x) or not rates else None
            if seconds is None:
                break
            rates[size] = size / (seconds + OUTSIDE)
            grown = _peak_memory() - before
            slower = rates[size] < 0.8 * max(rates.values())
            if (
                seconds > 1.5
                or 2 * grown > (physical_memory() or float("inf")) / 4
                or slower
                or time.perf_counter() - began > 8
            ):
                break
        if not rates:  # even the smallest was too much
            return next((size for size in (8, 4, 2) if _attempt(subject, x, size) is not None), 1)
    return min(size for size, rate in rates.items() if rate >= 0.95 * max(rates.values()))


def _attempt(subject: Subject, x: Tensor, size: int) -> float | None:
    """Seconds of a forward and backward pass of ``size`` images taken from ``x`` (B, ...); None where memory does not
    suffice."""
    try:
        return _best_seconds(subject, subject.place(x[torch.arange(size) % len(x)]))
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return None


def _best_seconds(subject: Subject, batch: Tensor) -> float:
    """The fastest of two passes or more, as many as fit in half a second: other programs must not choose the size."""
    times = [pass_seconds(subject.model, batch), pass_seconds(subject.model, batch)]
    while sum(times) < 0.5 and len(times) < 8:
        times.append(pass_seconds(subject.model, batch))
    return min(times)


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # pragma: no cover (Windows)
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
