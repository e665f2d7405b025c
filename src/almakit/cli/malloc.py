"""The flag of the programs that keep their memory."""

from __future__ import annotations

import argparse

from ..runs.environment import keep_memory


def add_malloc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-malloc-tuning",
        action="store_true",
        help="keep the C library's default, which returns memory to the system after every layer: slower, but leaves "
        "more memory to other programs",
    )


def tune(args: argparse.Namespace) -> None:
    """Keeps this process's memory, unless the user does not want it or Python code calls the verb for itself."""
    if not args.no_malloc_tuning and args.own_process:
        keep_memory()
