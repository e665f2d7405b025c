"""Lists attacks, distances, goals, models or data. With a name, explains that one.

almakit ls attacks
almakit ls attacks ddn
"""

from __future__ import annotations

import argparse
import inspect
import textwrap
from dataclasses import MISSING, Field, fields
from typing import Any

from .. import data, models, registry
from ..errors import suggestion
from ..models import ZOO
from ..report.table import text_table
from .arguments import DONE, Usage

LISTED = {
    "attacks": ("attack", "distances", "targeted", "looks for", "paper"),
    "distances": ("distance", "norm", "degree", "epsilon (paper)", "epsilon (scripts)", "what it is"),
    "goals": ("goal", "reached when", "settings"),
    "models": ("model", "data", "clean % of images", "weights", "about"),
    "data": ("data", "what it is"),
}
"""The columns of the tables."""
NUMBERS = ("norm", "degree", "epsilon (paper)", "epsilon (scripts)", "clean % of images")
"""Columns that are aligned to the right."""
WIDTH = 100
ARGUMENTS = (("what", tuple(LISTED), "what to list"), ("name?", str, "explain this one"))


def main(args: argparse.Namespace) -> int:
    what, one = args.what, args.name
    names = {"models": models.names, "data": data.names}.get(what, lambda: registry.names(what))()
    if one is None:
        first, *columns = LISTED[what]
        rows = [[name, *(_word(facts(what, name)[column], "-") for column in columns)] for name in names]
        left = [place for place, column in enumerate(LISTED[what]) if column not in NUMBERS]
        print(text_table([first, *columns], rows, left, WIDTH))
        libraries = "/".join(name for name in registry.names("bridges") if name not in ("file", "almakit"))
        forms = {
            "attacks": [f"{libraries}:<attack>(...)", "file.py:function(...)", "almakit:standard-v1(distance=...)"],
            "goals": ["file.py:function, which returns a goal or a function of the outputs"],
            "models": models.forms(),
            "data": data.forms(),
        }.get(what)
        if forms:
            print("", _wrapped("other forms: " + ", ".join(forms)), sep="\n")
        return DONE
    if what in registry.BUILT_IN:
        one = registry.canonical(what, one)
    elif one not in names:
        raise Usage(f"there are no {what} called {one!r}; {suggestion(one, names)}")
    print(explained(what, one))
    return DONE


def facts(what: str, name: str) -> dict[str, Any]:
    """The facts about a name, by heading."""
    if what == "data":
        return {"what it is": data.NAMES[name]}
    if what == "models":
        entry = ZOO[name]
        stated = f"{entry.measured_on}, stated by {entry.stated_by or 'almakit, measured here'}"
        return {
            "data": entry.dataset,
            "images": f"{' x '.join(map(str, entry.shape))}, {entry.classes} classes",
            "clean % of images": f"{entry.accuracy:g} of {entry.images}" if entry.accuracy else None,
            "measured": stated if entry.accuracy else None,
            "weights": "in the package" if entry.shipped else "fetched" if entry.at_hand else "<model>@<file>",
            "whence": entry.whence or entry.via or "almakit fetches them",
            "about": entry.about,
        }
    kind = registry.get(what, name)
    if what == "distances":
        first = getattr(kind, "first_step", {})
        return {
            "norm": getattr(kind, "norm", None),
            "degree": getattr(kind, "degree", None),
            "epsilon (paper)": first.get("paper"),
            "epsilon (scripts)": first.get("scripts"),
            "what it is": getattr(kind, "about", ""),
        }
    if what == "goals":
        of_a_call = ("labels", "targets", "reference", "confidence")
        settings = [f.name for f in fields(kind) if f.repr and f.name not in of_a_call]
        return {"reached when": kind.about, "settings": ", ".join(settings)}
    presets = (
        f"preset={preset}: {', '.join(f'{key}={_word(value)}' for key, value in settings.items())}"
        for preset, settings in kind.presets.items()
    )
    module = "almakit" if kind.__module__.startswith("almakit.") else kind.__module__
    return {
        "distances": "any" if kind.does is None else ", ".join(kind.does),
        "targeted": "yes" if kind.can_target else "no",
        "looks for": "minimal" if kind.minimal else "fixed epsilon",
        "cost": kind.cost,
        "paper": kind.paper,
        "presets": "; ".join(presets) or "none",
        "in Python": f"{module}.{kind.__name__}({_example(kind, quote=True)})",
        "in a text": f'"{name}({_example(kind)})"',
    }


def explained(what: str, name: str) -> str:
    """The docstring, all facts, and the settings of an attack."""
    known = facts(what, name)
    kind: Any = registry.get(what, name) if what in registry.BUILT_IN else None
    story = (inspect.getdoc(kind) or "") if kind else str(known.pop("about", None) or known.pop("what it is"))
    paragraphs = story.split("\n\n")[: 1 if what == "attacks" else None]
    width = max(map(len, known), default=0)
    lines = [
        textwrap.fill(f"{key.ljust(width)}  {_word(value, '-')}", WIDTH, subsequent_indent=" " * (width + 2))
        for key, value in known.items()
    ]
    parts = [*map(_wrapped, (f"{name}: {paragraphs[0]}", *paragraphs[1:])), "\n".join(lines)]
    if what == "attacks":
        from ..attacks.meanings import meaning

        rows = [(f.name, _default(f), meaning(kind, f.name)) for f in fields(kind)]
        parts.append(text_table(("setting", "default", "meaning"), rows, range(3), WIDTH))
    return "\n\n".join(filter(None, parts))


def _example(kind: Any, quote: bool = False) -> str:
    """The most frequent settings, as text and in Python."""
    settings = {f.name: _default(f) for f in fields(kind) if f.name in ("distance", "steps")}
    if kind.does is not None and len(kind.does) == 1:
        settings.pop("distance", None)
    if quote and "distance" in settings:
        settings["distance"] = f'"{settings["distance"]}"'
    if not kind.minimal:
        settings = {"epsilon": "8/255", **settings}
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def _default(f: Field[Any]) -> str:
    value = f.default_factory() if f.default_factory is not MISSING else f.default
    return "must be given" if value is MISSING else _word(value)


def _word(value: object, nothing: str = "none") -> str:
    if value is None or isinstance(value, bool):
        return nothing if value is None else str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
