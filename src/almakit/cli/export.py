"""Writes a run's records as one flat table, or its adversarial images as PNG files.

Of the images only those that still fool the model after rounding to 8 bits are written: a PNG holds nothing finer.

  almakit export runs/a --format csv --out records.csv
  almakit export runs/a --format png --out images
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .main import DONE

FORMATS = ("csv", "parquet", "png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a run folder")
    parser.add_argument("--format", choices=FORMATS, default="csv", help="csv, parquet, or png (default csv)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="the file, for png the folder (default: records.csv, records.parquet or png in the run folder)",
    )
    parser.add_argument("--attack", metavar="ATTACK", help="for png: only this attack's images")


def main(args: argparse.Namespace) -> int:
    from ..eval import export
    from ..eval.chunkfiles import inside
    from ..eval.folder import Run

    run = Run(args.folder)
    out = args.out or inside(args.folder, "png" if args.format == "png" else f"records.{args.format}")
    if args.format == "png":
        written, left_out = export.export_png(run, out, args.attack)
        print(
            f"{written} images in {out}; {left_out} were left out because they do not fool the model after rounding to 8 bits."
        )
        return DONE
    count = (export.export_csv if args.format == "csv" else export.export_parquet)(run, out)
    print(f"{count} records in {out}.")
    return DONE
