"""Compares two runs, attack by attack and image by image: ratio of medians with its interval, wins and losses, and the
images that changed. No torch here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput
from ..runs.store.records import ImageInfo
from ..runs.threat import goal_name, threat_of
from .numbers import TIE, Array, Bootstrap, median, percentiles
from .results import Results
from .subjects import Subject, load
from .summary import MEASURES, attack_summary
from .table import Column, Table

NOTE = (
    "ratio: median after / median before, over all images of both runs; below 1 the second run found smaller changes."
)
SHOWN = 10
MEDIAN = next(measure for measure in MEASURES if measure.name == "median")


def compare(first: str | Path, second: str | Path, across_models: bool = False, seed: int = 0) -> dict[str, Any]:
    """Compare every attack that both runs contain. Images are paired by contents and label.

    Args:
        first: the run folder before.
        second: the run folder after.
        across_models: whether the runs may be of different models.
        seed: seed for resampling the pairs.

    Returns:
        A dict: ``before`` and ``after`` describe the runs; ``comparisons`` has one entry for each pair of attacks. A
        distance is infinite if the attack failed and NaN if it is not defined.
    """
    one, two = load([first])[0], load([second])[0]
    before, after = _side(one), _side(two)
    if not across_models and (before["model_sha256"] or before["model"]) != (after["model_sha256"] or after["model"]):
        equal = before["weights"] and before["weights"] == after["weights"]
        why = ", whose weights are equal and whose code, preprocessing or settings differ" if equal else ""
        raise BadInput(
            f"the runs attack different models{why}: {_line(before)}; {_line(after)}. To compare models, give --across "
            "models."
        )
    if before["goal"] != after["goal"]:
        raise BadInput(f"the runs have different goals: {first} is {before['goal']}, {second} is {after['goal']}.")
    left, right = ({column.info.text: column for column in subject.columns} for subject in (one, two))
    matched = [text for text in left if text in right]
    if not matched:
        raise BadInput(
            f"the two runs have no attack in common: the first has {', '.join(left) or 'none'}; the second has "
            f"{', '.join(right) or 'none'}. To see different attacks side by side, make a report of both runs."
        )
    here, there = _by_content(one), _by_content(two)
    shared = [(info.index, there[content].index, info.id) for content, info in here.items() if content in there]
    if not shared or one.runs[0].meta.get("features") != two.runs[0].meta.get("features"):
        raise BadInput(
            f"{first} and {second} have no image in common (images are matched by their contents and labels); compare "
            "runs on the same data."
        )
    found = [_pair(left[text], right[text], shared, seed) for text in matched]
    return {"before": before, "after": after, "comparisons": found}


def _side(subject: Subject) -> dict[str, Any]:
    """The description of a run in the comparison."""
    run, summary = subject.runs[0], subject.summaries[0]
    facts, environment = summary["run"], summary["environment"] or {}
    return {
        "folder": str(run.folder),
        "model": str(facts["model"] or run.spec.model),
        "weights": facts["weights_sha256"],
        "model_sha256": facts["model_sha256"],
        "data": str(facts["data"] or run.spec.data),
        "images": len(subject.images),
        "goal": goal_name(threat_of(run.spec).goal),
        "threat_model": facts["threat_model"],
        "versions": f"almakit {environment.get('almakit', '?')}, torch {environment.get('torch', '?')}",
    }


def _line(side: dict[str, Any]) -> str:
    """A one-line description of a run."""
    known = side["weights"]
    weights = f" (weights {known[:12]}, identity {str(side['model_sha256'])[:12]})" if known else ""
    return (
        f"{side['folder']}: {side['model']}{weights} on {side['data']}, {side['images']} images; "
        f"{side['threat_model']}; {side['versions']}"
    )


def _by_content(subject: Subject) -> dict[tuple[str, int, int], ImageInfo]:
    """The images by contents, label, and number of equal images before them."""
    found: dict[tuple[str, int, int], ImageInfo] = {}
    before: Counter[tuple[str, int]] = Counter()
    for info in subject.images:
        found[info.sha256, info.label, before[info.content]] = info
        before[info.content] += 1
    return found


def _pair(before: Results, after: Results, shared: Sequence[tuple[int, int, str]], seed: int) -> dict[str, Any]:
    """Compare an attack's results in two runs, on the images that it attacked in both."""
    both = [(before.rows[i], after.rows[j], name) for i, j, name in shared if i in before.rows and j in after.rows]
    if not both:
        raise BadInput(f"no image was attacked by {before.info.text} in both runs yet; resume them first.")
    # With all targets, the nearest target may differ between the runs.
    for left, right, name in () if before.draw.several else both:
        if left.target != right.target:
            raise BadInput(f"the runs aim at different classes (image {name}: {left.target} and {right.target}).")
    one = Results(before.info, [record for record, _, _ in both], before.run, step=before.step)
    two = Results(after.info, [record for _, record, _ in both], after.run, step=after.step)
    # An attack at a fixed radius only decides whether an image is broken; its distance has no meaning.
    x, y, fixed = before.counted(one.distances), before.counted(two.distances), not before.info.minimal
    with np.errstate(invalid="ignore"):
        tie = (x == y) | (np.abs(x - y) <= TIE * np.maximum(x, y))
    changed = [
        {"id": name, "before": old, "after": new, "ratio": _growth(old, new)}
        for (_, _, name), old, new, equal in zip(both, x.tolist(), y.tolist(), tie, strict=True)
        if not equal
    ]
    ratio, (low, high) = (math.nan, (math.nan, math.nan)) if fixed else ratio_of_medians(x, y, seed)
    parts = attack_summary(one), attack_summary(two)
    success = [part["success_rate"]["value"] for part in parts]
    lost = success[0] - success[1]
    return {
        "attack": before.info.text,
        "distance": before.info.distance,
        "images": len(both),
        "parts": parts,
        "success_rate": success,
        "median": [part["median_all"]["value"] for part in parts],
        "ratio_of_medians": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "wins": int((~tie & (y < x)).sum()),  # the second run found the smaller change
        "losses": int((~tie & (y > x)).sum()),
        "ties": int(tie.sum()),
        # The larger of the growth of the median and the share of images that only the first run broke.
        "worse_by": lost if math.isnan(ratio) else max(ratio - 1, lost),
        "changed": sorted(changed, key=lambda image: (-image["ratio"], image["id"])),
    }


def _growth(before: float, after: float) -> float:
    """after / before of one image: infinite if only the first run succeeded, 0 if only the second did."""
    return math.inf if before == 0 or math.isinf(after) else after / before


def ratio_of_medians(x: Array, y: Array, seed: int = 0) -> tuple[float, tuple[float, float]]:
    """median(y)/median(x) of paired distances (N,) and its interval over resampled pairs; NaN if not defined."""
    drawn = np.array([_ratio(median(x[pick]), median(y[pick])) for pick in Bootstrap(len(x), seed).picks()])
    drawn = drawn[~np.isnan(drawn)]
    return _ratio(median(x), median(y)), percentiles(drawn) if len(drawn) else (math.nan, math.nan)


def _ratio(before: float, after: float) -> float:
    if before == after:
        return math.nan if before == 0 or math.isinf(before) else 1.0
    return math.inf if before == 0 else after / before


COLUMNS = (
    Column("attack", "attack"),
    Column("images", "images", "count"),
    Column("success_before", "success before", "share"),
    Column("success_after", "success after", "share"),
    Column("median_before", "median before", "distance", interval=False),
    Column("median_after", "median after", "distance", interval=False),
    Column("ratio", "ratio", "distance"),
    Column("wins", "smaller", "count"),
    Column("losses", "larger", "count"),
    Column("ties", "equal", "count"),
)
CHANGED = (
    Column("id", "image"),
    Column("before", "before", "distance"),
    Column("after", "after", "distance"),
    Column("ratio", "ratio", "distance"),
)


def table(comparison: dict[str, Any]) -> str:
    """The comparison for a terminal, with at most ``SHOWN`` changed images per attack."""
    rows = []
    for one in comparison["comparisons"]:
        ratio = {"value": one["ratio_of_medians"], "low": one["ratio_low"], "high": one["ratio_high"]}
        row = one | {"ratio": None if math.isnan(one["ratio_of_medians"]) else ratio}
        for when, part in zip(("before", "after"), one["parts"], strict=True):
            row |= {f"success_{when}": part["success_rate"], f"median_{when}": MEDIAN.read(part)}
        rows.append(row)
    head = [f"{when:<8}{_line(comparison[when])}" for when in ("before", "after")]
    lines = [*head, "", Table(COLUMNS, rows).text(width=120), "", NOTE]
    for one in comparison["comparisons"]:
        if one["changed"]:
            which = f", the {SHOWN} worst:" if len(one["changed"]) > SHOWN else ":"
            lines += ["", f"{one['attack']}: {len(one['changed'])} images changed{which}"]
            lines.append(Table(CHANGED, one["changed"][:SHOWN]).text())
    return "\n".join(lines)
