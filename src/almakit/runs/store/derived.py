"""Results that are computed from a finished run and stored in its folder as JSON: certified radii and transfers. No
torch here."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ...errors import AlmakitError
from ..failures import StoreError
from . import files
from .fields import finite
from .records import ImageInfo, Record

CERTIFICATES, TRANSFERS, FORMAT = "certificates", "transfers", 1
MEASURING = 1e-6
"""Relative tolerance for a measured distance below a certified radius, which covers rounding of the distance."""
Seen = tuple[bool, bool]
"""Whether the model reaches the goal on the clean image, and on the stored one."""


class Contradiction(AlmakitError):
    """A verified success has a smaller distance than a certified radius, so one of the two is wrong. The message names
    both."""


@dataclass
class Certificate:
    """Certified radii in ``norm``, proved by ``method``, of the images at these positions; infinite if no image has
    another class."""

    norm: str
    method: str
    model_sha256: str | None
    radii: dict[int, float] = field(default_factory=dict)

    def file(self, folder: Path) -> Path:
        return folder / CERTIFICATES / f"{self.norm}-{self.method}.json"

    def write(self, folder: Path) -> None:
        """Write the radii to a file atomically."""
        radii = {str(image): finite(radius) for image, radius in sorted(self.radii.items())}
        content = {"norm": self.norm, "method": self.method, "model_sha256": self.model_sha256, "radii": radii}
        _write(self.file(folder), content | {"null_means": "infinite"})


@dataclass
class Transfer:
    """Answers of the model ``target`` to the adversarial images of a run, by attack and image ("3", or "3>7" for target
    class 7)."""

    target: str
    model_sha256: str | None  # identity of the target model; in files of earlier versions, the sha256 of its weights
    seen: dict[str, dict[str, Seen]] = field(default_factory=dict)

    def file(self, folder: Path) -> Path:
        mark = hashlib.sha256(f"{self.target}\t{self.model_sha256}".encode()).hexdigest()[:8]
        return folder / TRANSFERS / f"{re.sub(r'[^A-Za-z0-9]+', '-', self.target).strip('-')[:60]}-{mark}.json"

    def write(self, folder: Path) -> None:
        """Write the answers to a file atomically."""
        seen = {name: {image: [*map(int, pair)] for image, pair in rows.items()} for name, rows in self.seen.items()}
        content = {"target": self.target, "model_sha256": self.model_sha256, "seen": seen}
        pairs = "whether the target reaches the goal on the clean image, and on the stored one"
        _write(self.file(folder), content | {"pairs_mean": pairs})


Kind = TypeVar("Kind", Certificate, Transfer)


def read_certificates(folder: Path, model_sha256: str | None, weights_sha256: str | None) -> list[Certificate]:
    """The certificates of a run folder whose model has this identity; those of another model are refused. Files of
    earlier versions name the model's weights alone."""

    def certificate(content: Any) -> Certificate:
        later = "model_sha256" in content
        if content["model_sha256" if later else "weights_sha256"] != (model_sha256 if later else weights_sha256):
            raise ValueError("it is about another model than the run's")
        radii = {int(image): _radius(value) for image, value in content["radii"].items()}
        return Certificate(content["norm"], content["method"], model_sha256, radii)

    return _read(folder, CERTIFICATES, certificate, f"`almakit certify {folder}`")


def read_transfers(folder: Path) -> list[Transfer]:
    """All transfers in a run folder, by name."""

    def transfer(content: Any) -> Transfer:
        seen = {
            str(attack): {str(image): _seen(*pair) for image, pair in rows.items()}
            for attack, rows in content["seen"].items()
        }
        model = content["model_sha256"] if "model_sha256" in content else content["weights_sha256"]
        return Transfer(str(content["target"]), model, seen)

    return _read(folder, TRANSFERS, transfer, "`almakit transfer`")


def _write(place: Path, content: dict[str, Any]) -> None:
    files.write_bytes(place, (json.dumps({"format": FORMAT, **content}, indent=1) + "\n").encode())


def _read(folder: Path, name: str, make: Callable[[Any], Kind], command: str) -> list[Kind]:
    """``make`` applied to every JSON file in a sub-folder of the run folder, by name. Links that lead out of it and
    files that ``command`` does not write are refused."""
    found = []
    for file in sorted(place.name for place in files.inside(folder, name).glob("*.json")):
        place = files.inside(folder, f"{name}/{file}")
        try:
            made = make(json.loads(place.read_bytes()))
            if made.file(folder).name != file:
                raise ValueError(f"its contents belong in {made.file(folder).name!r:.80}")
        except (KeyError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
            raise StoreError(
                f"{place} is not a file of {name} of this run ({error}); delete it, run {command}."
            ) from error
        found.append(made)
    return found


def _seen(clean: object, stored: object) -> Seen:
    if not {clean, stored} <= {0, 1}:
        raise ValueError(f"{clean!r:.50}, {stored!r:.50} is no pair of answers")
    return bool(clean), bool(stored)


def _radius(value: float | None) -> float:
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r:.50} is no radius")
    return float(value)


def largest_radii(certificates: Sequence[Certificate]) -> dict[str, dict[int, float]]:
    """By norm, the largest radius of each image over all methods."""
    found: dict[str, dict[int, float]] = {}
    for part in certificates:
        mine = found.setdefault(part.norm, {})
        for image, radius in part.radii.items():
            mine[image] = max(radius, mine.get(image, 0.0))
    return found


def check_radii(
    folder: Path,
    certificates: Sequence[Certificate],
    records: Sequence[Record],
    images: Mapping[int, ImageInfo],
    found_in: Path | None = None,
) -> None:
    """Raise ``Contradiction`` for the first verified success whose distance is below a certified radius. A
    misclassified clean image has distance 0. ``found_in``: the folder of ``records``, if it is not that of the
    certificates."""
    place = found_in or folder
    for part in certificates:
        for record in records:
            away = record.measures.get(part.norm) if record.attacked else 0.0
            radius = part.radii.get(record.image, 0.0)
            if away is None or not math.isfinite(record.verified) or away >= radius * (1 - MEASURING):
                continue
            found = "the clean image is" if record.slot is None else f"{record.file}, row {record.slot}, holds"
            raise Contradiction(
                f"image {images[record.image].id} is certified within {part.norm} {radius:.6g} ({part.file(folder)}, "
                f"{part.method}), but in {place} {found} a verified success at {part.norm} {away:.6g}: one of the two "
                f"is wrong. Check the image with `almakit verify {place}`, report both, and believe neither."
            )
