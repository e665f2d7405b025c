"""The figure of distance against queries. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import palette
from .figures import CHARACTERS, LINES, MARKS, PANEL, STYLE, literal, mathematical, plotting, save_figure
from .subjects import Column, Subject, groups_of, labelled


def draw_courses(subjects: Sequence[Subject], out: Path, kinds: Sequence[str] = ("svg", "pdf", "png")) -> list[Path]:
    """``courses.*``: one row per distance and goal, one column per model; median distance against forwards, both
    logarithmic. Nothing without courses."""
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
                    (line,) = panel.plot(
                        *zip(*points, strict=True),
                        color=palette.SERIES_LIGHT[colour],
                        linestyle=LINES[label.dash],
                        marker=MARKS[mark] or ".",
                        markersize=4,
                    )
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


def _drawn(subject: Subject, group: tuple[str, str]) -> list[tuple[Column, list[tuple[float, float]]]]:
    """The columns of a group with the points of their courses."""
    found = []
    for column in subject.of_group(group):
        rows = column.numbers.get("course", ())
        points = [(row["forwards"], row["median"]) for row in rows if row["median"]]
        found += [(column, points)] if points else []
    return found
