"""A network, images and attacks small enough that a whole run takes a moment; and how two runs are compared bit for
bit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from almakit import Run, evaluate
from almakit.runs.executors import InProcess
from almakit.runs.store import ChunkKey

SOURCE = r"""
import os
import time
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first, self.second = nn.Linear(64, 24), nn.Linear(24, 5)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.25

    def forward(self, x):
        if os.environ.get("PASSES"):
            with open(os.environ["PASSES"], "a") as out:
                out.write(f"{len(x)}\n")
        time.sleep(float(os.environ.get("SLOW", "0")))
        return self.answer(x)

    def answer(self, x):
        return self.second(torch.relu(self.first(2 * x.flatten(1) - 1)))


def model():
    return Net()


def data():
    x = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = Net().answer(x).argmax(1)
    labels[3] = (labels[3] + 1) % 5
    return x, labels
"""
ATTACKS = ["alma(distance=l2, steps=12)", "alma(distance=l1, steps=12)"]
TABLES = ("images", "results", "traces", "attacks", "findings")


class Net(nn.Module):
    """The network of SOURCE; counts its passes."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first, self.second = nn.Linear(64, 24), nn.Linear(24, 5)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.25
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        return self.second(torch.relu(self.first(2 * x.flatten(1) - 1)))


def images(count: int = 40) -> tuple[Tensor, Tensor]:
    """(count, 1, 8, 8) images and labels (count,); the fourth label is wrong."""
    x = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(1))[:count]
    labels = Net()(x).argmax(1)
    if count > 3:
        labels[3] = (labels[3] + 1) % 5
    return x, labels


def small_run(out: Path | None = None, **settings: object) -> Run:
    """A run of the small network on its images."""
    arguments = {"model": Net(), "data": images(), "attacks": ATTACKS, "batch_size": 8, **settings}
    return evaluate(out=out, **arguments)  # type: ignore[arg-type]


class Failing(InProcess):
    """Computes in this process; ``fault`` names the exception that a step ends in instead, by its key and by how many
    were submitted before."""

    def __init__(self, fault: Callable[[ChunkKey, int], Exception | None]):
        self.fault, self.count = fault, 0

    def submit(self, job: Any, task: Any, notify: Any = None) -> Future[Any]:
        error = self.fault(task.key, self.count)
        self.count += 1
        if error is None:
            return super().submit(job, task, notify)
        future: Future[Any] = Future()
        future.set_exception(error)
        return future


def source_file(folder: Path) -> Path:
    """SOURCE as a file of the user's own."""
    path = folder / "mine.py"
    path.write_text(SOURCE)
    return path


def contents(folder: Path, database: str = "records.sqlite") -> dict[str, list[tuple[object, ...]]]:
    """Every row that is a number or a word of the run, and the hashes of its files; no times."""
    with sqlite3.connect(folder / database) as db:
        found = {table: db.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall() for table in TABLES}
        found["chunks"] = db.execute(
            "SELECT kind, attack, chunk, round, file, sha256, images, batch FROM chunks ORDER BY 1, 2, 3, 4"
        ).fetchall()
    db.close()
    return found
