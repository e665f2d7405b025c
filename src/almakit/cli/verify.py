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
from .main import DONE, ERROR, FAILED_IMAGES, Usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a run folder, or a folder of images")
    parser.add_argument(
        "--model", metavar="MODEL", help="the model (default: the run's own, unless that is Python code)"
    )
    parser.add_argument("--goal", metavar="GOAL", help="the goal (default: the run's own, unless that is Python code)")
    parser.add_argument("--device", default="auto", metavar="DEVICE", help="cpu, cuda, ...")
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="images per forward pass (default: another number than the run's)"
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="allow the model file to be unpickled, which can run code in it (a setting in the folder is ignored)",
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
        for sentence in damaged:
            print(f"damaged: {sentence}.")
        print(
            f"{len(damaged)} files are damaged; if this run is yours, run `almakit run --config "
            f"{args.folder / 'run.toml'}` to compute those chunks again."
        )
        return ERROR
    goal = model.goal_of(run, args.goal)
    opened = model.open_of(run, args.model, args.device, args.trust)
    differs = difference(run, opened)
    if differs:
        print(f"{opened.name} is not the model of the run, {run.spec.model}: {differs}.")
    other_model = bool(differs) and not args.model
    found = verify.verify_run(run, opened, args.batch_size, goal, summarise)
    header = (
        "attack",
        "records",
        "claimed",
        "confirmed",
        "confirmed %",
        "after 8 bits",
        "judged otherwise",
        "wrong distance",
    )
    rows = [
        (
            v.attack,
            v.records,
            v.claimed,
            v.confirmed,
            percent(v.confirmed / v.claimed if v.claimed else None),
            v.confirmed_8bit,
            v.changed,
            v.misreported,
        )
        for v in found
    ]
    print(f"{args.folder}: {sum(row.file is not None for row in run.chunks)} files whole; judged by {opened.name}.\n")
    print(text_table(header, rows))
    print("", *found.sentences(), sep="\n")
    for v in found:
        if v.unmeasured:
            print(
                f"{v.attack}: its distance is known only to the Python session that ran it; {v.unmeasured} values of "
                "it were not checked."
            )
    if any(v.confirmed < v.claimed or v.changed or v.misreported for v in found):
        print("Not every claim holds: see the columns confirmed, judged otherwise and wrong distance.")
    elif found.good and not other_model:
        print("Every claimed success fools the model. Every number that can be computed again is the stored one.")
    print(*found.not_checked, verify.NOT_CHECKED, sep="\n")
    return DONE if found.good and not other_model else FAILED_IMAGES


def _images(args: argparse.Namespace) -> int:
    from ..runs import model, verify

    spec = RunSpec(model=args.model, device=args.device, trust=args.trust)
    dataset = load(f"folder:{args.folder}")
    found = verify.verify_images(dataset, model.open_model(args.model, spec), args.batch_size or 64)
    goal = "classified as their target" if dataset.targets is not None else "not classified as their label"
    print(
        f"{args.folder}: {found.fooled} of {found.images} images ({100 * found.fooled / max(found.images, 1):.1f} %) "
        f"are {goal} by {args.model}."
    )
    for name, wanted, prediction in found.wrong[:20]:
        print(f"  {name}: {'target' if dataset.targets is not None else 'label'} {wanted}, classified as {prediction}")
    if len(found.wrong) > 20:
        print(f"  ... and {len(found.wrong) - 20} more")
    return FAILED_IMAGES if found.wrong else DONE
