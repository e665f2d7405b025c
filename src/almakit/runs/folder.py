"""Reads a run folder: specification, records, images. No torch here."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.features import Features
from ..errors import BadInput
from ..radius import Grid, grid_step
from .failures import Corrupt, SpecChanged, StoreError, understood, writable
from .identity import model_sha256
from .spec import RunSpec
from .store import ATTACK, CLEAN, ChunkKey, ChunkRow, FailureRow, Store, database_name, files, open_folder
from .store.derived import Certificate, check_radii, largest_radii, read_certificates
from .store.files import Array
from .store.records import FAILED, STATUSES, AttackInfo, ImageInfo, Record, Trace, reach_of

if TYPE_CHECKING:
    from ..core import Result

SPEC, SUMMARY = "run.toml", "summary.json"


def spec_of(folder: Path, store: Store) -> RunSpec:
    """The specification in a run folder. Raises an error if its hash is not the one in the folder's database
    ``store``."""
    spec = RunSpec.from_toml(folder / SPEC)
    recorded = store.meta("spec_sha256")
    if recorded is not None and recorded != spec.sha256:
        raise SpecChanged(
            f"{folder / SPEC} is not the one that {store.path.name} beside it was made with. Bring the old one back: "
            f"sqlite3 {store.path} \"SELECT value FROM meta WHERE key = 'spec'\" prints it."
        )
    if not isinstance(spec.batch_size, int):
        raise Corrupt(f"{folder / SPEC} leaves the batch size open; almakit never writes that, do not use this folder.")
    return spec


class RunFolder:
    """A run folder, finished or not. Values are cached once read. ``almakit.Run`` adds the numbers of the report."""

    def __init__(
        self,
        folder: str | Path,
        keep: tempfile.TemporaryDirectory[str] | None = None,
        shard: tuple[int, int] | None = None,
    ):
        """``shard``: read only this shard's records, even if the shards have been merged."""
        self.folder = Path(folder)
        self._keep, self._shard = keep, shard  # a temporary folder lives as long as the object
        with self._store() as store:
            self.meta: dict[str, Any] = store.all_meta()
            with understood(store.path):
                _ = [int(self.meta.get(count, 0)) for count in ("images", "classes")]
            self.attacks: list[AttackInfo] = store.attacks()
            self.spec = spec_of(self.folder, store)

    def _store(self) -> Store:
        if self._shard is not None:
            return Store(self.folder / database_name(self._shard), read_only=True)
        return open_folder(self.folder)

    @cached_property
    def _work(self) -> tuple[list[ImageInfo], list[Record], list[ChunkRow], list[FailureRow]]:
        """Finished work, read in one transaction, because a running process may finish a chunk between two reads."""
        with self._store() as store:
            # Attacks that were added since the folder was opened are left out.
            known = {info.index for info in self.attacks}
            records = [record for record in store.records() if record.attack in known]
            return store.images(), records, store.chunks(), store.failures()

    @property
    def images(self) -> list[ImageInfo]:
        """The clean images, in order. If chunks are missing, the position differs from the index: see ``image``."""
        return self._work[0]

    @cached_property
    def image(self) -> dict[int, ImageInfo]:
        """The clean images by their index in the run (``Record.image``)."""
        return {info.index: info for info in self.images}

    @property
    def records(self) -> list[Record]:
        """One record per attack, image and target."""
        return self._work[1]

    @property
    def chunks(self) -> list[ChunkRow]:
        return self._work[2]

    @property
    def failures(self) -> list[FailureRow]:
        """Steps that were given up; their images have no results."""
        return self._work[3]

    @cached_property
    def certified(self) -> dict[str, dict[int, float]]:
        """By norm, the certified radius of each image (by position); empty if `almakit certify` was not run. A radius
        above the distance of a verified success raises ``Contradiction``."""
        found = self.certificates
        check_radii(self.folder, found, self.records, self.image)
        return largest_radii(found)

    @property
    def certificates(self) -> list[Certificate]:
        """The contents of the files written by `almakit certify`."""
        return read_certificates(self.folder, self.model_sha256, self.meta.get("weights_sha256"))

    @property
    def model_sha256(self) -> str | None:
        """The identity of the run's model; None if its weights are not known."""
        return model_sha256(self.spec.model, self.meta, self.spec)

    @cached_property
    def traces(self) -> list[Trace]:
        with self._store() as store:
            return store.traces()

    @cached_property
    def sessions(self) -> list[dict[str, Any]]:
        with self._store() as store:
            return [vars(session) for session in store.sessions()]

    @cached_property
    def findings(self) -> list[dict[str, str]]:
        """Findings of preflight: name, severity, sentence, way_out."""
        with self._store() as store:
            return [finding._asdict() for finding in store.findings()]

    @property
    def class_names(self) -> list[str] | None:
        found = self.meta.get("class_names")
        with understood(self.folder):
            return None if found is None else [writable(str(name)) for name in json.loads(found)]

    @cached_property
    def features(self) -> Features | None:
        """Names and ranges of the features, if the data are not images."""
        return None if (found := self.meta.get("features")) is None else Features.from_json(str(found))

    @cached_property
    def step(self) -> float:
        """The spacing of the grid of the attacks, 0 without a grid."""
        features = self.features
        return grid_step(self.spec.bits, () if features is None else features.scaled_step[features.moves].tolist())

    @cached_property
    def sha256(self) -> str:
        """The sha256 of everything that determines the numbers: specification, weights, data, each image, each record
        and each stored file."""
        facts = [self.meta.get(name) for name in ("spec_sha256", "weights_sha256", "data_sha256")]
        rows = [(row.key.kind, row.key.attack, row.key.chunk, row.key.round, row.sha256) for row in self.chunks]
        content = [facts, [vars(image) for image in self.images], [vars(record) for record in self.records], rows]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def info(self, attack: int | str | None = None) -> AttackInfo:
        """One attack of the run by its position, text or name; None if the run has a single attack."""
        texts = ", ".join(info.text for info in self.attacks)
        if isinstance(attack, str):
            text = attack.strip()
            found = [info for info in self.attacks if text == info.text]
            found = found or [info for info in self.attacks if text.lower() == info.text.partition("(")[0]]
        else:
            found = [info for info in self.attacks if attack is None or info.index == attack]
        if len(found) != 1:
            which = "say which attack is meant" if attack is None or found else f"this run has no attack {attack!r}"
            raise BadInput(f"{which}; it has {texts}.")
        return found[0]

    def records_of(self, attack: int | str) -> list[Record]:
        """The records of one attack, by its position, text or name."""
        index = self.info(attack).index
        return [record for record in self.records if record.attack == index]

    def result(self, attack: int | str | None = None) -> Result:
        """The verified result of one attack as a ``Result``, with images."""
        import torch

        from ..core.result import OTHER_COUNTS, Result

        info = self.info(attack)
        records = self.records_of(info.index)
        images, found = [record.image for record in records], [record.verified for record in records]
        counts: dict[str, Any] = {
            name: torch.tensor(values)
            for name in OTHER_COUNTS
            if None not in (values := [getattr(record, name) for record in records])
        }
        points = torch.from_numpy(self.adversarials(records))
        return Result(
            points,
            torch.tensor(found, dtype=points.dtype),
            torch.tensor([STATUSES.index(FAILED if record.refuted else record.status) for record in records]),
            torch.tensor([record.forwards for record in records]),
            torch.tensor([record.backwards for record in records]),
            ["the verdict refutes it" if record.refuted else record.reason for record in records],
            0,
            torch.from_numpy(self.originals(images)),
            torch.tensor([self.image[image].label for image in images]),
            info.distance,
            step=Grid.of(info.distance, self.step, found).step,
            radii=() if info.minimal else (reach_of(info, found),),
            **counts,
        )

    def originals(self, images: list[int] | None = None) -> Array:
        """The clean images (B, ...) at these positions (all of them by default), as floats in [0, 1], checked against
        their hash."""
        chosen = [info.index for info in self.images] if images is None else images
        return self._rows("images", map(self._clean_place, chosen))

    def adversarials(self, records: Sequence[Record] | int | str | None = None) -> Array:
        """The adversarial images (B, ...) of an attack, given by records or by the attack's position, text or name. The
        clean image if it was already misclassified or the attack failed."""
        chosen = (
            self.records_of(self.info(records).index) if records is None or isinstance(records, (int, str)) else records
        )
        if not chosen:
            raise StoreError(f"{self.folder} has no records of that attack yet; resume the run first.")
        return self._rows("images", map(self._place, chosen))

    @property
    def segmentation(self) -> bool:
        """Whether the labels are classes of pixels instead of images."""
        return any(info.pixels is not None for info in self.images)

    @property
    def aimed(self) -> bool:
        """Whether the model's outputs are not class logits. Class 1 then means that the goal is reached."""
        return self.meta.get("aimed") is not None

    def maps(self, images: list[int], what: str = "maps") -> Array:
        """For segmentation, the label maps (B, H, W) of images. ``truths``: labels (B, ...) of another kind."""
        return self._rows(what, map(self._clean_place, images))

    @cached_property
    def _first(self) -> dict[int, int]:
        """The first image of each chunk."""
        return {info.chunk: info.index for info in reversed(self.images)}

    def _clean_place(self, image: int) -> tuple[ChunkKey, int]:
        chunk = self.image[image].chunk
        return ChunkKey(CLEAN, -1, chunk), image - self._first[chunk]

    def _place(self, record: Record) -> tuple[ChunkKey, int]:
        """The chunk of an adversarial image and its row in the chunk's file."""
        if record.slot is None:
            return self._clean_place(record.image)
        return ChunkKey(ATTACK, record.attack, self.image[record.image].chunk, record.round), record.slot

    def _rows(self, name: str, places: Iterable[tuple[ChunkKey, int]]) -> Array:
        """Selected rows of the tensor ``name`` in the chunks' files."""
        chunks, loaded, found = {row.key: row for row in self.chunks}, {}, []
        for key, row in places:
            if key not in loaded:
                chunk = chunks.get(key)
                if chunk is None or chunk.file is None:
                    raise StoreError(f"{self.folder} has not stored chunk {key.chunk} yet; resume the run first.")
                loaded[key] = files.read(self.folder, chunk).get(name)
            tensor = loaded[key]
            if tensor is None or not 0 <= row < len(tensor):
                raise Corrupt(f"{self.folder / str(chunks[key].file)} holds no {name} at place {row}; resume the run.")
            found.append(files.unpack(tensor[row]) if name == "images" else tensor[row])
        return np.stack(found)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {len(self.images)} images, {len(self.attacks)} attacks)"
