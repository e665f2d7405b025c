"""Looks at a model and its data as every run does first: clean accuracy, ranges, randomness, gradients; and what a run will cost.

almakit doctor --model mnist/smallcnn --data mnist --attack "alma(distance=l2, steps=100)"
"""

from __future__ import annotations

import argparse

from ..errors import BadInput
from .main import DONE, REFUSED, Usage
from .run import add_spec_arguments, spec_of

SEEN = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec_arguments(parser, leave_out=("seed", "bits", "targets", "budget", "traces"))


def main(args: argparse.Namespace) -> int:
    spec = spec_of(args)
    for name in ("model", "data"):
        if not getattr(spec, name):
            raise Usage(f"give --{name}.")

    from ..eval.attacktext import build_all, text_of
    from ..eval.begin import at_a_time, looked_at
    from ..eval.progress import duration
    from ..eval.subject import open_data, open_model, side_of
    from ..models.preflight import preflight

    try:
        attacks = build_all(spec.attacks)
    except BadInput as error:
        raise Usage(str(error)) from error
    subject = open_model(spec.model, spec)
    dataset = open_data(spec.data, spec, side_of(subject.model, spec.data)).numbered_as(getattr(subject.model, "class_names", None))
    sample = looked_at(dataset, SEEN)
    size = spec.batch_size if isinstance(spec.batch_size, int) else at_a_time(sample)
    report = preflight(subject.model, sample.x.to(subject.device), sample.labels, allow=spec.allow, batch_size=size,
                       class_names=dataset.class_names, alphabetical=dataset.alphabetical)  # fmt: skip
    accuracy = "unknown" if report.clean_accuracy is None else f"{100 * report.clean_accuracy:.1f} %"
    print(
        f"{spec.model} on {spec.data}: {len(dataset)} images of shape {tuple(sample.x.shape[1:])}, {report.classes} classes, device {subject.device}"
    )
    print(f"clean accuracy on {report.images} images: {accuracy}")
    for finding in report.findings:
        print(f"{finding.severity}: {finding.name}: {finding.sentence} {finding.way_out}")
    if not report.findings:
        print("nothing to object to.")
    if report.seconds is not None:
        print(f"one forward and backward pass: {1000 * report.seconds:.3g} ms per image in batches of {report.batch_size}")
        for attack in attacks:
            steps = getattr(attack, "steps", None)
            if not isinstance(steps, int):
                continue
            seconds, memory = report.estimate(len(dataset), steps)
            print(
                f"{text_of(attack)}: about {duration(seconds)} for {len(dataset)} images at one pass per step, {memory / 2**20:.0f} MiB"
            )
    if report.ok:
        return DONE
    print(
        "A run would be refused; to run it all the same: "
        + " ".join(f"--allow {finding.name}" for finding in report.refusals)
    )
    return REFUSED
