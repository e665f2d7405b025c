"""Tests whether the stored adversarial images of a run also fool other models.

The results are stored in the run folder. The command prints the matrix, and `almakit report` shows it. Several runs,
each of another model, give one row each. Re-run the same command to resume.

  almakit transfer runs/a --model mnist/smallcnn-ddn --model mnist/smallcnn-trades
  almakit transfer runs/a runs/b --model mnist/smallcnn-ddn
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..report.transfer import matrix_table
from .main import DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, nargs="+", help="a run folder, or several")
    parser.add_argument(
        "--model", action="append", required=True, metavar="MODEL", help="a model to test; may be repeated"
    )
    parser.add_argument("--goal", metavar="GOAL", help="the runs' goal, if it is Python code of yours")
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help="cpu, cuda, ... (default cpu)")
    parser.add_argument(
        "--trust", action="store_true", help="allow model files to be unpickled, which can run code in them"
    )
    parser.add_argument("--json", action="store_true", help="print the matrix as JSON")


def main(args: argparse.Namespace) -> int:
    from ..api import transfer

    made = transfer(args.folder, args.model, goal=args.goal, device=args.device, trust=args.trust)
    print(json.dumps(made, indent=1) if args.json else matrix_table(made).text(width=0))
    return DONE
