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

from ..report.sections import as_text
from ..report.table import text_table
from .main import DONE


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
    from ..api import transfer

    made = transfer(args.folder, args.model, goal=args.goal, device=args.device, trust=args.trust)
    print(json.dumps(made, indent=1) if args.json else text_table(*as_text(made)))
    return DONE
