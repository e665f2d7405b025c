"""``almakit report``: everything a report is, written into one folder. No torch here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..runs.failures import writable
from ..runs.radii import Radii
from ..runs.store import files
from ..runs.threat import goal_name
from . import figures, formats, html, subjects
from .blocks import blocks
from .course_figure import draw_courses
from .payload import USUAL, Limits
from .subjects import Subject, groups_of, labelled
from .summary import FORMAT, geometric_means

Say = Callable[[str], None]


def write_report(
    folders: Sequence[str | Path],
    out: str | Path,
    limits: Limits = USUAL,
    with_figures: bool = True,
    epsilons: Radii = (),
) -> list[Path]:
    """Reads the run folders and writes the page, tables, figures and summary into ``out``; returns what was written,
    the page first."""
    found = subjects.load(folders, epsilons)
    place = Path(out)
    tables = blocks(found)
    texts = {
        "index.html": html.render(found, limits),
        "tables.md": formats.markdown(tables),
        "tables.csv": formats.comma_separated(tables),
        "tables.tex": formats.latex(tables),
        "summary.json": json.dumps(summary(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
    }
    for name, text in texts.items():
        files.write_bytes(place / name, writable(text).encode())
    written = [place / name for name in texts]
    if with_figures:
        written += figures.draw_curves(found, place)
        written += draw_courses(found, place)
        gallery = figures.draw_gallery(found, place)
        written += [gallery] if gallery else []
    return written


def summary(found: Sequence[Subject]) -> dict[str, Any]:
    """The numbers of all runs, and geometric means over the models where there are several."""
    labels = labelled(found)
    runs = [
        part
        | {
            "folder": run.folder.name,
            "attacks": [
                column.numbers | {"label": labels[id(column)].label} for column in subject.columns if column.run is run
            ],
        }
        for subject in found
        for run, part in zip(subject.runs, subject.summaries, strict=True)
    ]
    worst = [
        {
            "model": subject.name,
            "distance": group[0],
            "goal": goal_name(group[1]),
            "attacks": len(subject.of_group(group)),
            "robust_accuracy": subject.worst_case(group),
        }
        for subject in found
        for group in groups_of([subject])
    ]
    means = geometric_means(runs) if len(found) > 1 else []
    return {"format": FORMAT, "radii": found[0].radii, "worst_case": worst, "runs": runs, "geometric_means": means}
