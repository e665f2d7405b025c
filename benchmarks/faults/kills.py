"""A run of the real command line, killed with SIGKILL at random moments and resumed each time, against one that nobody
disturbed.

    python -m benchmarks faults kills   20 kills; 256 digits, two attacks, the shipped network
    python -m benchmarks faults kills --kills 5
    python -m benchmarks faults kills --workers 2   the run that is killed has two processes

Moments are spread over the whole run: while a process starts, between chunks, in the middle of one. At the end the
databases must agree in every number, the images' files in every byte, and no kill may have cost more than the chunk it
hit.
"""

from __future__ import annotations

import argparse
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import surroundings
from benchmarks.common import Results

ATTACKS = ("alma(distance=l2, steps=60)", "alma(distance=l1, steps=60)")
NUMBERS = ("images", "results", "traces", "attacks", "findings")


def command(out: Path, images: int, batch: int, workers: int) -> list[str]:
    flags = ["--workers", str(workers), "--model", "mnist/smallcnn-tiny", "--data", "mnist-demo"]
    flags += ["--limit", str(images), "--batch-size", str(batch), "--out", str(out)]
    return [
        sys.executable,
        "-m",
        "almakit",
        "run",
        *flags,
        *(part for attack in ATTACKS for part in ("--attack", attack)),
    ]


def start(out: Path, images: int, batch: int, workers: int = 1) -> subprocess.Popen[str]:
    environment = surroundings() | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command(out, images, batch, workers),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def chunks(out: Path) -> set[tuple[object, ...]]:
    """The finished chunks, with the hashes of their files, as another process sees them now."""
    if not (out / "records.sqlite").is_file():
        return set()
    try:
        db = sqlite3.connect(f"{(out / 'records.sqlite').resolve().as_uri()}?mode=ro", uri=True, timeout=10)
        try:
            return set(db.execute("SELECT kind, attack, chunk, round, file, sha256 FROM chunks"))
        finally:
            db.close()
    except sqlite3.OperationalError:
        return set()


def numbers(out: Path) -> dict[str, list[tuple[object, ...]]]:
    with sqlite3.connect(out / "records.sqlite") as db:
        return {table: db.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall() for table in NUMBERS}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1, help="processes of the run that is killed; the other has one")
    parser.add_argument("--seed", type=int, default=0)


def measure(results: Results, args: argparse.Namespace) -> int:
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as place:
        calm, hunted = Path(place) / "calm", Path(place) / "hunted"
        begin = time.monotonic()
        process = start(calm, args.images, args.batch_size)
        said = process.communicate()[1]
        whole = time.monotonic() - begin
        assert process.returncode == 0, said
        total = len(chunks(calm))
        killed, lost, gains = 0, 0, []
        # Moments spread over all chunks; where one falls on a chunk that is already there, the kill strikes while the
        # process is starting.
        moments = sorted(chance.randint(0, int(0.85 * total)) for _ in range(args.kills))
        for moment in moments:
            before = chunks(hunted)
            process = start(hunted, args.images, args.batch_size, args.workers)
            patience = time.monotonic() + (chance.uniform(0, 0.3 * whole) if len(before) >= moment else 10 * whole)
            goal = moment if len(before) < moment else int(0.95 * total)
            while process.poll() is None and len(chunks(hunted)) < goal and time.monotonic() < patience:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.1 if goal == moment else 0.0))
            seen = chunks(hunted)
            process.send_signal(signal.SIGKILL)
            said = process.communicate()[1]
            after = chunks(hunted)
            assert process.returncode == -signal.SIGKILL, (
                f"the run ended before it was killed (give more --images?): {said}"
            )
            lost += len((before | seen) - after)
            killed += 1
            gains.append(len(after) - len(before))
            print(f"kill {killed:2d}: {len(after):3d} of {total} chunks stored (+{gains[-1]})", flush=True)
        process = start(hunted, args.images, args.batch_size, args.workers)
        said = process.communicate()[1]
        assert process.returncode == 0, said
        same = numbers(calm) == numbers(hunted)
        files = chunks(calm) == chunks(hunted)
    print(f"killed {killed} times; finished chunks lost: {lost}; numbers identical: {same}; files identical: {files}")
    found = {"kills": killed, "lost": lost, "numbers_identical": same, "files_identical": files, "gains": gains}
    results.update(found)
    return 0 if same and files and not lost else 1
