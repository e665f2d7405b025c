"""Lists what there is to choose from: attacks, distances, goals, models or data; with a name, all about that one.

almakit ls attacks
almakit ls attacks ddn
"""

from __future__ import annotations

import argparse
import inspect
import textwrap
from dataclasses import MISSING, fields
from typing import Any

from .. import data, models, registry
from ..errors import suggestion
from ..models import ZOO
from ..report.table import text_table
from .main import DONE, Usage

ABOUT = {
    "mnist-demo": "256 MNIST test digits inside the package",
    "scenes": "digits on textured canvases with a class for every pixel, drawn by a seeded generator; no file needed",
    "mnist": "handwritten digits, 10 000 test and 60 000 training images of 1 x 28 x 28",
    "fashion-mnist": "clothes, 10 000 test and 60 000 training images of 1 x 28 x 28",
    "cifar10": "ten kinds of objects, 10 000 test and 50 000 training images of 3 x 32 x 32",
    "imagenet": "ImageNet photos, from the folder imagenet of ALMAKIT_DATA",
}
WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("attacks", "distances", "goals", "models", "data"), help="what to list")
    parser.add_argument("name", nargs="?", help="all about this one")


def main(args: argparse.Namespace) -> int:
    whole = {"attacks": _attacks, "distances": _distances, "goals": _goals, "models": _models, "data": _data}
    one = {"attacks": _attack, "distances": _distance, "goals": _goal, "models": _model, "data": _one_data}
    print(whole[args.what]() if args.name is None else one[args.what](args.name))
    return DONE


def _attacks() -> str:
    rows = []
    for name in registry.names("attacks"):
        kind = registry.get("attacks", name)
        does = "any" if kind.does is None else ", ".join(kind.does)
        rows.append(
            (name, does, "yes" if kind.can_target else "no", "minimal" if kind.minimal else "fixed epsilon", kind.paper)
        )
    table = text_table(("attack", "distances", "targeted", "looks for", "paper"), rows, range(5), WIDTH)
    others = [f"{name}:<attack>(...)" for name in registry.names("bridges") if name not in ("file", "almakit")]
    return f"{table}\n\nalmakit ls attacks ddn tells all about one: settings, defaults, cost, presets.\n" + _wrapped(
        f"other forms: {', '.join([*others, 'file.py:function(...)', 'almakit:standard-v1(distance=...)'])}"
    )


def _attack(text: str) -> str:
    """Settings, defaults, meaning, cost, distances, presets and paper of one attack."""
    from ..attacks.meanings import meaning

    name = registry.canonical("attacks", text)
    kind = registry.get("attacks", name)
    story = inspect.getdoc(kind) or ""
    module = "almakit" if kind.__module__.startswith("almakit.") else kind.__module__
    facts = {
        "distances": "any" if kind.does is None else ", ".join(kind.does),
        "targeted": "yes" if kind.can_target else "no",
        "looks for": "the smallest change" if kind.minimal else "any change within epsilon",
        "cost": kind.cost,
        "paper": kind.paper,
        "presets": "; ".join(
            f"preset={preset}: {', '.join(f'{k}={_word(v)}' for k, v in given.items())}"
            for preset, given in kind.presets.items()
        )
        or "none",
        "in Python": f"{module}.{kind.__name__}({_example(kind, quote=True)})",
        "in a text": f'"{name}({_example(kind)})"',
    }
    width = max(map(len, facts))
    lines = [_wrapped(f"{name}: {story.partition(chr(10) * 2)[0]}"), ""]
    lines += [
        textwrap.fill(f"{key.ljust(width)}  {value}", WIDTH, subsequent_indent=" " * (width + 2))
        for key, value in facts.items()
    ]
    rows = [(f.name, _default(f), meaning(kind, f.name)) for f in fields(kind)]
    return "\n".join([*lines, "", text_table(("setting", "default", "meaning"), rows, range(3), WIDTH)])


def _example(kind: Any, quote: bool = False) -> str:
    """The settings one gives most, as in a text or as in Python."""
    given = {f.name: _default(f) for f in fields(kind) if f.name in ("distance", "steps")}
    if quote and "distance" in given:
        given["distance"] = f'"{given["distance"]}"'
    if not kind.minimal:
        given = {"epsilon": "8/255", **given}
    return ", ".join(
        f"{key}={value}" for key, value in given.items() if key != "distance" or kind.does is None or len(kind.does) > 1
    )


def _default(f: Any) -> str:
    value = f.default_factory() if f.default_factory is not MISSING else f.default
    return "must be given" if value is MISSING else _word(value)


def _word(value: object) -> str:
    return (
        str(value).lower()
        if value is None or isinstance(value, bool)
        else f"{value:.4g}"
        if isinstance(value, float)
        else str(value)
    )


def _distance_row(name: str) -> tuple[Any, ...]:
    kind = registry.get("distances", name)
    norm = "-" if getattr(kind, "norm", None) is None else f"{kind.norm:g}"
    first = getattr(kind, "first_step", {})
    row = (
        name,
        norm,
        getattr(kind, "degree", None),
        first.get("paper", "-"),
        first.get("scripts", "-"),
        getattr(kind, "about", ""),
    )
    return tuple("-" if cell is None else cell for cell in row)


DISTANCE_HEADER = ("distance", "norm", "degree", "epsilon (paper)", "epsilon (scripts)", "what it is")


def _distances() -> str:
    return text_table(DISTANCE_HEADER, [_distance_row(name) for name in registry.names("distances")], (0, 5), WIDTH)


def _distance(text: str) -> str:
    name = registry.canonical("distances", text)
    kind = registry.get("distances", name)
    story = "\n\n".join(_wrapped(part) for part in (inspect.getdoc(kind) or "").split("\n\n"))
    facts = [f"{key}: {value}" for key, value in zip(DISTANCE_HEADER[1:], _distance_row(name)[1:], strict=True)]
    return "\n".join([f"{name}: {story}", "", *facts])


def _goals() -> str:
    rows = [(name, registry.get("goals", name).about, _settings(name)) for name in registry.names("goals")]
    table = text_table(("goal", "reached when", "settings"), rows, range(3), WIDTH)
    return f"{table}\n\n{_wrapped('other forms: file.py:function, which returns a goal or a function of the outputs')}"


def _settings(name: str) -> str:
    """What a goal can be told, but for the labels and targets of a call."""
    given = fields(registry.get("goals", name))
    return ", ".join(f.name for f in given if f.repr and f.name not in ("labels", "targets", "reference", "confidence"))


def _goal(text: str) -> str:
    name = registry.canonical("goals", text)
    kind = registry.get("goals", name)
    story = "\n\n".join(_wrapped(part) for part in (inspect.getdoc(kind) or "").split("\n\n"))
    return "\n".join([f"{name}: {kind.about}", "", story, "", _wrapped(f"settings: {_settings(name)}")])


def _models() -> str:
    rows = []
    for name, entry in ZOO.items():
        accuracy = "-" if entry.accuracy is None else f"{entry.accuracy:g} of {entry.images}"
        rows.append((name, entry.dataset, accuracy, _weights(name), entry.about))
    table = text_table(("model", "data", "clean % of images", "weights", "about"), rows, (0, 1, 3, 4), WIDTH)
    return f"{table}\n\n{_wrapped('other forms: ' + ', '.join(models.forms()))}"


def _weights(name: str) -> str:
    return "in the package" if ZOO[name].shipped else "fetched" if ZOO[name].at_hand else "<model>@<file>"


def _model(name: str) -> str:
    if name not in ZOO:
        raise Usage(f"there is no model called {name!r} in the zoo; {suggestion(name, ZOO)}")
    entry = ZOO[name]
    facts = {
        "about": entry.about,
        "data": f"{entry.dataset}, images of {' x '.join(map(str, entry.shape))}, {entry.classes} classes",
        "clean accuracy": "-"
        if entry.accuracy is None
        else f"{entry.accuracy:g} % of {entry.measured_on} ({entry.images} images), stated by "
        f"{entry.stated_by or 'almakit, measured here'}",
        "weights": _weights(name),
        "whence": entry.whence or entry.via or "almakit fetches them",
    }
    return "\n".join(
        [name, *(textwrap.fill(f"  {key}: {value}", WIDTH, subsequent_indent="    ") for key, value in facts.items())]
    )


def _data() -> str:
    rows = [(name, ABOUT.get(name, "")) for name in data.names()]
    table = text_table(("data", "what it is"), rows, (0, 1), WIDTH)
    return f"{table}\n\n{_wrapped('other forms: ' + ', '.join(data.forms()))}"


def _one_data(name: str) -> str:
    if name not in ABOUT:
        raise Usage(f"there are no data called {name!r}; {suggestion(name, ABOUT)}")
    return f"{name}: {ABOUT[name]}"


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
