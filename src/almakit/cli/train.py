"""Trains a network of the zoo or your own: regular, l2-adversarial (ddn), linf-adversarial (pgd, trades) or certified
(ibp, crown-ibp).

Without further flags, a network of the package is trained again by its recipe. The weights (safetensors) and the log
(JSON: recipe, losses, accuracies) are written to OUT. The same command gives the same weights bit for bit.

  almakit train mnist/smallcnn-tiny-ddn
  almakit train cifar10/cnn-a-adv --kind pgd --option radius=0.03 --epochs 10 --flip
  almakit train my_model.py:build --kind pgd --data mnist --option radius=0.2
  almakit train --list
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.user_file import is_user_file
from ..expression import parse_number
from ..models.zoo import ZOO
from ..runs.progress import Progress, for_terminal
from .arguments import DONE, QUIET, Usage, usage

if TYPE_CHECKING:
    from ..train import Recipe

KINDS = ("regular", "ddn", "pgd", "trades", "ibp", "crown-ibp")


def option(text: str) -> tuple[str, float]:
    """``radius=8/255``."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), parse_number(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=NUMBER, e.g. radius=0.3") from None


SETTINGS = (
    ("--epochs N", int, "passes over the training images"),
    ("--batch-size N", int, "images per step"),
    ("--learning-rate R", float, "the largest learning rate"),
    ("--weight-decay R", float, "the weight decay of AdamW"),
    ("--shift N", int, "move each image by up to N pixels"),
    ("--flip", False, "mirror half of the images"),
    ("--seed N", int, "seed of everything random"),
    (
        "--data URI",
        str,
        "the training images (default: the training split of the network's data set; required for your own, e.g. "
        "mnist)",
    ),
)
"""Flags that replace a value of the recipe."""
ARGUMENTS = (
    ("model?", str, "the network: a name of the zoo (almakit ls models), or file.py:function that returns yours"),
    ("--list", False, "print the recipes of the networks inside the package"),
    ("--kind", KINDS, "the kind of training (default: the recipe's; required without a recipe)"),
    ("--option NAME=VALUE", [option], "a setting of the kind of training, e.g. radius=8/255; may be repeated"),
    *SETTINGS,
    ("--limit N", int, "train on the first N images only"),
    ("--test-limit N", int, "measure accuracy on the first N test images only"),
    ("--out FOLDER", Path, "folder of weights and log", Path("trained")),
    QUIET,
)


def main(args: argparse.Namespace) -> int:
    from .. import train

    if args.list:
        for name, known in train.recipes().items():
            print(f"{name}: {json.dumps(asdict(known))}")
        return DONE
    if not args.model:
        raise Usage("name a network to train, e.g. almakit train mnist/smallcnn-tiny-ddn, or give --list.")
    show, begun = Progress() if args.quiet else for_terminal(), list[bool]()

    def batch(done: int, total: int, loss: float) -> None:
        if not begun:
            show.begin("training", done - 1, total, "batches")
            begun.append(True)
        show.advance(1, f"loss {loss:.4f}")

    def epoch(line: dict[str, Any]) -> None:
        show.note(f"epoch {line['epoch']}: loss {line['loss']:.4f}, {line['cpu_seconds']:.0f} s of CPU")

    with usage():
        recipe = _recipe(args, train.recipes(), train.Recipe)
        try:
            limits = {"limit": args.limit, "test_limit": args.test_limit}
            weights, log = train.train_into(args.out, recipe, **limits, trace=epoch, batch_trace=batch)
        finally:
            show.end()
    if log is None:
        print(f"Nothing is left to do: {weights} was made by this recipe.")
        return DONE
    facts = [f"clean accuracy {log['clean_accuracy']:.2f} % of {log['test_images']} test images"]
    if "mean_iou" in log:
        facts = [f"{facts[0].replace(' %', ' % of the pixels')}, mIoU {log['mean_iou']:.2f} %"]
    if "epsilon" in log:
        images = f"at radius {log['epsilon']:g}, first {log['measured_images']}"
        facts.append(f"{images}: PGD accuracy {log['pgd_accuracy']:.1f} %")
    if "verified_accuracy" in log:
        facts.append(f"verified accuracy {log['verified_accuracy']:.1f} %")
    files = f"{weights}, {weights.with_suffix('.json').name}"
    print(f"{args.model}: {'; '.join(facts)}. Weights and log: {files}. Use it as {args.model}@{weights}.")
    return DONE


def _recipe(args: argparse.Namespace, known: dict[str, Recipe], new: type[Recipe]) -> Recipe:
    """The network's recipe with the settings of the command line. A network without a recipe, or with another kind of
    training than ``--kind``, gets a new recipe."""
    recipe = known.get(args.model)
    if recipe is None and args.kind is None and (args.model in ZOO or is_user_file(args.model)):
        # A name such as mnist/smallcnn-ddn promises what regular training does not give.
        raise Usage(
            f"there is no recipe for {args.model} (--list prints those there are): say how it is trained, --kind "
            f"{', '.join(KINDS)}."
        )
    if recipe is None or (args.kind is not None and args.kind != recipe.kind):
        recipe = new(args.model, kind=args.kind or "regular", channels_last=True)
    names = [row[0].split()[0].strip("-").replace("-", "_") for row in SETTINGS]
    values = {name: getattr(args, name) for name in names}
    given = {name: value for name, value in values.items() if value is not None and value is not False}
    return replace(recipe, options=recipe.options | dict(args.option), **given)
