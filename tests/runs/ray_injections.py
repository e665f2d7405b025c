"""Faults thrown at runs on a Ray cluster of this machine: workers killed, nodes killed, nodes that join; used by a test
and by benchmarks/faults/injected.py."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from runs.injections import Injected
from runs.small_runs import Net, contents, small_run
from torch import Tensor

from almakit.runs.progress import Progress
from almakit.runs.ray import RayExecutor


class Slow(Net):
    """The small network, slow enough to be caught at work, with its workers' process ids in a file."""

    def __init__(self, pids: Path, seconds: float = 0.01):
        super().__init__()
        self.pids, self.seconds = str(pids), seconds

    def forward(self, x: Tensor) -> Tensor:
        with open(self.pids, "a") as out:
            out.write(f"{os.getpid()}\n")
        time.sleep(self.seconds)
        return self.second((self.first(2 * x.flatten(1) - 1)).relu())


class Watcher(Progress):
    """Counts finished chunks, keeps notes, and does something once so many are done."""

    def __init__(self, at: int, act: Any):
        self.at, self.act, self.done = at, act, 0
        self.said: list[str] = []

    def note(self, sentence: str) -> None:
        self.said.append(sentence)

    def advance(self, images: int, detail: str = "") -> None:
        self.done += 1
        self.detail = detail
        if self.done == self.at:
            self.act()


class Cluster:
    """A head that works not and nodes of one core each, all on this machine."""

    def __init__(self, nodes: int = 2):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_agent_register_timeout_ms", "120000")
        import ray
        from ray.cluster_utils import Cluster as Nodes

        room = {"object_store_memory": 100_000_000, "include_dashboard": False}
        for tries_left in (2, 1, 0):
            # Ray gives a node 30 seconds to start, which a busy machine may exceed; that says nothing about the engine.
            self.cluster = Nodes()
            try:
                self.cluster.add_node(num_cpus=0, **room)
                self.nodes = [self.cluster.add_node(num_cpus=1, object_store_memory=100_000_000) for _ in range(nodes)]
                break
            except Exception:
                self.cluster.shutdown()
                if not tries_left:
                    raise
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="ERROR")

    def add(self) -> None:
        self.nodes.append(self.cluster.add_node(num_cpus=1, object_store_memory=100_000_000))

    def kill(self) -> None:
        """Ends the oldest node, its processes and what they were doing."""
        self.cluster.remove_node(self.nodes.pop(0), allow_graceful=False)

    def close(self) -> None:
        import ray

        ray.shutdown()
        self.cluster.shutdown()


class RayArena:
    """Disturbed runs on a cluster, with the undisturbed local one beside them."""

    def __init__(self, place: Path, cluster: Cluster, seed: int = 0):
        self.place, self.cluster, self.random, self.count = place, cluster, random.Random(seed), 0
        place.mkdir(parents=True, exist_ok=True)
        small_run(place / "calm", model=Slow(place / "calm-pids", 0.0), batch_size=4)
        self.expected = contents(place / "calm")

    def run(self, fault: str, act: Any, at: int, words: str) -> tuple[Injected, Watcher]:
        """A run on the cluster that ``act`` disturbs after ``at`` chunks."""
        self.count += 1
        out, pids = self.place / f"run-{self.count}", self.place / f"pids-{self.count}"
        watcher = Watcher(at, lambda: act(pids))
        with closing(RayExecutor("auto", progress=watcher)) as engine:
            small_run(out, model=Slow(pids), batch_size=4, engine=engine, progress=watcher)
        said = next((sentence for sentence in watcher.said if words in sentence), "")
        why = "" if contents(out) == self.expected else "the numbers differ from the local engine's"
        why = why or ("" if said else f"nothing about {words!r} was said: {watcher.said}")
        return Injected(fault, 0, said, why), watcher

    def worker_killed(self) -> Injected:
        return self.run("Ray worker killed", kill_worker, self.random.randint(4, 22), "It is tried again")[0]

    def node_killed(self) -> Injected:
        if len(self.cluster.nodes) < 2:
            self.cluster.add()
        # The run may end before Ray reports the loss, so that no message is expected.
        return self.run("Ray node killed", lambda pids: self.cluster.kill(), self.random.randint(11, 20), "")[0]


def kill_worker(pids: Path) -> None:
    """Kills the process that last asked the model something, other than this one."""
    workers = [int(line) for line in pids.read_text().split() if int(line) != os.getpid()]
    os.kill(workers[-1], signal.SIGKILL)
