"""What other models say of a run's stored images, as it lies in its folder. No torch here."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..failures import StoreError
from . import files

FOLDER, FORMAT = "transfers", 1
Seen = tuple[bool, bool]
"""Whether the model reaches the goal on the clean image, and on the stored one."""


@dataclass
class Transfer:
    """By attack and image ("3", or "3>7" where class 7 was aimed at): what the model ``target`` says of what was found
    with the run's own."""

    target: str
    model_sha256: str | None  # the identity of the target; in files of earlier versions, its weights
    seen: dict[str, dict[str, Seen]] = field(default_factory=dict)

    def file(self, folder: Path) -> Path:
        mark = hashlib.sha256(f"{self.target}\t{self.model_sha256}".encode()).hexdigest()[:8]
        return folder / FOLDER / f"{re.sub(r'[^A-Za-z0-9]+', '-', self.target).strip('-')[:60]}-{mark}.json"

    def write(self, folder: Path) -> None:
        """The file with these answers, or the old one: never half of it."""
        content = {
            "format": FORMAT,
            "target": self.target,
            "model_sha256": self.model_sha256,
            "seen": {
                attack: {image: [int(clean), int(stored)] for image, (clean, stored) in rows.items()}
                for attack, rows in self.seen.items()
            },
            "pairs_mean": "whether the target reaches the goal on the clean image, and on the stored one",
        }
        self.file(folder).parent.mkdir(exist_ok=True)
        files.write_bytes(self.file(folder), (json.dumps(content, indent=1) + "\n").encode())


def read(folder: Path) -> list[Transfer]:
    """All that lies in a run folder, by name; links to other places are refused."""
    found = []
    for name in sorted(place.name for place in files.inside(folder, FOLDER).glob("*.json")):
        place = files.inside(folder, f"{FOLDER}/{name}")
        try:
            content = json.loads(place.read_bytes())
            seen = {
                str(attack): {str(image): _seen(pair) for image, pair in rows.items()}
                for attack, rows in content["seen"].items()
            }
            model = content["model_sha256"] if "model_sha256" in content else content["weights_sha256"]
            made = Transfer(str(content["target"]), model, seen)
            if made.file(folder).name != name:
                raise ValueError(f"its answers are of {made.target:.50}")
        except (KeyError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
            raise StoreError(
                f"{place} is not what `almakit transfer` writes ({error}); delete it and run that again."
            ) from error
        found.append(made)
    return found


def _seen(pair: object) -> Seen:
    if not isinstance(pair, list) or len(pair) != 2 or not all(value in (0, 1) for value in pair):
        raise ValueError(f"{pair!r:.50} is no pair of answers")
    return bool(pair[0]), bool(pair[1])
