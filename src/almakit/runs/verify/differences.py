"""Records against a fresh look: every number that can be computed again is, and what disagrees is named."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..store.records import ALREADY_WRONG, MEASURED, SUCCESS, AttackInfo, ImageInfo, Record, Tally, Top, wrong_pixels
from ..verdict import Judgement

PLAIN = ("l0", "l1", "l2", "linf")
EXACT, ROUNDED, CLAIMED = 1e-9, 1e-3, 1e-3
"""Relative differences: of norms, which the verdict takes in double precision; of other distances, in float32; of what
an attack says itself."""
DISTANCE = "the distance that the attack says"


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
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def of_record(
    found: Differences,
    record: Record,
    info: AttackInfo,
    image: ImageInfo,
    verdict: Judgement | None,
    measurable: bool,
    near: float,
) -> None:
    """Compares a record with the verdict on its stored image, None where it has none; ``near``: what rounding may do to
    a probability."""
    where = f"image {image.id}" + ("" if record.target is None else f" towards {record.target}")
    if verdict is None:
        _of_nothing(found, record, where)
        return
    if (record.slot is not None) != (record.status == SUCCESS):
        found.note("the status", where, record.status, "no stored image" if record.slot is None else "a stored image")
    if record.prediction != verdict.prediction and not _tied(record.prediction, verdict, near):
        found.note("the prediction", where, record.prediction, verdict.prediction)
    if not same_top(record.top, verdict.top, near):
        found.note("a probability", where, list(record.top[:2]), list(dict(verdict.top).items())[:2])
    for name, stored, now in (
        ("the verdict", record.fooled, verdict.fooled),
        ("the verdict after 8 bits", record.fooled_8bit, verdict.fooled_8bit),
    ):
        if stored != now:
            found.note(name, where, "fooled" if stored else "not fooled", "fooled" if now else "not fooled")
    votes = (record.vote, verdict.vote)
    if (None in votes and votes != (None, None)) or abs((votes[0] or 0.0) - (votes[1] or 0.0)) > near:
        found.note("the share of the votes", where, record.vote, verdict.vote)
    for name, number, again, limit in _measurements(record, info, verdict, measurable):
        if apart(number, again, limit):
            found.note(name, where, number, again)


def _of_nothing(found: Differences, record: Record, where: str) -> None:
    """Compares a record with what one is where nothing was found."""
    empty = (
        record.prediction,
        record.top,
        record.fooled,
        record.measured,
        record.fooled_8bit,
        record.measured_8bit,
        record.slot,
    )
    if empty != (None, (), False, None, False, None, None) or any(
        value is not None for value in record.measures.values()
    ):
        found.note("the status", where, record.status, "a verdict on an image that was found")
    if record.distance != math.inf:
        found.note(DISTANCE, where, record.distance, "none, for nothing was found")


def _measurements(
    record: Record, info: AttackInfo, verdict: Judgement, measurable: bool
) -> list[tuple[str, float | None, float | None, float]]:
    """(name, stored, measured again, how far apart they may be) for every distance of a record."""
    rows = [
        (name, record.measures.get(name), verdict.measures[name], EXACT if name in PLAIN else ROUNDED)
        for name in MEASURED
    ]
    if measurable:
        limit = EXACT if info.distance in PLAIN else ROUNDED
        rows += [
            ("measured", record.measured, verdict.measured, limit),
            ("measured after 8 bits", record.measured_8bit, verdict.measured_8bit, limit),
        ]
        claim = 0.0 if record.status == ALREADY_WRONG else verdict.measured
        if claim is not None:
            rows.append((DISTANCE, record.distance, claim, CLAIMED))
    return rows


def of_tally(found: Differences, where: str, stored: Tally | None, now: Tally | None, near: float) -> None:
    """Compares the counts of an image's pixels; some lie between two classes, and rounding decides them."""
    if stored is None or now is None:
        if stored is not now:
            found.note("the counts of its pixels", where, stored, now)
        return
    labelled = [{(row[0], row[1]) for row in tally if row[1]} for tally in (stored, now)]
    if labelled[0] != labelled[1] or abs(wrong_pixels(stored) - wrong_pixels(now)) > near:
        found.note("the share of wrong pixels", where, wrong_pixels(stored), wrong_pixels(now))


# Comparisons.


def apart(stored: float | None, now: float | None, limit: float) -> bool:
    """Whether two distances differ by more than ``limit``, relatively; one that is not there differs from any that
    is."""
    if stored is None or now is None:
        return stored is not now
    return not abs(stored - now) <= limit * max(abs(now), 1e-9)


def same_top(stored: Top, now: Top, near: float) -> bool:
    """Whether two lists of leading classes agree; a class that fell off the end of one may do so for a tie."""
    if len(stored) != len(now) or len(dict(stored)) != len(stored):
        return False
    fresh, least = dict(now), min((probability for _, probability in now), default=0.0)
    return all(
        abs(probability - fresh.get(label, min(least, probability))) <= near for label, probability in stored
    ) and all(abs(a - b) <= near for (_, a), (_, b) in zip(stored, now, strict=True))


def _tied(stored: int | None, verdict: Judgement, near: float) -> bool:
    """Whether the recorded class is as probable as the leading one, so that rounding decides between them."""
    leading = dict(verdict.top)
    return stored in leading and leading[stored] >= max(leading.values()) - near
