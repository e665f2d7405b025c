"""A run for a model card: the ``model-index`` of Hugging Face's metadata, robust accuracy and medians as metrics. No
torch here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..runs.threat import resisted
from .labels import distance_name, radius

if TYPE_CHECKING:
    from .run import Run


def model_card(run: Run) -> str:
    """YAML to put at the head of a README.md between two lines of ``---``; texts are quoted as JSON, which is YAML."""
    summary = run.summary
    facts = summary["run"]
    lines = ["model-index:", f"- name: {_text(facts['model'])}", "  results:"]
    lines += [
        "  - task:",
        "      type: image-classification",
        "      name: Adversarial robustness",
        "    dataset:",
        f"      type: {_text(facts['data'])}",
        f"      name: {_text(_data(summary))}",
        "    metrics:",
    ]
    lines += _metric("accuracy", summary["clean_name"].capitalize(), summary["clean_accuracy"]["value"])
    for worst in summary["worst_case"]:
        named = resisted(worst["goal"]).capitalize()
        what = named if worst["goal"] == "untargeted" else f"{named}, {worst['goal']}"
        for row in worst["robust_accuracy"]:
            at = f"{distance_name(worst['distance']).label} ≤ {radius(row['epsilon'], worst['distance'])}"
            lines += _metric(
                "robust_accuracy",
                f"{what} at {at}, {worst['attacks']} attack{'s' * (worst['attacks'] != 1)}",
                row["value"],
            )
    for part in summary["attacks"]:
        if part["minimal"] and part["median_all"]["value"] is not None:
            name = f"Median {distance_name(part['distance']).label} of the smallest change, {part['label']}"
            lines += _metric("median_distance", name, part["median_all"]["value"])
    # Where the numbers are from is a comment: a source of a model-index needs an address.
    hashes = ", ".join(
        f"{name} {facts[name]}" for name in ("spec_sha256", "weights_sha256", "data_sha256") if facts[name]
    )
    source = f"almakit {(summary['environment'] or {}).get('almakit', '?')}; {facts['threat_model']}; {hashes}"
    lines.insert(0, f"# {' '.join(source.split())}")
    return "\n".join(lines) + "\n"


def _data(summary: dict[str, Any]) -> str:
    unfinished = "" if summary["complete"] else f", not finished: {summary['missing_records']} results are missing"
    return f"{summary['run']['data']}, {summary['images']} images{unfinished}"


def _metric(kind: str, name: str, value: float | None) -> list[str]:
    return [] if value is None else [f"    - type: {kind}", f"      name: {_text(name)}", f"      value: {value!r}"]


def _text(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)
