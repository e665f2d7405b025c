"""Batch sizes: measured where the user leaves them open, halved where memory runs out."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from ..core.model import borrowed, pass_seconds
from ..errors import BadModel
from .subject import Subject

SIZES = (16, 32, 64, 128, 256)
# seconds that a step of an attack spends outside the model beside a real one, whatever the size of the batch
OUTSIDE = 0.0025
T = TypeVar("T")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(
        word in str(error) for word in ("out of memory", "can't allocate memory", "not enough memory")
    )


def within_memory(work: Callable[[int], T], size: int) -> tuple[T, int]:
    """``work(size)``, with the size halved as often as memory runs out; also the size that did it."""
    while True:
        try:
            return work(size), size
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
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
            if seconds > 1.5 or 2 * grown > _physical_memory() / 4 or slower or time.perf_counter() - began > 8:
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
        if not is_out_of_memory(error):
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


def _physical_memory() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # pragma: no cover
        return float("inf")
