"""Runs the paper's tables (its networks, distances, attacks, budgets and settings) and reports both sets of numbers.

Every cell is a run folder below OUT/runs. Re-run the same command to resume; another one (--budget large, --attacks
...) adds cells. Networks and data sets that are missing are left out with a message. The report is in OUT/report:
paper.html (tables in the paper's layout, geometric means, curves), index.html (every number, curves, images),
paper.md, paper.csv, paper.tex and reproduce.json.

  almakit reproduce mnist --limit 20 --budget small
  almakit reproduce cifar10 --model cifar10/resnet20 --model cifar10/resnet4b-adv --limit 100
"""

from __future__ import annotations

import argparse
import time
from dataclasses import fields
from pathlib import Path

from ..paper.grid import BUDGETS, COSTLY, DATASETS
from ..runs.environment import keep_memory
from ..runs.progress import Progress, for_terminal
from ..runs.spec import AUTO
from .arguments import DEVICE, DONE, FAILED_IMAGES, NO_FIGURES, QUIET, TRUST, usage, within


def words(text: str) -> tuple[str, ...]:
    """``alma,ddn``."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing; leave it out for all of them")
    return found


ARGUMENTS = (
    ("dataset", DATASETS, "which of the paper's data sets"),
    ("--limit N", within(int, 1), "the first N images (default: as many as the paper: 10000, 1000, 1000)"),
    (
        "--costly-limit N",
        within(int, 1),
        f"images for {', '.join(COSTLY)} (default: a fifth of --limit, or all without --limit)",
    ),
    ("--budget", BUDGETS, "the paper's small budget, its large one, or both", "both"),
    ("--attacks A,B", words, "only these attacks, by their names in the paper's tables: alma,ddn,cw,..."),
    ("--distances A,B", words, "only these distances: l1,l2,ciede2000,lpips,ssim"),
    (
        "--model MODEL",
        [str],
        "a network to use instead of the paper's; NAME@FILE gives a network of the paper its weights and keeps the "
        "others; may be repeated",
    ),
    ("--data URI", str, "images instead of the paper's, e.g. imagenet:<folder of the validation set>"),
    ("--out FOLDER", Path, "where to write (default: runs/reproduce-<data set>)"),
    ("--seed N", int, "seed of everything random", 0),
    ("--batch-size N", within(int, 1), "images per chunk (default 128, 64 or 16)"),
    DEVICE,
    TRUST,
    ("--report-only", False, "make the report of existing results, run nothing"),
    NO_FIGURES,
    (
        "--workers N",
        within(int, 1),
        "share the chunks of a cell between N processes of one thread each (default: as many as there are cores where "
        "it is worth it)",
    ),
    QUIET,
)


def main(args: argparse.Namespace) -> int:
    from ..paper import plan, reproduce

    if args.own_process:
        keep_memory()
    args.out = args.out or Path("runs") / f"reproduce-{args.dataset}"
    with usage():
        made = plan.plan(plan.Settings(**{field.name: getattr(args, field.name) for field in fields(plan.Settings)}))
    began, said = time.monotonic(), len(made.skipped)
    print(*made.skipped, sep="\n", end="\n" * bool(made.skipped))
    if not args.report_only:
        reproduce.run(made, Progress() if args.quiet else for_terminal(), args.workers or AUTO)
    found = reproduce.gather(made)
    for sentence in (*made.skipped[said:], *found.unfinished):
        print(sentence)
    written = reproduce.report(made, found, figures=not args.no_figures)
    beside = ", ".join(path.name for path in written[1:5])
    print(f"{len(found.entries)} cells, {time.monotonic() - began:.0f} s. {written[0]}, and beside it {beside}.")
    return FAILED_IMAGES if found.failed_chunks else DONE
