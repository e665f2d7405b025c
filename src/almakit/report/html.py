"""The page: one self-contained HTML file, nothing fetched, nothing from outside taken as markup. No torch here."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ..errors import optional
from ..runs.failures import writable
from ..runs.threat import resisted_by
from ..version import VERSION
from . import features, palette, payload, votes
from .blocks import Block, blocks, most_radii, with_certified
from .brackets import sections
from .classes import portraits
from .labels import distance_name, radius
from .payload import USUAL, Limits
from .subjects import Subject, group_name, groups_of
from .transfers import matrix
from .trust import checks, count, facts

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


@dataclass(frozen=True)
class Watch:
    """What a page served while a run goes on knows: its own version and how often to ask for a newer one."""

    version: str
    seconds: float


def render(
    subjects: Sequence[Subject], limits: Limits = USUAL, watch: Watch | None = None, board: str | None = None
) -> str:
    """The page of these subjects; ``board``: the address of the leaderboard it belongs to."""
    complete = all(subject.complete for subject in subjects)
    data = payload.build(subjects, limits) | {
        "watch": None if watch is None else {"version": watch.version, "seconds": watch.seconds, "complete": complete}
    }
    tables = blocks(subjects)
    goals = {goal for _, goal in groups_of(subjects)}
    groups = [(subject.name, [block for block in tables if block.model == subject.name]) for subject in subjects]
    return writable(
        template("page.html.j2").render(
            **frame(SCRIPTS, "; connect-src 'self'" if watch else ""),
            title=_title(subjects),
            board=board,
            data=embedded(data),
            subjects=[_subject(subject, mine) for subject, (_, mine) in zip(subjects, groups, strict=True)],
            groups=groups,
            with_paper=any(row.paper for block in tables for row in block.rows),
            with_certified=with_certified(tables),
            brackets=sections(subjects),
            transfer=matrix([run for subject in subjects for run in subject.runs]),
            features=features.sections(subjects),
            votes=votes.sections(subjects),
            unfinished=not complete,
            curve_groups=data["groups"],
            radii=most_radii(tables),
            what=resisted_by(goals),
            tables=all(subject.runs[0].features is not None for subject in subjects),
            standing=_standing(subjects),
            pixels=_pixels(subjects),
            classes=[(subject.name, mine) for subject, mine in zip(subjects, portraits(subjects), strict=True) if mine],
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


def _title(subjects: Sequence[Subject]) -> str:
    return ", ".join(dict.fromkeys(subject.name for subject in subjects))


def _standing(subjects: Sequence[Subject]) -> dict[str, Any]:
    """Model x radius: robust accuracy against all attacks of each block."""
    heads = [(group, epsilon) for group in groups_of(subjects) for epsilon in subjects[0].radii[group[0]]]
    rows = []
    for subject in subjects:
        worst = {
            (group, row["epsilon"]): row
            for group in groups_of([subject])
            for row in subject.worst_case(group)
            if row["value"] is not None
        }
        rows.append(
            {
                "name": subject.name,
                "cells": [subject.summaries[0]["clean_accuracy"], *(worst.get(head) for head in heads)],
            }
        )
    names = [f"{group_name(group, long=False)} ≤ {radius(epsilon, group[0])}" for group, epsilon in heads]
    return {"columns": names, "rows": rows}


def _pixels(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """Of segmentation models: how the labelled pixels are classified, clean and in what each attack left."""
    rows = []
    for summary in (summary for subject in subjects for summary in subject.summaries if "pixels" in summary):
        rows.append({"name": f"{summary['run']['model']}, clean", **summary["pixels"]})
        rows += [{"name": part["name"], **part["pixels"]} for part in summary["attacks"]]
    return rows


def _subject(subject: Subject, tables: Sequence[Block]) -> dict[str, Any]:
    counts, clean = count(subject), subject.summaries[0]["clean_accuracy"]
    confirmed = counts.claims - counts.refuted
    return {
        "name": subject.name,
        "data": subject.runs[0].meta.get("data") or subject.runs[0].spec.data,
        "images": len(subject.images),
        "noun": "image" if subject.runs[0].features is None else "row",
        "clean_name": subject.summaries[0]["clean_name"],
        "attacks": len(subject.columns),
        "clean": clean,
        "checks": checks(subject),
        "facts": facts(subject),
        "counts": counts,
        "confirmed": confirmed,
        "survivors": counts.survivors / confirmed if confirmed else None,
        "complete": subject.complete,
        "spec": [(run.folder.name, run.spec.to_toml()) for run in subject.runs],
        "smallest": _smallest(tables),
    }


def _smallest(tables: Sequence[Block]) -> list[dict[str, Any]]:
    """The smallest median of each block, for the head of the page."""
    found = []
    for block in tables:
        known = [(row.median, row.label) for row in block.rows if row.median is not None]
        if known:
            value, label = min(known)
            found.append(
                {"distance": distance_name(block.distance).label + block.words, "value": value, "label": label}
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
        "distance": shown_distance,
        "percent": shown_percent,
        "count": shown_count,
        "brief": shown_brief,
        "plain": shown_plain,
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


def shown_distance(value: float | None) -> str:
    """Four significant digits, infinite where nothing was found."""
    if value is None:
        return "–"
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e6):
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa}·10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    if value == 0:
        return "0"
    whole = math.floor(math.log10(abs(value))) + 1
    return f"{value:.{max(0, 4 - max(whole, 1) + max(-whole, 0))}f}"


def shown_percent(value: float | None, places: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{places}f}"


def shown_count(value: float | None) -> str:
    """Thin spaces between thousands."""
    return "–" if value is None else f"{round(value):,}".replace(",", "\u2009")


def shown_brief(value: float | None) -> str:
    """Three significant digits at most, without empty zeros."""
    return "–" if value is None else f"{float(f'{value:.3g}'):g}"


def shown_plain(value: float | None) -> str:
    """For sorting: the number itself, nothing where there is none."""
    return "" if value is None else repr(float(value))
