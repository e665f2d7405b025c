"""Joins the shards of a run. The result equals that of a single process bit for bit.

almakit merge runs/a                          # shards that ran with the same --out
almakit merge runs/a0 runs/a1 --out runs/a    # shards that ran in separate folders
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..report.run import finish
from ..runs.merge import merge
from .run import exit_code

ARGUMENTS = (
    ("folders+", Path, "run folders that hold shards"),
    ("--out FOLDER", Path, "the joined run's folder (default: the only folder given)"),
)


def main(args: argparse.Namespace) -> int:
    out, missing = merge(args.folders, args.out)
    run = finish(out)
    print(run.table())
    if missing:
        print(f"\n{missing} chunks are missing; run `almakit run --config {out / 'run.toml'}` to do them.")
    return exit_code(run.summary)
