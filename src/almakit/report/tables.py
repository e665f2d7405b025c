"""The tables of a run and of a report, made from the summary's numbers. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..radius import readable, same
from ..runs.threat import resisted, resisted_by
from .labels import distance_name
from .subjects import Subject, group_name, groups_of
from .summary import MEASURES
from .table import Column, Row, Table, comma_separated, escape, latex, with_interval
from .trust import BAD, WARN, checks

TOGETHER = "all attacks"
FORMATS = ("text", "markdown", "csv", "latex")
WHICH = tuple(Column(name, name, shown="csv") for name in ("model", "distance", "goal"))

Tables = dict[str, list[Table]]
"""Tables by model, one per distance and goal."""


def tables_of(subjects: Sequence[Subject]) -> Tables:
    """The tables in the order of the page: by subject, the paper's distances first, untargeted before targeted."""
    return {subject.name: tables_of_run(subject.summary) for subject in subjects}


def tables_of_run(summary: dict[str, Any], short: bool = False) -> list[Table]:
    """The tables of one run's summary. ``short``: with the distance's key as heading, for a terminal."""
    return [_table(summary, worst, short) for worst in summary["worst_case"]]


def _table(summary: dict[str, Any], worst: dict[str, Any], short: bool) -> Table:
    """One row per attack for one distance and goal and, if there are several, one for all of them."""
    model, images = str(summary["run"]["model"]), "features" not in summary  # otherwise 8 bits have no meaning
    distance, goal = worst["distance"], worst["goal"]
    parts = [part for part in summary["attacks"] if (part["distance"], part["goal"]) == (distance, goal)]
    radii, name = summary["radii"][distance], distance_name(distance)
    words = "" if goal == "untargeted" else f", {goal}"
    what = resisted(goal)
    word = "robust" if what == "robust accuracy" else what
    columns: list[Column] = [Column("attack", "attack", tip="text"), *WHICH, Column("text", "attack", shown="csv")]
    for measure in MEASURES:
        eight = measure.name.endswith("_8bit")
        columns.append(measure if images or not eight else replace(measure, shown="csv"))
        if measure.name == "median":  # beside the medians
            for place, epsilon in enumerate(radii, 1):
                at = readable(epsilon, distance)
                help = f"{what} within {name.label} \u2264 {at}, with its 95 % interval"
                columns += [
                    Column(f"robust_accuracy_{place}", f"{word} % at {at}", "share", help=help),
                    Column(f"epsilon_{place}", "epsilon", "number", "csv"),
                ]
    which = {"model": model, "distance": distance, "goal": goal}
    rows: list[Row] = []
    for part in parts:
        row = which | {"attack": part["label"], "text": part["attack"]}
        row |= {measure.name: measure.read(part) for measure in MEASURES}
        rows.append(row | _robust(radii, part["robust_accuracy"]))
    footer = int(len(rows) > 1)
    if footer:
        middle = {"median": worst["median"]} if worst["median"]["value"] is not None else {}
        rows.append(which | {"attack": TOGETHER} | middle | _robust(radii, worst["robust_accuracy"]))
    many = any(part["over"] == "records" for part in parts)
    over = "records, one for each image and target" if many else "images"
    caption = f"Attacks on {model}, {name.label}{words}: success and {what} in %, medians, over all {over}, with 95 % "
    title = (distance if short else name.long) + words
    return Table(tuple(columns), rows, title, escape(f"{caption}intervals."), (), footer)


def _robust(radii: Sequence[float], known: Sequence[dict[str, Any]]) -> Row:
    """Robust accuracy at these radii; for an attack at a fixed radius, only at this one."""
    row: Row = {}
    for place, epsilon in enumerate(radii, 1):
        near = [one for one in known if same(one["epsilon"], epsilon) and one["value"] is not None]
        value = {key: near[0][key] for key in ("value", "low", "high")} if near else None
        row |= {f"epsilon_{place}": epsilon, f"robust_accuracy_{place}": value}
    return row


def helps(tables: Sequence[Table], detail: bool = True) -> list[str]:
    """Explanations of the headings, each once."""
    found = {column.head: column.help for table in tables for column in table.visible(detail) if column.help}
    return [f"{head}: {text}." for head, text in found.items()]


def written(tables: Tables, kind: str) -> str:
    """The tables as Markdown, CSV or LaTeX."""
    made = [table for mine in tables.values() for table in mine]
    if kind == "csv":
        return comma_separated(made)
    if kind == "latex":
        return latex(made)
    lines = []
    for model, mine in tables.items():
        heading = model.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
        lines += [f"### {heading}", "", *(table.markdown() for table in mine)]
    return "\n".join([*lines, *(f"* {text}" for text in helps(made))]) + "\n"


def run_text(summary: dict[str, Any], verbose: bool = False) -> str:
    """A run's numbers for a terminal."""
    run, noun = summary["run"], "rows" if "features" in summary else "images"
    accuracy = with_interval(summary["clean_accuracy"])
    lines = [f"{run['model']} on {run['data']}: {summary['images']} {noun}, {summary['clean_name']} {accuracy}"]
    lines += [f"Threat model: {run['threat_model']}.", ""]
    tables, pixels = tables_of_run(summary, short=True), pixel_table([summary])
    for table in (*tables, *([pixels] if pixels else [])):
        lines += [table.text(verbose), ""]
    many = any(part["over"] == "records" for part in summary["attacks"])
    over = "records, one for each image and target" if many else noun
    what = resisted_by({"" if worst["goal"] == "untargeted" else worst["goal"] for worst in summary["worst_case"]})
    lines.append(f"Shares and medians are over all {over}, with 95 % intervals.")
    if verbose:
        lines += helps(tables) + [f"{part['label']}: {part['attack']}." for part in summary["attacks"]]
    else:
        lines.append(f"Columns with a radius: {what} within it. Passes and seconds are means. More: --verbose.")
    found = checks([summary], summary["worst_case"])
    return "\n".join(lines + [f"{one.what}: {one.sentence}" for one in found if one.level in (WARN, BAD)])


def standing(subjects: Sequence[Subject]) -> Table | None:
    """Robust accuracy against all attacks of each block, by model and radius; None without a radius."""
    heads = [(group, epsilon) for group in groups_of(subjects) for epsilon in subjects[0].radii[group[0]]]
    columns = [Column("model", "Model"), Column("clean", "Clean", "share")]
    for place, (group, epsilon) in enumerate(heads):
        head = f"{group_name(group, long=False)} \u2264 {readable(epsilon, group[0])}"
        columns.append(Column(str(place), head, "share"))
    rows = []
    for subject in subjects:
        row: Row = {"model": subject.name, "clean": subject.summaries[0]["clean_accuracy"]}
        for group, worst in zip(subject.groups, subject.worst_cases, strict=True):
            for known in worst["robust_accuracy"]:
                if known["value"] is not None:
                    row[str(heads.index((group, known["epsilon"])))] = known
        rows.append(row)
    what = resisted_by({goal for _, goal in groups_of(subjects)})
    return Table(tuple(columns), rows, f"{what.capitalize()} against all attacks", kind="standing") if heads else None


def pixel_table(summaries: Sequence[dict[str, Any]]) -> Table | None:
    """For segmentation models, accuracy and mIoU of clean and adversarial images."""
    rows = []
    for summary in (summary for summary in summaries if "pixels" in summary):
        rows.append({"name": f"{summary['run']['model']}, clean", **summary["pixels"]})
        rows += [{"name": part["name"], **part["pixels"]} for part in summary["attacks"]]
    columns = (
        Column("name", "Images"),
        Column("images", "Count", "count"),
        Column("accuracy", "Accuracy", "share", help="over the labelled pixels of all these images"),
        Column("mean_iou", "mIoU", "share", help="over the labelled pixels of all these images"),
        Column("wrong", "Wrong", "share", help="mean over the images of the share of wrong pixels"),
    )
    return Table(columns, rows, "Labelled pixels", kind="pixels") if rows else None
