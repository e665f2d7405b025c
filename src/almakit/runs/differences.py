"""Compares stored rows with recomputed ones, column by column of the table of fields, with a tolerance for each kind of
value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from .folder import RunFolder
from .images import RULES, round_target, rule_target
from .store import fields
from .store.records import ALREADY_WRONG, SUCCESS, ImageInfo, Record, Tally, Top, wrong_pixels
from .verdict import Judgement

PLAIN = ("l0", "l1", "l2", "linf")
EXACT, ROUNDED = 1e-9, 1e-3
"""Relative tolerances: of norms, which the verdict computes in double precision; of other distances and of distances
reported by attacks, which are computed in float32."""


@dataclass
class Differences:
    """Disagreements: for each kind of number their count and one example."""

    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def note(self, what: str, where: str, stored: object, now: object) -> None:
        """Note two values that should be equal, unless they are."""
        if stored != now:
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
    """Add every column in which the rows ``stored`` and ``now`` disagree to ``found``.

    Args:
        found: where disagreements are noted.
        where: what the rows describe, for the message.
        stored: the row as it was stored.
        now: the row as computed now.
        near: how far rounding may move a probability.
        distance: name of the distance of an attack.
    """
    for column in fields.columns(stored.__class__):
        then, again = column.of(stored), column.of(now)
        if then == again:
            continue
        if column.field == "top":
            same = _same_top(then, again, near)
        elif column.field == "prediction":
            leading = dict(now.top)  # rounding decides between two equally probable classes
            same = then in leading and leading[then] >= max(leading.values()) - near
        elif column.field == "pixels":
            same = _same_tally(then, again, near)
        elif None in (then, again) or column.kind != "REAL":
            same = False
        elif column.field == "vote":
            same = abs(then - again) <= near
        else:
            name = distance if column.field.startswith("measured") else column.name
            same = not apart(then, again, EXACT if name in PLAIN else ROUNDED)
        if not same:
            found.note(column.name, where, then, again)


def expected_image(
    image: ImageInfo, run: RunFolder, prediction: int, top: Top, pixels: Tally | None, logits: Tensor, near: float
) -> ImageInfo:
    """A clean image's row as computed from the model's new ``logits`` (K,)."""
    rule, target, classes = run.spec.targets, image.target, len(logits)
    if rule in (None, "all"):
        target = None
    elif rule in RULES and prediction >= 0 and 0 <= image.label < classes:
        target = rule_target(rule, logits, image.label, image.sha256, run.spec.seed)
        if rule == "least-likely" and image.target not in (None, image.label) and 0 <= image.target < classes:
            above = float(logits[image.target] - logits[target])
            target = image.target if above <= near * float(logits.max() - logits.min()) else target
    chunk = image.index // int(run.spec.batch_size)
    return replace(image, prediction=prediction, top=top, pixels=pixels, chunk=chunk, target=target)


def expected_record(record: Record, run: RunFolder, classes: int, verdict: Judgement | None) -> Record:
    """A record as computed from the new verdict on its stored image; ``verdict`` is None if the record has no image."""
    now: dict[str, Any]
    if verdict is None:
        now = dict.fromkeys(("prediction", "measured", "measured_8bit", "slot", "pixels", "vote"))
        now |= {"distance": math.inf, "top": (), "fooled": False, "fooled_8bit": False}
        now["measures"] = dict.fromkeys(record.measures)
    else:
        now = {**vars(verdict), "status": ALREADY_WRONG if record.slot is None else SUCCESS}
        if verdict.measured is None:  # a distance of another Python session
            now |= {"measured": record.measured, "measured_8bit": record.measured_8bit}
        else:
            now["distance"] = 0.0 if record.status == ALREADY_WRONG else verdict.measured
    image, every = run.image[record.image], run.spec.targets == "all"
    target = round_target(image.label, record.round, classes) if every else image.target
    return replace(record, **now, target=target)


def apart(stored: float, now: float, limit: float) -> bool:
    """Whether two distances differ by more than ``limit``, relatively."""
    return not abs(stored - now) <= limit * max(abs(now), 1e-9)


def _same_top(stored: Top, now: Top, near: float) -> bool:
    """Whether two lists of leading classes agree. A class may be missing at the end of one list because of a tie."""
    fresh = dict(now)
    least = min(fresh.values(), default=0.0)
    unique = len(dict(stored)) == len(stored) == len(now)
    return unique and all(abs(probability - fresh.get(label, least)) <= near for label, probability in stored)


def _same_tally(stored: Tally | None, now: Tally | None, near: float) -> bool:
    """Whether two counts of an image's pixels agree, up to pixels whose class is decided by rounding."""
    if stored is None or now is None:
        return False
    then, again = ({(row[0], row[1]) for row in tally if row[1]} for tally in (stored, now))
    return then == again and abs(wrong_pixels(stored) - wrong_pixels(now)) <= near
