"""Mixed runs for as long as you like on two cores: does memory stay flat, do file handles stay few, are the databases
whole?

    python -m benchmarks faults soak --minutes 40   as in the table of docs/figures/reliability.md
    python -m benchmarks faults soak --table --docs   write the kept figures into docs/figures/reliability.md

One process does run after run: attacks, distances, targets, precisions, batch sizes, resumes, shards, reports and
verdicts at random, while a second one (a child) does the same. Memory is what the kernel says the process holds; its
slope is fitted over the last three quarters, when caches are warm.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import resource
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import Results, markdown


def resident() -> int:
    """Bytes of memory this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def slope(samples: list[tuple[float, float]]) -> float:
    """The slope of the least-squares line through (time, value)."""
    mean_t, mean_v = (sum(column) / len(samples) for column in zip(*samples, strict=True))
    above = sum((t - mean_t) * (v - mean_v) for t, v in samples)
    return above / max(sum((t - mean_t) ** 2 for t, _ in samples), 1e-12)


def one_round(place: Path, chance: random.Random) -> tuple[int, int]:
    """A run of random settings with what users do afterwards; returns its records and how many integrity checks were
    not clean."""
    import shutil

    from runs.small_runs import Net, images, small_run

    from almakit import Run
    from almakit.report import subjects
    from almakit.report.page import render
    from almakit.runs.export import export_table
    from almakit.runs.merge import merge
    from almakit.runs.model import open_model
    from almakit.runs.spec import RunSpec
    from almakit.runs.verify import verify_run

    texts = [
        "alma(distance=l2, steps=15)",
        "alma(distance=l1, steps=15)",
        "alma-plus(distance=linf, steps=15)",
        "ddn(steps=10)",
        "fmn(distance=l2, steps=10)",
        "pgd(distance=linf, epsilon=0.1, steps=5)",
        "fab(distance=l2, steps=5)",
        "bb(distance=l2, steps=4)",
        "sigma-zero(steps=10)",
    ]
    settings: dict[str, Any] = {
        "attacks": chance.sample(texts, chance.randint(1, 3)),
        "batch_size": chance.choice([4, 8, 16, "auto"]),
        "seed": chance.randrange(100),
        "dtype": chance.choice(["float32", "float32", "float64", "bfloat16"]),
        "bits": chance.choice([None, None, 8]),
    }
    digits = chance.random() < 0.25
    if digits:
        settings |= {
            "model": "mnist/smallcnn-tiny",
            "data": "mnist-demo",
            "limit": 24,
            "attacks": settings["attacks"][:1],
        }
    if settings["bits"] and not digits:
        x = (images()[0] * 255).round() / 255
        settings["data"] = (x, Net()(x).argmax(1))
    if chance.random() < 0.3 and not {text.partition("(")[0] for text in settings["attacks"]} & {
        "bb",
        "fab",
        "sigma-zero",
        "pgd",
    }:
        settings["targets"] = chance.choice(["random", "next", "least-likely"])
    out = place / f"run-{chance.randrange(10**9)}"
    if chance.random() < 0.25 and settings["batch_size"] != "auto":
        for number in range(2):
            small_run(out, shard=(number, 2), **settings)
        merge([out])
        run = Run(out)
    else:
        run = small_run(out, **settings)
    small_run(out, **settings)  # a resume that finds all done
    run.table()
    if chance.random() < 0.3:
        render(subjects.load([out]), 4)
    if chance.random() < 0.3:
        model = "mnist/smallcnn-tiny" if digits else Net()
        verify_run(run, open_model(model, RunSpec(model="m", data="d", dtype=settings["dtype"])))
    export_table(run, out / "records.csv")
    with sqlite3.connect(out / "records.sqlite") as db:
        whole = db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    db.close()
    count = len(run.records)
    shutil.rmtree(out)
    return count, 0 if whole else 1


def soak(minutes: float, seed: int, report: Any = None) -> dict[str, Any]:
    """Rounds until the time is over; samples of memory and handles between them."""
    import torch

    torch.set_num_threads(1)
    chance, samples, rounds, records, unclean = random.Random(seed), [], 0, 0, 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        while time.monotonic() - begin < 60 * minutes:
            count, bad = one_round(Path(place), chance)
            rounds, records, unclean = rounds + 1, records + count, unclean + bad
            gc.collect()
            samples.append((time.monotonic() - begin, resident(), handles()))
            if rounds % 20 == 0:
                print(
                    f"{samples[-1][0] / 60:6.1f} min  {rounds:5d} runs  {samples[-1][1] / 1e6:7.1f} MB  "
                    f"{samples[-1][2]:3d} handles",
                    flush=True,
                )
    warm = [sample for sample in samples if sample[0] > 15 * minutes] or samples
    found = {
        "minutes": (time.monotonic() - begin) / 60,
        "runs": rounds,
        "records": records,
        "unclean_databases": unclean,
        "megabytes_begin": warm[0][1] / 1e6,
        "megabytes_end": warm[-1][1] / 1e6,
        "megabytes_per_hour": slope([(t / 3600, m / 1e6) for t, m, _ in warm]),
        "handles_begin": warm[0][2],
        "handles_end": warm[-1][2],
        "handles_most": max(sample[2] for sample in samples),
    }
    if report is not None:
        report.send(found)
    return found


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    kept, rows = results.cells, []
    for name, found in kept["processes"].items():
        rows.append(
            [
                name,
                f"{found['minutes']:.0f}",
                str(found["runs"]),
                str(found["records"]),
                f"{found['megabytes_begin']:.0f} to {found['megabytes_end']:.0f}",
                f"{found['megabytes_per_hour']:+.1f}",
                f"{found['handles_begin']} to {found['handles_end']}",
                str(found["unclean_databases"]),
            ]
        )
    head = ["process ", "minutes", "runs", "records", "MB", "MB per hour", "file handles", "databases not clean"]
    how = f"`python -m benchmarks faults soak --minutes {kept['asked']:g}`"
    return {"soak": f"{markdown(head, rows)}\n\nMeasured {kept['date']} with {how}."}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=0)


def measure(results: Results, args: argparse.Namespace) -> int:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=soak, args=(args.minutes, args.seed + 1, theirs))
    child.start()
    processes = {"first": soak(args.minutes, args.seed)}
    processes["second"] = ours.recv()
    child.join()
    results.update({"date": time.strftime("%Y-%m-%d"), "asked": args.minutes, "processes": processes})
    flat = all(
        abs(found["megabytes_per_hour"]) < 60 and found["handles_end"] <= found["handles_begin"] + 3
        for found in processes.values()
    )
    return 0 if flat and not any(found["unclean_databases"] for found in processes.values()) else 1
