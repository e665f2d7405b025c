"""Whole commands on the whole machine: `almakit run` with one and two processes against adv-lib's call on the same
images.

    python -m benchmarks speed machine   1000 MNIST images, 100 iterations of ALMA in l2 on the paper's
      network; needs both cores free
    python -m benchmarks speed machine --images 64   smaller, to see that it works
    python -m benchmarks speed machine --peer-python PYTHON   the interpreter that has adv-lib

Wall and processor seconds of whole commands (adv-lib: of the call alone, without imports), the largest resident memory
over all their processes. Results: results/machine.json; the table also goes to docs/guide-large.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import surroundings
from benchmarks.common import Results, markdown
from benchmarks.speed.processes import MODEL, child

STEPS, FIRST = 100, 1.0
PEER, PEER_ALONE = "adv-lib, one call, all cores", "adv-lib, one call, one thread"
PEER_BATCHES = "adv-lib, batches of 128, all cores"
PEERS = {PEER: (False, 0), PEER_BATCHES: (False, 128), PEER_ALONE: (True, 0)}
"""Whether on one thread, and how many images a call gets (0: all)."""
COMMANDS = {
    "almakit run --workers 1": ["--workers", "1"],
    "almakit run --workers 2": ["--workers", "2"],
    "almakit run": [],
}


def measured(name: str, images: int, python: str) -> dict[str, Any]:
    # Each process decides itself how many threads it takes.
    environment = {key: value for key, value in surroundings().items() if key != "OMP_NUM_THREADS"}
    if name in PEERS:
        alone, batch = PEERS[name]
        threads = 1 if alone else len(os.sched_getaffinity(0))
        cell = child("peer", threads, images, STEPS, batch or images, FIRST, python=python, environment=environment)
    else:
        with tempfile.TemporaryDirectory() as place:
            flags = ["--model", MODEL, "--data", "mnist", "--limit", str(images), "--quiet", "--out", f"{place}/run"]
            flags += ["--attack", f"alma(distance=l2, steps={STEPS + 1})"]
            cell = watched(["run", *flags, *COMMANDS[name]], environment)
    return rounded(cell)


def rounded(cell: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 2) for key, value in cell.items()} | {"load": round(os.getloadavg()[0], 1)}


def watched(arguments: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """What an `almakit` command took."""
    before, began, most = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), 0
    command, quiet = [sys.executable, "-m", "almakit", *arguments], subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
    while process.poll() is None:
        most = max(most, _together(process.pid))
        time.sleep(0.05)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.returncode in (0, 4), process.returncode
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "processor": spent, "megabytes": most}


def _together(process: int) -> int:
    """The resident memory of a process and its children, in MB."""
    total = 0
    for number in [process, *_children(process)]:
        try:
            total += int(Path(f"/proc/{number}/statm").read_text().split()[1]) * resource.getpagesize()
        except (OSError, IndexError):
            continue
    return total // 2**20


def _children(process: int) -> list[int]:
    try:
        return [
            int(child)
            for thread in Path(f"/proc/{process}/task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
    except OSError:
        return []


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    rows = []
    timed = [key for key, cell in results.cells.items() if "wall" in cell]
    for key in sorted(timed, key=lambda key: results.cells[key]["wall"]):
        images, name = key.split("|")
        cell = results.cells[key]
        others = [results.cells.get(f"{images}|{other}") for other in PEERS]
        rows.append(
            [
                f"`{name}`" if name in COMMANDS else name,
                images,
                f"{int(images) / cell['wall']:.1f}",
                f"{cell['wall']:.1f}",
                *("" if other is None else f"{cell['wall'] / other['wall']:.2f}" for other in others),
                f"{cell['processor']:.1f}",
                str(cell["megabytes"]),
                str(cell["load"]),
            ]
        )
    head = ["command ", "images", "images/s", "wall s", "of adv-lib's, all cores", "in batches of 128", "one thread"]
    text = markdown([*head, "processor s", "MB", "load"], rows)
    return {"machine": "\n\n".join([text, *sentences(results)])}


def sentences(results: Results) -> list[str]:
    found = []
    for images in sorted({int(key.split("|")[0]) for key in results.cells if "|" in key}):
        one, two = (results.cells.get(f"{images}|almakit run --workers {count}") for count in (1, 2))
        if one and two:
            found.append(f"{images} images: two workers are {one['wall'] / two['wall']:.2f} times as fast as one.")
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--again", action="store_true", help="measure anew what is in the results")
    parser.add_argument("--peer-python", default=sys.executable, help="the interpreter that has adv-lib")


def measure(results: Results, args: argparse.Namespace) -> int:
    failed = 0
    for name in (*PEERS, *COMMANDS):
        if args.again or f"{args.images}|{name}" not in results.cells:
            try:
                results.keep(f"{args.images}|{name}", measured(name, args.images, args.peer_python))
            except subprocess.CalledProcessError as error:
                failed += 1
                print(f"{name}: {error.stderr.splitlines()[-1] if error.stderr else error}", file=sys.stderr)
    return 1 if failed else 0
