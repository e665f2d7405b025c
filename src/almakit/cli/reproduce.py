"""Runs the paper's tables (its networks, distances, attacks, budgets and settings) and reports both sets of numbers.

Every cell is a run folder below OUT/runs. Re-run the same command to resume; another one (--budget large, --attacks
...) adds cells. Networks and data sets that are missing are left out with a message. The report is in OUT/report:
paper.html (tables in the paper's layout, geometric means, figures), index.html (every number, curves, images),
paper.md, paper.csv, paper.tex and reproduce.json.

  almakit reproduce mnist --limit 20 --budget small
  almakit reproduce cifar10 --model cifar10/resnet20 --model cifar10/resnet4b-adv --limit 100
  almakit reproduce mnist --shard 0/4    # one of four machines; the command without --shard then joins and reports
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ..errors import BadInput
from ..paper.grid import BUDGETS, COSTLY, DATASETS
from ..runs.progress import Progress, for_terminal
from ..runs.spec import parse_shard
from .main import DONE, FAILED_IMAGES, Usage
from .malloc import add_malloc, tune


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", choices=DATASETS, help="which of the paper's data sets")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="the first N images (default: as many as the paper: 10000, 1000, 1000)"
    )
    parser.add_argument(
        "--costly-limit",
        type=int,
        metavar="N",
        help=f"images for {', '.join(COSTLY)} (default: a fifth of --limit, or all without --limit)",
    )
    parser.add_argument(
        "--budget", choices=BUDGETS, default="both", help="the paper's small budget, its large one, or both (default)"
    )
    parser.add_argument(
        "--attacks", metavar="A,B", help="only these attacks, by their names in the paper's tables: alma,ddn,cw,..."
    )
    parser.add_argument("--distances", metavar="A,B", help="only these distances: l1,l2,ciede2000,lpips,ssim")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="MODEL",
        help="a network to use instead of the paper's; NAME@FILE gives a network of the paper its weights and keeps "
        "the others; may be repeated",
    )
    parser.add_argument(
        "--data", metavar="URI", help="images instead of the paper's, e.g. imagenet:<folder of the validation set>"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where to write (default: runs/reproduce-<data set>)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of everything random (default 0)")
    parser.add_argument("--batch-size", type=int, metavar="N", help="images per chunk (default 128, 64 or 16)")
    parser.add_argument("--device", default="auto", metavar="DEVICE", help="cpu, cuda, ... (default auto)")
    parser.add_argument(
        "--shard",
        metavar="I/N",
        help="compute every N-th chunk of each cell only, starting with chunk I (0 to N - 1); makes no report",
    )
    parser.add_argument(
        "--trust", action="store_true", help="allow weights files to be unpickled, which can run code in them"
    )
    parser.add_argument("--report-only", action="store_true", help="make the report of existing results, run nothing")
    parser.add_argument("--no-figures", action="store_true", help="leave out the figures made with matplotlib")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="share the chunks of a cell between N processes of one thread each (default: as many as there are cores "
        "where it is worth it)",
    )
    add_malloc(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress")


def main(args: argparse.Namespace) -> int:
    from ..paper import plan, reproduce

    if args.workers is not None and args.workers < 1:
        raise Usage(f"--workers {args.workers}: give a whole number, at least 1.")
    if args.report_only and args.shard:
        raise Usage("--report-only reports all shards together: leave --shard out.")
    tune(args)
    try:
        made = plan.plan(
            plan.Settings(
                args.dataset,
                args.out or Path("runs") / f"reproduce-{args.dataset}",
                budget=args.budget,
                attacks=_words("--attacks", args.attacks),
                distances=_words("--distances", args.distances),
                models=tuple(args.model),
                limit=args.limit,
                costly_limit=args.costly_limit,
                data=args.data,
                seed=args.seed,
                batch_size=args.batch_size,
                device=args.device,
                shard=parse_shard(args.shard),
                trust=args.trust,
            )
        )
    except BadInput as error:
        raise Usage(str(error)) from error
    show = Progress() if args.quiet else for_terminal()
    for sentence in made.skipped:
        print(sentence)
    began, said = time.monotonic(), len(made.skipped)
    if not args.report_only:
        reproduce.run(made, show, args.workers or "auto")
    for sentence in made.skipped[said:]:
        print(sentence)
    if args.shard:
        print(
            f"Shard {args.shard} of {len(made.tasks)} cells is done; when all are, the same command without --shard "
            "joins them and reports."
        )
        return DONE
    found = reproduce.gather(made)
    for sentence in found.unfinished:
        print(sentence)
    written = reproduce.report(made, found, figures=not args.no_figures)
    print(
        f"{len(found.entries)} cells, {time.monotonic() - began:.0f} s. {written[0]}, and beside it "
        f"{', '.join(path.name for path in written[1:5])}."
    )
    return FAILED_IMAGES if found.failed_chunks else DONE


def _words(flag: str, text: str | None) -> tuple[str, ...]:
    found = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not found:
        raise BadInput(f"{flag} {text!r} names nothing; leave it out for all of them.")
    return found
