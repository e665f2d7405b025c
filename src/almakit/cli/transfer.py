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
from .arguments import DEVICE, DONE, JSON, TRUST, Usage

ARGUMENTS = (
    ("folder+", Path, "a run folder, or several"),
    ("--model MODEL", [str], "a model to test; may be repeated"),
    ("--goal GOAL", str, "the runs' goal, if it is Python code of yours"),
    (*DEVICE[:3], "cpu"),
    TRUST,
    JSON,
)


def main(args: argparse.Namespace) -> int:
    if not args.model:
        raise Usage("give a model to test, --model.")
    from ..api import transfer

    made = transfer(args.folder, args.model, goal=args.goal, device=args.device, trust=args.trust)
    print(json.dumps(made, indent=1) if args.json else matrix_table(made).text(width=0))
    return DONE
