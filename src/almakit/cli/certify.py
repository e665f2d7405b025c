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
from pathlib import Path

from ..report.run import finish
from ..runs.folder import RunFolder
from ..runs.identity import difference
from ..runs.progress import Progress, for_terminal
from .main import DONE, Usage

METHODS = ("ibp", "crown", "alpha-crown", "exact")
HELP = (
    "certified lower bounds: ibp (intervals), crown (linear bounds), alpha-crown (with optimised slopes), exact "
    "(small ReLU networks)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a run folder")
    parser.add_argument("--method", choices=METHODS, default="crown", help=f"{HELP} (default crown)")
    parser.add_argument(
        "--distance",
        action="append",
        choices=("linf", "l2", "l1"),
        help="certify in this distance; may be repeated (default: the run's)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="with exact: the time limit for each image (default 60)",
    )
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help=argparse.SUPPRESS)
    parser.add_argument(
        "--model", metavar="MODEL", help="the model (default: the run's own, unless that is Python code)"
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="allow the model file to be unpickled, which can run code in it (a setting in the folder is ignored)",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON instead of the table")
    parser.add_argument("--quiet", action="store_true", help="no progress, no notes")


def main(args: argparse.Namespace) -> int:
    if args.seconds <= 0:
        raise Usage("--seconds is a time limit, more than 0.")
    from ..runs import certify, model

    run = RunFolder(args.folder)
    opened = model.open_of(run, args.model, args.device, args.trust)
    if differs := difference(run, opened):
        raise Usage(
            f"{opened.name} is not the model of the run, {run.spec.model}: {differs}. Certify the run's own model."
        )
    opened = opened.with_features(run.features)
    certify.certify_run(
        run, opened, args.method, tuple(args.distance or ()), args.seconds, Progress() if args.quiet else for_terminal()
    )
    run = finish(args.folder)
    print(json.dumps(run.summary, indent=1) if args.json else run.table())
    return DONE
