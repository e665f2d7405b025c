"""Judges the stored images of a run by other models: whom does what was found with one model fool as well?

The answers lie in the run folder, the matrix is printed, and `almakit report` shows it; the same command goes on where
it was stopped. With several runs, each of a model of its own, the matrix has a row for each.

  almakit transfer runs/a --model mnist/smallcnn-ddn --model mnist/smallcnn-trades
  almakit transfer runs/a runs/b --model mnist/smallcnn-ddn
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..report.run import Run
from ..report.sections import as_text
from ..report.table import text_table
from .main import DONE, Usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, nargs="+", help="a run folder, or several")
    parser.add_argument(
        "--model", action="append", required=True, metavar="MODEL", help="a model to ask; may be given several times"
    )
    parser.add_argument("--goal", metavar="GOAL", help="the runs' goal, where it is code of your own")
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help="where to compute (default cpu)")
    parser.add_argument(
        "--trust", action="store_true", help="allow model files to be unpickled, which can run code in them"
    )
    parser.add_argument("--json", action="store_true", help="print the matrix as JSON")


def main(args: argparse.Namespace) -> int:
    for folder in args.folder:
        if not (folder / "run.toml").is_file():
            raise Usage(f"{folder} is no run folder (it has no run.toml); make one with `almakit run`.")
    from ..api import transfer

    runs = [Run(folder) for folder in args.folder]
    for run in runs:
        text = None if run.segmentation else run.spec.goal
        if text and not args.goal and ":" in text:
            raise Usage(
                f"the run's goal is Python code ({text}), and transfer runs no code because a folder names it; name it "
                f"yourself: --goal {text}"
            )
    made = transfer(runs, args.model, goal=args.goal, device=args.device, trust=args.trust)
    print(json.dumps(made, indent=1) if args.json else text_table(*as_text(made)))
    return DONE
