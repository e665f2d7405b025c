"""Numbers altered in a run folder: only a fresh look at model and images can tell."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from almakit import Run, evaluate
from almakit.runs.store import Store

RESULTS = "status distance prediction top fooled measured l0 l1 l2 linf ssim ciede2000 fooled_8bit measured_8bit slot"
COLUMNS = {
    "results": (*RESULTS.split(), "target", "round"),
    "images": ("id", "sha256", "label", "target", "chunk", "prediction", "top"),
    "attacks": ("text", "distance"),
    "chunks": ("file", "sha256"),
    "meta": ("images", "weights_sha256", "data_sha256", "spec_sha256"),
}
NUMBERS = [(table, column) for table, columns in COLUMNS.items() for column in columns]
"""Every stored number that a report uses and that can be computed again. Not among them, for nobody can: forwards,
backwards, seconds, reasons, courses (traces), titles and settings, preflight's findings, the environment."""


class Colours(nn.Module):
    """Images (B, 3, 16, 16) to five logits."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(5, 768, generator=generator) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5) @ self.weight.T


def colour_run(out: Path, **settings: Any) -> Run:
    """A targeted run on a few colour images, so that every column has numbers; one image already has its target's
    class."""
    x = torch.rand(10, 3, 16, 16, generator=torch.Generator().manual_seed(4))
    logits = Colours()(x)
    labels, targets = logits.topk(2).indices.T.clone()
    targets[3] = int(labels[3])
    labels[3] = (labels[3] + 1) % 5
    attacks = ["alma(distance=l2, steps=12)", "alma(distance=ciede2000, steps=12)"]
    arguments = {"attacks": attacks, "batch_size": 4, "targets": targets, **settings}
    return evaluate(Colours(), (x, labels), out=out, **arguments)  # type: ignore[arg-type]


def forge(folder: Path, change: Callable[[sqlite3.Connection], None]) -> None:
    """Changes the database."""
    with Store(folder / "records.sqlite") as store, store.transaction():
        change(store.db)


def alter(folder: Path, table: str, column: str, draw: random.Random) -> str:
    """Alters one stored value; returns what was done."""
    done = []

    def change(db: sqlite3.Connection) -> None:
        if table == "meta":
            (found,) = db.execute("SELECT value FROM meta WHERE key = ?", (column,)).fetchall()
            keys, chosen = ["key"], [(column, *found)]
            name = "value"
        else:
            keys = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[5]]
            where = f"WHERE {column} IS NOT NULL" if column != "target" else ""
            chosen, name = db.execute(f"SELECT {', '.join(keys)}, {column} FROM {table} {where}").fetchall(), column
        *key, value = draw.choice(chosen)
        new = other(value, column, draw)
        db.execute(
            f"UPDATE OR REPLACE {table} SET {name} = ? WHERE {' AND '.join(f'{one} = ?' for one in keys)}", (new, *key)
        )
        done.append(f"{table}.{column} of {key}: {value!r} -> {new!r}")

    forge(folder, change)
    return done[0]


def other(value: Any, column: str, draw: random.Random) -> Any:
    """Another value of the same kind."""
    if column == "status":
        return draw.choice([one for one in ("already-wrong", "success", "failed") if one != value])
    if column in ("fooled", "fooled_8bit"):
        return 1 - value
    if column == "top":
        top = json.loads(value) or [[0, 0.5]]
        top[0] = draw.choice([[top[0][0], round(abs(top[0][1] - 0.05), 6)], [top[0][0] + 1, top[0][1]]])
        return json.dumps(top)
    if column == "images" and isinstance(value, str):
        return str(int(value) + draw.choice((-1, 1)))
    if isinstance(value, str):
        return {"text": "alma(distance=l2, steps=11)", "distance": "linf"}.get(
            column, f"{value[:-1]}{'a' if value[-1:] != 'a' else 'b'}"
        )
    if isinstance(value, float):
        return value * draw.choice((0.1, 0.5, 0.99, 1.01, 3.0)) if value else draw.choice((0.5, 1.0))
    return value + (draw.choice((-1, 1)) if value > 0 else 1)
