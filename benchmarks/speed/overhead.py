"""What the engine costs on top of the bare attack: chunks read and hashed, preflight, verdict, files, database,
summary.

    python -m benchmarks speed overhead   1000 MNIST images, 100 steps, the paper's SmallCNN
    python -m benchmarks speed overhead --images 200 --steps 50

Before the engine does a chunk, the bare attack is timed on the same chunk, so both meet the same load; everything else
that ``evaluate`` does is the engine's. Both wall time and processor time are given: on a machine that does other things
the second is the one to trust. Held: overhead below 5 %.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path

import torch

from almakit import data, evaluate, models
from almakit.attacks import get
from almakit.runs.executors import InProcess
from almakit.runs.job import Outcome
from almakit.runs.plan import Job, Notify, Task
from almakit.runs.store import ATTACK
from benchmarks.common import Results, markdown

HELD = 0.05


class Clock:
    """Wall and processor seconds since a moment."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self.wall, time.process_time() - self.cpu


def seconds(model_name: str, images: int, steps: int, batch: int) -> dict[str, float]:
    """Seconds of the bare attack and of the engine, and their ratio minus one."""
    model, dataset, attack = (
        models.load(model_name),
        data.load("mnist", limit=images),
        get(f"alma(distance=l2, steps={steps})"),
    )
    bare = [0.0, 0.0]

    class BareFirst(InProcess):
        def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
            if task.key.kind == ATTACK:
                chunk = dataset.chunk(job.positions(task.key.chunk))
                clock = Clock()
                attack(model, chunk.x, chunk.labels, batch_size=len(chunk), check=False)
                bare[:] = [so_far + more for so_far, more in zip(bare, clock.read(), strict=True)]
            return super().submit(job, task, notify)

    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        run = evaluate(model, dataset, attack, Path(folder), batch_size=batch, engine=BareFirst())
        wall, cpu = clock.read()
        assert len(run.records) == images
    engine = (wall - bare[0], cpu - bare[1])
    return {
        "bare_wall": bare[0],
        "engine_wall": engine[0],
        "overhead_wall": engine[0] / bare[0] - 1,
        "bare_cpu": bare[1],
        "engine_cpu": engine[1],
        "overhead_cpu": engine[1] / bare[1] - 1,
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="mnist/smallcnn")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)


def measure(results: Results, args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    facts = {name: getattr(args, name) for name in ("model", "images", "steps", "batch_size", "threads")}
    results.update(facts | seconds(args.model, args.images, args.steps, args.batch_size))


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    kept = results.cells
    rows = []
    for kind, title in (("wall", "wall time"), ("cpu", "processor time")):
        times = [f"{kept[f'{which}_{kind}']:.1f} s" for which in ("bare", "engine")]
        rows.append([title, *times, f"{100 * kept[f'overhead_{kind}']:.2f} %"])
    text = (
        f"{kept['model']}, {kept['images']} images x {kept['steps']} steps in chunks of {kept['batch_size']}, "
        f"{kept['threads']} thread(s); held (below {100 * HELD:g} % of processor time): "
        f"{'yes' if kept['overhead_cpu'] < HELD else 'NO'}"
    )
    return {"overhead": f"{markdown([' ', 'bare attack', 'engine', 'overhead'], rows)}\n\n{text}"}
