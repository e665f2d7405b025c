"""The engine of many processes, on one machine or many: chunks are Ray tasks, this process submits them, collects
outcomes and is the only writer."""

from __future__ import annotations

import heapq
import itertools
import os
import signal
import socket
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from ...errors import BadInput, Unavailable, optional
from ..failures import SpecChanged
from ..job import Outcome
from ..plan import Job, Progress
from ..progress import Silent
from ..store import ChunkKey, FailureRow
from .shipping import Trouble, images_of, packed, work

TRIES = 3  # a chunk that fails so often is given up
# a chunk whose node dies under it so often likewise; nodes may come and go, but a chunk may also be what kills them
LOSSES = 20
BACKOFF = 1.0  # seconds before the second try, doubled for each further one
PATIENCE = 300.0  # seconds without any node that could do the work before the run ends
_LOOK = 1.0  # seconds between looks at the cluster


class RayEngine:
    """Does pieces of work as tasks of a Ray cluster: ``address`` is ``local`` (one is started here and ended with the
    run), ``auto`` or host:port.

    Weights are put into Ray's object store once, a chunk's images once; Ray brings each to a node when a task there
    first needs it, and keeps it. Each task takes as many cores as this process has threads (so that its numbers are the
    local engine's bit for bit) or, with a model on a GPU, one GPU. ``workers`` bounds the tasks that run at a time.
    """

    name = "ray"

    def __init__(self, address: str = "local", workers: int | None = None, show: Silent | None = None):
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
            raise BadInput(f"workers={workers!r}: give a whole number, at least 1.")
        self.address, self.workers, self.show = address, workers, show or Silent()
        self.used: Counter[str] = Counter()  # images done, by node
        self._ray: Any = None
        self._ours = False
        self._sent: dict[str, Any] | None = None
        self._nodes: dict[str, str] = {}
        self._slots, self._looked, self._idle_since = 0, 0.0, 0.0

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self._sent = None
        if self._ray is not None and self._ours:
            self._ray.shutdown()
        self._ray = None

    def __call__(self, job: Job, progress: Progress, keys: Iterable[ChunkKey]) -> Iterator[Outcome | FailureRow]:
        """The outcome of each piece of work as it is done, in no order; a piece that cannot be done is given up."""
        self._connect()
        ray, sent = self._ray, self._shipped(job)
        waiting, flying = deque(keys), {}  # type: deque[ChunkKey], dict[Any, ChunkKey]
        later: list[tuple[float, int, ChunkKey]] = []
        tries: Counter[ChunkKey] = Counter()
        losses: Counter[ChunkKey] = Counter()
        self._idle_since, turn = time.monotonic(), itertools.count()
        try:
            while waiting or later or flying:
                while later and later[0][0] <= time.monotonic():
                    waiting.append(heapq.heappop(later)[2])
                self._look(job)
                while waiting and len(flying) < self._room():
                    key = waiting.popleft()
                    flying[self._submit(job, progress, sent, key)] = key
                if not flying:
                    time.sleep(0.05)
                    continue
                ready, _ = ray.wait(list(flying), num_returns=1, timeout=0.2)
                for ref in ready:
                    key, found = flying.pop(ref), self._collect(ref)
                    if isinstance(found, Outcome):
                        self.used[found.node] += found.images
                        progress.learn(found.batch, found.images)
                        yield found
                        continue
                    if isinstance(found, _Lost):
                        losses[key] += 1
                    elif found.fatal:
                        raise SpecChanged(found.reason)
                    else:
                        tries[key] += 1
                    if tries[key] >= TRIES or losses[key] >= LOSSES:
                        yield FailureRow(key, len(job.positions(key.chunk)), tries[key] + losses[key], found.reason)
                        continue
                    pause = BACKOFF * 2 ** (tries[key] - 1) if tries[key] else 0.0
                    self.show.note(
                        f"chunk {key.chunk}{f' on {found.node}' if found.node else ''}: {found.reason} It is tried "
                        "again."
                    )
                    heapq.heappush(later, (time.monotonic() + pause, next(turn), key))
        finally:
            for ref in flying:
                ray.cancel(ref, force=True)

    def _connect(self) -> None:
        if self._ray is not None:
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a run tells nobody about itself
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault(
            "RAY_agent_register_timeout_ms", "120000"
        )  # a busy machine needs longer than Ray's 15 s to start a node
        ray = optional("ray", "the ray engine needs Ray: pip install 'almakit[ray]', or leave out --engine ray.")
        if not ray.is_initialized():
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
            if self.address == "local":
                cores = None if self.workers is None else self.workers * torch.get_num_threads()
                options |= {"num_cpus": cores, "include_dashboard": False}
            with _handlers_kept():
                _start(ray, self.address, options)
            self._ours = True
        self._ray = ray

    def _shipped(self, job: Job) -> dict[str, Any]:
        """What all tasks of a run share, put into the object store when the first is submitted."""
        if self._sent is None or self._sent["job"] is not job:
            gpu = job.subject.device.type == "cuda"
            task = self._ray.remote(
                max_retries=0, num_cpus=0 if gpu else torch.get_num_threads(), num_gpus=1 if gpu else 0
            )(work)
            cargo = self._ray.put(np.frombuffer(packed(job), dtype=np.uint8))
            self._sent = {"job": job, "token": uuid.uuid4().hex, "cargo": cargo, "task": task, "images": {}}
        return self._sent

    def _submit(self, job: Job, progress: Progress, sent: dict[str, Any], key: ChunkKey) -> Any:
        images = sent["images"]
        if key.chunk not in images:
            images[key.chunk] = self._ray.put(images_of(job, key.chunk))
        return sent["task"].remote(sent["token"], sent["cargo"], progress.task(job, key), images[key.chunk])

    def _collect(self, ref: Any) -> Outcome | Trouble | _Lost:
        errors = self._ray.exceptions
        try:
            found = self._ray.get(ref)
        except (errors.NodeDiedError, errors.ObjectLostError, errors.LocalRayletDiedError) as error:
            return _Lost(f"its node left the cluster ({type(error).__name__}).")
        except errors.RayError as error:
            # A process that ended under the work, memory that ran out on the node, a cargo that could not be unpacked
            # there.
            return Trouble(f"{type(error).__name__}: {_first_sentence(str(error))}", "")
        assert isinstance(found, (Outcome, Trouble))
        return found

    def _look(self, job: Job) -> None:
        """Counts what the cluster can do at a time, and tells of nodes that joined or left."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        kind, share = ("GPU", 1) if job.subject.device.type == "cuda" else ("CPU", torch.get_num_threads())
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        self._slots = sum(int(node["Resources"].get(kind, 0) // share) for node in alive)
        names = {node["NodeID"]: f"{node['NodeManagerHostname']}/{node['NodeID'][:6]}" for node in alive}
        if self._nodes:
            for number in names.keys() - self._nodes.keys():
                self.show.note(f"Node {names[number]} joined: {len(names)} nodes, {self._slots} tasks at a time.")
            for number in self._nodes.keys() - names.keys():
                self.show.note(f"Node {self._nodes[number]} left: {len(names)} nodes, {self._slots} tasks at a time.")
        else:
            self.show.note(
                f"Ray: {len(names)} node{'s' * (len(names) > 1)}, {self._slots} tasks at a time, {share} {kind} each."
            )
        self._nodes = names
        if self._slots:
            self._idle_since = now
        elif now - self._idle_since > PATIENCE:
            raise Unavailable(
                f"no node of the Ray cluster has had {share} {kind} for {PATIENCE:.0f} s; start nodes, or set "
                "OMP_NUM_THREADS=1 for tasks that take "
                "one core. Everything finished so far is kept; the same command resumes."
            )

    def _room(self) -> int:
        """How many tasks may be submitted at a time: some wait at the nodes, so that none is idle while this process
        writes."""
        return (
            2 * self._slots if self.workers is None or self.address == "local" else min(self.workers, 2 * self._slots)
        )


class _Lost(Trouble):
    """A piece of work whose node is gone: not the work's fault."""

    def __init__(self, reason: str):
        super().__init__(reason, "")


class _handlers_kept:
    """Ray installs signal handlers of its own; the ones that were there are put back."""

    def __enter__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if main else {}

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _start(ray: Any, address: str, options: dict[str, Any]) -> None:
    """Joins the cluster at ``address``, or starts one here; a start that failed is tried once more, for on a busy
    machine Ray gives up early."""
    for last in (False, True):
        try:
            _knock(address)
            ray.init(address=address, **options)
            return
        except Exception as error:
            # Ray raises anything here, a bare Exception included.
            if address == "local" and not last:
                ray.shutdown()
                continue
            why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise Unavailable(
                f"Ray could not be started on this machine ({why}); see its logs, or leave out --engine ray."
                if address == "local"
                else f"no Ray cluster answers at {address!r} ({why}); start one with `ray start --head`, or let "
                "almakit start one on this machine with "
                "--address local."
            ) from error


def _knock(address: str) -> None:
    """Raises where nobody listens at host:port; Ray itself would wait for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


def _first_sentence(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given.")
    return line if len(line) <= 300 else f"{line[:297]}..."
