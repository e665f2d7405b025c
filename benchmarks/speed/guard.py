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

from benchmarks.common import Results
from benchmarks.speed.rows import RESULTS, ROWS, measured

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(QUICK), help="comma-separated names of rows of speed.py")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--committed", type=Path, default=RESULTS)
    parser.add_argument(
        "--allowed", type=float, default=ALLOWED, help="how many times the committed figure is still fine"
    )
    arguments = parser.parse_args()
    cells, slow = Results(arguments.committed).cells, 0
    for name in arguments.rows.split(","):
        if name not in ROWS:
            parser.error(f"no such row: {name}; speed.py --list names them")
        for threads in sorted({int(text) for text in arguments.threads.split(",")} & set(ROWS[name].threads)):
            key = f"{name}/{threads}"
            if key not in cells:
                parser.error(f"{arguments.committed} has no {key}; measure it with speed.py first")
            good, line = judge(
                key, cells[key]["ratio"], measured(name, threads, arguments.repeats)["ratio"], arguments.allowed
            )
            slow += not good
            print(line, flush=True)
    return 1 if slow else 0
