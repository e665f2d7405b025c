"""Whole commands on the whole machine: `almakit run` with one and two processes against adv-lib's call on the same
images.

    python benchmarks/machine.py                    1000 MNIST images, 30 iterations of ALMA in l2 on the paper's
      network; needs both cores free
    python benchmarks/machine.py --images 64        smaller, to see that it works

Wall and processor seconds of whole commands (adv-lib: of the call alone, without imports), the largest resident memory
over all their processes. `python benchmarks/kill_resume.py --workers 2` kills such a run twenty times. Results:
results/machine.json; the table also goes to docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import Results, markdown, replace_section

HERE = Path(__file__).resolve().parent
MODEL, STEPS, FIRST = "mnist/smallcnn", 30, 1.0
PEER = "adv-lib, one call, all cores"
COMMANDS = {
    "almakit run --workers 1": ["--workers", "1"],
    "almakit run --workers 1 --no-malloc-tuning": ["--workers", "1", "--no-malloc-tuning"],
    "almakit run --workers 2": ["--workers", "2"],
    "almakit run": [],
}


def peer(images: int) -> None:
    """adv-lib's call, in a process of its own; prints what it took."""
    import peers
    import torch

    from almakit import data, models

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = models.load(MODEL)
    x, labels = data.load("mnist", limit=images).tensors()
    call = peers.adv_lib("alma", steps_as="num_steps", distance="l2", init_lr_distance=FIRST, α=0.5)
    began, spent = time.perf_counter(), time.process_time()
    call(model, x, labels, STEPS)
    print(
        json.dumps(
            {"wall": time.perf_counter() - began, "processor": time.process_time() - spent, "megabytes": memory()}
        )
    )


def memory() -> int:
    """The largest resident size of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def measured(name: str, images: int) -> dict[str, Any]:
    # Each process decides itself how many threads it takes.
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    if name == PEER:
        done = subprocess.run(
            [sys.executable, __file__, "--peer", "--images", str(images)],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        cell: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    else:
        with tempfile.TemporaryDirectory() as place:
            flags = [
                "--model",
                MODEL,
                "--data",
                "mnist",
                "--limit",
                str(images),
                "--attack",
                f"alma(distance=l2, steps={STEPS + 1})",
                "--quiet",
            ]
            command = [sys.executable, "-m", "almakit", "run", *flags, *COMMANDS[name], "--out", f"{place}/run"]
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
            most = 0
            while process.poll() is None:
                most = max(most, _together(process.pid))
                time.sleep(0.05)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert process.returncode in (0, 4), process.returncode
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            cell = {"wall": time.perf_counter() - began, "processor": spent, "megabytes": most}
    return {key: round(value, 2) for key, value in cell.items()} | {"load": round(os.getloadavg()[0], 1)}


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


def table(results: Results) -> str:
    rows = []
    for key in sorted(results.cells, key=lambda key: results.cells[key]["wall"]):
        images, name = key.split("|")
        cell, other = results.cells[key], results.cells.get(f"{images}|{PEER}")
        ratio = "" if other is None else f"{cell['wall'] / other['wall']:.2f}"
        rows.append(
            [
                f"`{name}`" if name in COMMANDS else name,
                images,
                f"{int(images) / cell['wall']:.1f}",
                f"{cell['wall']:.1f}",
                ratio,
                f"{cell['processor']:.1f}",
                str(cell["megabytes"]),
                str(cell["load"]),
            ]
        )
    return markdown(["command ", "images", "images/s", "wall s", "of adv-lib's", "processor s", "MB", "load"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--again", action="store_true", help="measure anew what is in the results")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        peer(args.images)
        return
    results = Results(HERE / "results" / "machine.json")
    for name in (PEER, *COMMANDS):
        if args.again or f"{args.images}|{name}" not in results.cells:
            try:
                results.keep(f"{args.images}|{name}", measured(name, args.images))
            except subprocess.CalledProcessError as error:
                print(f"{name}: {error.stderr.splitlines()[-1] if error.stderr else error}")
    print(table(results))
    replace_section(HERE.parent / "docs" / "scale.md", "machine", table(results))


if __name__ == "__main__":
    main()
