"""Whether the numbers of a summary can be trusted: messages with a level, for the page and the terminal. No torch
here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..wilson import wilson
from .labels import distance_name
from .table import percent

GOOD, NOTE, WARN, BAD = "good", "note", "warn", "bad"
_SEVERITY = {"refuse": BAD, "warn": WARN, "note": NOTE}
Parts = Sequence[dict[str, Any]]
"""Summaries: of runs of one model, of their attacks, or of all attacks of a distance and goal."""


@dataclass(frozen=True)
class Check:
    """One reason to trust or doubt the numbers."""

    level: str  # good, note, warn or bad
    what: str
    sentence: str


def counts_of(attacks: Parts) -> dict[str, int]:
    """Counts of the records of these attacks. ``claims``: reported successes on attacked images. ``refuted``: those
    that the verdict does not confirm."""
    never_wrong = sum(part.get("never_wrong", 0) for part in attacks)
    return {
        "records": sum(part["records"] for part in attacks),
        "claims": sum(part["status"]["success"] for part in attacks),
        "refuted": sum(part["refuted"] for part in attacks) - never_wrong,
        "never_wrong": never_wrong,
        "survive_8bit": sum(part["survive_8bit"] for part in attacks),
        "failed": sum(map(_nothing_found, attacks)),
        "invalid": sum(part["status"]["invalid"] for part in attacks),
    }


def _nothing_found(part: dict[str, Any]) -> int:
    """Number of attacked images on which an attack failed; for an attack at a fixed radius, only those without finite
    logits."""
    return int(part["status"].get("failed", 0) + part["status"]["invalid"])


def checks(runs: Parts, worst_cases: Parts) -> list[Check]:
    """The checks of the numbers of ``runs`` of one model, the most important first."""
    attacks = [part for run in runs for part in run["attacks"]]
    counts = counts_of(attacks)
    claims, refuted, confirmed = counts["claims"], counts["refuted"], counts["claims"] - counts["refuted"]
    found = [_finished(runs, counts["records"])]
    for run in runs:
        for row in run["failed_chunks"]:
            what = "the clean pass" if row["attack"] < 0 else run["attacks"][row["attack"]]["label"]
            text = f"{what} gave up chunk {row['chunk']} ({row['images']} images) after {row['tries']} tries"
            found.append(Check(BAD, "Given up", f"{text}: {row['reason']}"))
    findings = {(finding["name"], finding["sentence"]): finding for run in runs for finding in run["findings"]}
    for finding in findings.values():
        text = f"{finding['sentence']} {finding['way_out']}".strip()
        found.append(Check(_SEVERITY.get(finding["severity"], WARN), f"Preflight, {finding['name']}", text))
    if not findings:
        found.append(Check(GOOD, "Preflight", "No problems found."))
    if refuted:
        text = f"{refuted} of {claims} claimed successes are refuted by a fresh forward pass; they count as not found."
        found.append(Check(BAD, "Verdict", text))
    elif claims:
        text = f"All {claims} claimed successes are confirmed by a fresh forward pass of the stored images, "
        found.append(Check(GOOD, "Verdict", f"{text}at another batch size and in full precision."))
    else:
        found.append(Check(NOTE, "Verdict", "No attack claims a success, so there is nothing to confirm."))
    if counts["never_wrong"]:
        text = "results call an image wrong from the start that a fresh forward pass classifies rightly; they count as"
        found.append(Check(BAD, "Wrong from the start", f"{counts['never_wrong']} {text} not found."))
    for worst in worst_cases:
        mine = [part for part in attacks if (part["distance"], part["goal"]) == (worst["distance"], worst["goal"])]
        found += [Check(WARN, "Gradients", text) for text in _gradients(mine, worst)]
    if confirmed and any("features" not in run for run in runs):
        part = counts["survive_8bit"] / confirmed
        low, high = map(percent, wilson(part, confirmed))
        text = f"{percent(part)} % of the confirmed successes (95 % interval {low} to {high}) survive rounding to "
        text += "8 bits." if part > 0.99 else "8 bits. To count only what image files can hold, run with bits = 8."
        found.append(Check(GOOD if part > 0.99 else NOTE, "8 bits", text))
    if counts["failed"]:
        over = "records (image and target)" if any(part["over"] == "records" for part in attacks) else "images"
        which = "; ".join(
            f"{part['label']} ({distance_name(part['distance']).label}): {_nothing_found(part)} of {part['records']}"
            for part in attacks
            if _nothing_found(part)
        )
        invalid = f" ({counts['invalid']} because the logits were not finite)" if counts["invalid"] else ""
        text = f"Nothing was found for {counts['failed']} attacked {over}{invalid}: {which}. "
        found.append(Check(WARN, "Failures", f"{text}A failure of an attack is no proof of robustness."))
    return found


def _finished(runs: Parts, there: int) -> Check:
    missing = sum(run["missing_records"] for run in runs)
    if not missing:
        return Check(GOOD, "Finished", "The run is complete." if len(runs) == 1 else "All runs are complete.")
    return Check(
        WARN,
        "Unfinished",
        f"This run is not finished: {there} of {there + missing} results are there "
        f"({percent(there / (there + missing), 0)} %). All numbers cover what is there, and attacks may cover other "
        "images; repeat the run command to resume.",
    )


def _gradients(attacks: Parts, together: dict[str, Any]) -> list[str]:
    """Signs of zero or masked gradients, each with a remedy, of the attacks of a distance and goal."""
    found = []
    for part in attacks:
        if part.get("zero_gradients"):
            found.append(
                f"{part['label']} ({part['distance']}) got only zero gradients on {part['zero_gradients']} of "
                f"{part['attacked']} attacked {part['over']}: it cannot see how to change them. Run again with "
                "--surrogate, a model with gradients (where the model rounds, the same one without rounding), or add "
                "an attack that needs none: square, hopskipjump."
            )
    masked = max([together["masked"], *(part.get("masked", 0) for part in attacks)])
    if masked:
        found.append(
            f"{masked} of {together['images']} images fall to an attack that uses no gradients, or those of a "
            f"surrogate, and to none along the model's own ({together['distance']}): gradients may be masked, and "
            "robust accuracy is then overestimated. Run again with --surrogate, a model with gradients, or give the "
            "attack without gradients more steps."
        )
    return found


def facts(run: dict[str, Any], folder: str) -> list[tuple[str, str]]:
    """Facts about machine, versions and settings of a run, as pairs."""
    environment: dict[str, Any] = run["environment"] or {}
    settings = run["run"]
    names = ("almakit", "commit", "python", "torch", "numpy", "device", "processor", "threads", "system")
    known = {
        "run folder": folder,
        "model": settings["model"],
        "data": settings["data"],
        "images": run["images"],
        "started": run["started"],
        "threat model": settings["threat_model"],
        **{name: environment.get(name) for name in names if environment.get(name) or name in ("almakit", "torch")},
        **{name.replace("_", " "): settings[name] for name in ("weights_sha256", "data_sha256", "spec_sha256")},
    }
    return [(name, str(value or "not recorded")) for name, value in known.items()]
