"""The networks of benchmarks/pool.

python -m benchmarks walk pool ls   every network, its half, kind, size and accuracy
python -m benchmarks walk pool train mnist-mlp   trains it again (minutes); goes on where it was stopped
python -m benchmarks walk pool train choosing fresh   every network of these parts whose weights are not there
"""

from __future__ import annotations

import argparse

from benchmarks.pool.networks import HALVES, POOL, halves, make, rows


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=("ls", "train"))
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="networks, or a part of the pool: " + ", ".join(HALVES)
    )


def main(args: argparse.Namespace) -> None:
    if args.verb == "ls":
        print("\n".join(rows()))
        return
    for word in args.names:
        if word not in POOL and word not in HALVES:
            raise SystemExit(f"there is no network {word!r} in the pool; known: {', '.join((*HALVES, *POOL))}.")
        for name in sorted(halves()[word], key=list(POOL).index) if word in HALVES else [word]:
            make(name)
