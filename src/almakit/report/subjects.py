"""Run folders as a report sees them: subjects (a model on its images) with one column of results per attack. No torch
here."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AlmakitError, BadInput
from ..radius import Grid
from ..runs.failures import StoreError
from ..runs.folder import RunFolder
from ..runs.radii import Radii, for_distances, texts_of
from ..runs.store.derived import check_radii
from ..runs.store.records import AttackInfo, ImageInfo, Record
from ..runs.threat import Threat, goal_name, threat_of
from .labels import AttackLabel, distance_name, distance_order, label_attacks
from .numbers import Array
from .summary import RECORDS, Together, attack_summary, best_known, chosen_radii, grid_of, stop_of, summarise

Known = dict[str, dict[tuple[int, int | None], float]]
Opened = tuple[RunFolder, dict[str, Any]]
"""A run and its summary."""


@dataclass(frozen=True)
class Column:
    """One attack's results on a subject. Where several targets were tried, an image's row is its nearest target's."""

    run: RunFolder
    info: AttackInfo
    rows: dict[int, Record]  # by ImageInfo.index; images not attacked yet are missing
    numbers: dict[str, Any]  # its part of the run's summary
    distances: Array  # (N,) verified, by image: 0 already wrong, inf nothing found, NaN not attacked yet

    @property
    def reach(self) -> float:
        """The radius of an attack at a fixed epsilon, of which alone it speaks; infinite for one that looks for the
        smallest change."""
        found = self.numbers["epsilon"]
        return math.inf if found is None else float(found)

    @property
    def stop(self) -> float:
        """The radius from which on its curve is known, 0 for the whole curve."""
        return stop_of(self.run, self.info.distance)

    @property
    def grid(self) -> Grid:
        """Which of its distances lie within a radius."""
        return grid_of(self.info, self.distances, self.run.step)

    @property
    def records(self) -> list[Record]:
        return self.run.records_of(self.info.index)

    @property
    def threat(self) -> Threat:
        return threat_of(self.run.spec)

    @property
    def group(self) -> tuple[str, str]:
        """(distance, goal): only attacks that share both stand in one block, chart or comparison."""
        return self.info.distance, self.threat.goal

    @property
    def many_targets(self) -> bool:
        """Whether images have several records; ``numbers`` are then over records, ``distances`` over images by their
        nearest target."""
        return bool(self.numbers["over"] == RECORDS)


@dataclass
class Subject:
    """A model and the images it was attacked on; runs of the same model (see runs.identity) on the same images with the
    same labels are one subject."""

    name: str
    runs: list[RunFolder]
    summaries: list[dict[str, Any]]
    images: list[ImageInfo]
    columns: list[Column] = field(default_factory=list)
    radii: dict[str, list[float]] = field(
        default_factory=dict
    )  # distance -> where tables give robust accuracy, the same in a whole report

    @property
    def class_names(self) -> list[str] | None:
        return next((run.class_names for run in self.runs if run.class_names), None)

    @property
    def complete(self) -> bool:
        return all(summary["complete"] for summary in self.summaries)

    def of_group(self, group: tuple[str, str]) -> list[Column]:
        return [column for column in self.columns if column.group == group]

    def together(self, group: tuple[str, str]) -> Together:
        """The attacks of a group as one: the worst case."""
        columns = self.of_group(group)
        attacks = [(column.info, column.records) for column in columns]
        return Together.of(attacks, common_step(columns), [column.stop for column in columns])

    def worst_case(self, group: tuple[str, str]) -> dict[str, Any]:
        """All attacks of a group together: robust accuracy at the report's radii, and the median."""
        return self.together(group).summary(self.radii.get(group[0], []))


def common_step(columns: Sequence[Column]) -> float:
    """The spacing of the grid that the runs of all these columns worked on; 0 where there is none."""
    steps = {column.run.step for column in columns}
    return steps.pop() if len(steps) == 1 else 0.0


def groups_of(subjects: Sequence[Subject]) -> list[tuple[str, str]]:
    """(distance, goal) of every block, the paper's distances first, untargeted before targeted."""
    found = {column.group for subject in subjects for column in subject.columns}
    order = distance_order([distance for distance, _ in found])
    return sorted(found, key=lambda group: (order.index(group[0]), group[1]))


def group_key(group: tuple[str, str]) -> str:
    """What a group is called in the page's data."""
    return "/".join(part for part in group if part)


def group_name(group: tuple[str, str], long: bool = True) -> str:
    """A group's heading: the distance, and the goal where there is one."""
    distance, goal = group
    name = distance_name(distance)
    return (name.long if long else name.label) + (f", {goal_name(goal)}" if goal else "")


def labelled(subjects: Sequence[Subject]) -> dict[int, AttackLabel]:
    """id(column) -> its label among all columns of a report; two that nothing else tells apart on one subject are told
    apart by their folders."""
    columns = [column for subject in subjects for column in subject.columns]
    labels = label_attacks([column.info for column in columns], [column.threat for column in columns])
    found = {id(column): label for column, label in zip(columns, labels, strict=True)}
    for subject in subjects:
        seen = [(found[id(column)].label, column.group) for column in subject.columns]
        for column, mine in zip(subject.columns, seen, strict=True):
            if seen.count(mine) > 1:
                label, folder = found[id(column)], f", {column.run.folder.name}"
                found[id(column)] = replace(label, label=label.label + folder, method=label.method + folder)
    return found


def load(folders: Sequence[str | Path], epsilons: Radii = (), names: Sequence[str] = ()) -> list[Subject]:
    """The subjects of these run folders; a folder that cannot be read is an error of one sentence.

    ``epsilons`` are the radii to give robust accuracy at, by default those of the runs, or else usual ones; ``names``
    what to call the models, in their order.
    """
    if not folders:
        raise StoreError("name at least one run folder.")
    places = [Path(folder) for folder in folders]
    for number, place in enumerate(places):
        if place.resolve() in [other.resolve() for other in places[:number]]:
            raise StoreError(f"the run folder {place} is given twice; once is enough.")
    found = joined([opened(place) for place in places], epsilons)
    if len(names) > len(found):
        raise BadInput(f"{len(names)} names are given for {len(found)} models; give one for each, in their order.")
    for subject, name in zip(found, names, strict=False):
        subject.name = name
    return found


def joined(runs: Sequence[Opened], epsilons: Radii = ()) -> list[Subject]:
    """The subjects of opened runs; see ``load``."""
    subjects: dict[tuple[object, ...], Subject] = {}
    for run, summary in runs:
        place, model = run.folder, run.model_sha256
        # Without a hash of the weights nothing says that two runs attacked the same model.
        key: tuple[object, ...] = (
            (model, run.meta.get("features"), tuple((info.index, *info.content) for info in run.images))
            if model and run.images
            else (str(place.resolve()),)
        )
        subject = subjects.setdefault(
            key, Subject(run.meta.get("model") or run.spec.model or place.name, [], [], run.images)
        )
        subject.runs.append(run)
        subject.summaries.append(summary)
        subject.columns += _columns(run, summary)
    found = _named(list(subjects.values()))
    _give_radii(found, epsilons)
    for subject in found:
        if len(subject.runs) > 1:
            _check_certificates(subject.runs)
        best = _best_of(subject.runs) if len(subject.runs) > 1 else {}
        subject.columns = [_measured_again(subject, column, best) for column in subject.columns]
    return found


def _check_certificates(runs: Sequence[RunFolder]) -> None:
    """Refuses a radius that one run certified above the distance that another run of the same model found."""
    for run in runs:
        for other in runs:
            if run is not other and other.spec.goal is None:
                check_radii(run.folder, run.certificates, other.records, other.image, other.folder)


def _give_radii(subjects: Sequence[Subject], epsilons: Radii) -> None:
    """Settles where the report's tables give robust accuracy."""
    distances = list(dict.fromkeys(distance for distance, _ in groups_of(subjects)))
    asked = for_distances(texts_of(epsilons), distances)
    if not asked:
        for run in (run for subject in subjects for run in subject.runs):
            mine = list(dict.fromkeys(info.distance for info in run.attacks))
            for distance, values in for_distances(run.spec.epsilon, mine).items():
                asked[distance] = sorted({*asked.get(distance, ()), *values})
    groups = [(group, subject.together(group)) for subject in subjects for group in groups_of([subject])]
    radii = {
        name: chosen_radii(name, asked, [mine for (distance, _), mine in groups if distance == name])
        for name in distances
    }
    for subject in subjects:
        subject.radii = radii


def _measured_again(subject: Subject, column: Column, best: Known) -> Column:
    """The column with its numbers at the report's radii, against what any run of the subject found; as the run's own
    summary has them where neither differs."""
    run, info, radii = column.run, column.info, subject.radii[column.info.distance]
    if len(subject.runs) == 1 and radii == subject.summaries[0]["radii"].get(info.distance):
        return column
    known = best.get(info.distance) if best else best_known(run.records, run.attacks)[info.distance]
    certified = run.certified.get(info.distance)
    numbers = attack_summary(info, column.records, known, radii, 0, certified, run.step, column.stop)
    kept = {name: value for name, value in column.numbers.items() if name == "name" or name not in numbers}
    return replace(column, numbers=numbers | kept)


def opened(place: Path) -> Opened:
    """A run and its numbers; whatever is wrong with the folder becomes one sentence."""
    try:
        run = RunFolder(place)
        return run, summarise(run)
    except AlmakitError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, OSError, json.JSONDecodeError) as error:
        raise StoreError(
            f"{place} is damaged or not a run folder of this almakit ({type(error).__name__}: {error}); "
            "restore it from a copy, or run the same `almakit run` command again."
        ) from error


def _best_of(runs: Sequence[RunFolder]) -> Known:
    """d* of every distance by (image, target), whichever run found it."""
    best: Known = {}
    for run in runs:
        for name, values in best_known(run.records, run.attacks).items():
            mine = best.setdefault(name, {})
            for image, value in values.items():
                mine[image] = min(value, mine.get(image, math.inf))
    return best


def _columns(run: RunFolder, summary: dict[str, Any]) -> list[Column]:
    rows: dict[int, dict[int, Record]] = {info.index: {} for info in run.attacks}
    for record in run.records:
        nearest = rows[record.attack].get(record.image)
        if nearest is None or record.verified < nearest.verified:
            rows[record.attack][record.image] = record
    columns = []
    for info, part in zip(run.attacks, summary["attacks"], strict=True):
        mine = rows[info.index]
        distances = [mine[image.index].verified if image.index in mine else math.nan for image in run.images]
        columns.append(Column(run, info, mine, part, np.array(distances, dtype=np.float64)))
    return columns


def _named(subjects: list[Subject]) -> list[Subject]:
    """Subjects of the same model name are told apart by their folders."""
    names = [subject.name for subject in subjects]
    for subject, name in zip(subjects, names, strict=True):
        if names.count(name) > 1:
            subject.name = f"{name} ({', '.join(run.folder.name for run in subject.runs)})"
    for number, subject in enumerate(subjects):
        if subject.name in [other.name for other in subjects[:number]]:  # folders of the same name in different places
            subject.name = f"{subject.name} #{number + 1}"
    return subjects
