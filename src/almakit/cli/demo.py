"""Attacks 64 MNIST digits on a small network, both part of the package, and prints a table in less than a minute."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..runs.progress import for_terminal
from .run import exit_code

ATTACKS = (
    "soft-walk(distance=l2, steps=100)",
    "alma(distance=l2, steps=100)",
    "soft-walk(distance=l1, steps=100)",
    "alma(distance=l1, steps=100)",
    "soft-walk(distance=linf, steps=100)",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="keep the run folder here (default: a temporary one)"
    )
    parser.add_argument(
        "--attack",
        dest="attacks",
        action="append",
        metavar="ATTACK",
        help="an attack instead of the default ones; may be repeated",
    )
    parser.add_argument("--verbose", action="store_true", help="print all columns of the table, and what they mean")


def main(args: argparse.Namespace) -> int:
    from ..api import evaluate

    run = evaluate(
        "mnist/smallcnn-tiny",
        "mnist-demo",
        args.attacks or ATTACKS,
        args.out,
        limit=64,
        batch_size=64,
        device="cpu",
        progress=for_terminal(),
    )
    print(run.table(verbose=args.verbose))
    if args.out:
        print(f"\nrecords, images, summary.json: {args.out}")
    return exit_code(run.summary)
