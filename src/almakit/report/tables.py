"""What stands in the tables of a run and of a report: rows of the summary's numbers. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..radius import same
from ..runs.threat import resisted, resisted_by
from .labels import distance_name, radius
from .published import published
from .subjects import Subject, group_name, groups_of
from .summary import MEASURES
from .table import Column, Row, Table, comma_separated, escape, latex, percent, with_interval
from .trust import nothing_found, signs

TOGETHER = "all attacks"
FORMATS = ("text", "markdown", "csv", "latex")
WHICH = tuple(Column(name, name, shown="csv") for name in ("model", "distance", "goal"))
PAPER = (
    Column("paper_success_rate", "paper: success", "share", "detail", help="of the paper's own runs", order="down"),
    Column("paper_median", "paper: median", "distance", "detail", help="of the paper's own runs"),
)


@dataclass(frozen=True)
class Block:
    """The attacks on one model for one distance and one goal, as the summary describes them."""

    model: str
    distance: str
    goal: str  # as words: untargeted, targeted (random), ...
    parts: list[dict[str, Any]]  # of the summary, one per attack; perhaps with the paper's figures
    radii: list[float]  # where robust accuracy is given
    together: dict[str, Any]  # all attacks
    images: bool = True  # whether inputs are images, which rounding to 8 bits says something about

    @property
    def name(self) -> str:
        return distance_name(self.distance).long + self.words

    @property
    def words(self) -> str:
        """The goal as it follows the distance's name."""
        return "" if self.goal == "untargeted" else f", {self.goal}"

    @property
    def over(self) -> str:
        """What medians and shares are over."""
        many = any(part["over"] == "records" for part in self.parts)
        return "records, one for each image and target" if many else "images"


def blocks_of_run(summary: dict[str, Any]) -> list[Block]:
    """The blocks of one run's summary."""
    model, images = str(summary["run"]["model"]), "features" not in summary
    return _blocks(model, images, summary["attacks"], summary["worst_case"], summary["radii"])


def blocks_of(subjects: Sequence[Subject]) -> list[Block]:
    """In the order of the page: subject by subject, the paper's distances first, targeted apart from untargeted."""
    found = []
    for subject in subjects:
        meta, parts = subject.runs[0].meta, []
        for column in subject.columns:
            paper = published(meta.get("model", ""), meta.get("data", ""), column.info)
            more = {} if paper is None else {"paper_success_rate": paper.success, "paper_median": paper.median}
            parts.append(column.numbers | more)
        images = subject.runs[0].features is None
        found += _blocks(subject.name, images, parts, subject.worst_cases, subject.radii)
    return found


def _blocks(
    model: str, images: bool, attacks: list[dict[str, Any]], worst_cases: list[dict[str, Any]], radii: Any
) -> list[Block]:
    found = []
    for worst in worst_cases:
        distance, goal = worst["distance"], worst["goal"]
        parts = [part for part in attacks if (part["distance"], part.get("goal", goal)) == (distance, goal)]
        found.append(Block(model, distance, goal, parts, radii[distance], worst, images))
    return found


def block_table(block: Block, title: str = "", notes: Sequence[str] = ()) -> Table:
    """One row per attack, and one for all of them together where there are several."""
    what = resisted(block.goal)
    word = "robust" if what == "robust accuracy" else what
    columns: list[Column] = [Column("attack", "attack", tip="text"), *WHICH, Column("text", "attack", shown="csv")]
    for measure in MEASURES:
        eight = measure.name.endswith("_8bit")
        columns.append(measure if block.images or not eight else replace(measure, shown="csv"))
        if measure.name == "median":  # beside the medians
            for place, epsilon in enumerate(block.radii, 1):
                at = radius(epsilon, block.distance)
                help = f"{what} within {distance_name(block.distance).label} \u2264 {at}, with its 95 % interval"
                columns += [
                    Column(f"robust_accuracy_{place}", f"{word} % at {at}", "share", help=help, order="down"),
                    Column(f"epsilon_{place}", "epsilon", "number", "csv"),
                ]
    which = {"model": block.model, "distance": block.distance, "goal": block.goal}
    rows: list[Row] = []
    for part in block.parts:
        row = which | {"attack": part["label"], "text": part["attack"]}
        row |= {measure.name: measure.read(part) for measure in MEASURES}
        row |= {column.name: part.get(column.name) for column in PAPER}
        rows.append(row | _robust(block, part["robust_accuracy"]))
    footer = int(len(rows) > 1)
    if footer:
        found = block.together["median"]
        middle = {"median": found} if found["value"] is not None else {}
        rows.append(which | {"attack": TOGETHER} | middle | _robust(block, block.together["robust_accuracy"]))
    caption = f"Attacks on {block.model}, {distance_name(block.distance).label}{block.words}"
    caption += f": success and {what} in %, medians, over all {block.over}, with 95 % intervals."
    return Table((*columns, *PAPER), rows, title or block.name, escape(caption), tuple(notes), footer)


def _robust(block: Block, known: Sequence[dict[str, Any]]) -> Row:
    """Robust accuracy at the block's radii; of an attack at a fixed radius only there."""
    row: Row = {}
    for place, epsilon in enumerate(block.radii, 1):
        near = [one for one in known if same(one["epsilon"], epsilon) and one["value"] is not None]
        value = {key: near[0][key] for key in ("value", "low", "high")} if near else None
        row |= {f"epsilon_{place}": epsilon, f"robust_accuracy_{place}": value}
    return row


def helps(tables: Sequence[Table], detail: bool = True) -> list[str]:
    """What the headings mean, each once."""
    found = {column.head: column.help for table in tables for column in table.visible(detail) if column.help}
    return [f"{head}: {text}." for head, text in found.items()]


def markdown(blocks: Sequence[Block]) -> str:
    """One table per model, distance and goal."""
    made = [(block.model, block_table(block)) for block in blocks]
    lines = []
    for model in dict.fromkeys(model for model, _ in made):
        lines += [f"### {_heading(model)}", "", *(table.markdown() for name, table in made if name == model)]
    return "\n".join([*lines, *(f"* {text}" for text in helps([table for _, table in made]))]) + "\n"


def _heading(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")


def written(blocks: Sequence[Block], kind: str) -> str:
    """The blocks' tables as Markdown, CSV or LaTeX."""
    if kind == "markdown":
        return markdown(blocks)
    tables = [block_table(block) for block in blocks]
    return comma_separated(tables) if kind == "csv" else latex(tables)


def run_text(summary: dict[str, Any], verbose: bool = False) -> str:
    """A run's numbers for a terminal."""
    run = summary["run"]
    first = (
        f"{run['model']} on {run['data']}: {summary['images']} {_noun(summary)}, {summary['clean_name']} "
        f"{with_interval(summary['clean_accuracy'])}"
    )
    if "pixels" in summary:
        first += f", mIoU {percent(summary['pixels']['mean_iou'])} %"
    lines = [first, f"Threat model: {run['threat_model']}."]
    lines += [
        f"Preflight, {part['name']}: {part['sentence']} {part['way_out']}"
        for part in summary["findings"]
        if part["severity"] != "note"
    ]
    blocks = blocks_of_run(summary)
    tables = [block_table(block, block.distance + block.words) for block in blocks]
    for table in tables:
        lines += ["", table.text(verbose)]
    many = any(part["over"] == "records" for part in summary["attacks"])
    over = "records, one for each image and target" if many else _noun(summary)
    what = resisted_by({"" if block.goal == "untargeted" else block.goal for block in blocks})
    lines += ["", f"Shares and medians are over all {over}, with 95 % intervals."]
    if not verbose:
        lines.append(f"robust: {what} within that distance. Passes and seconds are means. More: --verbose.")
    else:
        lines += helps(tables) + [f"{part['label']}: {part['attack']}." for part in summary["attacks"]]
    return "\n".join(lines + _notes(summary))


def _noun(summary: dict[str, Any]) -> str:
    return "rows" if "features" in summary else "images"


def _notes(summary: dict[str, Any]) -> list[str]:
    """What a reader must know besides the numbers."""
    lines = [f"Warning: {sign}" for block in blocks_of_run(summary) for sign in signs(block.parts, block.together)]
    for part in summary["attacks"]:
        lines += _notes_of(part)
    for row in summary.get("failed_chunks", ()):
        what = "the clean pass" if row["attack"] < 0 else summary["attacks"][row["attack"]]["label"]
        lines.append(
            f"Chunk {row['chunk']} ({row['images']} images) was given up by {what} after {row['tries']} tries: "
            f"{row['reason']}"
        )
    if not summary["complete"]:
        missing = summary["missing_records"]
        lines.append(f"This run is not finished: {missing} records are missing; the same command resumes it.")
    return lines


def _notes_of(part: dict[str, Any]) -> list[str]:
    label, status, lines = part["label"], part["status"], []
    if not part["minimal"]:
        at = f"{part['distance']} <= {radius(part['epsilon'], part['distance'])}"
        lines.append(
            f"{label}: {status['robust']} of {part['records']} {part['over']} resist at {at}, the only radius it "
            "works at; it has no median."
        )
    if part.get("stop_within"):
        at = f"{part['distance']} <= {radius(part['stop_within'], part['distance'])}"
        lines.append(f"{label}: images stopped once they were broken at {at}; nothing is known of smaller radii.")
    if failed := nothing_found(part):
        invalid = f" ({status['invalid']} without finite logits)" if status["invalid"] else ""
        lines.append(f"{label}: nothing found for {failed} of {part['records']} records{invalid}.")
    if part["refuted"]:
        lines.append(f"{label}: the verdict refutes {part['refuted']} claimed successes; they count as not found.")
    if part.get("pixels", {}).get("images"):
        after = part["pixels"]
        lines.append(
            f"{label}: on the {after['images']} images it left, accuracy over pixels "
            f"{with_interval(after['accuracy'])}, mIoU {percent(after['mean_iou'])} %, wrong pixels "
            f"{with_interval(after['wrong'])} in the mean."
        )
    if "best_target" in part:
        nearest = part["best_target"]
        lines.append(
            f"{label}, nearest target of each image: success {with_interval(nearest['success_rate'])}, median "
            f"{with_interval(nearest['median'], 'distance')}."
        )
    return lines


def standing(subjects: Sequence[Subject]) -> Table | None:
    """Model and radius: robust accuracy against all attacks of each block; None where there is no radius."""
    heads = [(group, epsilon) for group in groups_of(subjects) for epsilon in subjects[0].radii[group[0]]]
    columns = [Column("model", "Model"), Column("clean", "Clean", "share", order="down")]
    for place, (group, epsilon) in enumerate(heads):
        head = f"{group_name(group, long=False)} \u2264 {radius(epsilon, group[0])}"
        columns.append(Column(str(place), head, "share", order="down"))
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


def pixel_table(subjects: Sequence[Subject]) -> Table | None:
    """Of segmentation models: how the labelled pixels are classified, clean and in what each attack left."""
    rows = []
    for summary in (summary for subject in subjects for summary in subject.summaries if "pixels" in summary):
        rows.append({"name": f"{summary['run']['model']}, clean", **summary["pixels"]})
        rows += [{"name": part["name"], **part["pixels"]} for part in summary["attacks"]]
    columns = (
        Column("name", "Images"),
        Column("images", "Count", "count", order="down"),
        Column("accuracy", "Accuracy", "share", order="down", help="over the labelled pixels of all these images"),
        Column("mean_iou", "mIoU", "share", order="down", help="over the labelled pixels of all these images"),
        Column("wrong", "Wrong", "share", order="down", help="mean over the images of the share of wrong pixels"),
    )
    return Table(columns, rows, "Labelled pixels", kind="pixels") if rows else None


def smallest(blocks: Sequence[Block]) -> list[tuple[str, float, str]]:
    """The smallest median of each block: distance and goal, median, label."""
    found = []
    for block in blocks:
        known = [
            (part["median_all"]["value"], part["label"])
            for part in block.parts
            if part["median_all"]["value"] is not None and math.isfinite(part["median_all"]["value"])
        ]
        if known:
            value, label = min(known)
            found.append((distance_name(block.distance).label + block.words, value, label))
    return found
