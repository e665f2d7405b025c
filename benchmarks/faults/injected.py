"""Hundreds of faults thrown at real runs: killed processes, full and read-only disks, flipped bytes, torn logs, wrong
clocks, broken models, dead nodes.

    python -m benchmarks faults   all of them, about 280, each followed by a resume
    python -m benchmarks faults --only killed log   some of them
    python -m benchmarks faults --docs   write the kept table into docs/figures/reliability.md

After each fault: every number that can be read is the undisturbed run's, no finished chunk is lost, the user is told in
a sentence, and the same command ends with the undisturbed run's numbers bit for bit. After a killed merge its target is
as it was, or all is in it, and the same command finishes it. The faults themselves are in tests/runs: injections.py,
merge_injections.py and ray_injections.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import DOCS, RESULTS

KEPT = RESULTS / "faults.json"
PAGE = DOCS / "figures" / "reliability.md"
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


def table(results: dict[str, Any]) -> str:
    """The kept results as markdown."""
    from benchmarks.common import markdown

    rows = [
        [row["fault"], str(row["injected"]), str(row["survived"]), str(row["lost"]), row["said"]]
        for row in results["faults"]
    ]
    total = [sum(row[key] for row in results["faults"]) for key in ("injected", "survived", "lost")]
    rows.append(["**all**", *(f"**{value}**" for value in total), ""])
    head = ["fault ", "injected", "survived", "finished chunks lost", "what the user is told (one example) "]
    days = sorted({row["date"] for row in results["faults"]})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{markdown(head, rows)}\n\nMeasured {when} with `python -m benchmarks faults`."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=list(TIMES), help="these faults only; the others' kept results stay"
    )
    parser.add_argument("--share", type=float, default=1.0, help="this share of the times, at least one each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--docs", action="store_true", help="write the kept table into docs/figures/reliability.md and do nothing else"
    )
    args = parser.parse_args()
    if args.docs:
        from benchmarks.common import replace_section

        replace_section(PAGE, "faults", table(json.loads(KEPT.read_text())))
        return
    import torch

    torch.set_num_threads(1)
    from runs.injections import FAULTS, Arena, Injected

    begin, found = time.monotonic(), []  # type: float, list[tuple[str, Injected]]
    wanted = args.only or list(TIMES)

    def note(name: str, injected: Injected) -> None:
        found.append((name, injected))
        print(
            f"{len(found):3d} {injected.fault:28s} {'survived' if injected.survived else 'FAILED: ' + injected.why} "
            f"{injected.said[:110]}",
            flush=True,
        )

    with tempfile.TemporaryDirectory() as place:
        arena = Arena(Path(place) / "arena", args.seed)
        for name in [name for name in wanted if name in FAULTS]:
            for _ in range(max(1, round(TIMES[name] * args.share))):
                note(name, FAULTS[name](arena))
        if "merge" in wanted:
            from runs.merge_injections import MergeArena

            merges = MergeArena(Path(place) / "merges", args.seed)
            for _ in range(max(1, round(TIMES["merge"] * args.share))):
                note("merge", merges.one())
        nodes = [name for name in wanted if name.startswith("ray")]
        keep(found, begin, place)
        if nodes:
            from runs.ray_injections import Cluster, RayArena

            cluster = Cluster(2)
            try:
                ray_arena = RayArena(Path(place) / "ray", cluster, args.seed)
                for name in nodes:
                    act = ray_arena.worker_killed if name == "ray-worker" else ray_arena.node_killed
                    for _ in range(max(1, round(TIMES[name] * args.share))):
                        note(name, act())
            finally:
                cluster.close()
    print(table(keep(found, begin, place)))
    sys.exit(0 if all(injected.survived and not injected.lost for _, injected in found) else 1)


def keep(found: list[tuple[str, Any]], begin: float, place: str) -> dict[str, Any]:
    """Writes the results so far, over those of other faults that were kept."""
    kept = {row["name"]: row for row in json.loads(KEPT.read_text())["faults"]} if KEPT.exists() else {}
    today = time.strftime("%Y-%m-%d")
    for name in dict.fromkeys(name for name, _ in found):
        mine = [injected for other, injected in found if other == name]
        said = Counter(injected.said.replace(place, "...") for injected in mine if injected.said)
        kept[name] = {
            "name": name,
            "date": today,
            "fault": mine[0].fault,
            "injected": len(mine),
            "survived": sum(injected.survived for injected in mine),
            "lost": sum(injected.lost for injected in mine),
            "said": _example(said),
            "failures": [i.why for i in mine if i.why],
        }
    results = {"minutes": (time.monotonic() - begin) / 60, "faults": [kept[name] for name in TIMES if name in kept]}
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(results, indent=1) + "\n")
    return results


def _example(said: Counter[str]) -> str:
    """The most frequent words, without this machine's paths and figures that mean nothing elsewhere."""
    if not said:
        return "nothing: the process is gone, the next start resumes"
    import re

    words = (
        re.sub(r"(?:/|\.\.\.)[^\s:]*/(run-\d+)", "runs/a", said.most_common(1)[0][0])
        .removeprefix("almakit: ")
        .replace("|", "/")
    )
    return words if len(words) <= 180 else f"{words[:177]}..."
