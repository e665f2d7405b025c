"""What a run can do at most, measured: the store and the driver of the Ray engine; and a capacity model of them.

    python -m benchmarks scale   measures (a minute)
    python -m benchmarks scale --table --docs   writes the kept figures into docs/figures/scale.md

Figures go to benchmarks/results/scale.json; the model in docs/figures/scale.md is computed from them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from almakit.runs.environment import environment
from benchmarks.common import Results, markdown

IMAGES, ATTACKS, STEPS = 50_000, 10, 1000  # ImageNet's validation set, ten attacks of a thousand steps
GPU_RATES = (500, 2000)
# assumed, not measured: forward and backward passes of a ResNet-50 per second on an older and on a newer GPU


def store_rate(chunk: int, pixels: tuple[int, ...], chunks: int = 60) -> dict[str, float]:
    """Records per second through the store: the chunk's file, synced, and its rows in one transaction."""
    import numpy as np

    from almakit.runs.store import ATTACK, CLEAN, ChunkKey, ChunkRow, Store, files
    from almakit.runs.store.records import ImageInfo, Record

    images = np.random.default_rng(0).random((chunk, *pixels), dtype=np.float32)
    measures = {name: 0.123456 for name in ("l0", "l1", "l2", "linf", "ssim", "ciede2000")}
    top = ((3, 0.5), (1, 0.25), (2, 0.125), (4, 0.0625), (5, 0.03))
    with tempfile.TemporaryDirectory() as place, Store(Path(place) / "records.sqlite") as store:
        for number in range(chunks):
            infos = [
                ImageInfo(number * chunk + row, f"{row}", "ab" * 32, 1, None, number, 1, top) for row in range(chunk)
            ]
            store.finish(ChunkRow(ChunkKey(CLEAN, -1, number), None, None, chunk, chunk, 0.1), 1, images=infos)
        begin, busy = time.perf_counter(), time.process_time()
        for number in range(chunks):
            found = [
                Record(
                    0,
                    number * chunk + row,
                    None,
                    "success",
                    None,
                    0.5 + row,
                    100,
                    99,
                    3,
                    top,
                    True,
                    0.5,
                    measures,
                    True,
                    0.5,
                    row,
                )
                for row in range(chunk)
            ]
            sha256 = files.write(Path(place) / f"{number}.safetensors", {"images": files.pack(images)})
            store.finish(
                ChunkRow(ChunkKey(ATTACK, 0, number), f"{number}.safetensors", sha256, chunk, chunk, 0.1),
                1,
                records=found,
            )
        seconds, cpu = time.perf_counter() - begin, time.process_time() - busy
    return {
        "chunk": chunk,
        "bytes_per_image": int(np.prod(pixels)) * 4,
        "records_per_second": chunks * chunk / seconds,
        "cpu_seconds_per_chunk": cpu / chunks,
    }


def driver_rate(images: int = 4000, chunk: int = 50) -> dict[str, float]:
    """What the driver spends on a chunk from submitting it to having stored it, with work that costs the workers next
    to nothing."""
    import torch
    from runs.small_runs import Net

    from almakit import evaluate
    from almakit.runs.ray import RayExecutor

    x = torch.rand(images, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = Net()(x).argmax(1)
    with closing(RayExecutor("local", workers=2)) as engine:
        engine._connect()
        # Once to have workers with torch in memory, once to measure.
        evaluate(
            Net(),
            (x[:200], labels[:200]),
            "pgd(distance=linf, epsilon=0.1, steps=1)",
            batch_size=chunk,
            engine=engine,
            preflight=False,
        )
        begin, busy = time.perf_counter(), time.process_time()
        run = evaluate(
            Net(),
            (x, labels),
            "pgd(distance=linf, epsilon=0.1, steps=1)",
            batch_size=chunk,
            engine=engine,
            preflight=False,
            traces=0,
        )
        seconds, cpu = time.perf_counter() - begin, time.process_time() - busy
        count = len(run.chunks)
    return {"chunk": chunk, "chunks": count, "chunks_per_second": count / seconds, "cpu_seconds_per_chunk": cpu / count}


def sections(given: Results, args: argparse.Namespace) -> dict[str, str]:
    """The figures and the model for docs/figures/scale.md."""
    results = given.cells
    lines, store, driver = [], results["store"], results["driver"]
    rows = [
        [
            f"store, chunks of {row['chunk']} images of {row['bytes_per_image'] / 1e3:.0f} kB",
            f"{row['records_per_second']:.0f} records/s",
        ]
        for row in store
    ]
    rows.append(
        [
            "driver of the Ray engine: processor time per chunk, store included",
            f"{1e3 * driver['cpu_seconds_per_chunk']:.1f} ms",
        ]
    )
    rows.append(
        [
            "driver, chunks through a machine of two cores that also runs the workers",
            f"{driver['chunks_per_second']:.0f} chunks/s",
        ]
    )
    lines += [markdown(["measured ", "figure"], rows), ""]
    total = IMAGES * ATTACKS * STEPS
    lines.append(
        f"ImageNet's validation set, {ATTACKS} attacks of {STEPS} steps: {IMAGES} x {ATTACKS} x {STEPS} = {total:.0e} "
        "forward and backward passes."
    )
    lines.append("")
    rows = []
    rates = [(f"a GPU, assumed {rate} images/s", float(rate)) for rate in GPU_RATES]
    # Records arrive when chunks end: passes per second over steps.
    limit = min(row["records_per_second"] for row in store if row["bytes_per_image"] > 100_000)
    for name, rate in rates:
        for devices in (1, 8, 64):
            hours = total / (rate * devices) / 3600
            arriving = rate * devices / STEPS
            needed = f"{hours / 24:.1f} days" if hours > 48 else f"{hours:.1f} h"
            rows.append([name, str(devices), needed, f"{arriving:.3g}", f"{100 * arriving / limit:.2g} %"])
    lines += [markdown(["device ", "devices", "time", "records/s arriving", "of what the store takes"], rows), ""]
    lines.append(
        f"The store takes {limit:.0f} records of 224 x 224 photos a second, so it saturates at {limit * STEPS:.0f} "
        f"passes a second with {STEPS} steps: "
        + ", ".join(f"{limit * STEPS / rate:.0f} x {name}" for name, rate in rates)
        + ". With 100 steps it is a tenth of that."
    )
    lines.append("")
    lines.append(
        f"Measured {results['date']} on {results['machine']} with `python -m benchmarks scale`, "
        f"load average {results['load']:.1f}."
    )
    return {"scale": "\n".join(lines)}


def keep(results: Results, **figures: Any) -> None:
    """Writes figures with their date and machine."""
    facts = environment()
    machine = f"{facts['cores']} cores of {facts['processor']}"
    results.update({**figures, "date": time.strftime("%Y-%m-%d"), "machine": machine, "load": os.getloadavg()[0]})


def measure(results: Results, args: argparse.Namespace) -> None:
    keep(results, store=[store_rate(128, (1, 28, 28)), store_rate(32, (3, 224, 224), 20)])
    keep(results, driver=driver_rate())
