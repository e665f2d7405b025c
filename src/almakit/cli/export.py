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
from .arguments import DONE, FOLDER

USUAL = {
    "csv": "records.csv",
    "parquet": "records.parquet",
    "png": "png",
    "model-card": "model-card.yaml",
    "attackbench": "attackbench",
}
"""What is written in the run folder, by format."""
ARGUMENTS = (
    FOLDER,
    (
        "--format --as",
        tuple(USUAL),
        "csv, parquet, png, model-card: the model-index of a Hugging Face README, or attackbench: its config.json and "
        "info.json",
        "csv",
    ),
    (
        "--out PATH",
        Path,
        "the file, for png and attackbench the folder (default: records.csv, records.parquet, model-card.yaml, png or "
        "attackbench in the run folder)",
    ),
    ("--attack ATTACK", str, "for png: only this attack's images"),
)


def main(args: argparse.Namespace) -> int:
    run, out = Run(args.folder), args.out or inside(args.folder, USUAL[args.format])
    if args.format == "model-card":
        write_bytes(out, model_card(run).encode())
        print(f"The model-index is in {out}; it belongs between the two lines of --- at the head of a README.md.")
    elif args.format == "attackbench":
        folders, unfit = export_attackbench(run, out)
        attacks = f"{len(folders)} attack{'s' * (len(folders) != 1)}"
        print(f"{attacks} in {out}, as AttackBench's analysis reads them. {OPTIMALITY}")
        for sentence in unfit:
            print(f"Left out: {sentence}")
    elif args.format == "png":
        written, left_out = export_png(run, out, args.attack)
        why = "because they do not fool the model after rounding to 8 bits"
        print(f"{written} images in {out}; {left_out} were left out {why}.")
    else:
        print(f"{export_table(run, out, args.format)} records in {out}.")
    return DONE
