"""Certifies the images of a run: computes for each image a radius within which the model provably keeps its class.

crown, the default, fits most networks. ibp is cheap and tight for networks trained with interval bounds. exact finds
the true linf or l1 distance of small ReLU networks, up to a time limit per image. Re-run the same command to resume.

  almakit certify runs/a
  almakit certify runs/a --method ibp --distance linf
  almakit certify runs/a --method exact
"""

from __future__ import annotations

import argparse
import json

from ..report.run import finish
from ..runs.folder import RunFolder
from ..runs.identity import difference
from ..runs.progress import Progress, for_terminal
from .arguments import DEVICE, DONE, FOLDER, JSON, JUDGED, QUIET, TRUST, Usage, within

METHODS = ("ibp", "crown", "alpha-crown", "exact")
HELP = (
    "certified lower bounds: ibp (intervals), crown (linear bounds), alpha-crown (with optimised slopes), exact "
    "(small ReLU networks)"
)
ARGUMENTS = (
    FOLDER,
    ("--method", METHODS, HELP, "crown"),
    ("--distance", [("linf", "l2", "l1")], "certify in this distance; may be repeated (default: the run's)"),
    ("--seconds S", within(float, 1e-3), "with exact: the time limit for each image", 60.0),
    (*DEVICE[:3], "cpu"),
    JUDGED,
    TRUST,
    JSON,
    QUIET,
)


def main(args: argparse.Namespace) -> int:
    from ..runs import certify, model

    run = RunFolder(args.folder)
    opened = model.open_of(run, args.model, args.device, args.trust)
    if differs := difference(run, opened):
        raise Usage(
            f"{opened.name} is not the model of the run, {run.spec.model}: {differs}. Certify the run's own model."
        )
    opened, show = opened.with_features(run.features), Progress() if args.quiet else for_terminal()
    certify.certify_run(run, opened, args.method, tuple(args.distance), args.seconds, show)
    run = finish(args.folder)
    print(json.dumps(run.summary, indent=1) if args.json else run.table())
    return DONE
