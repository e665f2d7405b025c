"""What is checked before a run begins: its model, its surrogate and its goal, on the first images."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from ..core.model import Model, borrowed, probe_rows
from ..data.dataset import Chunk, Dataset
from ..errors import AlmakitError
from ..goals.base import Goal
from ..goals.check import check_goal
from ..models.labels import Severity
from ..models.preflight import REMEDIES, Finding, preflight
from .failures import Refused
from .plan import Job, Options

LOOKED_AT = 256  # images preflight looks at, fewer of large ones
CLOSE = 1e-3  # how far two answers to one question may lie apart, relative to the largest


def looked_at(dataset: Dataset, most: int = LOOKED_AT) -> Chunk:
    """The first images, as many as a glance can take: 256 digits, 66 photos."""
    pixels = dataset.chunk([0]).x[0].numel()
    return dataset.chunk(range(min(most, max(16, 10_000_000 // pixels), len(dataset))))


def at_a_time(sample: Chunk) -> int:
    """How many of the images may go through an unknown model with gradients before anything is known of its memory."""
    return max(1, min(64, 2_400_000 // sample.x[0].numel()))


def check(job: Job, options: Options) -> list[tuple[str, str, str, str]]:
    """Preflight's findings about the model and its surrogate, shown; a refusal that is not allowed ends the run before
    it begins."""
    if not options.preflight:
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
        options.progress.note(f"{severity}{allowed}: {name}: {sentence} {way_out}")
        if options.warn and severity != "note" and not (severity == "refuse" and refusals):
            warnings.warn(f"{name}: {sentence} {way_out}", stacklevel=5)  # where evaluate was called
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
    """What a goal, the model and the first of its images ``x`` (B, ...) with their ``truth`` (B, ...) do not keep;
    ``gradients``: whether an attack needs them."""
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
        note("not-deterministic", "refuse", "The same images got different outputs when asked twice.")
    elif alone.shape != first[rows].shape or float((first[rows] - alone).abs().max()) > allowed:
        note("batch-dependent", "refuse", "An image's outputs are others alone than in a batch.")
    else:
        for law, sentence in check_goal(goal, model, x, truth).findings:
            grave: Severity = "warn" if "is zero although" in sentence else "refuse"  # at a tie, of some images
            note("bad-goal", grave if gradients or law != "gradient" else "note", f"{law}: {sentence}")
    return found
