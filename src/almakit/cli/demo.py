"""Attacks 64 MNIST digits on a small network, both part of the package, and prints a table in less than a minute."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..runs.progress import for_terminal
from .arguments import VERBOSE
from .run import exit_code

ATTACKS = (
    "soft-walk(distance=l2, steps=100)",
    "alma(distance=l2, steps=100)",
    "soft-walk(distance=l1, steps=100)",
    "alma(distance=l1, steps=100)",
    "soft-walk(distance=linf, steps=100)",
)
SETTINGS: dict[str, Any] = {"limit": 64, "batch_size": 64, "device": "cpu"}
ARGUMENTS = (
    ("--out FOLDER", Path, "keep the run folder here (default: a temporary one)"),
    ("--attack ATTACK", [str], "an attack instead of the default ones; may be repeated"),
    VERBOSE,
)


def main(args: argparse.Namespace) -> int:
    from ..api import evaluate

    attacks, show = args.attack or ATTACKS, for_terminal()
    run = evaluate("mnist/smallcnn-tiny", "mnist-demo", attacks, args.out, progress=show, **SETTINGS)
    print(run.table(verbose=args.verbose))
    if args.out:
        print(f"\nrecords, images, summary.json: {args.out}")
    return exit_code(run.summary)
