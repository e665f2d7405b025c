"""What a run can do at most, measured: the store, the driver of the Ray engine, seconds per pass, two workers against
one; and a capacity model of it.

    python -m benchmarks scale   store, driver, passes (a minute)
    python -m benchmarks scale --speedup   1000 MNIST images with one Ray worker and with two (two minutes;
      nothing else may run)
    python -m benchmarks scale --table --docs   write the kept figures into docs/figures/scale.md

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


def pass_seconds() -> dict[str, float]:
    """Seconds of a forward and backward pass per image, one thread: a small MNIST network, and a ResNet-50 at 224 x
    224."""
    import torch

    from almakit import models

    found = {}
    cases: list[tuple[str, Any, torch.Tensor]] = [
        ("mnist/smallcnn-tiny", models.load("mnist/smallcnn-tiny"), torch.rand(64, 1, 28, 28))
    ]
    cases.append(("ResNet-50 at 224", resnet50(), torch.rand(4, 3, 224, 224)))
    for name, model, x in cases:
        times = []
        for _ in range(4):
            leaf = x.clone().requires_grad_(True)
            begin = time.process_time()
            model(leaf).sum().backward()
            times.append(time.process_time() - begin)
        found[name] = min(times) / len(x)
    return found


def resnet50() -> Any:
    """The network of He et al. (2016) with random weights: what counts here is what a pass costs."""
    from torch import Tensor, nn

    class Block(nn.Module):
        def __init__(self, inside: int, width: int, stride: int):
            super().__init__()
            sizes = [(inside, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
            layers = [
                nn.Sequential(nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b)) for a, b, k, s in sizes
            ]
            self.body = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
            straight = stride == 1 and inside == 4 * width
            self.side = (
                nn.Identity()
                if straight
                else nn.Sequential(nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
            )

        def forward(self, x: Tensor) -> Tensor:
            return (self.body(x) + self.side(x)).relu()

    blocks, inside = [], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            blocks.append(Block(inside, width, stride if number == 0 else 1))
            inside = 4 * width
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return (
        nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
        .eval()
        .requires_grad_(False)
    )


def speedup(images: int = 1000, steps: int = 100) -> dict[str, Any]:
    """The same run with one Ray worker and with two, one thread each; from an empty folder to its summary, Ray's start
    included."""
    from almakit import Run, evaluate
    from almakit.runs.progress import Progress

    class Stages(Progress):
        def __init__(self) -> None:
            self.began: list[float] = []

        def begin(self, what: str, done: int, total: int) -> None:
            self.began.append(time.perf_counter())

    found: dict[str, Any] = {"images": images, "steps": steps, "load_before": os.getloadavg()[0]}
    tables = []
    with tempfile.TemporaryDirectory() as place:
        for workers in (1, 2):
            stages, begin = Stages(), time.perf_counter()
            out = Path(place) / str(workers)
            evaluate(
                "mnist/smallcnn-tiny",
                "mnist",
                f"alma(distance=l2, steps={steps})",
                out,
                limit=images,
                batch_size=20,
                engine="ray",
                workers=workers,
                progress=stages,
                device="cpu",
            )
            end = time.perf_counter()
            found[f"seconds_{workers}"], found[f"attack_seconds_{workers}"] = end - begin, end - stages.began[-1]
            tables.append([(r.image, r.status, r.distance, r.measured) for r in Run(out).records])
            print(
                f"{workers} worker(s): {end - begin:.1f} s, of which the attack {end - stages.began[-1]:.1f} s",
                flush=True,
            )
    found["same_numbers"] = tables[0] == tables[1]
    found["ratio"] = found["seconds_1"] / found["seconds_2"]
    found["attack_ratio"] = found["attack_seconds_1"] / found["attack_seconds_2"]
    print(
        f"two workers are {found['ratio']:.2f} times as fast as one ({found['attack_ratio']:.2f} without Ray's "
        f"start); same numbers: {found['same_numbers']}"
    )
    return found


def sections(given: Results, args: argparse.Namespace) -> dict[str, str]:
    """The figures and the model for docs/figures/scale.md."""
    results = given.cells
    if missing := {"store", "driver", "passes"} - results.keys():
        raise SystemExit(f"{given.path} lacks {', '.join(sorted(missing))}: measure without --speedup first.")
    lines, store, driver, passes = [], results["store"], results["driver"], results["passes"]
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
    rows += [
        [f"forward and backward pass of {name}, one thread, per image", f"{1e3 * seconds:.2f} ms"]
        for name, seconds in passes.items()
    ]
    if "speedup" in results:
        fast = results["speedup"]
        rows.append(
            [
                f"two Ray workers against one, {fast['images']} MNIST images, whole command",
                f"{fast['ratio']:.2f} times as fast",
            ]
        )
        rows.append(["the same without Ray's start", f"{fast['attack_ratio']:.2f} times as fast"])
    lines += [markdown(["measured ", "figure"], rows), ""]
    total = IMAGES * ATTACKS * STEPS
    lines.append(
        f"ImageNet's validation set, {ATTACKS} attacks of {STEPS} steps: {IMAGES} x {ATTACKS} x {STEPS} = {total:.0e} "
        "forward and backward passes."
    )
    lines.append("")
    rows = []
    rates = [
        ("a core of this machine, measured", 1 / passes["ResNet-50 at 224"]),
        *((f"a GPU, assumed {rate} images/s", float(rate)) for rate in GPU_RATES),
    ]
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
        + ", ".join(f"{limit * STEPS / rate:.0f} x {name}" for name, rate in rates if rate > 100)
        + ". With 100 steps it is a tenth of that."
    )
    lines.append("")
    lines.append(
        f"Measured {results['date']} on {results['machine']} with `python -m benchmarks scale` (and `--speedup`), "
        f"load average {results['load']:.1f}."
    )
    return {"scale": "\n".join(lines)}


def keep(results: Results, **figures: Any) -> None:
    """Writes figures with their date and machine."""
    facts = environment()
    machine = f"{facts['cores']} cores of {facts['processor']}"
    results.update({**figures, "date": time.strftime("%Y-%m-%d"), "machine": machine, "load": os.getloadavg()[0]})


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--speedup", action="store_true", help="measure two workers against one, and nothing else")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)


def measure(results: Results, args: argparse.Namespace) -> int:
    if args.speedup:
        found = speedup(args.images, args.steps)
        keep(results, speedup=found)
        return 0 if found["ratio"] >= 1.6 and found["same_numbers"] else 1
    rates = [store_rate(128, (1, 28, 28)), store_rate(32, (3, 224, 224), 20)]
    keep(results, store=rates, passes=pass_seconds())  # before Ray, which may fail to start on a busy machine
    keep(results, driver=driver_rate())
    return 0
