"""The measurements of ``speed.py`` that need processes of their own: peak memory, and the time that imports take.

``python -m benchmarks.speed.processes KIND ARGUMENTS...`` prints one JSON object; ``child`` calls it so.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import surroundings

Cell = dict[str, Any]
MODEL = "mnist/smallcnn"
"""Of whole commands."""


def peak() -> float:
    """The most memory this process ever held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024)


def child(*arguments: object, python: str = sys.executable, environment: dict[str, str] | None = None) -> Cell:
    """What this file prints when called with ``arguments``."""
    command = [python, "-m", "benchmarks.speed.processes", *map(str, arguments)]
    done = subprocess.run(command, env=environment or surroundings(), check=True, capture_output=True, text=True)
    found: Cell = json.loads(done.stdout.splitlines()[-1])
    return found


def pass_memory(model: str, attack: str, batch: int, repeats: int) -> Cell:
    """Peak of an attack over that of bare passes at the same chunk size; what torch, model and images take before
    either is left out."""
    bare, ours = child("peak", model, "bare", batch), child("peak", model, attack, batch)
    return {
        "ratio": round(ours["grown"] / bare["grown"], 3),
        "whole_ratio": round(ours["peak"] / bare["peak"], 3),
        "ours_mb": ours["grown"],
        "bare_mb": bare["grown"],
        "model": model,
        "batch": batch,
        "attack": attack,
    }


def measure_peak(model: str, attack: str, batch: int) -> Cell:
    import torch

    from almakit import attacks
    from benchmarks.speed.measures import forward_and_backward, network, pictures

    torch.set_num_threads(1)
    net = network(model).requires_grad_(False)
    x, labels = pictures(model, batch)
    forward_and_backward(net, x[:1])  # what torch sets up once
    before = peak()
    if attack == "bare":
        for _ in range(5):
            forward_and_backward(net, x)
    else:
        attacks.get(attack)(net, x, labels, batch_size=batch, check=False)
    return {"peak": round(peak(), 1), "grown": round(peak() - before, 1)}


def streamed_memory(few: int, many: int, repeats: int) -> Cell:
    """Peak memory of a whole recorded run of ``many`` images over that of ``few``; the data set itself lies in memory
    in both."""
    first, second = child("stream", few), child("stream", many)
    return {
        "ratio": round(second["peak"] / first["peak"], 3),
        "few_mb": first["peak"],
        "many_mb": second["peak"],
        "few": few,
        "many": many,
    }


def measure_stream(count: int) -> Cell:
    import torch

    from almakit import data, evaluate

    torch.set_num_threads(1)
    dataset = data.load("mnist")
    images = dataset.select(range(count))
    with tempfile.TemporaryDirectory() as place:
        evaluate("mnist/smallcnn-tiny", images, "ddn(steps=2)", Path(place) / "run", batch_size=128)
    return {"peak": round(peak(), 1)}


def import_times(repeats: int) -> Cell:
    """Seconds of ``import almakit`` and of its attacks on top of torch, and of ``almakit --help`` as a whole."""
    lines = (
        "import time, torch; a = time.perf_counter(); import almakit; b = time.perf_counter(); almakit.attack, "
        "almakit.ALMA, almakit.evaluate; "
    )
    lines += "c = time.perf_counter(); print(b - a, c - a)"
    bare, used, helped = [], [], []
    for _ in range(repeats):
        first, second = subprocess.run(
            [sys.executable, "-c", lines], check=True, capture_output=True, text=True
        ).stdout.split()
        bare.append(float(first))
        used.append(float(second))
        began = time.perf_counter()
        shown = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from almakit.cli.main import main; main(['--help']); print('torch' in sys.modules)",
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        helped.append(time.perf_counter() - began)
        assert shown.stdout.splitlines()[-1] == "False", "almakit --help imports torch"
    middle = statistics.median
    return {
        "ratio": round(middle(bare), 4),
        "with_attacks_s": round(middle(used), 4),
        "help_s": round(middle(helped), 4),
        "help_imports_torch": False,
    }


def measure_peer(threads: int, images: int, steps: int, batch: int, first: float) -> Cell:
    """adv-lib's ALMA in calls of ``batch`` images: what it took."""
    import torch

    from almakit import data, models
    from benchmarks import peers

    torch.set_num_threads(threads)
    model = models.load(MODEL)
    x, labels = data.load("mnist", limit=images).tensors()
    call = peers.adv_lib("alma", steps_as="num_steps", distance="l2", init_lr_distance=first, α=0.5)
    began, spent = time.perf_counter(), time.process_time()
    for begin in range(0, images, batch):
        call(model, x[begin : begin + batch], labels[begin : begin + batch], steps)
    return {"wall": time.perf_counter() - began, "processor": time.process_time() - spent, "megabytes": int(peak())}


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "peak":
        found = measure_peak(rest[0], rest[1], int(rest[2]))
    elif kind == "stream":
        found = measure_stream(int(rest[0]))
    else:
        found = measure_peer(*map(int, rest[:4]), float(rest[4]))
    print(json.dumps(found))
