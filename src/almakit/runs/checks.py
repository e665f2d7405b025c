"""Checks before a run begins: preflight of model, surrogate and goal on the first images, and the batch size."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..core.attack import Attack
from ..core.oracle import Model, borrowed, out_of_memory, pass_seconds, probe_rows, seeded, steady
from ..data.dataset import Chunk, Dataset
from ..errors import AlmakitError, UnknownName
from ..goals.base import Goal
from ..goals.check import check_goal
from ..models.preflight import REMEDIES, Finding, Preflight, Severity, finding, preflight
from .failures import Refused
from .model import Subject
from .plan import Job, Request
from .progress import Progress
from .spec import AUTO, DEFAULT

LOOKED_AT = 256  # images for preflight, fewer if they are large
SIZES = (16, 32, 64, 128, 256)  # batch sizes that auto tries
TIMED, LARGE = 32, 3 * 96 * 96  # images on which an attack is timed; two of those with more values than this
QUERIES, QUERIES_LARGE = 20, 8  # in the longer of the two timed runs
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
    """Show and return preflight's findings about the model and its surrogate. Raises ``Refused`` for a refusal that the
    user has not allowed."""
    if not request.preflight:
        return [("preflight-skipped", "warn", "Preflight was skipped.", "Leave preflight on.")]
    sample, allow, findings = looked_at(job.dataset), job.spec.allow, list[Finding]()
    needed = any(attack.needs_gradients() for attack in job.attacks)
    for subject in (job.subject, job.surrogate):
        if subject is None:
            continue
        gradients = needed and (job.surrogate is None or subject is job.surrogate)
        with seeded(job.spec.seed, subject.device):  # preflight of a random model gives the same findings each time
            found, _ = examine(job, subject, sample, gradients)
        whose = "the surrogate: " if subject is job.surrogate else ""
        findings += [replace(one, sentence=f"{whose}{one.sentence}") for one in found]
    refusals = [one for one in findings if one.severity == "refuse" and one.name not in allow]
    for one in findings:
        text = f"{one.name}: {one.sentence} {one.way_out}"
        request.progress.note(f"{one.severity}{' (allowed)' * (one.name in allow)}: {text}")
        if request.warn and one.severity != "note" and not (one.severity == "refuse" and refusals):
            warnings.warn(text, stacklevel=6)  # the line that called evaluate
    if refusals:
        listed = "".join(f"\n  - {one.name}: {one.sentence} {one.way_out}" for one in refusals)
        names = " ".join(f"--allow {name}" for name in dict.fromkeys(one.name for one in refusals))
        raise Refused(f"preflight refuses this run:{listed}\nTo run it all the same: {names}.")
    return [(one.name, one.severity, one.sentence, one.way_out) for one in findings]


def examine(
    job: Job, subject: Subject, sample: Chunk, gradients: bool, batch_size: int | None = None
) -> tuple[Sequence[Finding], Preflight | None]:
    """Preflight's findings about a model of the job, and its full report if the outputs are class logits.

    Args:
        job: the job.
        subject: its model, or the surrogate.
        sample: the first images.
        gradients: whether an attack needs this model's gradients.
        batch_size: number of images at a time.
    """
    if unknown := sorted(set(job.spec.allow) - set(REMEDIES)):
        raise UnknownName(f"there is no finding called {unknown[0]!r} to allow; known: {', '.join(REMEDIES)}.")
    if subject.aimed and subject.goal is not None:
        return goal_findings(subject.goal, subject.model, subject.place(sample.x), sample.truth, gradients), None
    found = preflight(
        subject.model,
        sample.x.to(subject.device),
        sample.truth,
        batch_size=batch_size or at_a_time(sample),
        class_names=job.dataset.class_names,
        alphabetical=job.dataset.alphabetical,
        eot=job.spec.eot,
        gradients=gradients,
    )
    return found.findings, found


def goal_findings(goal: Goal, model: Model, x: Tensor, truth: Tensor, gradients: bool) -> list[Finding]:
    """Findings about a goal whose outputs are not class logits.

    Args:
        goal: the goal.
        model: the model.
        x: images, shape (B, ...); at most the first 16 are used.
        truth: their labels, shape (B, ...).
        gradients: whether an attack needs gradients.
    """
    x, truth = x[:16], truth[:16]

    try:
        with torch.no_grad(), borrowed(model):
            first, again = (goal.read(model(x.clone()), len(x)).double() for _ in range(2))
            rows = probe_rows(len(x))
            alone = torch.cat([goal.read(model(x[row : row + 1].clone()), 1).double() for row in rows])
    except AlmakitError as error:
        return [finding("bad-output", str(error))]
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return [finding("forward-fails", f"The model failed on images of shape {tuple(x.shape)} with {reason}.")]
    allowed = CLOSE * float(first.abs().nan_to_num(0.0, 0.0, 0.0).amax().clamp_min(1e-6))
    if not bool(torch.isfinite(first).all()):
        return [finding("nan-logits", "The model's outputs are not all finite.")]
    if float((first - again).abs().max()) > allowed:
        return [finding("not-deterministic", "The same images got different outputs in two forward passes.")]
    if alone.shape != first[rows].shape or float((first[rows] - alone).abs().max()) > allowed:
        return [finding("batch-dependent", "The outputs of an image depend on its batch.")]
    found = []
    for law, sentence in check_goal(goal, model, x, truth).findings:
        severity: Severity = "warn" if "is zero although" in sentence else "refuse"  # some images lie on the boundary
        found.append(finding("bad-goal", f"{law}: {sentence}", severity if gradients or law != "gradient" else "note"))
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
    """The default batch size. It depends only on the kind of device, the number of values in an image and the number of
    images."""
    most, values = (64, 2_400_000) if device == "cpu" else (256, 40_000_000)
    return max(1, min(most, max(8, values // pixels), images))


def measured_batch_size(subject: Subject, x: Tensor) -> int:
    """The smallest batch size within 5 % of the best rate of an attack's steps on ``x`` (B, ...), measured in a few
    seconds.

    Larger sizes are not tried once memory runs out, a pass takes more than 1.5 s, or the rate falls.
    """
    rates: dict[int, float] = {}
    with borrowed(subject.model):
        for size in SIZES:
            seconds = seconds_of_pass(subject, x, size) if size <= len(x) or not rates else None
            if seconds is None:
                break
            rates[size] = size / (seconds + OUTSIDE)
            if seconds > 1.5 or rates[size] < 0.8 * max(rates.values()):
                break
        if not rates:
            return next((size for size in (8, 4, 2) if seconds_of_pass(subject, x, size) is not None), 1)
    return min(size for size, rate in rates.items() if rate >= 0.95 * max(rates.values()))


def seconds_of_pass(subject: Subject, x: Tensor, size: int) -> float | None:
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


def seconds_per_image(attack: Attack, model: Model, x: Tensor, queries: int) -> float:
    """Seconds that an attack of ``queries`` queries needs for one image: model passes, gradients of the distance and
    its own arithmetic. Extrapolated from two short runs on images whose predicted class is taken as the label.

    Args:
        attack: the attack, which is run for a few queries.
        model: from images to logits (B, K).
        x: images in [0, 1], shape (B, ...); the first few are used.
        queries: number of queries of an image.
    """
    x = x[: 2 if x[0].numel() > LARGE else TIMED]
    fixed, budget = steady(model, x.device), QUERIES if len(x) > 2 else QUERIES_LARGE
    with torch.no_grad():
        labels = fixed(x).argmax(1)

    def timed(budget: int) -> tuple[float, int]:
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run itself reports wrong labels and settings
            result = attack(fixed, x, labels, budget=budget, check=False)
        return time.perf_counter() - began, int(result.forwards.sum())

    # Part of an attack's cost does not depend on its budget.
    (longer, many), (shorter, few) = timed(budget), timed(budget // 4)
    slope = max(longer - shorter, longer / 10) / (many - few) if many > few else longer / max(1, many)
    return max(shorter, shorter + slope * (queries * len(x) - few)) / len(x)
