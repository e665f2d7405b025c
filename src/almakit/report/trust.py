"""What was run and whether to trust it: findings as sentences with a level, and the facts of the run. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..runs.threat import sentence, threat_of
from ..wilson import wilson
from .labels import distance_name
from .subjects import Subject
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


def counts_of(subject: Subject) -> dict[str, int]:
    """How a subject's records ended, all attacks together; ``claims`` are attacked images that an attack says it
    fooled, ``refuted`` those of them that the verdict does not confirm."""
    parts = [column.numbers for column in subject.columns]
    never_wrong = sum(part.get("never_wrong", 0) for part in parts)
    return {
        "records": sum(part["records"] for part in parts),
        "claims": sum(part["status"]["success"] for part in parts),
        "refuted": sum(part["refuted"] for part in parts) - never_wrong,
        "never_wrong": never_wrong,
        "survive_8bit": sum(part["survive_8bit"] for part in parts),
        "failed": sum(map(nothing_found, parts)),
        "invalid": sum(part["status"]["invalid"] for part in parts),
    }


def nothing_found(part: dict[str, Any]) -> int:
    """Attacked images that an attack failed on; of one at a fixed radius those without finite logits alone."""
    return int(part["status"].get("failed", 0) + part["status"]["invalid"])


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
            f"{masked} of {together['images']} images fall to an attack that uses no gradients, or those of a "
            f"surrogate, and to none along the model's own ({parts[0]['distance']}): gradients may be masked, and "
            "robust accuracy is then overestimated. Run again with --surrogate, a model with gradients, or give the "
            "attack without gradients more steps."
        )
    return found


def checks(subject: Subject) -> list[Check]:
    """Whether to trust the numbers, the most important first."""
    counts = counts_of(subject)
    claims, refuted = counts["claims"], counts["refuted"]
    if refuted:
        said = f"{refuted} of {claims} claimed successes are refuted by a fresh forward pass; they count as not found."
        verdict = Check(BAD, "Verdict", said)
    elif claims:
        said = f"All {claims} claimed successes are confirmed by a fresh forward pass of the stored images, "
        verdict = Check(GOOD, "Verdict", f"{said}at another batch size and in full precision.")
    else:
        verdict = Check(NOTE, "Verdict", "No attack claims a success, so there is nothing to confirm.")
    found = [_finished(subject), *_preflight(subject), verdict]
    if counts["never_wrong"]:
        said = (
            f"{counts['never_wrong']} results call an image wrong from the start that a fresh forward pass classifies "
            "rightly; they count as not found."
        )
        found.append(Check(BAD, "Wrong from the start", said))
    for group, worst in zip(subject.groups, subject.worst_cases, strict=True):
        parts = [column.numbers for column in subject.of_group(group)]
        found += [Check(WARN, "Gradients", sign) for sign in signs(parts, worst)]
    if claims > refuted and any(run.features is None for run in subject.runs):
        found.append(_eight_bits(subject, counts["survive_8bit"], claims - refuted))
    if counts["failed"]:
        over = "records (image and target)" if any(column.many_targets for column in subject.columns) else "images"
        which = "; ".join(
            f"{column.label.label} ({distance_name(column.info.distance).label}): {missing}"
            for column in subject.columns
            if (missing := nothing_found(column.numbers))
        )
        invalid = f" ({counts['invalid']} because the logits were not finite)" if counts["invalid"] else ""
        said = f"Nothing was found for {counts['failed']} attacked {over}{invalid}: {which}. "
        found.append(Check(WARN, "Failures", f"{said}A failure of an attack is no proof of robustness."))
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


def _eight_bits(subject: Subject, survive: int, confirmed: int) -> Check:
    share = survive / confirmed
    low, high = wilson(share, confirmed)
    bits = {run.spec.bits for run in subject.runs}
    hint = "" if bits == {8} or share > 0.99 else MIXED if 8 in bits else UNROUNDED
    said = f"{percent(share)} % of the confirmed successes (95 % interval {percent(low)} to {percent(high)}) survive "
    return Check(GOOD if share > 0.99 else NOTE, "8 bits", f"{said}rounding to 8 bits.{hint}")


def _preflight(subject: Subject) -> list[Check]:
    findings = {(found["name"], found["sentence"]): found for run in subject.runs for found in run.findings}
    return [
        Check(
            _SEVERITY.get(finding["severity"], WARN),
            f"Preflight: {finding['name']}",
            f"{finding['sentence']} {finding['way_out']}".strip(),
        )
        for finding in findings.values()
    ] or [Check(GOOD, "Preflight", "No problems found.")]


def facts(subject: Subject) -> list[tuple[str, str]]:
    """Where and how it was run, as pairs for a list."""
    found: list[tuple[str, Any]] = []
    for run, summary in zip(subject.runs, subject.summaries, strict=True):
        environment: dict[str, Any] = summary.get("environment") or {}
        settings = summary["run"]
        found += [
            ("run folder", run.folder.name),
            ("model", str(settings.get("model"))),
            ("data", str(settings.get("data"))),
            ("images", summary["images"]),
            ("started", summary.get("started")),
            ("threat model", sentence(threat_of(run.spec))),
        ]
        for name in ("almakit", "commit", "python", "torch", "numpy", "device", "processor", "threads", "system"):
            if environment.get(name) is not None or name in ("almakit", "torch"):
                found.append((name, environment.get(name)))
        for name in ("weights_sha256", "data_sha256", "spec_sha256"):
            found.append((name.replace("_", " "), settings.get(name) or None))
    return [(name, "not recorded" if value is None else str(value)) for name, value in found]
