"""A run folder's numbers against a fresh look: every one that can be computed again is, and what disagrees is named.
Used by ``verify``."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from torch import Tensor

from .. import registry
from ..compose.expression import parse
from ..errors import AlmakitError
from .folder import Run
from .records import ALREADY_WRONG, INVALID, MEASURED, SUCCESS, AttackInfo, ImageInfo, Record, Tally, Top, wrong_pixels
from .store import ATTACK, CLEAN
from .subject import data_sha256
from .targets import round_target, rule_target
from .verdict import Judgement

PLAIN = ("l0", "l1", "l2", "linf")
EXACT, ROUNDED, CLAIMED = 1e-9, 1e-3, 1e-3
"""Relative differences: of norms, which the verdict takes in double precision; of other distances, in float32; of what
an attack says itself."""
DISTANCE = "the distance that the attack says"
RULES = ("random", "least-likely", "next")
NOT_CHECKED = (
    "Not checked, because only the run itself could see them: forwards, backwards and seconds (beyond their "
    "limits), reasons, courses, preflight."
)


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


# Records.


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


def of_plan(found: Differences, record: Record, run: Run, image: ImageInfo, clean: Tensor, near: float) -> None:
    """Compares what is decided beforehand: the target, the limits, and whether there was anything to do (``clean``
    (K,): probabilities)."""
    where, spec, classes = f"image {image.id}", run.spec, len(clean)
    if spec.targets == "all":
        if record.target != (target := round_target(image.label, record.round, classes)):
            found.note("the target", where, record.target, target)
    elif record.target != image.target:
        found.note("the target", where, record.target, image.target)
    most = math.inf if spec.most_passes is None else spec.most_passes
    if not (1 <= record.forwards <= most and 0 <= record.backwards <= most):
        found.note(
            "forwards or backwards",
            where,
            f"{record.forwards} and {record.backwards}",
            f"at least one forward, at most {most}",
        )
    course = [math.inf if value is None else value for value in record.course.values()]
    if min(course, default=math.inf) < math.inf and course != sorted(course, reverse=True):
        found.note("the best distances so far", where, course, "none above the one before")
    if not math.isfinite(record.seconds) or record.seconds < 0:
        found.note("the seconds", where, record.seconds, "a time")
    by_class = image.pixels is None and spec.goal is None
    if (
        spec.dtype in ("float32", "float64")
        and by_class
        and record.attacked
        and record.status != INVALID
        and bool(clean.isfinite().all())
    ):
        goal = image.label if record.target is None else record.target
        if not 0 <= goal < classes:
            return
        others = float(clean.clone().index_fill_(0, clean.new_tensor([goal]).long(), -1.0).max())
        lead = float(clean[goal]) - others if record.target is not None else others - float(clean[goal])
        if lead > near:
            found.note("the status", where, record.status, ALREADY_WRONG)


def of_tally(found: Differences, where: str, stored: Tally | None, now: Tally | None, near: float) -> None:
    """Compares the counts of an image's pixels; some lie between two classes, and rounding decides them."""
    if stored is None or now is None:
        if stored is not now:
            found.note("the counts of its pixels", where, stored, now)
        return
    labelled = [{(row[0], row[1]) for row in tally if row[1]} for tally in (stored, now)]
    if labelled[0] != labelled[1] or abs(wrong_pixels(stored) - wrong_pixels(now)) > near:
        found.note("the share of wrong pixels", where, wrong_pixels(stored), wrong_pixels(now))


# Clean images and facts of the folder.


def of_image(
    found: Differences, image: ImageInfo, run: Run, prediction: int, top: Top, logits: Tensor, near: float
) -> None:
    """Compares a clean image's row with the model's fresh answer, ``logits`` (K,)."""
    where, rule = f"image {image.id}", run.spec.targets
    tied = dict(top).get(image.prediction, 0.0) >= max(dict(top).values(), default=1.0) - near
    if image.prediction != prediction and not tied:
        found.note("the clean prediction", where, image.prediction, prediction)
    if not same_top(image.top, top, near):
        found.note("a clean probability", where, list(image.top[:2]), list(top[:2]))
    if image.chunk != image.index // int(run.spec.batch_size):
        found.note("the chunk", where, image.chunk, image.index // int(run.spec.batch_size))
    if rule in RULES and prediction >= 0 and 0 <= image.label < len(logits):
        target = rule_target(rule, logits, image.label, image.sha256, run.spec.seed)
        nearly = (
            rule == "least-likely"
            and image.target is not None
            and 0 <= image.target < len(logits)
            and image.target != image.label
        )
        if image.target != target and not (
            nearly and float(logits[image.target or 0] - logits[target]) <= near * float(logits.max() - logits.min())
        ):
            found.note("the target", where, image.target, target)
    elif rule in (None, "all") and image.target is not None:
        found.note("the target", where, image.target, None)


def of_folder(found: Differences, run: Run, classes: int) -> None:
    """Compares the facts of a folder with each other and with its rows."""
    meta, spec, images = run.meta, run.spec, run.images
    given = [info.target or 0 for info in images] if spec.targets not in (None, "all", *RULES) else None
    total = data_sha256(
        [info.id for info in images], [info.sha256 for info in images], [info.label for info in images], given
    )
    expected = int(meta.get("images", len(images)))
    if (len(images) == expected and meta.get("data_sha256", total) != total) or any(
        not 0 <= info.index < expected for info in images
    ):
        found.note("the images' ids, hashes, labels and targets", "data_sha256", meta.get("data_sha256"), total)
    if len(images) != expected and meta.get("data_sha256") == total:
        found.note("the number of images", "meta", expected, len(images))
    if images and meta.get("classes") != str(classes):
        found.note("the number of classes", "meta", meta.get("classes"), classes)
    for key, now in (("model", spec.model), ("data", spec.data)):
        if meta.get(key, now) != now:
            found.note(f"the name of the {key}", "meta", meta.get(key), now)
    if [info.text for info in run.attacks] != list(spec.attacks):
        found.note("the attacks", "the list", [info.text for info in run.attacks], list(spec.attacks))
    for info in run.attacks:
        _attack(found, info, spec.targets is not None)
    _chunks(found, run, expected)


def _attack(found: Differences, info: AttackInfo, targeted: bool) -> None:
    if info.targeted != targeted:
        found.note("whether it is targeted", info.text, info.targeted, targeted)
    try:
        written = parse(info.text)
    except AlmakitError:
        return  # a text that only a Python session can write, such as one with a function in it
    if written.name in registry.BUILT_IN["attacks"]:
        minimal = registry.get("attacks", written.name).minimal
        if isinstance(minimal, bool) and info.minimal != minimal:
            found.note("whether it looks for the smallest change", info.text, info.minimal, minimal)
    for name, value in written.arguments.items():
        if isinstance(value, (bool, int, float)) and name in info.settings and info.settings[name] != value:
            found.note(f"the setting {name}", info.text, info.settings[name], value)


def _chunks(found: Differences, run: Run, expected: int) -> None:
    """Every finished chunk has all its images and records, and every stored image belongs to one."""
    size = int(run.spec.batch_size)
    places = {info.index: info.chunk for info in run.images}
    clean = Counter(places.values())
    records = Counter((record.attack, places[record.image], record.round) for record in run.records)
    slots: dict[str | None, list[int]] = {}
    for record in run.records:
        if record.slot is not None:
            slots.setdefault(record.file, []).append(record.slot)
    for row in run.chunks:
        where, key = (
            f"chunk {row.key.chunk}" + (f" of attack {row.key.attack}" if row.key.kind == ATTACK else ""),
            row.key,
        )
        whole = min(size, expected - key.chunk * size)
        if row.images != whole or clean[key.chunk] != whole:
            found.note("the images of a chunk", where, f"{row.images}, with {clean[key.chunk]} rows", whole)
        if key.kind != CLEAN and records[key.attack, key.chunk, key.round] != whole:
            found.note("the records of a chunk", where, records[key.attack, key.chunk, key.round], whole)
        stored = 0 if row.file is None else run.stored_in(row)
        if key.kind != CLEAN and sorted(slots.get(row.file, [])) != list(range(stored)):
            found.note(
                "the stored images", where, f"records of {len(slots.get(row.file, []))}", f"{stored} in the file"
            )


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
