"""Verifies stored images again, with a newly loaded model, another batch size, full precision, and after rounding to
8 bits.

The folder is a run folder, whose files are checked by their hashes, or a folder of images with labels (class
sub-folders or a csv file). Code that a run.toml names is never run; give such a model yourself, with --model.

  almakit verify runs/a
  almakit verify runs/theirs --model mine.py:model
  almakit verify some/folder --model mnist/smallcnn
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..data import load
from ..report.subjects import summarise
from ..report.table import percent, text_table
from ..runs.folder import RunFolder
from ..runs.identity import difference
from ..runs.spec import RunSpec
from .arguments import DEVICE, DONE, ERROR, FAILED_IMAGES, JUDGED, TRUST, Usage, within

ARGUMENTS = (
    ("folder", Path, "a run folder, or a folder of images"),
    JUDGED,
    ("--goal GOAL", str, "the goal (default: the run's own, unless that is Python code)"),
    DEVICE,
    ("--batch-size N", within(int, 1), "images per forward pass (default: another number than the run's)"),
    TRUST,
)


def main(args: argparse.Namespace) -> int:
    if not args.folder.is_dir():
        raise Usage(f"there is no folder {args.folder}.")
    if (args.folder / "run.toml").is_file():
        return _run(args)
    if not args.model:
        raise Usage(f"{args.folder} is no run folder (it has no run.toml); to judge a folder of images give --model.")
    return _images(args)


def _run(args: argparse.Namespace) -> int:
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
    found = verify.verify_run(run, opened, args.batch_size, goal, summarise)
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


def _images(args: argparse.Namespace) -> int:
    from ..runs import model, verify

    spec = RunSpec(model=args.model, device=args.device, trust=args.trust)
    dataset = load(f"folder:{args.folder}")
    found = verify.verify_images(dataset, model.open_model(args.model, spec), args.batch_size or 64)
    kind, goal = ("label", "not classified as their label")
    if dataset.targets is not None:
        kind, goal = ("target", "classified as their target")
    share = f"{100 * found.fooled / max(found.images, 1):.1f} %"
    print(f"{args.folder}: {found.fooled} of {found.images} images ({share}) are {goal} by {args.model}.")
    for name, wanted, prediction in found.wrong[:20]:
        print(f"  {name}: {kind} {wanted}, classified as {prediction}")
    if len(found.wrong) > 20:
        print(f"  ... and {len(found.wrong) - 20} more")
    return FAILED_IMAGES if found.wrong else DONE
