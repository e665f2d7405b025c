"""What was computed of a run's images afterwards, certified radii and transfers, against a fresh computation."""

from __future__ import annotations

from dataclasses import replace

from ...certify import METHODS
from ...errors import AlmakitError
from ...goals.base import Goal
from ...models import is_code
from ..certify import radii_of
from ..folder import RunFolder
from ..identity import difference
from ..model import Subject, open_model
from ..store.derived import CERTIFICATES, Certificate, Contradiction, Transfer, check_radii, read_transfers
from ..transfer import ask
from .compare import Differences, apart

TOLERANCE = 2e-3
"""Relative: two searches for a radius each end within one part in a thousand of the largest that can be proved."""
CHUNK = 16


def of_certificates(found: Differences, run: RunFolder, subject: Subject) -> list[str]:
    """Computes the certified radii again; returns a sentence for each file that was not checked, and for each radius
    above the distance of a verified success."""
    said = []
    for part in run.certificates:
        name = f"{CERTIFICATES}/{part.file(run.folder).name}"
        try:
            check_radii(run.folder, [part], run.records, run.image)
        except Contradiction as error:
            found.note("a certified radius", name, "above a found distance", str(error))
        if part.method not in METHODS:
            said.append(f"{name} is not checked: radii by {part.method} depend on a time limit.")
        elif differs := difference(run, subject):
            said.append(f"{name} is not checked: {subject.name} is not the model of the run ({differs}).")
        else:
            try:
                _of_certificate(found, run, subject, part)
            except (AlmakitError, RuntimeError) as error:
                said.append(f"{name} is not checked: {error}")
    return said


def _of_certificate(found: Differences, run: RunFolder, subject: Subject, part: Certificate) -> None:
    what = f"a certified radius ({part.norm}, {part.method})"
    for index in sorted(part.radii.keys() - run.image.keys()):
        found.note(what, f"image {index}", part.radii[index], "no such image")
    images = [info for info in run.images if info.index in part.radii]
    for begin in range(0, len(images), CHUNK):
        chunk = images[begin : begin + CHUNK]
        again = radii_of(run, subject, chunk, part.norm, part.method)
        for info in chunk:
            stored, now = part.radii[info.index], again[info.index]
            if stored != now and apart(stored, now, TOLERANCE):
                found.note(what, f"image {info.id}", stored, now)


def of_transfers(found: Differences, run: RunFolder, subject: Subject, goal: Goal | None) -> list[str]:
    """Asks the targets of the transfers again; returns a sentence for each that was not checked."""
    said = []
    for part in read_transfers(run.folder):
        try:
            target = _target(run, subject, part)
            if isinstance(target, str):
                said.append(f"The transfer to {part.target} is not checked: {target}.")
                continue
            fresh = Transfer(part.target, part.model_sha256)
            for _ in ask(run, target, fresh, goal):
                pass
        except (AlmakitError, RuntimeError) as error:
            said.append(f"The transfer to {part.target} is not checked: {error}")
            continue
        for text, rows in part.seen.items():
            for image, stored in rows.items():
                if stored != (now := fresh.seen.get(text, {}).get(image)):
                    found.note(f"an answer of {part.target}", f"{text}, image {image}", stored, now)
    return said


def _target(run: RunFolder, subject: Subject, part: Transfer) -> Subject | str:
    """The target of a transfer, opened; or why it is not. A folder is data: code that it names is not run."""
    if (subject.name, subject.model_sha256) == (part.target, part.model_sha256):
        return subject
    if part.target.startswith("python:"):
        return "it was given from Python"
    if is_code(part.target):
        return "it is Python code, and no code runs because a folder names it"
    opened = open_model(part.target, replace(run.spec, device=str(subject.device), trust=False))
    if opened.model_sha256 != part.model_sha256:
        return "the model of that name is another one than was asked; run `almakit transfer` again"
    return opened
