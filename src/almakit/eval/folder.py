"""A run folder as it lies on disk, opened for reading: specification, records, images, summary. No torch here."""

from __future__ import annotations

import json
import re
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from . import chunkfiles
from .chunkfiles import Array
from .failures import Corrupt, SpecChanged, StoreError, understood, writable
from .radii import Radii, texts_of
from .records import AttackInfo, ImageInfo, Record, Trace
from .spec import RunSpec
from .store import ATTACK, CLEAN, ChunkKey, ChunkRow, FailureRow, Store, open_folder

SPEC, SUMMARY = "run.toml", "summary.json"


def original_file(chunk: int) -> str:
    """Where a chunk's clean images lie, relative to the run folder."""
    return f"originals/{chunk:05d}.safetensors"


def attack_folder(info: AttackInfo) -> str:
    """The name of a folder for an attack's images: its number and a slug, whatever its text holds."""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{info.text.partition('(')[0]}-{info.distance}".lower()).strip("-")
    return f"{info.index:02d}-{slug[:80]}"


def adversarial_file(info: AttackInfo, key: ChunkKey) -> str:
    """Where the adversarial images of an attack on a chunk lie, relative to the run folder."""
    turn = f"-{key.round:03d}" if key.round else ""
    return f"adversarials/{attack_folder(info)}/{key.chunk:05d}{turn}.safetensors"


def spec_of(folder: Path, store: Store) -> RunSpec:
    """The specification in a run folder; refused where it is not the one whose hash the folder's database ``store`` recorded."""
    spec = RunSpec.from_toml(folder / SPEC)
    recorded = store.meta("spec_sha256")
    if recorded is not None and recorded != spec.sha256:
        raise SpecChanged(
            f"{folder / SPEC} is not the one that {store.path.name} beside it was made with (edited, cut off, or of another run); bring the old one back: "
            f"the database keeps it, sqlite3 {store.path} \"SELECT value FROM meta WHERE key = 'spec'\" prints it."
        )
    if not isinstance(spec.batch_size, int):
        raise Corrupt(f"{folder / SPEC} leaves the batch size open, which the run.toml of a run that has begun never does; do not use this folder.")
    return spec


class Run:
    """What a run left behind. ``Run(folder)`` opens any run folder, finished or not; what has been read once is kept."""

    def __init__(
        self, folder: str | Path, keep: tempfile.TemporaryDirectory[str] | None = None, epsilons: Radii = ()
    ):
        self.folder = Path(folder)
        self._keep = keep  # a temporary folder lives as long as the object
        with self._store() as store:
            store.check_facts()
            self.meta = store.all_meta()
            self.attacks: list[AttackInfo] = store.attacks()
            self.spec = spec_of(self.folder, store)
        self.epsilons = texts_of(epsilons) or self.spec.epsilon

    def _store(self) -> Store:
        return open_folder(self.folder)

    @cached_property
    def _work(self) -> tuple[list[ImageInfo], list[Record], list[ChunkRow], list[FailureRow]]:
        """What is done, read at one moment: a run that goes on may finish a chunk between two readings."""
        with self._store() as store:
            return store.images(check=True), store.records(check=True), store.chunks(), store.failures()

    @property
    def images(self) -> list[ImageInfo]:
        """The clean images, in order; where chunks are missing their places are not their indices: see ``image``."""
        return self._work[0]

    @cached_property
    def image(self) -> dict[int, ImageInfo]:
        """The clean images by their index in the run, which is what ``Record.image`` names."""
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
        """Pieces of work that were given up; their images have no results."""
        return self._work[3]

    @cached_property
    def traces(self) -> list[Trace]:
        with self._store() as store:
            return store.traces()

    @cached_property
    def sessions(self) -> list[dict[str, Any]]:
        with self._store() as store:
            return store.sessions()

    @cached_property
    def findings(self) -> list[dict[str, str]]:
        """What preflight said: name, severity, sentence, way_out."""
        with self._store() as store:
            return [dict(zip(("name", "severity", "sentence", "way_out"), row, strict=True)) for row in store.findings()]

    @property
    def class_names(self) -> list[str] | None:
        found = self.meta.get("class_names")
        with understood(self.folder):
            return None if found is None else [writable(str(name)) for name in json.loads(found)]

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The run's numbers, as in ``summary.json``."""
        from ..report.summary import summarise

        return summarise(self)

    def robust_accuracy(self, epsilons: Radii) -> dict[str, Any]:
        """Distance -> the share of images that resist every attack of this run within a radius, or a list of shares for a list of radii.

        ``run.robust_accuracy({"linf": 8/255})``; a number alone is for every distance of the run. NaN where no attack says anything about a radius.
        """
        from ..report.worst import resisting

        return resisting(self, epsilons)

    def table(self) -> str:
        """The numbers as text."""
        from ..report.tables import run_table

        return run_table(self.summary)

    def records_of(self, attack: int) -> list[Record]:
        return [record for record in self.records if record.attack == attack]

    def originals(self, images: list[int] | None = None) -> Array:
        """The clean images (B, ...) at these positions (all of them by default), as floats in [0, 1], checked against their hash."""
        places: dict[int, int] = {}
        first: dict[int, int] = {}
        for info in self.images:
            places[info.index] = info.chunk
            first.setdefault(info.chunk, info.index)
        wanted = sorted(places) if images is None else images
        loaded = {
            chunk: self._tensors(ChunkKey(CLEAN, -1, chunk))["images"] for chunk in {places[image] for image in wanted}
        }
        for i in wanted:
            if i - first[places[i]] >= len(loaded[places[i]]):
                raise Corrupt(f"{self.folder / original_file(places[i])} holds {len(loaded[places[i]])} images; image {i} is not among them.")
        return np.stack([chunkfiles.unpack(loaded[places[i]][i - first[places[i]]]) for i in wanted])

    def adversarials(self, records: list[Record]) -> Array:
        """The stored images (B, ...) of these records, which must have one each (``slot`` is not None)."""
        if any(record.slot is None for record in records):
            raise StoreError("only successes have a stored image; choose records whose slot is not None.")
        hashes = {row.file: row.sha256 for row in self.chunks if row.key.kind == ATTACK}
        loaded: dict[str, Array] = {}
        out = []
        for record in records:
            file = str(record.file)
            if file not in loaded:
                loaded[file] = chunkfiles.read(chunkfiles.inside(self.folder, file), str(hashes[file]))["images"]
            slot = int(record.slot or 0)
            if not 0 <= slot < len(loaded[file]):
                raise Corrupt(f"{self.folder / file} holds {len(loaded[file])} images, none at place {slot}, where the database has image {record.image}.")
            out.append(chunkfiles.unpack(loaded[file][slot]))
        return np.stack(out)

    def stored_in(self, row: ChunkRow) -> int:
        """How many images a chunk's file holds."""
        return len(chunkfiles.read(chunkfiles.inside(self.folder, str(row.file)), str(row.sha256))["images"])

    def _tensors(self, key: ChunkKey) -> dict[str, Array]:
        row = next((row for row in self.chunks if row.key == key), None)
        if row is None or row.file is None:
            raise StoreError(f"{self.folder} has not stored chunk {key.chunk} yet; resume the run first.")
        return chunkfiles.read(chunkfiles.inside(self.folder, row.file), str(row.sha256))

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {len(self.images)} images, {len(self.attacks)} attacks)"


def finish(out: Path, keep: tempfile.TemporaryDirectory[str] | None = None) -> Run:
    """Writes ``summary.json`` and opens the run."""
    run = Run(out, keep)
    text = json.dumps(run.summary, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    chunkfiles.write_bytes(out / SUMMARY, writable(text).encode())
    return run
