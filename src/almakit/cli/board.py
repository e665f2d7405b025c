"""Makes a static leaderboard of many run folders: models x attacks, sortable by robust accuracy at any radius,
median and cost.

index.html, one page per model and board.json need no server and load nothing from the network. Runs on different
images get separate tables. Unfinished folders are shown with their finished chunks; unreadable folders are left out,
and the page and the command say so. Re-run the same command after adding a folder.

  almakit board runs/* --out site
  almakit board runs/* --out site --epsilon linf=8/255,4/255 --epsilon l2=0.5
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..report.board import write_board
from .arguments import DONE, FOLDERS
from .report import EPSILON, PICTURES

ARGUMENTS = (FOLDERS, ("--out FOLDER", Path, "where to write", Path("site")), EPSILON, PICTURES)


def main(args: argparse.Namespace) -> int:
    board, written = write_board(args.folders, args.out, args.epsilon, args.images)
    models = sum(len(table.subjects) for table in board.tables)
    size = sum(path.stat().st_size for path in written) / 1e6
    print(f"{written[0]}: {models} model{'s' * (models != 1)}, {len(written)} files, {size:.1f} MB.")
    if len(board.tables) > 1:
        names = "; ".join(
            f"{table.data}, {table.images} images ({len(table.subjects)} models)" for table in board.tables
        )
        print(f"The folders hold {len(board.tables)} different sets of images, each with tables of its own: {names}.")
    for run, summary in (pair for table in board.tables for pair in table.runs):
        if not summary["complete"]:
            missing = summary["missing_records"]
            print(f"{run.folder.name} is not finished: {missing} results are missing, and the board says so.")
    for name, why in board.left_out:
        print(f"Left out: {name}: {why}")
    return DONE
