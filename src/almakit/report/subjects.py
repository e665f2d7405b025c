"""Groups run folders into subjects (a model and its images) with one column of results per attack. No torch here."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AlmakitError, BadInput
from ..runs.failures import StoreError
from ..runs.folder import RunFolder
from ..runs.radii import Radii, for_distances, texts_of
from ..runs.store.derived import check_radii
from ..runs.store.records import ImageInfo
from ..runs.threat import goal_name
from .labels import distance_name, distance_order, label_attacks
from .numbers import Array
from .results import Results, Together, best_known, chosen_radii, columns_of
from .summary import run_summary, worst_cases

Group = tuple[str, str]
"""A distance and a goal."""


@dataclass
class Subject:
    """A model and the images on which it was attacked. Runs of the same model (see runs.identity) on the same images
    and labels are one subject."""

    name: str
    runs: list[RunFolder]
    images: list[ImageInfo]
    columns: list[Results]
    radii: dict[str, list[float]] = field(default_factory=dict)  # by distance, equal in the whole report
    summaries: list[dict[str, Any]] = field(default_factory=list)  # of each run

    @cached_property
    def groups(self) -> dict[Group, Together]:
        """The attacks grouped by distance and goal, the paper's distances first, untargeted before targeted."""
        return {group: Together(self.of_group(group)) for group in groups_of([self])}

    @cached_property
    def worst_cases(self) -> list[dict[str, Any]]:
        """For each group, the worst case over its attacks: robust accuracy at the report's radii, median, cost."""
        return worst_cases(self.groups, self.radii, [column.numbers for column in self.columns])

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of all runs together, with the parts that tables read."""
        parts = {"attacks": [column.numbers for column in self.columns], "worst_case": self.worst_cases}
        return self.summaries[0] | parts | {"run": {"model": self.name}, "radii": self.radii}

    @property
    def class_names(self) -> list[str] | None:
        return next((run.class_names for run in self.runs if run.class_names), None)

    @property
    def complete(self) -> bool:
        return all(summary["complete"] for summary in self.summaries)

    def certified(self, distance: str) -> dict[int, float]:
        """By image, the largest radius that any run certified in this distance."""
        found: dict[int, float] = {}
        for run in self.runs:
            for image, radius in run.certified.get(distance, {}).items():
                found[image] = max(radius, found.get(image, 0.0))
        return found

    def certified_curve(self, group: Group) -> Array | None:
        """The sorted certified radii of the images (N,); None with a goal, or unless every image has one."""
        found = {} if group[1] else self.certified(group[0])
        radii = [found.get(image.index, math.nan) for image in self.images]
        return None if not found or any(map(math.isnan, radii)) else np.sort(np.array(radii))

    def of_group(self, group: Group) -> list[Results]:
        return [column for column in self.columns if column.group == group]


def groups_of(subjects: Sequence[Subject]) -> list[Group]:
    """The groups of all subjects, in order."""
    groups = {column.group for subject in subjects for column in subject.columns}
    order = distance_order([distance for distance, _ in groups])
    return sorted(groups, key=lambda group: (order.index(group[0]), group[1]))


def group_key(group: Group) -> str:
    """The name of a group in the page's data."""
    return "/".join(part for part in group if part)


def group_name(group: Group, long: bool = True) -> str:
    """A group's heading: the distance, and the goal where there is one."""
    distance, goal = group
    name = distance_name(distance)
    return (name.long if long else name.label) + (f", {goal_name(goal)}" if goal else "")


def load(folders: Sequence[str | Path], epsilons: Radii = (), names: Sequence[str] = ()) -> list[Subject]:
    """The subjects of these run folders. Raises an error for a folder that cannot be read.

    ``epsilons``: radii of robust accuracy, by default those of the runs, or else usual ones. ``names``: names of the
    models, in their order.
    """
    if not folders:
        raise StoreError("name at least one run folder.")
    places = {Path(folder).resolve(): Path(folder) for folder in folders}  # each once
    found = joined([opened(place) for place in places.values()], epsilons)
    if len(names) > len(found):
        raise BadInput(f"{len(names)} names are given for {len(found)} models; give one for each, in their order.")
    for subject, name in zip(found, names, strict=False):
        subject.name = name
    return found


def summarise(run: RunFolder) -> dict[str, Any]:
    """The summary of one run, as written to ``summary.json``."""
    return joined([run])[0].summaries[0]


def opened(place: Path) -> RunFolder:
    """A run whose records can be read. Raises an error that describes what is wrong with the folder."""
    try:
        run = RunFolder(place)
        (
            columns_of(run),
            run.findings,
            run.sessions,
            run.class_names,
            run.features,
        )  # read here, so that errors occur here
        return run
    except AlmakitError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, OSError, json.JSONDecodeError) as error:
        raise StoreError(
            f"{place} is damaged or not a run folder of this almakit ({type(error).__name__}: {error}); "
            "restore it from a copy, or run the same `almakit run` command again."
        ) from error


def joined(runs: Sequence[RunFolder], epsilons: Radii = ()) -> list[Subject]:
    """The subjects of opened runs; see ``load``."""
    subjects: dict[tuple[object, ...], Subject] = {}
    for run in runs:
        place, model = run.folder, run.model_sha256
        # Without a hash of the weights, two runs cannot be known to have the same model.
        key: tuple[object, ...] = (
            (model, run.meta.get("features"), tuple((info.index, *info.content) for info in run.images))
            if model and run.images
            else (str(place.resolve()),)
        )
        name = run.meta.get("model") or run.spec.model or place.name
        subject = subjects.setdefault(key, Subject(name, [], run.images, []))
        subject.runs.append(run)
        subject.columns += columns_of(run)
    found = _named(list(subjects.values()))
    radii = _radii(found, epsilons)
    for subject in found:
        _check_certificates(subject.runs)
        subject.radii, best = radii, best_known(subject.columns)
        for column in subject.columns:
            column.epsilons, column.best = radii[column.info.distance], best[column.info.distance]
        for run in subject.runs:
            mine = [column for column in subject.columns if column.run is run]
            subject.summaries.append(run_summary(run, mine, radii))
    _label(found)
    return found


def _label(subjects: Sequence[Subject]) -> None:
    """Label all attacks of a report. Equal labels on one subject are distinguished by their folders."""
    columns = [column for subject in subjects for column in subject.columns]
    labels = label_attacks([column.info for column in columns], [column.threat for column in columns])
    for column, label in zip(columns, labels, strict=True):
        column.label = label
    for subject in subjects:
        known = [(column.label.label, column.group) for column in subject.columns]
        for column, mine in zip(subject.columns, known, strict=True):
            if known.count(mine) > 1:
                more = f", {column.run.folder.name}"
                column.label = replace(column.label, label=column.label.label + more, method=column.label.method + more)
            column.numbers["label"] = column.label.label


def _check_certificates(runs: Sequence[RunFolder]) -> None:
    """Raise an error if a radius that one run certified exceeds a distance that another run of the same model found."""
    for run in runs:
        for other in runs:
            if run is not other and other.spec.goal is None:
                check_radii(run.folder, run.certificates, other.records, other.image, other.folder)


def _radii(subjects: Sequence[Subject], epsilons: Radii) -> dict[str, list[float]]:
    """The radii of the report's tables, by distance."""
    distances = list(dict.fromkeys(distance for distance, _ in groups_of(subjects)))
    chosen = for_distances(texts_of(epsilons), distances)
    if not chosen:
        for run in (run for subject in subjects for run in subject.runs):
            mine = list(dict.fromkeys(info.distance for info in run.attacks))
            for distance, values in for_distances(run.spec.epsilon, mine).items():
                chosen[distance] = sorted({*chosen.get(distance, ()), *values})
    groups = [(group, together) for subject in subjects for group, together in subject.groups.items()]
    return {
        name: chosen.get(name) or chosen_radii(name, [together for group, together in groups if group[0] == name])
        for name in distances
    }


def _named(subjects: list[Subject]) -> list[Subject]:
    """Distinguish subjects with the same model name by their folders."""
    names = [subject.name for subject in subjects]
    for subject, name in zip(subjects, names, strict=True):
        if names.count(name) > 1:
            subject.name = f"{name} ({', '.join(run.folder.name for run in subject.runs)})"
    for number, subject in enumerate(subjects):
        if subject.name in [other.name for other in subjects[:number]]:  # equal names in different places
            subject.name = f"{subject.name} #{number + 1}"
    return subjects
