"""Checks a model and its data as every run does first (clean accuracy, value range, randomness, gradients), and
estimates what a run costs.

  almakit doctor --model mnist/smallcnn --data mnist --attack "alma(distance=l2, steps=100)"
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from ..runs.progress import duration
from .arguments import DONE, REFUSED, Usage, usage
from .run import spec_arguments, spec_of

SEEN = 512
ARGUMENTS = spec_arguments(leave_out=("seed", "bits", "targets", "budget", "stop_within", "traces"))


def main(args: argparse.Namespace) -> int:
    for name in ("model", "data"):
        if not getattr(args, name):
            raise Usage(f"give --{name}.")
    with usage():
        spec = spec_of(args)
        from ..core.attack import expected_forwards
        from ..runs import attack_text, checks, images, plan

        request = plan.Request(replace(spec, limit=min(spec.limit or SEEN, SEEN)))
    job, attacks = plan.plan(request, request.spec), request.attacks
    subject, sample = job.subject, checks.looked_at(job.dataset, SEEN)
    dataset = images.open_data(spec.data, spec, images.side_of(subject.model, spec.data))
    gradients = job.surrogate is None and (not attacks or any(attack.needs_gradients() for attack in attacks))
    size = spec.batch_size if isinstance(spec.batch_size, int) else None
    findings, report = checks.examine(job, subject, sample, gradients, size)
    what = f"{spec.model} on {spec.data}: {len(dataset)} images of shape {tuple(sample.x.shape[1:])}"
    if report is None:
        print(f"{what}, goal {spec.goal}, device {subject.device}")
        if not any(finding.name in ("bad-output", "forward-fails") for finding in findings):
            reached = subject.logits(sample.x, checks.at_a_time(sample), sample.truth).argmax(1) == 1
            print(f"goal reached on {int(reached.sum())} of {len(sample)} clean images")
    else:
        accuracy = "unknown" if report.clean_accuracy is None else f"{100 * report.clean_accuracy:.1f} %"
        print(f"{what}, {report.classes} classes, device {subject.device}")
        print(f"clean accuracy{' over pixels' if subject.maps else ''} on {report.images} images: {accuracy}")
    untimed = ("bad-output", "forward-fails", "non-differentiable")
    if report is not None and not any(finding.name in untimed for finding in findings):
        size = min(size or checks.at_a_time(sample), len(sample))
        one_pass = (checks.seconds_of_pass(subject, sample.x, size) or float("inf")) / size
        print(f"one forward and backward pass: {1000 * one_pass:.3g} ms per image in batches of {size}")
        # A misclassified clean image takes no time; in segmentation every image is attacked.
        right = 1.0 if subject.maps or report.clean_accuracy is None else report.clean_accuracy
        attacked = round(len(dataset) * right)
        for attack in attacks:
            if (queries := expected_forwards(attack)) is None:
                continue
            each = queries * one_pass
            if not (subject.maps or job.surrogate):  # for these only the model's passes are counted
                each = checks.seconds_per_image(attack, subject.model, sample.x.to(subject.device), queries)
            print(
                f"{attack_text.text_of(attack)}: about {duration(each * attacked)} for {attacked} of {len(dataset)} "
                f"images at the time of {each / queries / one_pass:.2g} passes for each of {queries} queries"
            )
    for finding in findings:
        print(f"{finding.severity}: {finding.name}: {finding.sentence} {finding.way_out}")
    if not findings:
        print("No problems found.")
    names = [finding.name for finding in findings if finding.severity == "refuse" and finding.name not in spec.allow]
    if names:
        print("A run would be refused; to run it all the same: " + " ".join(f"--allow {name}" for name in names))
    return REFUSED if names else DONE
