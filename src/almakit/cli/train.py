"""Trains a network of the zoo or your own: regular, l2-adversarial (ddn), linf-adversarial (pgd, trades) or certified
(ibp, crown-ibp).

Without further flags, a network of the package is trained again by its recipe. The weights (safetensors) and the log
(JSON: recipe, losses, accuracies) are written to OUT. Re-run the same command to resume after the last whole epoch;
the weights are the same bit for bit.

  almakit train mnist/smallcnn-tiny-ddn
  almakit train cifar10/cnn-a-adv --kind pgd --option radius=0.03 --epochs 10 --flip
  almakit train my_model.py:build --kind pgd --data mnist --option radius=0.2
  almakit train --list
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.user_file import is_user_file
from ..errors import BadInput
from ..expression import parse_number
from ..models.zoo import ZOO
from ..runs.progress import Progress, duration, for_terminal
from .main import DONE, Usage

if TYPE_CHECKING:
    from ..train import Recipe

KINDS = ("regular", "ddn", "pgd", "trades", "ibp", "crown-ibp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        help="the network: a name of the zoo (almakit ls models), or file.py:function that returns your network",
    )
    parser.add_argument("--list", action="store_true", help="print the recipes of the networks inside the package")
    parser.add_argument(
        "--kind", choices=KINDS, help="the kind of training (default: the recipe's; required without a recipe)"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the kind of training, e.g. radius=8/255; may be repeated",
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="passes over the training images")
    parser.add_argument("--batch-size", type=int, metavar="N", help="images per step")
    parser.add_argument("--learning-rate", type=float, metavar="R", help="the largest learning rate")
    parser.add_argument("--weight-decay", type=float, metavar="R", help="the weight decay of AdamW")
    parser.add_argument("--shift", type=int, metavar="N", help="move each image by up to N pixels")
    parser.add_argument("--flip", action="store_const", const=True, help="mirror half of the images")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of everything random")
    parser.add_argument(
        "--data",
        metavar="URI",
        help="the training images (default: the training split of the network's data set; required for your own, "
        "e.g. mnist)",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="train on the first N images only")
    parser.add_argument("--test-limit", type=int, metavar="N", help="measure accuracy on the first N test images only")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("trained"),
        metavar="FOLDER",
        help="folder of weights and log (default: trained)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")


def main(args: argparse.Namespace) -> int:
    from .. import train

    if args.list:
        for name, known in train.recipes().items():
            settings = {key: value for key, value in asdict(known).items() if key not in ("model", "kind")}
            print(f"{name}: {known.kind}, {json.dumps(settings)}")
        return DONE
    if not args.model:
        raise Usage("name a network to train, e.g. almakit train mnist/smallcnn-tiny-ddn, or give --list.")
    show = Progress() if args.quiet else for_terminal()
    shown = _Shown(show)
    try:
        weights, log = train.train_into(
            args.out,
            _recipe(args, train.recipes(), train.Recipe),
            limit=args.limit,
            test_limit=args.test_limit,
            trace=shown.epoch,
            batch_trace=shown.batch,
            note=show.note,
        )
    except BadInput as error:
        raise Usage(str(error)) from error
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


MEASURED = 3  # batches that the estimate is made of


class _Shown:
    """Progress of a training: batches in the bar, a line for every epoch."""

    def __init__(self, show: Any):
        self.show, self.first, self.began = show, 0, 0.0

    def batch(self, done: int, total: int, loss: float) -> None:
        if not self.first:
            self.show.begin("training", done - 1, total, "batches")
            self.first, self.began = done, time.monotonic()
        elif done == self.first + MEASURED:
            # The first batch also builds what torch keeps for the rest.
            self.show.note(
                f"About {duration((time.monotonic() - self.began) / MEASURED * (total - done))} for the "
                f"{total - done} batches to come."
            )
        self.show.advance(1, f"loss {loss:.4f}")

    def epoch(self, line: dict[str, Any]) -> None:
        self.show.note(f"epoch {line['epoch']}: loss {line['loss']:.4f}, {line['cpu_seconds']:.0f} s of CPU")


def _recipe(args: argparse.Namespace, known: dict[str, Recipe], new: type[Recipe]) -> Recipe:
    recipe = known.get(args.model)
    if recipe is None and args.kind is None and (args.model in ZOO or is_user_file(args.model)):
        # A name such as mnist/smallcnn-ddn promises what regular training does not give.
        raise Usage(
            f"there is no recipe for {args.model} (--list prints those there are): say how it is trained, --kind "
            f"{', '.join(KINDS)}."
        )
    if recipe is None or (args.kind is not None and args.kind != recipe.kind):
        recipe = new(args.model, kind=args.kind or "regular", channels_last=True)
    changes = {
        name: value
        for name in ("epochs", "batch_size", "learning_rate", "weight_decay", "shift", "flip", "seed", "data")
        if (value := getattr(args, name)) is not None
    }
    options = dict(recipe.options)
    for text in args.option:
        name, equals, value = text.partition("=")
        try:
            options[name.strip()] = parse_number(value)
        except ValueError:
            raise Usage(f"--option {text!r}: write NAME=NUMBER, e.g. radius=0.3.") from None
        if not equals:
            raise Usage(f"--option {text!r}: write NAME=NUMBER, e.g. radius=0.3.")
    return replace(recipe, options=options, **changes)
