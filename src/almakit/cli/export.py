"""Writes a run's records as one flat table, or its adversarial images as PNG files.

PNG files hold 8 bits, so only images that still fool the model after rounding to 8 bits are written.

  almakit export runs/a --format csv --out records.csv
  almakit export runs/a --format png --out images
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..runs.export import export_png, export_table
from ..runs.folder import RunFolder
from ..runs.store.files import inside
from .arguments import DONE, FOLDER

USUAL = {"csv": "records.csv", "parquet": "records.parquet", "png": "png"}
"""What is written in the run folder, by format."""
ARGUMENTS = (
    FOLDER,
    ("--format", tuple(USUAL), "csv, parquet or png", "csv"),
    (
        "--out PATH",
        Path,
        "the file, for png the folder (default: records.csv, records.parquet or png in the run folder)",
    ),
    ("--attack ATTACK", str, "for png: only this attack's images"),
)


def main(args: argparse.Namespace) -> int:
    run, out = RunFolder(args.folder), args.out or inside(args.folder, USUAL[args.format])
    if args.format == "png":
        written, left_out = export_png(run, out, args.attack)
        why = "because they do not fool the model after rounding to 8 bits"
        print(f"{written} images in {out}; {left_out} were left out {why}.")
    else:
        print(f"{export_table(run, out, args.format)} records in {out}.")
    return DONE
