"""Looks at a model and its data as every run does first: clean accuracy, ranges, randomness, gradients; and what a run
will cost.

almakit doctor --model mnist/smallcnn --data mnist --attack "alma(distance=l2, steps=100)"
"""

from __future__ import annotations

import argparse

from ..errors import BadInput
from ..runs.progress import duration
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

    from ..models.preflight import preflight
    from ..runs import attacktext, checks, images, model

    try:
        attacks = attacktext.build_all(spec.attacks)
    except BadInput as error:
        raise Usage(str(error)) from error
    opened = model.open_model(spec.model, spec)
    side = images.side_of(opened.model, spec.data)
    dataset = images.open_data(spec.data, spec, side).numbered_as(getattr(opened.model, "class_names", None))
    opened = opened.with_features(dataset.features)
    sample = checks.looked_at(dataset, SEEN)
    size = spec.batch_size if isinstance(spec.batch_size, int) else checks.at_a_time(sample)
    report = preflight(
        opened.model,
        sample.x.to(opened.device),
        sample.labels,
        allow=spec.allow,
        batch_size=size,
        class_names=dataset.class_names,
        alphabetical=dataset.alphabetical,
        eot=spec.eot,
    )
    accuracy = "unknown" if report.clean_accuracy is None else f"{100 * report.clean_accuracy:.1f} %"
    print(
        f"{spec.model} on {spec.data}: {len(dataset)} images of shape {tuple(sample.x.shape[1:])}, {report.classes} "
        f"classes, device {opened.device}"
    )
    print(f"clean accuracy on {report.images} images: {accuracy}")
    for finding in report.findings:
        print(f"{finding.severity}: {finding.name}: {finding.sentence} {finding.way_out}")
    if not report.findings:
        print("nothing to object to.")
    if report.seconds is not None:
        print(
            f"one forward and backward pass: {1000 * report.seconds:.3g} ms per image in batches of {report.batch_size}"
        )
        for attack in attacks:
            steps = getattr(attack, "steps", None)
            if not isinstance(steps, int):
                continue
            seconds, memory = report.estimate(len(dataset), steps)
            print(
                f"{attacktext.text_of(attack)}: about {duration(seconds)} for {len(dataset)} images at one pass per "
                f"step, {memory / 2**20:.0f} MiB"
            )
    if report.ok:
        return DONE
    print(
        "A run would be refused; to run it all the same: "
        + " ".join(f"--allow {finding.name}" for finding in report.refusals)
    )
    return REFUSED
