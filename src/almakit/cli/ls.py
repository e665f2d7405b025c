"""Lists what there is to choose from: attacks, distances, models or data."""

from __future__ import annotations

import argparse

from .. import registry
from ..report.tables import text_table
from .main import DONE

ABOUT = {
    "mnist-demo": "256 MNIST test digits inside the package",
    "mnist": "handwritten digits, 10 000 test and 60 000 training images of 1 x 28 x 28",
    "fashion-mnist": "clothes, 10 000 test and 60 000 training images of 1 x 28 x 28",
    "cifar10": "ten kinds of objects, 10 000 test and 50 000 training images of 3 x 32 x 32",
    "imagenet": "ImageNet photos, from the folder imagenet of ALMAKIT_DATA",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("attacks", "distances", "models", "data"), help="what to list")


def main(args: argparse.Namespace) -> int:
    print({"attacks": _attacks, "distances": _distances, "models": _models, "data": _data}[args.what]())
    return DONE


def _attacks() -> str:
    rows = []
    for name in registry.names("attacks"):
        kind = registry.get("attacks", name)
        does = "any" if kind.does is None else ", ".join(kind.does)
        rows.append(
            (
                name,
                does,
                "yes" if kind.can_target else "no",
                "minimal" if kind.minimal else "fixed epsilon",
                kind.cost,
                ", ".join(kind.presets) or "-",
                kind.paper,
            )
        )
    table = text_table(("attack", "distances", "targeted", "looks for", "cost", "presets", "paper"), rows, left=range(7))
    others = [f"{name}:<attack>(...)" for name in registry.names("bridges") if name not in ("file", "almakit")]
    presets = "A preset is written as a setting, e.g. ddn(preset=paper, steps=1000)."
    return f"{table}\n\n{presets}\nother forms: {', '.join([*others, 'file.py:function(...)', 'almakit:standard-v1(distance=...)'])}"


def _distances() -> str:
    rows = []
    for name in registry.names("distances"):
        kind = registry.get("distances", name)
        norm = "-" if getattr(kind, "norm", None) is None else f"{kind.norm:g}"
        first = getattr(kind, "first_step", {})
        rows.append(
            (
                name,
                norm,
                getattr(kind, "degree", None),
                first.get("paper", "-"),
                first.get("scripts", "-"),
                getattr(kind, "about", ""),
            )
        )
    header = ("distance", "norm", "degree", "epsilon (paper)", "epsilon (scripts)", "what it is")
    return text_table(header, [tuple("-" if cell is None else cell for cell in row) for row in rows], left=(0, 5))


def _models() -> str:
    from ..models import ZOO, forms

    rows = []
    for name, entry in ZOO.items():
        weights = "in the package" if entry.shipped else "fetched" if entry.at_hand else f"{name}@<file>"
        rows.append((name, entry.dataset, "-" if entry.accuracy is None else f"{entry.accuracy:g}", weights, entry.about))
    header = ("model", "data", "clean %", "weights", "about")
    return f"{text_table(header, rows, left=(0, 1, 3, 4))}\n\nother forms: {', '.join(forms())}"


def _data() -> str:
    from ..data import forms, names

    rows = [(name, ABOUT.get(name, "")) for name in names()]
    return f"{text_table(('data', 'what it is'), rows, left=(0, 1))}\n\nother forms: {', '.join(forms())}"
