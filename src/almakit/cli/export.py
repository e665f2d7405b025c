"""Writes a run's records as one flat table, or its adversarial images as PNG files.

PNG files hold 8 bits, so only images that still fool the model after rounding to 8 bits are written.

  almakit export runs/a --format csv --out records.csv
  almakit export runs/a --format png --out images
  almakit export runs/a --as model-card
  almakit export runs/a --as attackbench --out results
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..report.run import Run, model_card
from ..runs.export import OPTIMALITY, export_attackbench, export_png, export_table
from ..runs.store.files import inside, write_bytes
from .main import DONE

FORMATS = ("csv", "parquet", "png", "model-card", "attackbench")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a run folder")
    parser.add_argument(
        "--format",
        "--as",
        dest="format",
        choices=FORMATS,
        default="csv",
        help="csv, parquet, png, model-card: the model-index of a Hugging Face README, or attackbench: its "
        "config.json and info.json (default csv)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="the file, for png and attackbench the folder (default: records.csv, records.parquet, model-card.yaml, "
        "png or attackbench in the run folder)",
    )
    parser.add_argument("--attack", metavar="ATTACK", help="for png: only this attack's images")


def main(args: argparse.Namespace) -> int:
    run = Run(args.folder)
    usual = {"png": "png", "attackbench": "attackbench", "model-card": "model-card.yaml"}.get(
        args.format, f"records.{args.format}"
    )
    out = args.out or inside(args.folder, usual)
    if args.format == "model-card":
        write_bytes(out, model_card(run).encode())
        print(f"The model-index is in {out}; it belongs between the two lines of --- at the head of a README.md.")
        return DONE
    if args.format == "attackbench":
        folders, unfit = export_attackbench(run, out)
        print(
            f"{len(folders)} attack{'s' * (len(folders) != 1)} in {out}, as AttackBench's analysis reads them. "
            f"{OPTIMALITY}"
        )
        for sentence in unfit:
            print(f"Left out: {sentence}")
        return DONE
    if args.format == "png":
        written, left_out = export_png(run, out, args.attack)
        print(
            f"{written} images in {out}; {left_out} were left out because they do not fool the model after rounding "
            "to 8 bits."
        )
        return DONE
    count = export_table(run, out, args.format)
    print(f"{count} records in {out}.")
    return DONE
