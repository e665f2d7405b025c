"""A kept line computed again from its run folder's records: SQLite and numpy alone, none of almakit's
arithmetic."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from almakit.paper.entries import Entry

CLOSE = 1e-9
HASHES = ("spec_sha256", "weights_sha256", "data_sha256")
# The kept interval is of 1000 draws of the bootstrap; its ends, at 2.5 and 97.5 %, lie between these shares of other
# draws, 3.6 standard errors to either side.
DRAWS, ENDS = 4000, (0.005, 0.045, 0.955, 0.995)


def recomputed(database: Path, images: tuple[int, int] = (0, 10**9)) -> dict[str, Any]:
    """The numbers of the one attack in a folder, over the images from the first to before the last."""
    with sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True) as db:
        rows = db.execute(
            "SELECT status, fooled, measured, forwards, backwards FROM results WHERE image >= ? AND image < ? "
            "ORDER BY image",
            images,
        ).fetchall()
        clean = db.execute("SELECT prediction = label FROM images WHERE image >= ? AND image < ?", images).fetchall()
        meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    values = np.array([_distance(*row[:3]) for row in rows])
    passes = np.array([row[3:] for row in rows if row[0] != "already-wrong"], dtype=np.float64).reshape(-1, 2)
    median = float(np.median(values)) if np.isfinite(np.median(values)) else None
    chance = np.random.default_rng(1)
    drawn = np.sort([_finite(np.median(chance.choice(values, len(values)))) for _ in range(DRAWS)])
    return {
        "images": len(rows),
        "success": float(np.mean(np.isfinite(values))),
        "median": median,
        "interval": tuple(float(drawn[int(share * (DRAWS - 1))]) for share in ENDS),
        "clean_accuracy": float(np.mean([row[0] for row in clean])),
        "forwards": float(passes[:, 0].mean()) if len(passes) else None,
        "backwards": float(passes[:, 1].mean()) if len(passes) else None,
        "complete": len(rows) == int(meta["images"]),
        **{name: meta.get(name) for name in HASHES},
    }


def median(database: Path, images: tuple[int, int]) -> float | None:
    """The median over some of the images."""
    found: float | None = recomputed(database, images)["median"]
    return found


def _distance(status: str, fooled: int, measured: float | None) -> float:
    if status == "already-wrong":
        return 0.0 if fooled else math.inf
    return measured if status == "success" and fooled and measured is not None else math.inf


def _finite(value: float) -> float:
    return float(value) if np.isfinite(value) else 1e300


def faults(entry: Entry, folder: Path) -> list[str]:
    """Sentences about the figures of a kept entry that its folder does not give."""
    now = recomputed(folder / "records.sqlite")
    found = []
    for name in ("images", "success", "median", "clean_accuracy", "forwards", "backwards", "complete", *HASHES):
        kept = getattr(entry, name)
        if not _same(kept, now[name]):
            found.append(f"{folder} gives {name} {now[name]}, kept is {kept}.")
    if entry.median is not None and not _near(entry, now["interval"]):
        low, end, begin, high = now["interval"]
        found.append(
            f"{folder} gives an interval from between {low} and {end} to between {begin} and {high}, kept is "
            f"{(entry.low, entry.high)}."
        )
    return found


def _same(kept: Any, now: Any) -> bool:
    if isinstance(kept, float) and isinstance(now, float):
        return abs(kept - now) <= CLOSE * max(1.0, abs(now))
    return bool(kept == now)


def _near(entry: Entry, shares: tuple[float, float, float, float]) -> bool:
    """Whether draws of the bootstrap whose ends lie between these (``ENDS``) can have given the entry's interval."""
    low, high = (1e300 if end is None else end for end in (entry.low, entry.high))
    return all(
        first * (1 - CLOSE) - CLOSE**2 <= end <= last * (1 + CLOSE) + CLOSE**2
        for first, end, last in ((shares[0], low, shares[1]), (shares[2], high, shares[3]))
    )
