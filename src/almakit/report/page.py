"""The page: one self-contained HTML file that loads nothing and escapes all untrusted text, and the data for its
script. No torch here."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from ..errors import optional
from ..radius import readable
from ..runs.failures import writable
from ..runs.store.records import MEASURED
from ..runs.threat import goal_name, resisted, resisted_by
from ..version import VERSION
from . import palette
from .labels import distance_name, distance_order
from .numbers import Array
from .pictures import Album, fitting, gallery_of
from .results import Results
from .sections import Section, sections_of
from .subjects import Subject, group_key, group_name, groups_of
from .table import brief, count, figure, percent
from .tables import helps, pixel_table, standing, tables_of
from .trust import checks, counts_of, facts

SCRIPTS = ("core", "svg", "chart", "theme", "table", "curves", "budget", "scatter", "explorer", "detail")
STYLES = ("base", "parts", "board", "print")


IMAGES, FEW = 60, 12
"""Usual number of images whose pictures a page shows for each model, in a report and on the pages of a board."""


def render(
    subjects: Sequence[Subject],
    images: int | None = None,
    board: str | None = None,
    sections: Sequence[Section] | None = None,
) -> str:
    """The page of these subjects, with pictures of at most ``images`` images of each (by default a number that fits).
    ``board``: the address of its leaderboard. ``sections``: the result of ``sections_of``, if computed already."""
    data = build(subjects, images, FEW if board else IMAGES)
    tables = tables_of(subjects)
    return writable(
        template("page.html.j2").render(
            **frame(SCRIPTS),
            title=", ".join(dict.fromkeys(subject.name for subject in subjects)),
            board=board,
            data=embedded(data),
            subjects=[_subject(subject) for subject in subjects],
            results=tables,
            helps=helps([table for mine in tables.values() for table in mine]),
            sections=sections_of(subjects) if sections is None else sections,
            unfinished=not all(subject.complete for subject in subjects),
            curve_groups=data["groups"],
            what=resisted_by({goal for _, goal in groups_of(subjects)}),
            tables=all(subject.runs[0].features is not None for subject in subjects),
            standing=standing(subjects),
            pixels=pixel_table([summary for subject in subjects for summary in subject.summaries]),
            many_targets=any(column.draw.several for subject in subjects for column in subject.columns),
            fixed=any(math.isfinite(column.reach) for subject in subjects for column in subject.columns),
            pictures=bool(data["gallery"]),
        )
    )


def embedded(value: Any) -> str:
    """JSON that is safe between script tags: without <, >, & and without line separators that are invalid in
    scripts."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _subject(subject: Subject) -> dict[str, Any]:
    counts = counts_of([column.numbers for column in subject.columns])
    runs = [(run.folder.name, summary) for run, summary in zip(subject.runs, subject.summaries, strict=True)]
    return {
        "name": subject.name,
        "data": subject.runs[0].meta.get("data") or subject.runs[0].spec.data,
        "images": len(subject.images),
        "noun": "image" if subject.runs[0].features is None else "row",
        "clean_name": subject.summaries[0]["clean_name"],
        "attacks": len(subject.columns),
        "clean": subject.summaries[0]["clean_accuracy"],
        "checks": checks(subject.summaries, subject.worst_cases),
        "facts": [pair for folder, summary in runs for pair in facts(summary, folder)],
        "counts": counts,
        "confirmed": counts["claims"] - counts["refuted"],
        "complete": subject.complete,
        "spec": [(run.folder.name, run.spec.to_toml()) for run in subject.runs],
        "tiles": _tiles(subject),
    }


def _tiles(subject: Subject) -> list[dict[str, Any]]:
    """The worst case of each block, shown at the top of the page: robust accuracy at its first radius, and median."""
    found = []
    for group, worst in zip(subject.groups, subject.worst_cases, strict=True):
        known = [row for row in worst["robust_accuracy"] if row["value"] is not None]
        tile = {"attacks": worst["attacks"], "what": resisted(worst["goal"]), "group": group_key(group)}
        tile |= {"name": group_name(group, long=False), "median": worst["median"]["value"], "robust": None}
        if known:
            tile |= {"robust": known[0], "at": readable(known[0]["epsilon"], group[0])}
        found.append(tile)
    return found


# Parts that are equal on every page.


def frame(scripts: tuple[str, ...]) -> dict[str, Any]:
    """The common values of page templates: styles, scripts, and the content security policy that allows only these, by
    hash, and pictures from the page itself."""
    found, css = _scripts(scripts), _css()
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, found))}; style-src {_hash(css)}; img-src "
        "data:; base-uri 'none'; form-action 'none'"
    )
    return {"version": VERSION, "policy": policy, "css": css, "scripts": found}


@cache
def template(name: str) -> Any:
    """A page's template."""
    jinja2 = optional("jinja2", "a report needs Jinja2; install it with `pip install 'almakit[report]'`.")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("almakit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "distance": figure,
        "percent": percent,
        "count": _thousands,
        "brief": brief,
        "plain": lambda value: "" if value is None else repr(float(value)),  # for sorting
        "radius": readable,
    }
    return environment.get_template(name)


def _text(name: str) -> str:
    return files("almakit.report").joinpath("templates", *name.split("/")).read_text(encoding="utf-8")


@cache
def _css() -> str:
    return "\n".join([palette.css(), _text("vendor/uPlot.min.css"), *(_text(f"css/{name}.css") for name in STYLES)])


@cache
def _scripts(names: tuple[str, ...]) -> tuple[str, ...]:
    """One script per part, so that an error in one does not stop the others. The chart library includes its licence."""
    licence = _text("vendor/uPlot-LICENSE.txt").replace("*/", "* /")
    library = (f"/*\n{licence}*/\n{_text('vendor/uPlot.iife.min.js')}",) if "chart" in names else ()
    found = (*library, *(_text(f"js/{name}.js") for name in names))
    assert not any("</script" in script.lower() for script in found)
    return found


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _thousands(value: float | None) -> str:
    """A number with thin spaces between thousands."""
    return count(value) if value is None else f"{round(value):,}".replace(",", "\u2009")


# Data for the page's script.


def build(subjects: Sequence[Subject], images: int | None = None, usual: int = IMAGES) -> dict[str, Any]:
    """The page's data, with pictures of at most ``images`` images of each subject (default: ``usual``, or fewer).

    Names come from untrusted folders and are used as text only.
    """
    columns = [column for subject in subjects for column in subject.columns]
    methods = list(dict.fromkeys(column.label.method for column in columns))
    album = Album()
    data: dict[str, Any] = {
        "models": [],
        "distances": [
            {"key": key, "label": distance_name(key).label}
            for key in distance_order(list({column.info.distance for column in columns}))
        ],
        "groups": [
            {
                "key": group_key(group),
                "distance": group[0],
                "goal": group[1],
                "what": resisted(goal_name(group[1])),
                "label": group_name(group, long=False),
                "long": group_name(group),
                "radii": [
                    {"epsilon": at, "text": readable(at, group[0])} for at in subjects[0].radii.get(group[0], [])
                ],
            }
            for group in groups_of(subjects)
        ],
        "measures": [{"key": key, "label": distance_name(key).label} for key in MEASURED],
        "methods": [
            {"label": method, "colour": palette.slot(place)[0], "marker": palette.slot(place)[1]}
            for place, method in enumerate(methods)
        ],
        **{name: [] for name in ("attacks", "envelopes", "certified", "gallery")},
    }
    for number, subject in enumerate(subjects):
        first = len(data["attacks"])
        gallery = gallery_of(subject, number, first, fitting(subject, usual) if images is None else images, album)
        data["gallery"] += gallery
        data["models"].append(_model(subject, len(gallery)))
        data["attacks"] += [
            {"model": number, "method": methods.index(column.label.method)} | _attack(column)
            for column in subject.columns
        ]
        for group, together in subject.groups.items():
            place = {"model": number, "group": group_key(group)}
            if len(together.attacks) > 1 and together.minimal:
                best = np.fmin.reduce([column.counted(column.by_image) for column in together.attacks])
                grid = {"grid": asdict(together.grid), "from": together.start}
                data["envelopes"].append(place | grid | {"curve": packed(ordered(best))})
            if (radii := subject.certified_curve(group)) is not None:
                data["certified"].append(place | {"curve": packed(radii)})
    return data | {"pictures": list(album.uris)}


def _model(subject: Subject, shown: int) -> dict[str, Any]:
    return {
        "name": subject.name,
        "classes": subject.class_names,
        "aimed": subject.runs[0].aimed,  # the two classes are "not reached" and "reached"
        "images": len(subject.images),
        "shown": shown,
        "ids": [info.id for info in subject.images],
        "labels": [info.label for info in subject.images],
    }


def _attack(column: Results) -> dict[str, Any]:
    distances, part, fixed = column.by_image, column.numbers, None
    if math.isfinite(column.reach):
        at = {"text": readable(column.reach, column.info.distance), "epsilon": column.reach}
        fixed = part["robust_accuracy"][0] | at
    return {
        "label": column.label.label,
        "text": column.info.text,
        "distance": column.info.distance,
        "group": group_key(column.group),
        "dash": column.label.dash,
        "cells": packed(distances),
        "grid": asdict(column.grid),
        "from": column.stop,
        "fixed": fixed,
        "success": part["success_rate"]["value"],
        "median": part["median_all"]["value"],
        "forwards": part["forwards"]["mean"],
        "backwards": part["backwards"]["mean"],
        "seconds": part["seconds"]["per_image"],
    }


def packed(values: Array) -> str:
    """Little-endian float32 in base64, which preserves infinities and NaN."""
    with np.errstate(over="ignore"):
        return base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")


def ordered(distances: Array) -> Array:
    """The known distances in rising order."""
    return np.sort(distances[~np.isnan(distances)])
