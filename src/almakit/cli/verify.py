"""Verifies stored images again, with a newly loaded model, another batch size, full precision, and after rounding to
8 bits.

The files are checked by their hashes. Code that a run.toml names is never run; give such a model yourself, with
--model.

  almakit verify runs/a
  almakit verify runs/theirs --model mine.py:model
"""

from __future__ import annotations

import argparse

from ..report.table import percent, text_table
from ..runs.folder import RunFolder
from ..runs.identity import difference
from .arguments import DEVICE, DONE, ERROR, FAILED_IMAGES, FOLDER, JUDGED, TRUST, within

ARGUMENTS = (
    FOLDER,
    JUDGED,
    ("--goal GOAL", str, "the goal (default: the run's own, unless that is Python code)"),
    DEVICE,
    ("--batch-size N", within(int, 1), "images per forward pass (default: another number than the run's)"),
    TRUST,
)


def main(args: argparse.Namespace) -> int:
    from ..runs import model, verify

    run = RunFolder(args.folder)
    if damaged := verify.damaged_files(run):
        again = f"almakit run --config {args.folder / 'run.toml'}"
        print(*(f"damaged: {sentence}." for sentence in damaged), sep="\n")
        print(f"{len(damaged)} files are damaged; if this run is yours, run `{again}` to compute those chunks again.")
        return ERROR
    goal, opened = model.goal_of(run, args.goal), model.open_of(run, args.model, args.device, args.trust)
    differs = difference(run, opened)
    if differs:
        print(f"{opened.name} is not the model of the run, {run.spec.model}: {differs}.")
    found = verify.verify_run(run, opened, args.batch_size, goal)
    rows = [
        {
            "attack": v.attack,
            "records": v.records,
            "claimed": v.claimed,
            "confirmed": v.confirmed,
            "confirmed %": percent(v.confirmed / v.claimed if v.claimed else None),
            "after 8 bits": v.confirmed_8bit,
            "judged otherwise": v.changed,
            "wrong distance": v.misreported,
        }
        for v in found
    ]
    print(f"{args.folder}: {sum(row.file is not None for row in run.chunks)} files whole; judged by {opened.name}.\n")
    print(text_table(list(rows[0]), [list(row.values()) for row in rows]))
    print("", *found.sentences(), sep="\n")
    for v in (v for v in found if v.unmeasured):
        print(f"{v.attack}: {v.unmeasured} distances, which only the Python session that ran it has, are not checked.")
    good = found.good and not (differs and not args.model)
    if any(v.confirmed < v.claimed or v.changed or v.misreported for v in found):
        print("Not every success is confirmed: see the columns confirmed, judged otherwise and wrong distance.")
    elif good:
        print("Every claimed success fools the model. Every number that can be computed again is the stored one.")
    print(*found.not_checked, verify.NOT_CHECKED, sep="\n")
    return DONE if good else FAILED_IMAGES
