"""The page: one self-contained HTML file, nothing fetched, nothing from outside taken as markup; and the data that its
script reads. No torch here."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from ..errors import optional
from ..runs.failures import writable
from ..runs.store.records import MEASURED
from ..runs.threat import goal_name, resisted, resisted_by
from ..version import VERSION
from . import palette
from .labels import distance_name, distance_order, radius
from .numbers import Array, worst_distances
from .pictures import Album, gallery_of, rounded
from .results import Results
from .sections import Section, sections_of
from .subjects import Subject, group_key, group_name, groups_of
from .table import brief, count, figure, percent
from .tables import Block, block_table, blocks_of, helps, pixel_table, smallest, standing
from .trust import checks, counts_of, facts

SCRIPTS = (
    "core",
    "svg",
    "chart",
    "theme",
    "table",
    "curves",
    "budget",
    "scatter",
    "trace",
    "explorer",
    "detail",
    "watch",
)
STYLES = ("base", "parts", "board", "print")


CELLS = 300_000
"""So many distances a page holds; of larger runs it keeps an even sample of images for the scatter plot, and curves of
this many points: """
CURVE = 2_000


@dataclass(frozen=True)
class Limits:
    """How much of the images goes into the page."""

    images: int = 60
    megabytes: float = 12.0


USUAL = Limits()


@dataclass(frozen=True)
class Watch:
    """What a page served while a run goes on knows: its own version and how often to ask for a newer one."""

    version: str
    seconds: float


def render(
    subjects: Sequence[Subject],
    limits: Limits = USUAL,
    watch: Watch | None = None,
    board: str | None = None,
    sections: Sequence[Section] | None = None,
) -> str:
    """The page of these subjects; ``board``: the address of the leaderboard it belongs to; ``sections``: what
    ``sections_of`` returned, where it is known."""
    complete = all(subject.complete for subject in subjects)
    data = build(subjects, limits) | {
        "watch": None if watch is None else {"version": watch.version, "seconds": watch.seconds, "complete": complete}
    }
    blocks = blocks_of(subjects)
    groups = [
        (subject.name, [block_table(block) for block in blocks if block.model == subject.name]) for subject in subjects
    ]
    return writable(
        template("page.html.j2").render(
            **frame(SCRIPTS, "; connect-src 'self'" if watch else ""),
            title=", ".join(dict.fromkeys(subject.name for subject in subjects)),
            board=board,
            data=embedded(data),
            subjects=[_subject(subject, [b for b in blocks if b.model == subject.name]) for subject in subjects],
            groups=groups,
            helps=helps([table for _, made in groups for table in made]),
            sections=sections_of(subjects) if sections is None else sections,
            unfinished=not complete,
            curve_groups=data["groups"],
            what=resisted_by({goal for _, goal in groups_of(subjects)}),
            tables=all(subject.runs[0].features is not None for subject in subjects),
            standing=standing(subjects),
            pixels=pixel_table(subjects),
            many_targets=any(column.many_targets for subject in subjects for column in subject.columns),
            fixed=any(math.isfinite(column.reach) for subject in subjects for column in subject.columns),
            traces=bool(data["traces"]),
            pictures=bool(data["gallery"]),
            watch=watch,
        )
    )


def embedded(value: Any) -> str:
    """JSON that is safe between script tags: no <, >, & and no line separators that scripts trip over."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _subject(subject: Subject, blocks: Sequence[Block]) -> dict[str, Any]:
    counts = counts_of(subject)
    return {
        "name": subject.name,
        "data": subject.runs[0].meta.get("data") or subject.runs[0].spec.data,
        "images": len(subject.images),
        "noun": "image" if subject.runs[0].features is None else "row",
        "clean_name": subject.summaries[0]["clean_name"],
        "attacks": len(subject.columns),
        "clean": subject.summaries[0]["clean_accuracy"],
        "checks": checks(subject),
        "facts": facts(subject),
        "counts": counts,
        "confirmed": counts["claims"] - counts["refuted"],
        "complete": subject.complete,
        "spec": [(run.folder.name, run.spec.to_toml()) for run in subject.runs],
        "robust": _tiles(subject),
        "smallest": smallest(blocks),
    }


def _tiles(subject: Subject) -> list[dict[str, Any]]:
    """Robust accuracy against all attacks of each block at its first radius, for the head of the page."""
    found = []
    for group, worst in zip(subject.groups, subject.worst_cases, strict=True):
        known = [row for row in worst["robust_accuracy"] if row["value"] is not None]
        if known:
            at = f"{group_name(group, long=False)} \u2264 {radius(known[0]['epsilon'], group[0])}"
            found.append(
                {
                    "attacks": worst["attacks"],
                    "what": resisted(goal_name(group[1])),
                    "at": at,
                    "group": group_key(group),
                    **known[0],
                }
            )
    return found


# The parts that are the same in every page.


def frame(scripts: tuple[str, ...], talk: str = "") -> dict[str, Any]:
    """What every page's template needs: styles, scripts and the content security policy that allows these alone, by
    hash.

    Pictures come only from the page itself; ``talk`` is what a watched page may do besides.
    """
    found, css = _scripts(scripts), _css()
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, found))}; style-src {_hash(css)}; img-src "
        f"data:{talk}; base-uri 'none'; form-action 'none'"
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
        "radius": radius,
    }
    return environment.get_template(name)


def _text(name: str) -> str:
    return files("almakit.report").joinpath("templates", *name.split("/")).read_text(encoding="utf-8")


@cache
def _css() -> str:
    return "\n".join([palette.css(), _text("vendor/uPlot.min.css"), *(_text(f"css/{name}.css") for name in STYLES)])


@cache
def _scripts(names: tuple[str, ...]) -> tuple[str, ...]:
    """One script per part, so that a fault in one leaves the others working; the licence of the library that charts
    need travels with it."""
    licence = _text("vendor/uPlot-LICENSE.txt").replace("*/", "* /")
    library = (f"/*\n{licence}*/\n{_text('vendor/uPlot.iife.min.js')}",) if "chart" in names else ()
    found = (*library, *(_text(f"js/{name}.js") for name in names))
    assert not any("</script" in script.lower() for script in found)
    return found


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _thousands(value: float | None) -> str:
    """A count with thin spaces between thousands."""
    return count(value) if value is None else f"{round(value):,}".replace(",", "\u2009")


# What the page's script reads.


def build(subjects: Sequence[Subject], limits: Limits) -> dict[str, Any]:
    """The page's data; all names in it come from outside and are only ever used as text."""
    columns = [(number, column) for number, subject in enumerate(subjects) for column in subject.columns]
    labels = [column.label for _, column in columns]
    methods = list(dict.fromkeys(label.method for label in labels))
    album = Album(int(limits.megabytes * 1e6))
    cells = sum(len(subject.images) * len(subject.columns) for subject in subjects)
    share = min(1.0, CELLS / max(cells, 1))
    samples = [_sample(len(subject.images), share) for subject in subjects]
    attacks = [_attack(subjects[number], number, column, methods, samples[number]) for number, column in columns]
    gallery, models = [], []
    first = 0
    for number, subject in enumerate(subjects):
        shown = gallery_of(subject, number, first, limits.images, album)
        gallery += shown
        models.append(_model(subject, samples[number], len(shown)))
        first += len(subject.columns)
    return {
        "models": models,
        "distances": [
            {"key": key, "label": distance_name(key).label}
            for key in distance_order(list({column.info.distance for _, column in columns}))
        ],
        "groups": [
            {
                "key": group_key(group),
                "distance": group[0],
                "goal": group[1],
                "what": resisted(goal_name(group[1])),
                "label": group_name(group, long=False),
                "long": group_name(group),
                "radii": [{"epsilon": at, "text": radius(at, group[0])} for at in subjects[0].radii.get(group[0], [])],
            }
            for group in groups_of(subjects)
        ],
        "measures": [{"key": key, "label": distance_name(key).label} for key in MEASURED],
        "methods": [
            {"label": method, "colour": palette.slot(place)[0], "marker": palette.slot(place)[1]}
            for place, method in enumerate(methods)
        ],
        "attacks": attacks,
        "envelopes": [
            envelope for number, subject in enumerate(subjects) for envelope in _envelopes(subject, number, share)
        ],
        "certified": [part for number, subject in enumerate(subjects) for part in _certified(subject, number, share)],
        "gallery": gallery,
        "pictures": album.uris,
        "traces": _traces(subjects),
        "room": {"images": limits.images, "megabytes": limits.megabytes, "full": album.full},
    }


def _sample(count: int, share: float) -> list[int]:
    """Places of an even sample."""
    kept = count if share >= 1 else max(1, int(count * share))
    return [place * count // kept for place in range(kept)] if kept else []


def _model(subject: Subject, sample: list[int], shown: int) -> dict[str, Any]:
    return {
        "name": subject.name,
        "classes": subject.class_names,
        "aimed": subject.runs[0].aimed,  # its two classes are whether a goal is reached
        "images": len(subject.images),
        "shown": shown,
        "sampled": len(sample) if len(sample) < len(subject.images) else None,
        "ids": [subject.images[place].id for place in sample],
        "labels": [subject.images[place].label for place in sample],
    }


def _attack(subject: Subject, number: int, column: Results, methods: list[str], sample: list[int]) -> dict[str, Any]:
    distances, part = column.by_image, column.numbers
    done = distances[~np.isnan(distances)]
    curve = thinned(done) if len(sample) < len(subject.images) else None
    fixed = (
        None
        if math.isinf(column.reach)
        else {"text": radius(column.reach, column.info.distance), **part["robust_accuracy"][0], "epsilon": column.reach}
    )
    return {
        "model": number,
        "label": column.label.label,
        "text": column.info.text,
        "distance": column.info.distance,
        "group": group_key(column.group),
        "method": methods.index(column.label.method),
        "dash": column.label.dash,
        "cells": packed(distances[sample]),
        "curve": None if curve is None else packed(curve),
        "grid": asdict(column.grid),
        "from": column.stop,
        "fixed": fixed,
        "done": len(done),
        "success": part["success_rate"]["value"],
        "median": part["median_all"]["value"],
        "medianAttacked": part["median_attacked"]["value"],
        "forwards": part["forwards"]["mean"],
        "backwards": part["backwards"]["mean"],
        "seconds": part["seconds"]["per_image"],
    }


def packed(values: Array) -> str:
    """Little-endian float32 in base64; infinities and NaN survive."""
    with np.errstate(over="ignore"):
        return base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")


def thinned(distances: Array) -> Array:
    """At most ``CURVE`` sorted distances that stand for all: the share above any epsilon is right to 1/(2 CURVE)."""
    ordered = np.sort(distances)
    if len(ordered) <= CURVE:
        return ordered
    return ordered[((np.arange(CURVE) + 0.5) * len(ordered) / CURVE).astype(np.int64)]


def _envelopes(subject: Subject, number: int, share: float) -> list[dict[str, Any]]:
    """For each block with several attacks: from where on some attack breaks each image. Attacks at fixed radii alone
    have no curve."""
    found = []
    for group, together in subject.groups.items():
        columns = subject.of_group(group)
        if len(columns) > 1 and any(column.info.minimal for column in columns):
            best = worst_distances([column.by_image for column in columns], [column.reach for column in columns])
            best = best[~np.isnan(best)]
            found.append(
                {
                    "grid": asdict(together.grid),
                    "from": together.start,
                    "model": number,
                    "group": group_key(group),
                    "curve": packed(np.sort(best) if share >= 1 else thinned(best)),
                }
            )
    return found


def _certified(subject: Subject, number: int, share: float) -> list[dict[str, Any]]:
    """For each untargeted block whose images are all certified: the radii below which nothing changes them."""
    found = []
    for group in subject.groups:
        if (radii := subject.certified_curve(group)) is not None:
            curve = packed(radii if share >= 1 else thinned(radii))
            found.append({"model": number, "group": group_key(group), "curve": curve})
    return found


def _traces(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """The recorded courses, with the numbers the page gives the attacks."""
    found, first = [], 0
    for number, subject in enumerate(subjects):
        places = {id(column.run): {} for column in subject.columns}  # type: dict[int, dict[int, int]]
        for offset, column in enumerate(subject.columns):
            places[id(column.run)][column.info.index] = first + offset
        ids = {info.index: info.id for info in subject.images}
        for run in subject.runs:
            for trace in run.traces:
                if trace.attack in places.get(id(run), {}) and trace.image in ids:
                    found.append(
                        {
                            "model": number,
                            "attack": places[id(run)][trace.attack],
                            "image": trace.image,
                            "id": ids[trace.image],
                            "target": trace.target,
                            "values": {
                                name: [_short(value) for value in values] for name, values in trace.values.items()
                            },
                        }
                    )
        first += len(subject.columns)
    return found


def _short(value: Any) -> Any:
    return rounded(value) if isinstance(value, float) else value
