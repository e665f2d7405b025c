"""Has anything become slower? Measures rows of ``speed.py`` again and fails where a figure is more than 15 % above the
committed one.

    python -m benchmarks speed guard   the quick rows, one thread, about five minutes
    python -m benchmarks speed guard --rows alma-l2,ssim-32 --threads 1,2

Not part of ``make test``: machines are noisy. Figures are ratios and slopes, so the committed ones hold on other
machines to some extent; on another kind of processor measure them anew with ``speed.py`` before a change and compare
after it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import RESULTS
from benchmarks.common import Results
from benchmarks.speed.rows import measured, todo

ALLOWED = 1.15
QUICK = (
    "bare-smallcnn",
    "bare-resnet20",
    "ciede2000-32",
    "ssim-32",
    "ssim-224",
    "lpips-32",
    "growth-images",
    "growth-pixels-l2",
    "memory-smallcnn",
)


def judge(name: str, committed: float, now: float, allowed: float = ALLOWED) -> tuple[bool, str]:
    """Whether a figure is still within what is allowed, and a line that says so."""
    good = now <= allowed * committed
    return (
        good,
        f"{'ok  ' if good else 'SLOW'}  {name:28} was {committed:.3f}, is {now:.3f} "
        f"({100 * (now / committed - 1):+.1f} %)",
    )


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", default=",".join(QUICK), help="comma-separated names of rows")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--committed", type=Path, default=RESULTS / "speed.json")
    parser.add_argument("--allowed", type=float, default=ALLOWED, help="how many times the committed figure is fine")


def main(args: argparse.Namespace) -> int:
    cells, slow = Results(args.committed, must_exist=True).cells, 0
    for name, threads in todo(args.rows, args.threads):
        key = f"{name}/{threads}"
        if key not in cells:
            raise SystemExit(f"{args.committed} has no {key}; measure it with python -m benchmarks speed --rows {name}")
        good, line = judge(key, cells[key]["ratio"], measured(name, threads, args.repeats)["ratio"], args.allowed)
        slow += not good
        print(line, flush=True)
    return 1 if slow else 0
