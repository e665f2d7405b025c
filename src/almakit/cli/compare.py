"""Compares two runs image by image, for the attacks and images (matched by their contents) that both contain.

Prints what both runs are, the ratio of medians with its 95 % interval, the number of images with a smaller, larger
or equal change in the second run, and the images that changed most. Runs on different models need
--across models. With --fail-if-worse the exit code is 5 if an attack's median grew, or its success rate fell, by more
than the given share.

  almakit compare runs/before runs/after --fail-if-worse 2%
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..report.compare import compare, table
from ..report.table import plain
from .arguments import DONE, JSON, WORSE


def share(text: str) -> float:
    """``2%`` or ``0.02``."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no share; write for example 2% or 0.02")
    return value


ARGUMENTS = (
    ("first BEFORE", Path, "a run folder"),
    ("second AFTER", Path, "the run folder to compare with it"),
    ("--across", ("models",), "compare runs whose models differ"),
    ("--fail-if-worse 2%", share, "exit with 5 if the second run is worse by more than this"),
    JSON,
)


def main(args: argparse.Namespace) -> int:
    comparison = compare(args.first, args.second, args.across is not None)
    allowed, found = args.fail_if_worse, comparison["comparisons"]
    worse = [] if allowed is None else [one for one in found if not one["worse_by"] <= allowed]
    if args.json:
        shown = [{name: value for name, value in one.items() if name != "parts"} for one in found]
        answer = comparison | {"comparisons": shown, "worse": [one["attack"] for one in worse]}
        print(json.dumps(plain(answer), allow_nan=False, indent=1))
    else:
        print(table(comparison))
        for one in worse:
            print(f"\nWorse than {100 * (allowed or 0):g} % allows: {one['attack']}, by {100 * one['worse_by']:.3g} %.")
    return WORSE if worse else DONE
