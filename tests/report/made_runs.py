"""Run folders made through the store's own writing interface, with known numbers: what the report and browser tests
read."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from almakit.runs.folder import SPEC
from almakit.runs.spec import RunSpec
from almakit.runs.store import ATTACK, CLEAN, ChunkKey, ChunkRow, Store, database_name, files
from almakit.runs.store.files import adversarial_file, original_file
from almakit.runs.store.records import ALREADY_WRONG, FAILED, SUCCESS, AttackInfo, ImageInfo, Record

ENVIRONMENT = {"almakit": "0.0", "python": "3.11.2", "torch": "2.13.0", "numpy": "2.4", "system": "Linux"}
ENVIRONMENT |= {"machine": "x86_64", "processor": "a processor", "cores": 2, "threads": 1, "device": "cpu"}


@dataclass(frozen=True)
class MadeAttack:
    """An attack of a made run: its distances are ``strength`` times each image's own difficulty."""

    name: str = "alma"
    title: str = "ALMA"
    distance: str = "l2"
    steps: int = 100
    strength: float = 1.0
    spread: float = 0.05  # relative noise of each image
    failing: float = 0.0  # share of images it finds nothing for
    survives: float = 0.6  # share of its successes that outlive 8 bits
    refuted: int = 0  # so many of its claims the verdict refutes
    settings: dict[str, Any] = field(default_factory=dict)

    def info(self, index: int) -> AttackInfo:
        settings = {"distance": self.distance, "steps": self.steps, **self.settings}
        text = f"{self.name}({', '.join(f'{key}={value}' for key, value in settings.items())})"
        minimal, cost = "epsilon" not in settings, "one forward and one backward per step"
        return AttackInfo(index, text, self.title, self.distance, minimal, False, "a paper", cost, settings)


FOUR = (
    MadeAttack(strength=1.1),
    MadeAttack(steps=1000, strength=1.0),
    MadeAttack("ddn", "DDN", steps=100, strength=1.25, failing=0.1),
    MadeAttack("ddn", "DDN", steps=1000, strength=1.12),
)


def pictures(count: int, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """(count, *shape) smooth blobs on the 8-bit grid; the first images are the same for every count."""
    draws = np.random.default_rng(seed).random((count, shape[0], 3, 3))
    height, width = shape[1:]
    rows, columns = np.mgrid[0:height, 0:width]
    out = np.zeros((count, *shape), dtype=np.float32)
    for channel in range(shape[0]):
        for blob in range(3):
            y, x, size = (draws[:, channel, blob, place] for place in range(3))
            y, x, size = (0.2 + 0.6 * y) * height, (0.2 + 0.6 * x) * width, (0.08 + 0.17 * size) * height
            out[:, channel] += np.exp(
                -((rows - y[:, None, None]) ** 2 + (columns - x[:, None, None]) ** 2) / (2 * size[:, None, None] ** 2)
            )
    return np.rint(np.clip(out, 0, 1) * 255).astype(np.float32) / np.float32(255)


def make_run(
    folder: Path,
    images: int = 60,
    attacks: tuple[MadeAttack, ...] = FOUR,
    *,
    model: str = "mnist/smallcnn",
    data: str = "mnist",
    shape: tuple[int, ...] = (1, 28, 28),
    chunk: int = 32,
    seed: int = 0,
    already_wrong: float = 0.03,
    classes: int = 10,
    class_names: tuple[str, ...] | None = None,
    unfinished: int = 0,
    weights: str = "f" * 64,
    findings: tuple[tuple[str, str, str, str], ...] = (),
    label: str | None = None,
) -> Path:
    """A run folder. ``unfinished``: so many of the last pieces of work are missing. Difficulty depends on the image and
    ``seed`` of 0 only."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1000 + seed)
    x = pictures(images, shape, seed=5)
    difficulty = np.exp(np.random.default_rng(7).normal(0.2, 0.45, images))
    wrong = np.random.default_rng(8).random(images) < already_wrong
    labels = np.random.default_rng(9).integers(0, classes, images).tolist()
    infos = [made.info(index) for index, made in enumerate(attacks)]
    texts = tuple(info.text for info in infos)
    spec = RunSpec(model=model, data=data, attacks=texts, limit=images, batch_size=chunk, device="cpu")
    (folder / SPEC).write_text(spec.to_toml(), encoding="utf-8")
    parts = [range(start, min(images, start + chunk)) for start in range(0, images, chunk)]
    work = [(index, part) for index in range(len(attacks)) for part in range(len(parts))]
    meta = {"spec_sha256": spec.sha256, "spec": spec.to_toml(), "model": model, "data": data, "images": str(images)}
    meta |= {"classes": str(classes), "weights_sha256": weights, "data_sha256": "d" * 64}
    with Store(folder / database_name()) as store:
        store.set_attacks(infos)
        store.set_meta(**meta, class_names=None if class_names is None else json.dumps(class_names))
        store.set_findings(findings)
        session = store.begin_session(ENVIRONMENT)
        clean: list[ImageInfo] = []
        for part, rows in enumerate(parts):
            for row in rows:
                sha = hashlib.sha256(x[row].tobytes()).hexdigest()
                name = label or f"{data}-test-{row:05d}"
                seen = (labels[row] + int(wrong[row])) % classes
                top = ((seen, 0.93), ((seen + 3) % classes, 0.05), ((seen + 4) % classes, 0.01))
                clean.append(ImageInfo(row, name, sha, labels[row], None, part, seen, top))
            file, found = original_file(part), clean[rows.start :]
            sha = files.write(folder / file, {"images": files.pack(x[rows.start : rows.stop])})
            store.finish(ChunkRow(ChunkKey(CLEAN, -1, part), file, sha, len(rows), chunk, 0.01), session, images=found)
        refuted = [0] * len(attacks)
        for index, part in work[: len(work) - unfinished]:
            made, info, key = attacks[index], infos[index], ChunkKey(ATTACK, index, part)
            records, points = [], []
            for image in (clean[row] for row in parts[part]):
                if not image.correct:
                    fooled = (True, 0.0, {"l2": 0.0}, True, 0.0)
                    end: tuple[Any, ...] = (ALREADY_WRONG, None, 0.0, 1, 0, image.prediction, image.top, *fooled)
                elif random.random() < made.failing:
                    why = "No adversarial image was found within the budget."
                    end = (FAILED, why, math.inf, made.steps, made.steps - 1)
                else:
                    believed = refuted[index] >= made.refuted
                    refuted[index] += not believed
                    point, end = _success(
                        made, image, x[image.index], difficulty[image.index], random, classes, believed
                    )
                    end = (*end, len(points))
                    points.append(point)
                records.append(Record(index, image.index, None, *end))
            file = adversarial_file(info, key) if points else None
            sha = files.write(folder / str(file), {"images": files.pack(np.stack(points))}) if points else None
            row = ChunkRow(key, file, sha, len(records), len(records), 0.002 * made.steps)
            store.finish(row, session, records=records)
        store.end_session(session, "interrupted" if unfinished else "done")
    return folder


def _success(
    made: MadeAttack,
    image: ImageInfo,
    x: np.ndarray,
    difficulty: float,
    random: np.random.Generator,
    classes: int,
    believed: bool,
) -> tuple[np.ndarray, tuple[Any, ...]]:
    """A point and the fields of its record from the status on."""
    noise = random.normal(size=x.shape).astype(np.float32) * (random.random(x.shape) < 0.15)
    wanted = float(difficulty * made.strength * math.exp(made.spread * random.normal()))
    point = np.clip(x + noise * wanted / max(float(np.linalg.norm(noise)), 1e-9), 0, 1).astype(np.float32)
    change = (point - x).astype(np.float64)
    measures: dict[str, float | None] = {
        "l0": float((change != 0).sum()),
        "l1": float(np.abs(change).sum()),
        "l2": float(np.sqrt((change**2).sum())),
        "linf": float(np.abs(change).max()),
        "ssim": wanted / 50,
        "ciede2000": None if len(x) == 1 else wanted * 9,
    }
    value = measures.get(made.distance) or wanted
    after = (image.label + 1 + image.index % (classes - 1)) % classes
    top = ((after, 0.51), (image.label, 0.47), ((after + 1) % classes, 0.01))
    survives = bool(random.random() < made.survives)
    verdict = (after if believed else image.label, top, believed, value, measures, survives, value * 1.01)
    return point, (SUCCESS, None, value, made.steps, made.steps - 1, *verdict)
