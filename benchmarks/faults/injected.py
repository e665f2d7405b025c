"""Hundreds of faults thrown at real runs: killed processes, full and read-only disks, flipped bytes, torn logs, wrong
clocks, broken models, dead nodes.

    python -m benchmarks faults   all of them, about 280, each followed by a resume
    python -m benchmarks faults --only killed log   some of them
    python -m benchmarks faults --table --docs   write the kept table into docs/figures/reliability.md

After each fault: every number that can be read is the undisturbed run's, no finished chunk is lost, the user is told in
a sentence, and the same command ends with the undisturbed run's numbers bit for bit. After a killed merge its target is
as it was, or all is in it, and the same command finishes it. The faults themselves are in tests/runs: injections.py,
merge_injections.py and ray_injections.py.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from runs.injections import FAULTS, Arena, Injected
from runs.merge_injections import MergeArena

from benchmarks.common import Results, markdown

TIMES = {
    "killed": 50,
    "sigterm": 20,
    "sigint": 10,
    "disk": 20,
    "read-only": 15,
    "flipped": 25,
    "log": 30,
    "clock": 10,
    "raises": 15,
    "shape": 15,
    "nan": 10,
    "memory": 10,
    "merge": 40,
    "ray-worker": 8,
    "ray-node": 6,
}


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    kept, counts = results.cells["faults"], ("injected", "survived", "lost")
    rows = [[row["fault"], *(str(row[key]) for key in counts), row["said"]] for row in kept]
    rows.append(["**all**", *(f"**{sum(row[key] for row in kept)}**" for key in counts), ""])
    head = ["fault ", "injected", "survived", "finished chunks lost", "what the user is told (one example) "]
    days = sorted({row["date"] for row in kept})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return {"faults": f"{markdown(head, rows)}\n\nMeasured {when} with `python -m benchmarks faults`."}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", choices=list(TIMES), help="these faults; the others' kept results stay")
    parser.add_argument("--share", type=float, default=1.0, help="this share of the times, at least one each")
    parser.add_argument("--seed", type=int, default=0)


def measure(results: Results, args: argparse.Namespace) -> int:
    begin, found, wanted = time.monotonic(), [], args.only or list(TIMES)

    def inject(name: str, act: Callable[[], Injected]) -> None:
        for _ in range(max(1, round(TIMES[name] * args.share))):
            injected = act()
            found.append((name, injected))
            how = "survived" if injected.survived else f"FAILED: {injected.why}"
            print(f"{len(found):3d} {injected.fault:28s} {how} {injected.said[:110]}", flush=True)

    with tempfile.TemporaryDirectory() as place:
        arena = Arena(Path(place) / "arena", args.seed)
        for name in [name for name in wanted if name in FAULTS]:
            inject(name, partial(FAULTS[name], arena))
        if "merge" in wanted:
            inject("merge", MergeArena(Path(place) / "merges", args.seed).one)
        keep(results, found, begin, place)
        if nodes := [name for name in wanted if name.startswith("ray")]:
            from runs.ray_injections import Cluster, RayArena

            cluster = Cluster(2)
            try:
                ray = RayArena(Path(place) / "ray", cluster, args.seed)
                for name in nodes:
                    inject(name, ray.worker_killed if name == "ray-worker" else ray.node_killed)
            finally:
                cluster.close()
            keep(results, found, begin, place)
    return 0 if all(injected.survived and not injected.lost for _, injected in found) else 1


def keep(results: Results, found: list[tuple[str, Injected]], begin: float, place: str) -> None:
    """Writes the results so far, over those of other faults that were kept."""
    kept = {row["name"]: row for row in results.cells.get("faults", [])}
    for name in dict.fromkeys(name for name, _ in found):
        mine = [injected for other, injected in found if other == name]
        said = Counter(injected.said.replace(place, "...") for injected in mine if injected.said)
        kept[name] = {
            "name": name,
            "date": time.strftime("%Y-%m-%d"),
            "fault": mine[0].fault,
            "injected": len(mine),
            "survived": sum(injected.survived for injected in mine),
            "lost": sum(injected.lost for injected in mine),
            "said": _example(said),
            "failures": [injected.why for injected in mine if injected.why],
        }
    minutes = (time.monotonic() - begin) / 60
    results.update({"minutes": minutes, "faults": [kept[name] for name in TIMES if name in kept]})


def _example(said: Counter[str]) -> str:
    """The most frequent words, without this machine's paths and figures that mean nothing elsewhere."""
    if not said:
        return "nothing: the process is gone, the next start resumes"
    words = (
        re.sub(r"(?:/|\.\.\.)[^\s:]*/(run-\d+)", "runs/a", said.most_common(1)[0][0])
        .removeprefix("almakit: ")
        .replace("|", "/")
    )
    return words if len(words) <= 180 else f"{words[:177]}..."
