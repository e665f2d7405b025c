"""Distance against queries: the median of the best distances so far, from what each record kept on its way. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..eval.records import PASSES, AttackInfo, Record
from .numbers import median

if TYPE_CHECKING:
    from .subjects import Subject


def course(info: AttackInfo, records: Sequence[Record]) -> list[dict[str, float | None]]:
    """The median best distance of the attacked images after each of ``PASSES`` forwards, as far as the attack goes; empty where no record kept any.

    null: nothing found for half of them by then.
    """
    mine = [record for record in records if record.attacked]
    if not info.minimal or not any(value is not None for record in mine for value in record.course.values()):
        return []
    most = max(record.forwards for record in mine)
    kept = [count for place, count in enumerate(PASSES) if place == 0 or PASSES[place - 1] < most]
    rows = []
    for count in kept:
        values = [record.course.get(f"best_{count}") for record in mine if not record.refuted or record.status != "success"]
        middle = median(np.array([math.inf if value is None else value for value in values]))
        rows.append({"forwards": min(count, most), "median": middle if math.isfinite(middle) else None})
    return rows


def draw_courses(subjects: Sequence[Subject], out: Path, kinds: Sequence[str] = ("svg", "pdf", "png")) -> list[Path]:
    """``courses.*``: one row per distance and goal, one column per model; median distance against forwards, both logarithmic. Nothing without courses."""
    from . import palette
    from .figures import CHARACTERS, LINES, MARKS, PANEL, STYLE, literal, mathematical, plotting, save_figure
    from .subjects import groups_of, labelled

    groups = [group for group in groups_of(subjects) if any(_drawn(subject, group) for subject in subjects)]
    if not groups:
        return []
    pyplot, labels = plotting(), labelled(subjects)
    methods = list(dict.fromkeys(name.method for name in labels.values()))
    with pyplot.rc_context(STYLE):
        size = PANEL[0] * len(subjects), PANEL[1] * len(groups) + 0.6
        figure, panels = pyplot.subplots(len(groups), len(subjects), figsize=size, squeeze=False, layout="constrained")
        handles: dict[str, Any] = {}
        for row, group in enumerate(groups):
            for place, subject in enumerate(subjects):
                panel = panels[row][place]
                for column, points in _drawn(subject, group):
                    label = labels[id(column)]
                    colour, mark = palette.slot(methods.index(label.method))
                    (line,) = panel.plot(*zip(*points, strict=True), color=palette.SERIES_LIGHT[colour], linestyle=LINES[label.dash],
                                         marker=MARKS[mark] or ".", markersize=4)  # fmt: skip
                    handles.setdefault(label.label, line)
                panel.set_xscale("log")
                panel.set_yscale("log")
                panel.set_xlabel("forwards per image")
                panel.set_ylabel(f"median {mathematical(group[0])} of attacked images" if place == 0 else "")
                panel.set_title(literal(subject.name) if row == 0 else "")
        across = max(1, min(3 * len(subjects), int(CHARACTERS * size[0] / (6 + max(map(len, handles))))))
        figure.legend(handles.values(), map(literal, handles), loc="outside lower center", ncols=across)
        written = [save_figure(figure, out / f"courses.{kind}") for kind in kinds]
        pyplot.close(figure)
    return written


def _drawn(subject: Subject, group: tuple[str, str]) -> list[tuple[Any, list[tuple[float, float]]]]:
    """The columns of a group with the points of their courses."""
    found = []
    for column in subject.of_group(group):
        rows = column.numbers.get("course", ())
        points = [(row["forwards"], row["median"]) for row in rows if row["median"]]
        found += [(column, points)] if points else []
    return found
