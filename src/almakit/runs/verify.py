"""Verifies a run folder with a newly loaded model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from .. import distances, goals
from ..certify import METHODS
from ..core.oracle import borrowed
from ..errors import AlmakitError
from ..expression import parse
from ..goals.base import Goal
from ..models import is_code
from .certify import radii_of
from .differences import Differences, apart, compare, expected_image, expected_record
from .failures import StoreError, understood
from .folder import RunFolder
from .identity import difference
from .images import RULES, data_sha256
from .model import Subject, for_run, open_model
from .store import ATTACK, CLEAN, files
from .store.derived import CERTIFICATES, Certificate, Contradiction, Transfer, check_radii, read_transfers
from .store.records import AttackInfo
from .transfer import ask
from .verdict import Measure, judge_records, originals, predictions, tallies, top_classes

NOT_CHECKED = (
    "Not checked, because only the run itself could see them: forwards, backwards, seconds, gradients of the distance, "
    "reasons, histories, preflight."
)
TOLERANCE = 2e-3
"""Relative tolerance of certified radii: each search ends within one part in a thousand of the largest provable
radius."""
CHUNK = 16
"""Number of images that are certified at a time."""


@dataclass
class Verification:
    """The result of judging an attack's stored images again."""

    attack: str
    records: int = 0
    claimed: int = 0  # successes the attack reported, already wrong images included
    confirmed: int = 0  # number of those that fool the model now
    confirmed_8bit: int = 0  # number of those that still do after rounding to 8 bits
    changed: int = 0  # images with another judgement than the stored one
    unmeasured: int = 0  # distances that cannot be checked, because the distance exists only in another Python session
    differences: Differences = field(default_factory=Differences)

    @property
    def misreported(self) -> int:
        """Number of stored distances that differ from the image's by more than one part in a thousand."""
        return self.differences.found.get("distance", (0, ""))[0]

    @property
    def good(self) -> bool:
        """Whether every success is confirmed and every recomputed number equals the stored one."""
        return self.confirmed == self.claimed and not (self.changed or self.differences)


@dataclass
class RunVerification:
    """The result of verifying a run folder: for each attack, and for clean images, certificates, transfers and facts of
    the folder."""

    attacks: list[Verification]
    folder: Differences
    not_checked: list[str]  # messages about numbers that could not be recomputed

    def __iter__(self) -> Iterator[Verification]:
        return iter(self.attacks)

    @property
    def good(self) -> bool:
        return not self.folder and all(found.good for found in self.attacks)

    def sentences(self) -> list[str]:
        """All disagreements: the number, its count and an example."""
        return self.folder.sentences("the folder") + [
            sentence for found in self.attacks for sentence in found.differences.sentences(found.attack)
        ]


def damaged_files(run: RunFolder) -> list[str]:
    """A message for every file of a run folder that does not match its record."""
    return [f"{row.file} {fault}" for row in run.chunks if (fault := files.fault_of(run.folder, row))]


def verify_run(run: RunFolder, subject: Subject, batch_size: int | None = None, goal: object = None) -> RunVerification:
    """Judge every stored image of a run again and compare all values that reports use. Raises an error for damaged
    files and for originals that do not match their hash.

    Args:
        run: the run folder.
        subject: its model, loaded again.
        batch_size: number of images in a forward pass; default: different from the run's.
        goal: the run's own goal, if it has one.
    """
    size, aim = batch_size or int(run.spec.batch_size), None if goal is None else goals.get(goal)
    held = all(finding["name"] != "randomness-elsewhere" for finding in run.findings)
    judging = replace(for_run(subject, run, aim), held=held)
    found, not_checked = Differences(), []
    with borrowed(subject.model), understood(run.folder):
        _verify_images(run, judging, size, found)
        _check_folder(run, judging, found)
        attacks = [_verify_attack(run, info, judging, size) for info in run.attacks]
        for name, check in _derived(run, subject, aim):
            try:
                check(found)
            except (AlmakitError, RuntimeError) as error:
                not_checked.append(f"{name} is not checked: {error}")
    return RunVerification(attacks, found, not_checked)


def _verify_images(run: RunFolder, subject: Subject, size: int, found: Differences) -> None:
    """Check every clean image."""
    for begin in range(0, len(run.images), 256):
        part = run.images[begin : begin + 256]
        images, truth = originals(run, [info.index for info in part])
        logits, maps = subject.answers(images, size + 2, truth if run.aimed else None)
        counted = [None] * len(part) if maps is None or truth is None else tallies(maps, truth, logits.shape[1])
        fresh = zip(predictions(logits), top_classes(logits), counted, logits, strict=True)
        for info, answer in zip(part, fresh, strict=True):
            compare(found, f"image {info.id}", info, expected_image(info, run, *answer, subject.near), subject.near)


def _verify_attack(run: RunFolder, info: AttackInfo, subject: Subject, size: int) -> Verification:
    records, measure = run.records_of(info.index), _measure(info)
    found, classes = Verification(info.text, len(records)), subject.classes[0] if subject.classes else 0
    for begin in range(0, len(records), 256):
        part = records[begin : begin + 256]
        claimed = [record for record in part if record.claimed]
        # Two images more: a batch size that differs from the attack's and from the first verdict's.
        verdicts = iter(judge_records(run, info, claimed, subject, size + 2, measure))
        for record in part:
            verdict = next(verdicts) if record.claimed else None
            if verdict is not None:
                found.claimed += 1
                found.confirmed += verdict.fooled
                found.confirmed_8bit += verdict.fooled_8bit
                found.changed += (verdict.fooled, verdict.fooled_8bit) != (record.fooled, record.fooled_8bit)
                found.unmeasured += measure is None and verdict.measured is None
            towards = "" if record.target is None else f" towards {record.target}"
            where, now = f"image {run.image[record.image].id}{towards}", expected_record(record, run, classes, verdict)
            compare(found.differences, where, record, now, subject.near, info.distance)
    return found


def _measure(info: AttackInfo) -> Measure | None:
    """The distance named by a record. The attack's text is parsed and never built, because it may name code and the
    folder is untrusted."""
    try:
        parse(info.text)
        return distances.get(info.distance)
    except AlmakitError:
        return None  # from another Python session: only the standard distances are checked


def _check_folder(run: RunFolder, subject: Subject, found: Differences) -> None:
    """Compare facts of the folder with its rows, and check that no row or stored image of a finished chunk is left
    out."""
    meta, spec, images = run.meta, run.spec, run.images
    own = [info.target or 0 for info in images] if spec.targets not in (None, "all", *RULES) else None
    ids, hashes, labels = ([getattr(info, name) for info in images] for name in ("id", "sha256", "label"))
    expected = int(meta.get("images", len(images)))
    if len(images) == expected:
        total = data_sha256(ids, hashes, labels, own)
        found.note("the images' ids, hashes, labels and targets", "the folder", meta.get("data_sha256", total), total)
    found.note("the attacks", "the folder", [info.text for info in run.attacks], list(spec.attacks))
    rows, slots = Counter((CLEAN, -1, info.chunk, 0) for info in images), dict[str | None, set[int]]()
    for record in run.records:
        rows[ATTACK, record.attack, run.image[record.image].chunk, record.round] += 1
        if record.slot is not None:
            slots.setdefault(record.file, set()).add(record.slot)
    for row in run.chunks:
        key, where = row.key, f"chunk {row.key.chunk} of attack {row.key.attack}"
        whole = min(int(spec.batch_size), expected - key.chunk * int(spec.batch_size))
        found.note("the rows of a chunk", where, rows[key.kind, key.attack, key.chunk, key.round], whole)
        if key.kind == ATTACK and row.file is not None:
            stored = len(files.read(run.folder, row)["images"])
            found.note("the stored images", where, slots.get(row.file, set()), set(range(stored)))


# Results that were computed from a run afterwards, compared with a new computation. Each check notes differences, and
# raises an error if there is nothing to compare with.

Check = Callable[[Differences], None]


def _derived(run: RunFolder, subject: Subject, goal: Goal | None) -> Iterator[tuple[str, Check]]:
    """The certificates and transfers of a run, each with its check."""
    for certificate in run.certificates:
        name = f"{CERTIFICATES}/{certificate.file(run.folder).name}"
        yield name, partial(_check_certificate, name, run, subject, certificate)
    for transfer in read_transfers(run.folder):
        yield f"The transfer to {transfer.target}", partial(_check_transfer, run, subject, transfer, goal)


def _check_certificate(name: str, run: RunFolder, subject: Subject, part: Certificate, found: Differences) -> None:
    try:
        check_radii(run.folder, [part], run.records, run.image)
    except Contradiction as error:
        found.note("a certified radius", name, "above a found distance", str(error))
    if part.method not in METHODS:
        raise StoreError(f"radii by {part.method} depend on a time limit.")
    if differs := difference(run, subject):
        raise StoreError(f"{subject.name} is not the model of the run ({differs}).")
    what = f"a certified radius ({part.norm}, {part.method})"
    for index in sorted(part.radii.keys() - run.image.keys()):
        found.note(what, f"image {index}", part.radii[index], "no such image")
    images = [info for info in run.images if info.index in part.radii]
    for begin in range(0, len(images), CHUNK):
        chunk = images[begin : begin + CHUNK]
        again = radii_of(run, subject, chunk, part.norm, part.method)
        for info in chunk:
            stored, now = part.radii[info.index], again[info.index]
            if apart(stored, now, TOLERANCE):
                found.note(what, f"image {info.id}", stored, now)


def _check_transfer(run: RunFolder, subject: Subject, part: Transfer, goal: Goal | None, found: Differences) -> None:
    if (subject.name, subject.model_sha256) != (part.target, part.model_sha256):
        if part.target.startswith("python:"):
            raise StoreError("it was given from Python.")
        if is_code(part.target):
            raise StoreError("it is Python code, and no code runs because a folder names it.")
        subject = open_model(part.target, replace(run.spec, device=str(subject.device), trust=False))
        if subject.model_sha256 != part.model_sha256:
            raise StoreError("the model of that name is another one now; run `almakit transfer` again.")
    fresh = Transfer(part.target, part.model_sha256)
    for _ in ask(run, subject, fresh, goal):
        pass
    for text, rows in part.seen.items():
        for image, stored in rows.items():
            now = fresh.seen.get(text, {}).get(image)
            found.note(f"an answer of {part.target}", f"{text}, image {image}", stored, now)
