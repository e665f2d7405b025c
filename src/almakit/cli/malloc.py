"""The flag of the programs that keep their memory."""

from __future__ import annotations

import argparse

from ..runs.environment import keep_memory


def add_malloc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-malloc-tuning",
        action="store_true",
        help="let the C library give memory back to the system after every layer, as it does by default; slower, and "
        "other programs have more of it",
    )


def tune(args: argparse.Namespace) -> None:
    """Keeps this process's memory, unless the user does not want it or Python code calls the verb for itself."""
    if not args.no_malloc_tuning and args.own_process:
        keep_memory()
