"""Stored rows against fresh ones: what is compared, column by column of the table of fields, and how far two values may
lie apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from ..folder import RunFolder
from ..images import RULES, round_target, rule_target
from ..store import fields
from ..store.records import ALREADY_WRONG, INVALID, SUCCESS, AttackInfo, ImageInfo, Record, Tally, Top, wrong_pixels
from ..verdict import Judgement

PLAIN = ("l0", "l1", "l2", "linf")
EXACT, ROUNDED = 1e-9, 1e-3
"""Relative differences: of norms, which the verdict takes in double precision; of other distances, in float32, and of
what an attack says itself."""
DISTANCE = "the distance that the attack says"
WORDS = {
    "distance": DISTANCE,
    "fooled": "the verdict",
    "fooled_8bit": "the verdict after 8 bits",
    "measured_8bit": "measured after 8 bits",
    "pixels": "the share of wrong pixels",
    "top": "a probability",
    "vote": "the share of the votes",
}
"""What columns are called in sentences, where it is not "the" and their name."""


@dataclass
class Differences:
    """What does not agree: for each kind of number how often, and one example."""

    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def note(self, what: str, where: str, stored: object, now: object) -> None:
        count, example = self.found.get(what, (0, f"{where}: stored {_shown(stored)}, now {_shown(now)}"))
        self.found[what] = (count + 1, example)

    def sentences(self, whose: str) -> list[str]:
        return [
            f"{whose}: {what} disagrees {count} time{'s' if count > 1 else ''} (for one {example})."
            for what, (count, example) in self.found.items()
        ]

    def __bool__(self) -> bool:
        return bool(self.found)


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value[:2] if isinstance(value, tuple) else value)


def compare(found: Differences, where: str, stored: Any, now: Any, near: float, distance: str = "") -> None:
    """Notes every column in which two rows of one kind, ``stored`` and ``now``, disagree.

    Args:
        found: where disagreements are noted.
        where: what the rows are about, for the sentence.
        stored: the row as it was stored.
        now: what it would be today.
        near: how far rounding may move a probability.
        distance: what an attack's distances are measured in.
    """
    for column, then, again in zip(fields.columns(stored.__class__), fields.row(stored), fields.row(now), strict=True):
        if then == again:
            continue
        if column.field == "top":
            same = same_top(stored.top, now.top, near)
        elif column.field == "prediction":
            same = _tied(then, now.top, near)
        elif column.field == "pixels":
            same = same_tally(stored.pixels, now.pixels, near)
        elif None in (then, again) or column.kind != "REAL":
            same = False
        elif column.field == "vote":
            same = abs(then - again) <= near
        else:
            name = distance if column.field.startswith("measured") else column.name
            same = not apart(then, again, EXACT if name in PLAIN else ROUNDED)
        if not same:
            word = column.name if column.kind == "REAL" else f"the {column.name}"
            values = (
                (then, again) if column.kind == "REAL" else (getattr(stored, column.field), getattr(now, column.field))
            )
            found.note(WORDS.get(column.name, word), where, *values)


def of_image(
    found: Differences,
    image: ImageInfo,
    run: RunFolder,
    prediction: int,
    top: Top,
    pixels: Tally | None,
    logits: Tensor,
    near: float,
) -> None:
    """Compares a clean image's row with the model's fresh answer, ``logits`` (K,)."""
    rule, target = run.spec.targets, image.target
    if rule in (None, "all"):
        target = None
    elif rule in RULES and prediction >= 0 and 0 <= image.label < len(logits):
        target = rule_target(rule, logits, image.label, image.sha256, run.spec.seed)
        possible = image.target is not None and 0 <= image.target < len(logits) and image.target != image.label
        if rule == "least-likely" and possible:
            above = float(logits[image.target] - logits[target])
            target = image.target if above <= near * float(logits.max() - logits.min()) else target
    now = replace(
        image,
        prediction=prediction,
        top=top,
        pixels=pixels,
        chunk=image.index // int(run.spec.batch_size),
        target=target,
    )
    compare(found, f"image {image.id}", image, now, near)


def of_record(
    found: Differences,
    record: Record,
    info: AttackInfo,
    image: ImageInfo,
    verdict: Judgement | None,
    measurable: bool,
    near: float,
) -> None:
    """Compares a record with the verdict on its stored image, None where it has none; ``measurable``: whether almakit
    knows the attack's distance."""
    now = replace(record, **_nothing(record) if verdict is None else _judged(record, verdict, measurable))
    where = f"image {image.id}" + ("" if record.target is None else f" towards {record.target}")
    compare(found, where, record, now, near, info.distance)


def _judged(record: Record, verdict: Judgement, measurable: bool) -> dict[str, Any]:
    now = {name: value for name, value in vars(verdict).items() if name != "classes"}
    now["status"] = ALREADY_WRONG if record.slot is None else SUCCESS
    if not measurable:
        return now | {"measured": record.measured, "measured_8bit": record.measured_8bit}
    if record.status == ALREADY_WRONG:
        now["distance"] = 0.0
    elif verdict.measured is not None:
        now["distance"] = verdict.measured
    return now


def _nothing(record: Record) -> dict[str, Any]:
    """What a record holds where nothing was found."""
    now: dict[str, Any] = dict.fromkeys(("prediction", "measured", "measured_8bit", "slot", "pixels", "vote"))
    measures = dict.fromkeys(record.measures)
    return now | {"distance": math.inf, "top": (), "fooled": False, "fooled_8bit": False, "measures": measures}


def of_plan(found: Differences, record: Record, run: RunFolder, image: ImageInfo, clean: Tensor, near: float) -> None:
    """Compares what is decided beforehand: the target, the limits, and whether there was anything to do (``clean``
    (K,): probabilities)."""
    where, spec, classes = f"image {image.id}", run.spec, len(clean)
    target = round_target(image.label, record.round, classes) if spec.targets == "all" else image.target
    if record.target != target:
        found.note("the target", where, record.target, target)
    most = math.inf if spec.most_passes is None else spec.most_passes
    if not (1 <= record.forwards <= most and 0 <= record.backwards <= most):
        passes = f"{record.forwards} and {record.backwards}"
        found.note("forwards or backwards", where, passes, f"at least one forward, at most {most}")
    course = [math.inf if value is None else value for value in record.course.values()]
    if course != sorted(course, reverse=True):
        found.note("the best distances so far", where, course, "none above the one before")
    if _wrong_already(record, run, image, clean, near):
        found.note("the status", where, record.status, ALREADY_WRONG)


def _wrong_already(record: Record, run: RunFolder, image: ImageInfo, clean: Tensor, near: float) -> bool:
    """Whether the clean image reaches the goal by more than rounding, so that there was nothing to attack."""
    spec, goal = run.spec, image.label if record.target is None else record.target
    by_class = image.pixels is None and spec.goal is None and spec.dtype in ("float32", "float64")
    attacked = record.attacked and record.status != INVALID
    if not (by_class and attacked and 0 <= goal < len(clean) and bool(clean.isfinite().all())):
        return False
    own = float(clean[goal])
    if spec.eot is not None:
        return (own if record.target is not None else 1 - own) > spec.vote_share + near
    others = float(clean.clone().index_fill_(0, clean.new_tensor([goal]).long(), -1.0).max())
    return (own - others if record.target is not None else others - own) > near


# Comparisons.


def apart(stored: float, now: float, limit: float) -> bool:
    """Whether two distances differ by more than ``limit``, relatively."""
    return not abs(stored - now) <= limit * max(abs(now), 1e-9)


def same_top(stored: Top, now: Top, near: float) -> bool:
    """Whether two lists of leading classes agree; a class that fell off the end of one may do so for a tie."""
    if len(stored) != len(now) or len(dict(stored)) != len(stored):
        return False
    fresh, least = dict(now), min((probability for _, probability in now), default=0.0)
    return all(
        abs(probability - fresh.get(label, min(least, probability))) <= near for label, probability in stored
    ) and all(abs(a - b) <= near for (_, a), (_, b) in zip(stored, now, strict=True))


def same_tally(stored: Tally | None, now: Tally | None, near: float) -> bool:
    """Whether two counts of an image's pixels agree; some pixels lie between two classes, and rounding decides them."""
    if stored is None or now is None:
        return stored is now
    then, again = ({(row[0], row[1]) for row in tally if row[1]} for tally in (stored, now))
    return then == again and abs(wrong_pixels(stored) - wrong_pixels(now)) <= near


def _tied(stored: int | None, top: Top, near: float) -> bool:
    """Whether the recorded class is as probable as the leading one, so that rounding decides between them."""
    leading = dict(top)
    return stored in leading and leading[stored] >= max(leading.values()) - near
