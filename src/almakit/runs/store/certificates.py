"""Certified radii of a run's images as they lie in its folder, and the alarm where a success contradicts one. No torch
here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import AlmakitError
from ..failures import StoreError
from . import files
from .records import ImageInfo, Record

FOLDER, FORMAT = "certificates", 1
MEASURING = 1e-6
"""How far below a radius a measured distance may lie, relative, before it contradicts it: what measuring a stored image
rounds."""


class Contradiction(AlmakitError):
    """A verified success nearer than a certified radius: one of the two is wrong, and both witnesses are named."""


@dataclass
class Certificate:
    """Radii (``norm``, by ``method``) of the images with these positions; infinite: no image at all is classified
    otherwise."""

    norm: str
    method: str
    model_sha256: str | None
    radii: dict[int, float] = field(default_factory=dict)

    def file(self, folder: Path) -> Path:
        return folder / FOLDER / f"{self.norm}-{self.method}.json"

    def write(self, folder: Path) -> None:
        """The file with these radii, or the old one: never half of it."""
        values = {str(image): None if math.isinf(radius) else radius for image, radius in sorted(self.radii.items())}
        content = {
            "format": FORMAT,
            "norm": self.norm,
            "method": self.method,
            "model_sha256": self.model_sha256,
            "radii": values,
            "null_means": "infinite",
        }
        self.file(folder).parent.mkdir(exist_ok=True)
        files.write_bytes(self.file(folder), (json.dumps(content, indent=1) + "\n").encode())


def read(folder: Path, model_sha256: str | None, weights_sha256: str | None) -> list[Certificate]:
    """The certificates of a run folder whose model has this identity; those of another model, and links to other
    places, are refused. Files of earlier versions name the model's weights alone."""
    found = []
    for name in sorted(place.name for place in files.inside(folder, FOLDER).glob("*.json")):
        place = files.inside(folder, f"{FOLDER}/{name}")
        try:
            content = json.loads(place.read_bytes())
            radii = {int(image): _radius(value) for image, value in content["radii"].items()}
            made = Certificate(content["norm"], content["method"], model_sha256, radii)
            same = (
                content["model_sha256"] == model_sha256
                if "model_sha256" in content
                else content["weights_sha256"] == weights_sha256
            )
            if made.file(folder).name != name:
                raise ValueError(f"its radii are of {made.norm}-{made.method}")
        except (KeyError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
            raise StoreError(
                f"{place} is not a file of certified radii ({error}); delete it and run `almakit certify {folder}` "
                "again."
            ) from error
        if not same:
            raise StoreError(
                f"{place} is about another model than the run's; delete it and run `almakit certify {folder}` again."
            )
        found.append(made)
    return found


def _radius(value: float | None) -> float:
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r:.50} is no radius")
    return float(value)


def best(certificates: Sequence[Certificate]) -> dict[str, dict[int, float]]:
    """By norm: each image's largest radius, whichever method proved it."""
    found: dict[str, dict[int, float]] = {}
    for part in certificates:
        mine = found.setdefault(part.norm, {})
        for image, radius in part.radii.items():
            mine[image] = max(radius, mine.get(image, 0.0))
    return found


def check(
    folder: Path,
    certificates: Sequence[Certificate],
    records: Sequence[Record],
    images: Mapping[int, ImageInfo],
    found_in: Path | None = None,
) -> None:
    """Raises ``Contradiction`` for the first verified success, of any attack in any distance, that lies nearer than a
    certified radius; an image that is wrong already lies at distance 0. ``found_in``: the folder of ``records``, where
    it is not the certificates'."""
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
                f"{part.method}), but in {place} {found} a verified success at {part.norm} "
                f"{away:.6g}: one of the two is wrong. Check the image with `almakit verify {place}` and report both; "
                "nothing of this run should be believed until then."
            )
