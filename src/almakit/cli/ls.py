"""Lists attacks, distances, goals, models or data. With a name, explains that one.

almakit ls attacks
almakit ls attacks ddn
"""

from __future__ import annotations

import argparse
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
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
HEADERS = {
    "attacks": ("attack", "distances", "targeted", "looks for", "paper"),
    "distances": ("distance", "norm", "degree", "epsilon (paper)", "epsilon (scripts)", "what it is"),
    "goals": ("goal", "reached when", "settings"),
    "models": ("model", "data", "clean % of images", "weights", "about"),
    "data": ("data", "what it is"),
}
NUMBERS = ("norm", "degree", "epsilon (paper)", "epsilon (scripts)", "clean % of images")
"""Columns that are aligned to the right."""
WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("attacks", "distances", "goals", "models", "data"), help="what to list")
    parser.add_argument("name", nargs="?", help="explain this one")


def main(args: argparse.Namespace) -> int:
    what, one = args.what, args.name
    if one is None:
        header = HEADERS[what]
        left = [place for place, column in enumerate(header) if column not in NUMBERS]
        print(text_table(header, [_row(what, name) for name in _names(what)], left, WIDTH))
        if note := _note(what):
            print(f"\n{note}")
    elif what in registry.BUILT_IN:
        print({"attacks": _attack, "distances": _distance, "goals": _goal}[what](registry.canonical(what, one)))
    elif one not in _names(what):
        raise Usage(f"there are no {what} called {one!r}; {suggestion(one, _names(what))}")
    else:
        print(_model(one) if what == "models" else f"{one}: {ABOUT[one]}")
    return DONE


def _names(what: str) -> list[str]:
    if what in registry.BUILT_IN:
        return registry.names(what)
    return models.names() if what == "models" else data.names()


def _row(what: str, name: str) -> tuple[Any, ...]:
    """The line of a name in the table of its kind."""
    if what == "data":
        return name, ABOUT[name]
    if what == "models":
        entry = ZOO[name]
        accuracy = "-" if entry.accuracy is None else f"{entry.accuracy:g} of {entry.images}"
        return name, entry.dataset, accuracy, _weights(name), entry.about
    kind = registry.get(what, name)
    if what == "goals":
        return name, kind.about, _settings(kind)
    if what == "attacks":
        looks_for = "minimal" if kind.minimal else "fixed epsilon"
        return name, _distances_of(kind), "yes" if kind.can_target else "no", looks_for, kind.paper
    norm, first = getattr(kind, "norm", None), getattr(kind, "first_step", {})
    row = (None if norm is None else f"{norm:g}", getattr(kind, "degree", None), first.get("paper"))
    found = (name, *row, first.get("scripts"), getattr(kind, "about", ""))
    return tuple("-" if cell is None else cell for cell in found)


def _note(what: str) -> str:
    """What else may be written where a name of that kind is expected."""
    forms = {
        "attacks": [
            *(f"{name}:<attack>(...)" for name in registry.names("bridges") if name not in ("file", "almakit")),
            "file.py:function(...)",
            "almakit:standard-v1(distance=...)",
        ],
        "goals": ["file.py:function, which returns a goal or a function of the outputs"],
        "models": models.forms(),
        "data": data.forms(),
    }
    if what not in forms:
        return ""
    about_one = "almakit ls attacks ddn tells all about one: settings, defaults, cost, presets.\n"
    return (about_one if what == "attacks" else "") + _wrapped(f"other forms: {', '.join(forms[what])}")


def _attack(name: str) -> str:
    """Settings, defaults, meaning, cost, distances, presets and paper of one attack."""
    from ..attacks.meanings import meaning

    kind = registry.get("attacks", name)
    module = "almakit" if kind.__module__.startswith("almakit.") else kind.__module__
    presets = (
        f"preset={preset}: {', '.join(f'{k}={_word(v)}' for k, v in given.items())}"
        for preset, given in kind.presets.items()
    )
    facts = {
        "distances": _distances_of(kind),
        "targeted": "yes" if kind.can_target else "no",
        "looks for": "the smallest change" if kind.minimal else "any change within epsilon",
        "cost": kind.cost,
        "paper": kind.paper,
        "presets": "; ".join(presets) or "none",
        "in Python": f"{module}.{kind.__name__}({_example(kind, quote=True)})",
        "in a text": f'"{name}({_example(kind)})"',
    }
    rows = [(f.name, _default(f), meaning(kind, f.name)) for f in fields(kind)]
    settings = text_table(("setting", "default", "meaning"), rows, range(3), WIDTH)
    return f"{_page(name, _story(kind)[:1], facts)}\n\n{settings}"


def _distance(name: str) -> str:
    facts = dict(zip(HEADERS["distances"], _row("distances", name), strict=True))
    facts.pop("distance")
    return _page(name, _story(registry.get("distances", name)), facts)


def _goal(name: str) -> str:
    kind = registry.get("goals", name)
    return _page(name, [kind.about, *_story(kind)], {"settings": _settings(kind)})


def _model(name: str) -> str:
    entry = ZOO[name]
    stated = f"{entry.measured_on} ({entry.images} images), stated by {entry.stated_by or 'almakit, measured here'}"
    facts = {
        "data": f"{entry.dataset}, images of {' x '.join(map(str, entry.shape))}, {entry.classes} classes",
        "clean accuracy": "-" if entry.accuracy is None else f"{entry.accuracy:g} % of {stated}",
        "weights": _weights(name),
        "whence": entry.whence or entry.via or "almakit fetches them",
    }
    return _page(name, [entry.about], facts)


def _page(name: str, story: list[str], facts: Mapping[str, object]) -> str:
    """A name with paragraphs about it, then facts, one a line."""
    width = max(map(len, facts))
    lines = (
        textwrap.fill(f"{key.ljust(width)}  {value}", WIDTH, subsequent_indent=" " * (width + 2))
        for key, value in facts.items()
    )
    first, *rest = story or [""]
    return "\n\n".join([*map(_wrapped, (f"{name}: {first}", *rest)), "\n".join(lines)])


def _story(kind: type) -> list[str]:
    """The paragraphs of a docstring."""
    return (inspect.getdoc(kind) or "").split("\n\n")


def _distances_of(kind: Any) -> str:
    return "any" if kind.does is None else ", ".join(kind.does)


def _weights(name: str) -> str:
    return "in the package" if ZOO[name].shipped else "fetched" if ZOO[name].at_hand else "<model>@<file>"


def _settings(goal: Any) -> str:
    """The settings of a goal, without the labels and targets of a call."""
    of_a_call = ("labels", "targets", "reference", "confidence")
    return ", ".join(f.name for f in fields(goal) if f.repr and f.name not in of_a_call)


def _example(kind: Any, quote: bool = False) -> str:
    """The settings that are given most, as in a text or as in Python."""
    given = {f.name: _default(f) for f in fields(kind) if f.name in ("distance", "steps")}
    if kind.does is not None and len(kind.does) == 1:
        given.pop("distance", None)
    if quote and "distance" in given:
        given["distance"] = f'"{given["distance"]}"'
    if not kind.minimal:
        given = {"epsilon": "8/255", **given}
    return ", ".join(f"{key}={value}" for key, value in given.items())


def _default(f: Field[Any]) -> str:
    value = f.default_factory() if f.default_factory is not MISSING else f.default
    return "must be given" if value is MISSING else _word(value)


def _word(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
