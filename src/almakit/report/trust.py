"""What was run and whether to trust it: findings as sentences with a level, and the facts of the run. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..runs.store.records import ALREADY_WRONG, FAILED, INVALID, SUCCESS, outcome
from ..runs.threat import sentence, threat_of
from ..wilson import wilson
from .labels import distance_name
from .subjects import Subject, labelled
from .table import percent

GOOD, NOTE, WARN, BAD = "good", "note", "warn", "bad"
UNROUNDED = " Distances are those of the unrounded images; to count only what image files can hold, run with bits = 8."
MIXED = (
    " Only the attacks marked 8-bit are held to what image files can hold; the distances of the others are those "
    "of the unrounded images."
)
_SEVERITY = {"refuse": BAD, "warn": WARN, "note": NOTE}


@dataclass(frozen=True)
class Check:
    """One reason to believe the numbers, or not to."""

    level: str  # good, note, warn or bad
    what: str
    sentence: str


@dataclass(frozen=True)
class Counts:
    """How a subject's records ended, all attacks together."""

    records: int
    claims: int  # attacked images an attack says it fooled
    refuted: int  # of these, those the verdict does not confirm
    never_wrong: int  # said to be wrong from the start, which the verdict does not confirm
    survivors: int  # confirmed claims that outlive rounding to 8 bits
    # attacked images nothing was found for by an attack that looks for the smallest change, or without finite logits
    failed: int
    invalid: int  # of these, without finite logits


def count_records(subject: Subject) -> Counts:
    """Over every record, also where an image has one for each target."""
    rows = [record for run in subject.runs for record in run.records]
    failed = [
        outcome(row, column.info) for column in subject.columns for row in column.run.records_of(column.info.index)
    ]
    return Counts(
        len(rows),
        sum(row.status == SUCCESS for row in rows),
        sum(row.status == SUCCESS and row.refuted for row in rows),
        sum(row.status == ALREADY_WRONG and row.refuted for row in rows),
        sum(row.status == SUCCESS and row.fooled and row.fooled_8bit for row in rows),
        failed.count(FAILED) + failed.count(INVALID),
        sum(row.status == INVALID for row in rows),
    )


def signs(parts: Sequence[dict[str, Any]], together: dict[str, Any]) -> list[str]:
    """Reasons to doubt robust accuracy, each with what to do, from the summaries of the attacks of a distance and goal
    and of all of them together."""
    found = []
    for part in parts:
        if part.get("zero_gradients"):
            found.append(
                f"{part['label']} ({part['distance']}) got only zero gradients on {part['zero_gradients']} of "
                f"{part['attacked']} attacked {part['over']}: it cannot see how to change them. Run again with "
                "--surrogate, a model with gradients (where the model rounds, the same one without rounding), or add "
                "an attack that needs none: square, hopskipjump."
            )
    masked = max([together.get("masked", 0), *(part.get("masked", 0) for part in parts)])
    if masked:
        found.append(
            f"{masked} of {together['images']} images fall to an attack that uses no gradients and to none that does "
            f"({parts[0]['distance']}): gradients may be masked, and robust accuracy is then overestimated. Run again "
            "with --surrogate, a model with gradients, or give the attack without gradients more steps."
        )
    return found


def over(subject: Subject) -> str:
    """What the records are: images, or images with their targets."""
    return "records (image and target)" if any(column.many_targets for column in subject.columns) else "images"


def checks(subject: Subject) -> list[Check]:
    """Whether to trust the numbers, the most important first."""
    counts = count_records(subject)
    found = [_finished(subject), *_preflight(subject)]
    confirmed = counts.claims - counts.refuted
    if counts.refuted:
        found.append(
            Check(
                BAD,
                "Verdict",
                f"{counts.refuted} of {counts.claims} claimed successes are refuted by a fresh forward pass; "
                "they count as not found.",
            )
        )
    elif counts.claims:
        found.append(
            Check(
                GOOD,
                "Verdict",
                f"All {counts.claims} claimed successes are confirmed by a fresh forward pass of the stored images, "
                "at another batch size and in full precision.",
            )
        )
    else:
        found.append(Check(NOTE, "Verdict", "No attack claims a success, so there is nothing to confirm."))
    if counts.never_wrong:
        found.append(
            Check(
                BAD,
                "Wrong from the start",
                f"{counts.never_wrong} results call an image wrong from the start that a fresh forward pass "
                "classifies rightly; they count as not found.",
            )
        )
    for group, worst in subject.worst_cases.items():
        parts = [column.numbers for column in subject.of_group(group)]
        found += [Check(WARN, "Gradients", sign) for sign in signs(parts, worst)]
    if confirmed and any(run.features is None for run in subject.runs):
        share = counts.survivors / confirmed
        low, high = wilson(share, confirmed)
        bits = {run.spec.bits for run in subject.runs}
        hint = "" if bits == {8} or share > 0.99 else MIXED if 8 in bits else UNROUNDED
        sentence = (
            f"{percent(share)} % of the confirmed successes (95 % interval {percent(low)} to {percent(high)}) survive "
            f"rounding to 8 bits.{hint}"
        )
        found.append(Check(GOOD if share > 0.99 else NOTE, "8 bits", sentence))
    if counts.failed:
        names = labelled([subject])
        which = "; ".join(
            f"{names[id(column)].label} ({distance_name(column.info.distance).label}): {missing}"
            for column in subject.columns
            if (
                missing := sum(
                    outcome(row, column.info) in (FAILED, INVALID) for row in column.run.records_of(column.info.index)
                )
            )
        )
        invalid = f" ({counts.invalid} because the logits were not finite)" if counts.invalid else ""
        found.append(
            Check(
                WARN,
                "Failures",
                f"Nothing was found for {counts.failed} attacked {over(subject)}{invalid}: {which}. "
                "A failure of an attack is no proof of robustness.",
            )
        )
    return found


def _finished(subject: Subject) -> Check:
    missing = sum(summary["missing_records"] for summary in subject.summaries)
    there = sum(len(run.records) for run in subject.runs)
    if not missing:
        return Check(GOOD, "Finished", "The run is complete." if len(subject.runs) == 1 else "All runs are complete.")
    share = there / (there + missing)
    return Check(
        WARN,
        "Unfinished",
        f"This run is not finished: {there} of {there + missing} results are there ({percent(share, 0)} %). Everything "
        "below covers what is there, and attacks may cover different images; repeat the run command to resume.",
    )


def _preflight(subject: Subject) -> list[Check]:
    findings = [finding for run in subject.runs for finding in run.findings]
    if not findings:
        return [Check(GOOD, "Preflight", "Preflight found no problems.")]
    unique = {(finding["name"], finding["sentence"]): finding for finding in findings}
    return [
        Check(
            _SEVERITY.get(finding["severity"], WARN),
            f"Preflight: {finding['name']}",
            f"{finding['sentence']} {finding['way_out']}".strip(),
        )
        for finding in unique.values()
    ]


def facts(subject: Subject) -> list[tuple[str, str]]:
    """Where and how it was run, as pairs for a list."""
    found: list[tuple[str, str]] = []
    for run, summary in zip(subject.runs, subject.summaries, strict=True):
        environment: dict[str, Any] = summary.get("environment") or {}
        settings = summary["run"]
        found += [
            ("run folder", run.folder.name),
            ("model", str(settings.get("model"))),
            ("data", str(settings.get("data"))),
        ]
        found += [("images", str(summary["images"])), ("started", str(summary.get("started") or "not recorded"))]
        found.append(("threat model", sentence(threat_of(run.spec))))
        for name in ("almakit", "commit", "python", "torch", "numpy", "device", "processor", "threads", "system"):
            value = environment.get(name)
            if value is not None or name in ("almakit", "torch"):
                found.append((name, "not recorded" if value is None else str(value)))
        for name in ("weights_sha256", "data_sha256", "spec_sha256"):
            found.append((name.replace("_", " "), str(settings.get(name) or "not recorded")))
    return found
