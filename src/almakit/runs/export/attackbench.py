"""A run's records as AttackBench stores its own: a folder per attack with config.json and info.json, for its analysis
scripts. No torch here."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BadInput
from ..folder import RunFolder
from ..store.files import inside, write_bytes
from ..store.records import AttackInfo, Record

NORMS = ("l0", "l1", "l2", "linf")
"""AttackBench's threat models."""
OPTIMALITY = (
    "almakit's optimality takes the area under the step curve exactly; AttackBench's analysis takes it by the "
    "trapezoid rule, which favours attacks that find many images at the same distance (1.005 where the exact figure is "
    "0.836, for one APGD row). The two are different figures: do not set one against the other."
)


def export_attackbench(run: RunFolder, out: Path) -> tuple[list[Path], list[str]]:
    """Writes ``<data>/<norm>/<model>/batch_size_<n>/almakit <attack>/1/{config,info}.json`` below ``out``; returns the
    folders, and what was left out.

    AttackBench (Cinà et al., 2025) holds one result per image of attacks that look for the smallest change in l0, l1,
    l2 or linf.
    """
    written, left_out = [], []
    for info in run.attacks:
        records = run.records_of(info.index)
        if why := _unfit(info, records):
            left_out.append(f"{info.text}: {why}")
            continue
        parts = [
            _slug(str(run.meta.get("data"))),
            info.distance,
            _slug(str(run.meta.get("model"))),
            f"batch_size_{run.spec.batch_size}",
        ]
        place = inside(out, "/".join([*parts, f"almakit {_slug(info.text)}", "1"]))
        for name, content in (("config.json", _config(run, info)), ("info.json", _info(run, info, records))):
            write_bytes(place / name, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
        written.append(place)
    if not written:
        raise BadInput(f"nothing in {run.folder} fits AttackBench's format: {'; '.join(left_out)}")
    return written, left_out


def _unfit(info: AttackInfo, records: list[Record]) -> str | None:
    if not records:
        return "it has no results yet."
    if info.distance not in NORMS:
        return f"AttackBench has no threat model {info.distance}; it has {', '.join(NORMS)}."
    if not info.minimal:
        return "it works at a fixed radius, and AttackBench compares smallest changes."
    if len({record.image for record in records}) < len(records):
        return "it has a result for every target, and AttackBench one for each image."
    return None


def _config(run: RunFolder, info: AttackInfo) -> dict[str, Any]:
    """What AttackBench's analysis reads (model, dataset, attack), and where it comes from."""
    environment = (run.sessions[0].get("environment") if run.sessions else None) or {}
    return {
        "model": {"name": run.meta.get("model"), "dataset": run.meta.get("data")},
        "dataset": {"batch_size": run.spec.batch_size, "num_samples": len(run.images)},
        "attack": {"name": info.text, "source": "almakit", "threat_model": info.distance},
        "seed": run.spec.seed,
        "almakit": {
            "version": environment.get("almakit"),
            "folder_sha256": run.sha256,
            "targets": run.spec.targets,
            "bits": run.spec.bits,
            "optimality": OPTIMALITY,
        },
    }


def _info(run: RunFolder, info: AttackInfo, records: list[Record]) -> dict[str, Any]:
    """One entry per image. Images nothing was found for count as unchanged: distance 0 and no success, as AttackBench
    stores them."""
    images = [record.image for record in records]
    success = [bool(np.isfinite(record.verified)) for record in records]
    distances = {name: [_measure(record, info, name) for record in records] for name in NORMS}
    return {
        "hashes": [
            hashlib.sha512(np.ascontiguousarray(x, dtype=np.float32).tobytes()).hexdigest()
            for x in run.originals(images)
        ],
        "targeted": info.targeted,
        "accuracy": float(np.mean([run.image[image].correct for image in images])),
        "ori_success": [not record.attacked and record.fooled for record in records],
        "adv_success": success,
        "ASR": float(np.mean(success)),
        "times": [record.seconds for record in records],
        "num_forwards": [record.forwards for record in records],
        "num_backwards": [record.backwards for record in records],
        "distances": distances,
        "best_optim_distances": distances,
        "box_failures": [False] * len(records),
    }


def _measure(record: Record, info: AttackInfo, name: str) -> float:
    if not np.isfinite(record.verified):
        return 0.0
    value = record.verified if name == info.distance else record.measures.get(name) if record.attacked else 0.0
    return 0.0 if value is None else float(value)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:80] or "unnamed"
