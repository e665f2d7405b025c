"""Checks before a run begins: preflight of model, surrogate and goal on the first images, and the batch size."""

from __future__ import annotations

import math
import sys
import time
import warnings
from dataclasses import replace

import torch
from torch import Tensor

from ..core.oracle import Model, borrowed, out_of_memory, pass_seconds, probe_rows, seeded
from ..data.dataset import Chunk, Dataset
from ..errors import AlmakitError
from ..goals.base import Goal
from ..goals.check import check_goal
from ..models.preflight import REMEDIES, Finding, Severity, preflight
from .environment import physical_memory
from .failures import Refused
from .model import Subject
from .plan import Job, Request
from .progress import Progress
from .spec import AUTO, DEFAULT

LOOKED_AT = 256  # images for preflight, fewer if they are large
SIZES = (16, 32, 64, 128, 256)  # batch sizes that auto tries
OUTSIDE = 0.0025  # seconds of an attack's step outside the model, for any batch size
CLOSE = 1e-3  # largest difference of two outputs for the same images, relative to the largest output


def looked_at(dataset: Dataset, most: int = LOOKED_AT) -> Chunk:
    """The first images for preflight: 256 digits, 66 photos."""
    pixels = dataset.chunk([0]).x[0].numel()
    return dataset.chunk(range(min(most, max(16, 10_000_000 // pixels), len(dataset))))


def at_a_time(sample: Chunk) -> int:
    """Number of images for a forward and backward pass while the memory that the model needs is unknown."""
    return max(1, min(64, 2_400_000 // sample.x[0].numel()))


def check(job: Job, request: Request) -> list[tuple[str, str, str, str]]:
    """Preflight's findings about the model and its surrogate, which are also shown. Raises ``Refused`` for refusals
    that are not allowed."""
    if not request.preflight:
        return [("preflight-skipped", "warn", "Preflight was skipped.", "Leave preflight on.")]
    sample, allow = looked_at(job.dataset), job.spec.allow
    needed = any(attack.needs_gradients() for attack in job.attacks)
    findings: list[tuple[str, str, str, str]] = []
    refusals: list[str] = []
    for subject in (job.subject, job.surrogate):
        if subject is None:
            continue
        lends, whose = subject is job.surrogate, "the surrogate: " if subject is job.surrogate else ""
        gradients = needed and (lends or job.surrogate is None)
        if subject.aim is not None:
            said = goal_findings(subject.aim, subject.model, subject.place(sample.x), sample.truth, gradients)
            findings += [(f.name, f.severity, f"{whose}{f.sentence}", f.way_out) for f in said]
            refusals += [f.name for f in said if f.severity == "refuse" and f.name not in allow]
            continue
        with seeded(job.spec.seed, subject.device):  # the findings about a random model are the same each time
            report = preflight(
                subject.model,
                sample.x.to(subject.device),
                sample.truth,
                allow=allow,
                batch_size=at_a_time(sample),
                measure=False,
                class_names=job.dataset.class_names,
                alphabetical=job.dataset.alphabetical,
                eot=job.spec.eot,
                gradients=gradients,
            )
        findings += [(f.name, f.severity, f"{whose}{f.sentence}", f.way_out) for f in report.findings]
        refusals += [f.name for f in report.refusals]
    for name, severity, sentence, way_out in findings:
        allowed = " (allowed)" if name in allow else ""
        request.progress.note(f"{severity}{allowed}: {name}: {sentence} {way_out}")
        if request.warn and severity != "note" and not (severity == "refuse" and refusals):
            warnings.warn(f"{name}: {sentence} {way_out}", stacklevel=6)  # where evaluate was called
    if refusals:
        names = " ".join(f"--allow {name}" for name in dict.fromkeys(refusals))
        listed = "".join(
            f"\n  - {name}: {sentence} {way_out}"
            for name, severity, sentence, way_out in findings
            if severity == "refuse" and name not in allow
        )
        raise Refused(f"preflight refuses this run:{listed}\nTo run it all the same: {names}.")
    return findings


def goal_findings(goal: Goal, model: Model, x: Tensor, truth: Tensor, gradients: bool, most: int = 16) -> list[Finding]:
    """Findings about a goal on outputs that are not the logits of classes.

    Args:
        goal: the goal.
        model: the model.
        x: images, shape (B, ...); at most the first ``most`` are used.
        truth: their labels, shape (B, ...).
        gradients: whether an attack needs gradients.
        most: number of images.
    """
    x, truth, found = x[:most], truth[:most], []

    def note(name: str, severity: Severity, sentence: str) -> None:
        found.append(Finding(name, severity, sentence, REMEDIES[name]))

    try:
        with torch.no_grad(), borrowed(model):
            first, again = (goal.read(model(x.clone()), len(x)).double() for _ in range(2))
            rows = probe_rows(len(x))
            alone = torch.cat([goal.read(model(x[row : row + 1].clone()), 1).double() for row in rows])
    except AlmakitError as error:
        note("bad-output", "refuse", str(error))
        return found
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        note("forward-fails", "refuse", f"The model failed on images of shape {tuple(x.shape)} with {reason}.")
        return found
    allowed = CLOSE * float(first.abs().nan_to_num(0.0, 0.0, 0.0).amax().clamp_min(1e-6))
    if not bool(torch.isfinite(first).all()):
        note("nan-logits", "refuse", "The model's outputs are not all finite.")
    elif float((first - again).abs().max()) > allowed:
        note("not-deterministic", "refuse", "The same images got different outputs in two forward passes.")
    elif alone.shape != first[rows].shape or float((first[rows] - alone).abs().max()) > allowed:
        note("batch-dependent", "refuse", "The outputs of an image depend on its batch.")
    else:
        for law, sentence in check_goal(goal, model, x, truth).findings:
            grave: Severity = "warn" if "is zero although" in sentence else "refuse"  # at a tie, of some images
            note("bad-goal", grave if gradients or law != "gradient" else "note", f"{law}: {sentence}")
    return found


# The batch size.


def settle(job: Job, progress: Progress) -> Job:
    """The job with its batch size decided."""
    spec, subject, sample = job.spec, job.subject, looked_at(job.dataset)
    if spec.batch_size == DEFAULT:
        spec = replace(spec, batch_size=usual_batch_size(subject.device.type, sample.x[0].numel(), len(job.dataset)))
    elif spec.batch_size == AUTO:
        spec = replace(spec, batch_size=min(measured_batch_size(subject, sample.x), len(job.dataset)))
        progress.note(f"Batch size {spec.batch_size} (measured).")
    return replace(job, spec=spec)


def usual_batch_size(device: str, pixels: int, images: int) -> int:
    """The default batch size, which depends on the kind of device, the number of values in an image and the number of
    images alone."""
    most, values = (64, 2_400_000) if device == "cpu" else (256, 40_000_000)
    return max(1, min(most, max(8, values // pixels), images))


def measured_batch_size(subject: Subject, x: Tensor) -> int:
    """The smallest batch size within 5 % of the best rate of an attack's steps on ``x`` (B, ...), measured in a few
    seconds.

    Larger sizes are not tried once memory runs out or a quarter of it would be used, a pass takes seconds, or the rate
    falls.
    """
    rates: dict[int, float] = {}
    before, began, memory = _peak_memory(), time.perf_counter(), physical_memory() or math.inf
    with borrowed(subject.model):
        for size in SIZES:
            seconds = _pass_seconds(subject, x, size) if size <= len(x) or not rates else None
            if seconds is None:
                break
            rates[size] = size / (seconds + OUTSIDE)
            large = 2 * (_peak_memory() - before) > memory / 4
            slow = seconds > 1.5 or time.perf_counter() - began > 8 or rates[size] < 0.8 * max(rates.values())
            if large or slow:
                break
        if not rates:
            return next((size for size in (8, 4, 2) if _pass_seconds(subject, x, size) is not None), 1)
    return min(size for size, rate in rates.items() if rate >= 0.95 * max(rates.values()))


def _pass_seconds(subject: Subject, x: Tensor, size: int) -> float | None:
    """Seconds of a forward and backward pass of ``size`` images from ``x`` (B, ...), the best of 2 to 8; None if memory
    does not suffice."""
    batch, times = subject.place(x[torch.arange(size) % len(x)]), list[float]()
    try:
        while len(times) < 2 or (sum(times) < 0.5 and len(times) < 8):
            times.append(pass_seconds(subject.model, batch))
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return None
    return min(times)


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # pragma: no cover (Windows)
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
