"""Run folders made through the store's own writing interface, with known numbers: what the report and browser tests
read."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from almakit.runs.folder import SPEC
from almakit.runs.spec import RunSpec
from almakit.runs.store import ATTACK, CLEAN, ChunkKey, ChunkRow, Store, database_name, files
from almakit.runs.store.files import adversarial_file, original_file
from almakit.runs.store.records import ALREADY_WRONG, FAILED, SUCCESS, AttackInfo, ImageInfo, Record, Trace

ENVIRONMENT = {
    "almakit": "0.0",
    "python": "3.11.2",
    "torch": "2.13.0",
    "numpy": "2.4",
    "system": "Linux",
    "machine": "x86_64",
    "processor": "a processor",
    "cores": 2,
    "threads": 1,
    "device": "cpu",
    "commit": None,
}


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
        return AttackInfo(
            index,
            text,
            self.title,
            self.distance,
            "epsilon" not in settings,
            False,
            "a paper",
            "one forward and one backward per step",
            settings,
        )


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
    traced: bool = True,
    findings: tuple[tuple[str, str, str, str], ...] = (),
    label: str | None = None,
    ended: bool = True,
) -> Path:
    """A run folder. ``unfinished``: so many of the last pieces of work are missing. Difficulty depends on the image and
    ``seed`` of 0 only."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1000 + seed)
    x = pictures(images, shape, seed=5)
    difficulty = np.exp(np.random.default_rng(7).normal(0.2, 0.45, images))
    wrong = np.random.default_rng(8).random(images) < already_wrong
    labels = np.random.default_rng(9).integers(0, classes, images)
    infos = [made.info(index) for index, made in enumerate(attacks)]
    spec = RunSpec(
        model=model, data=data, attacks=tuple(info.text for info in infos), limit=images, batch_size=chunk, device="cpu"
    )
    (folder / SPEC).write_text(spec.to_toml(), encoding="utf-8")
    chunks = math.ceil(images / chunk)
    work = [(index, part) for index in range(len(attacks)) for part in range(chunks)]
    with Store(folder / database_name()) as store:
        store.set_attacks(infos)
        store.set_meta(
            spec_sha256=spec.sha256,
            spec=spec.to_toml(),
            model=model,
            data=data,
            images=str(images),
            classes=str(classes),
            weights_sha256=weights,
            data_sha256="d" * 64,
            class_names=None if class_names is None else _json(class_names),
        )
        store.set_findings(findings)
        session = store.begin_session(ENVIRONMENT)
        clean = []
        for part in range(chunks):
            rows = range(part * chunk, min(images, (part + 1) * chunk))
            found = []
            for row in rows:
                sha = hashlib.sha256(x[row].tobytes()).hexdigest()
                prediction = int(labels[row] + 1) % classes if wrong[row] else int(labels[row])
                other = (prediction + 3) % classes
                name = label or f"{data}-test-{row:05d}"
                found.append(
                    ImageInfo(
                        row,
                        name,
                        sha,
                        int(labels[row]),
                        None,
                        part,
                        prediction,
                        ((prediction, 0.93), (other, 0.05), ((other + 1) % classes, 0.01)),
                    )
                )
            clean += found
            file = original_file(part)
            sha = files.write(folder / file, {"images": files.pack(x[rows.start : rows.stop])})
            store.finish(ChunkRow(ChunkKey(CLEAN, -1, part), file, sha, len(rows), chunk, 0.01), session, images=found)
        for index, part in work[: len(work) - unfinished] if unfinished else work:
            rows = range(part * chunk, min(images, (part + 1) * chunk))
            _attack_chunk(
                store,
                session,
                folder,
                attacks[index],
                infos[index],
                part,
                [clean[row] for row in rows],
                x,
                difficulty,
                random,
                classes,
                traced,
            )
        if ended:
            store.end_session(session, "interrupted" if unfinished else "done")
    return folder


def _attack_chunk(
    store: Store,
    session: int,
    folder: Path,
    made: MadeAttack,
    info: AttackInfo,
    part: int,
    images: list[ImageInfo],
    x: np.ndarray,
    difficulty: np.ndarray,
    random: np.random.Generator,
    classes: int,
    traced: bool,
) -> None:
    records, kept = [], []
    for image in images:
        steps = made.steps
        if not image.correct:
            records.append(
                Record(
                    info.index,
                    image.index,
                    None,
                    ALREADY_WRONG,
                    None,
                    0.0,
                    1,
                    0,
                    image.prediction,
                    image.top,
                    True,
                    0.0,
                    {"l2": 0.0},
                    True,
                    0.0,
                )
            )
            continue
        if random.random() < made.failing:
            records.append(
                Record(
                    info.index,
                    image.index,
                    None,
                    FAILED,
                    "No adversarial image was found within the budget.",
                    math.inf,
                    steps,
                    steps - 1,
                )
            )
            continue
        noise = random.normal(size=x.shape[1:]).astype(np.float32) * (random.random(x.shape[1:]) < 0.15)
        wanted = float(difficulty[image.index] * made.strength * math.exp(made.spread * random.normal()))
        point = np.clip(x[image.index] + noise * wanted / max(float(np.linalg.norm(noise)), 1e-9), 0, 1).astype(
            np.float32
        )
        change = (point - x[image.index]).astype(np.float64)
        measures: dict[str, float | None] = {
            "l0": float((change != 0).sum()),
            "l1": float(np.abs(change).sum()),
            "l2": float(np.sqrt((change**2).sum())),
            "linf": float(np.abs(change).max()),
            "ssim": wanted / 50,
            "ciede2000": None if x.shape[1] == 1 else wanted * 9,
        }
        value = measures.get(made.distance) or wanted
        after = (image.label + 1 + image.index % (classes - 1)) % classes
        survives = bool(random.random() < made.survives)
        refuted = (
            made.refuted
            > sum(record.refuted for record in store.records() if record.attack == info.index)
            + sum(record.refuted for record in records)
            if made.refuted
            else False
        )
        records.append(
            Record(
                info.index,
                image.index,
                None,
                SUCCESS,
                None,
                value,
                steps,
                steps - 1,
                image.label if refuted else after,
                ((after, 0.51), (image.label, 0.47), ((after + 1) % classes, 0.01)),
                not refuted,
                value,
                measures,
                survives,
                value * 1.01,
                len(kept),
            )
        )
        kept.append(point)
    file = adversarial_file(info, ChunkKey(ATTACK, info.index, part)) if kept else None
    sha = files.write(folder / str(file), {"images": files.pack(np.stack(kept))}) if kept else None
    traces = []
    first = next((record for record in records if record.attacked), None)
    if traced and part == 0 and first is not None:
        traces = [Trace(info.index, first.image, None, _course(made, first.verified))]
    store.finish(
        ChunkRow(ChunkKey(ATTACK, info.index, part), file, sha, len(images), len(images), 0.002 * made.steps),
        session,
        records=records,
        traces=traces,
    )


def _course(made: MadeAttack, end: float) -> dict[str, list[Any]]:
    """A course such as ALMA's: mu rises until the boundary is crossed, then distance shrinks."""
    end = end if math.isfinite(end) else 3.0
    steps = list(range(min(made.steps, 200)))
    distance = [
        end
        * (0.05 + 1.6 * (1 - math.exp(-step / 12)) * (1 if step < 25 else 0.625 + 0.375 * math.exp(-(step - 25) / 15)))
        for step in steps
    ]
    constraint = [1.0 - step / 22 if step < 25 else 0.05 * math.sin(step / 3) for step in steps]
    course = {
        "step": steps,
        "distance": distance,
        "constraint": constraint,
        "rate": [0.1 * 0.97 ** max(0, step - 25) for step in steps],
        "success": [value < 0 for value in constraint],
    }
    if made.name.startswith("alma"):
        course |= {
            "mu": [1.0 + (step if step < 25 else 25 * math.exp(-(step - 25) / 30)) for step in steps],
            "rho": [1.2 ** min(step // 10, 3) for step in steps],
        }
    return course


def _json(values: tuple[str, ...]) -> str:
    import json

    return json.dumps(list(values))
