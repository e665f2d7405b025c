"""Compares two runs image by image, for the attacks and images (matched by their contents) that both contain.

Prints what both runs are, the ratio of medians with its 95 % interval, the number of images with a smaller, larger
or equal change in the second run, and the images that changed most. Runs on different models or with different goals
need --across. With --fail-if-worse the exit code is 5 if an attack's median grew, or its success rate fell, by more
than the given share.

  almakit compare runs/before runs/after --fail-if-worse 2%
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from ..report.compare import compare, plain, table
from .main import DONE, WORSE, Usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", type=Path, metavar="BEFORE", help="a run folder")
    parser.add_argument("second", type=Path, metavar="AFTER", help="the run folder to compare with it")
    parser.add_argument(
        "--pair",
        action="append",
        default=[],
        metavar="A=>B",
        help='compare attack A of the first run with attack B of the second, e.g. "ddn(steps=100)=>alma(distance=l2, '
        'steps=100)"',
    )
    parser.add_argument(
        "--across",
        action="append",
        default=[],
        choices=("models", "goals"),
        help="compare runs whose models or goals differ; may be given twice",
    )
    parser.add_argument(
        "--fail-if-worse", type=share, metavar="2%", help="exit with 5 if the second run is worse by more than this"
    )
    parser.add_argument(
        "--show",
        type=int,
        default=10,
        metavar="N",
        help="name at most this many changed images per attack (default 10)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def share(text: str) -> float:
    """``2%`` or ``0.02``."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no share; write for example 2% or 0.02")
    return value


def main(args: argparse.Namespace) -> int:
    if args.show < 0:
        raise Usage("--show must not be negative.")
    pairs = [_pair(text) for text in args.pair]
    comparison = compare(args.first, args.second, pairs, across=args.across, canonical=_canonical() if pairs else str)
    allowed, found = args.fail_if_worse, comparison["comparisons"]
    worse = [] if allowed is None else [one for one in found if not one["worse_by"] <= allowed]
    if args.json:
        shown = [
            {name: value for name, value in one.items() if name != "parts"} | {"changed": one["changed"][: args.show]}
            for one in found
        ]
        answer = comparison | {"comparisons": shown, "worse": [one["attack"] for one in worse]}
        print(json.dumps(plain(answer), allow_nan=False, indent=1))
    else:
        print(table(comparison, args.show))
        for one in worse:
            print(f"\nWorse than {100 * (allowed or 0):g} % allows: {one['attack']}, by {100 * one['worse_by']:.3g} %.")
    return WORSE if worse else DONE


def _canonical() -> Callable[[str], str | None]:
    from ..runs.attack_text import as_written_now

    return as_written_now


def _pair(text: str) -> tuple[str, str]:
    before, arrow, after = text.partition("=>")
    if not arrow or not before.strip() or not after.strip():
        raise Usage(f"--pair {text!r}: write the attack of the first run, =>, the attack of the second.")
    return before.strip(), after.strip()
