"""Checks a model and its data as every run does first (clean accuracy, value range, randomness, gradients), and
estimates what a run costs.

  almakit doctor --model mnist/smallcnn --data mnist --attack "alma(distance=l2, steps=100)"
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import BadInput
from ..runs.progress import duration
from .main import DONE, REFUSED, Usage
from .run import add_spec_arguments, spec_of

if TYPE_CHECKING:
    from ..models.preflight import Finding
    from ..runs.spec import RunSpec

SEEN = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec_arguments(parser, leave_out=("seed", "bits", "targets", "budget", "stop_within", "traces"))


def main(args: argparse.Namespace) -> int:
    spec = spec_of(args)
    for name in ("model", "data"):
        if not getattr(spec, name):
            raise Usage(f"give --{name}.")

    from ..core.problem import expected_forwards
    from ..models.preflight import preflight
    from ..runs import attack_text, checks, images, plan

    try:
        request = plan.Request(replace(spec, limit=min(spec.limit or SEEN, SEEN)))
    except BadInput as error:
        raise Usage(str(error)) from error
    job = plan.plan(request, request.spec)
    attacks = request.attacks
    subject, sample = job.subject, checks.looked_at(job.dataset, SEEN)
    dataset = images.open_data(spec.data, spec, images.side_of(subject.model, spec.data))
    what = f"{spec.model} on {spec.data}: {len(dataset)} images of shape {tuple(sample.x.shape[1:])}"
    if subject.aim is not None:
        x, needed = subject.place(sample.x), not attacks or any(attack.needs_gradients() for attack in attacks)
        findings = checks.goal_findings(subject.aim, subject.model, x, sample.truth, needed and job.surrogate is None)
        print(f"{what}, goal {spec.goal}, device {subject.device}")
        if not any(finding.name in ("bad-output", "forward-fails") for finding in findings):
            reached = subject.logits(sample.x, checks.at_a_time(sample), sample.truth).argmax(1) == 1
            print(f"goal reached on {int(reached.sum())} of {len(sample)} clean images")
        return _told(findings, spec)
    size = spec.batch_size if isinstance(spec.batch_size, int) else checks.at_a_time(sample)
    report = preflight(
        subject.model,
        sample.x.to(subject.device),
        sample.truth,
        allow=spec.allow,
        batch_size=size,
        class_names=job.dataset.class_names,
        alphabetical=job.dataset.alphabetical,
        eot=spec.eot,
    )
    accuracy = "unknown" if report.clean_accuracy is None else f"{100 * report.clean_accuracy:.1f} %"
    print(f"{what}, {report.classes} classes, device {subject.device}")
    print(f"clean accuracy{' over pixels' if subject.maps else ''} on {report.images} images: {accuracy}")
    if (one_pass := report.seconds) is not None:
        print(f"one forward and backward pass: {1000 * one_pass:.3g} ms per image in batches of {report.batch_size}")
        # An image that is wrong without an attack takes no time; of a segmentation every image is attacked.
        right = 1.0 if subject.maps or report.clean_accuracy is None else report.clean_accuracy
        attacked = round(len(dataset) * right)
        bare = subject.maps or job.surrogate is not None  # then the passes alone are counted
        for attack in attacks:
            queries = expected_forwards(attack)
            if queries is None:
                continue
            memory = report.bytes_of_weights + (report.bytes_per_image or 0) * min(len(dataset), report.batch_size)
            each = queries * one_pass
            if not bare:
                each = checks.seconds_per_image(attack, subject.model, sample.x.to(subject.device), queries)
            print(
                f"{attack_text.text_of(attack)}: about {duration(each * attacked)} for {attacked} of {len(dataset)} "
                f"images at the time of {each / queries / one_pass:.2g} passes for each of {queries} queries, "
                f"{memory / 2**20:.0f} MiB"
            )
    return _told(report.findings, spec)


def _told(findings: Sequence[Finding], spec: RunSpec) -> int:
    """Prints what was found; whether a run would be refused."""
    for finding in findings:
        print(f"{finding.severity}: {finding.name}: {finding.sentence} {finding.way_out}")
    if not findings:
        print("No problems found.")
    names = [finding.name for finding in findings if finding.severity == "refuse" and finding.name not in spec.allow]
    if not names:
        return DONE
    print("A run would be refused; to run it all the same: " + " ".join(f"--allow {name}" for name in names))
    return REFUSED
