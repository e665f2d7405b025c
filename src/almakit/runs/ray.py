"""Steps as tasks of a Ray cluster, on one machine or many; this process submits them and is the only writer."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import site
import socket
import sys
import sysconfig
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from ..core import Attack
from ..core.oracle import out_of_memory
from ..errors import AlmakitError, BadModel, Unavailable, optional
from .executors import Executor, Images, Lost, absent, chunk_of, images_of, opened_again, without_images
from .failures import SpecChanged
from .job import STEPS, Outcome
from .model import Subject
from .plan import Job, Notify, Task
from .progress import Progress
from .spec import RunSpec
from .store.files import Array

LOSSES = 20
"""A chunk whose node dies under it so often is given up: nodes may come and go, but a chunk may also be what kills
them."""
PATIENCE = 300.0  # seconds without any node that could do the work before the run ends
_LOOK = 1.0  # seconds between looks at the cluster


class RayExecutor:
    """Does steps as tasks of a Ray cluster: ``address`` is ``local`` (one is started here and ended with the run),
    ``auto`` or host:port.

    Weights are put into Ray's object store once, a chunk's images once; Ray brings each to a node when a task there
    first needs it, and keeps it. Each task takes as many cores as this process has threads (so that its numbers are
    those of one process bit for bit) or, with a model on a GPU, one GPU. ``workers`` bounds the tasks that run at a
    time.
    """

    name = "ray"

    def __init__(self, address: str = "local", workers: int | None = None, progress: Progress | None = None):
        self.address, self.workers, self.progress = address, workers, progress or Progress()
        self.used: Counter[str] = Counter()  # images done, by node
        self._ray: Any = None
        self._ours = self._gpu = False
        self._sent: dict[str, Any] | None = None
        self._running: dict[Future[Outcome], Any] = {}
        self._nodes: dict[str, str] = {}
        self._slots, self._looked, self._idle_since = 0, 0.0, 0.0

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def capacity(self) -> int:
        """How many tasks may be submitted at a time: some wait at the nodes, so that none is idle while this process
        writes."""
        if self._sent is None:
            return 1
        self._look()
        most = 2 * self._slots
        return most if self.workers is None or self.address == "local" else min(self.workers, most)

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        self._connect()
        sent, number = self._shipped(job), task.key.chunk
        if number not in sent["images"]:
            sent["images"] = {number: self._ray.put(images_of(job, number)), **sent["images"]}
        ref = sent["task"].remote(sent["token"], sent["cargo"], task, sent["images"][number])
        future: Future[Outcome] = Future()
        self._running[future] = ref
        ref.future().add_done_callback(lambda found: self._collect(found, future))
        return future

    def expect(self, chunks: int, seconds: float | None) -> Executor:
        return self

    def close(self) -> None:
        for ref in list(self._running.values()):
            self._ray.cancel(ref, force=True)
        self._running, self._sent = {}, None
        if self._ray is not None and self._ours:
            self._ray.shutdown()
        self._ray = None

    def _collect(self, found: Any, future: Future[Outcome]) -> None:
        """Ends the ``future`` of a step with what its task ended in."""
        self._running.pop(future, None)
        try:
            answer = found.result()
        except Exception as error:
            kind = type(error).__name__
            if kind in ("NodeDiedError", "ObjectLostError", "LocalRayletDiedError"):
                future.set_exception(Lost(f"its node left the cluster ({kind}).", LOSSES))
            else:
                # A process that ended under the work, memory that ran out on the node, a cargo that could not be
                # unpacked there.
                future.set_exception(Lost(f"{kind}: {_first_sentence(str(error))}", pause=True))
            return
        if isinstance(answer, Outcome):
            self.used[answer.node] += answer.images
            future.set_result(answer)
        elif answer.kind == "changed":
            future.set_exception(SpecChanged(answer.reason))
        elif answer.kind == "memory":
            future.set_exception(MemoryError(answer.reason))
        else:
            future.set_exception(Lost(answer.reason, node=answer.node, pause=True))

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
            self._gpu, self._idle_since = job.subject.device.type == "cuda", time.monotonic()
            task = self._ray.remote(
                max_retries=0, num_cpus=0 if self._gpu else torch.get_num_threads(), num_gpus=1 if self._gpu else 0
            )(work)
            cargo = self._ray.put(np.frombuffer(packed(job), dtype=np.uint8))
            self._sent = {"job": job, "token": uuid.uuid4().hex, "cargo": cargo, "task": task, "images": {}}
        return self._sent

    def _look(self) -> None:
        """Counts what the cluster can do at a time, and tells of nodes that joined or left."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        kind, share = ("GPU", 1) if self._gpu else ("CPU", torch.get_num_threads())
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        self._slots = sum(int(node["Resources"].get(kind, 0) // share) for node in alive)
        names = {node["NodeID"]: f"{node['NodeManagerHostname']}/{node['NodeID'][:6]}" for node in alive}
        if self._nodes:
            for number in names.keys() - self._nodes.keys():
                self.progress.note(f"Node {names[number]} joined: {len(names)} nodes, {self._slots} tasks at a time.")
            for number in self._nodes.keys() - names.keys():
                self.progress.note(
                    f"Node {self._nodes[number]} left: {len(names)} nodes, {self._slots} tasks at a time."
                )
        else:
            self.progress.note(
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


# What is sent, and how a node does a step with it.


@dataclass(frozen=True)
class Trouble:
    """A step that did not end well on a node: the run's inputs ``changed``, ``memory`` ran out, or anything else."""

    reason: str
    node: str
    kind: str = ""


@dataclass(frozen=True, eq=False)
class _Cargo:
    """A job without its images. ``by_name``: its models are loaded on the node, for they do not survive pickling."""

    job: Job
    by_name: bool
    threads: int


def packed(job: Job) -> bytes:
    """The job with its weights as bytes, without its images; weights lie in ordinary memory whatever device they are
    on."""
    from ray import cloudpickle

    subject, surrogate, plain, threads = job.subject, job.surrogate, without_images(job), torch.get_num_threads()

    def cargo(by_name: bool) -> bytes:
        gradients = None if surrogate is None else _sent(surrogate, by_name)
        sent = replace(plain, subject=_sent(subject, by_name), surrogate=gradients)
        return bytes(cloudpickle.dumps(_Cargo(sent, by_name, threads)))

    with _by_value(cloudpickle, _own_modules(job)):
        try:
            return cargo(by_name=False)
        except Exception as error:
            if not subject.by_name or not (surrogate is None or surrogate.by_name):
                raise BadModel(
                    f"the model or the attack cannot be sent to other processes ({type(error).__name__}: "
                    f"{str(error)[:200]}); give the model by name or as file.py:function, or use the local engine."
                ) from error
            return cargo(by_name=True)


def _sent(subject: Subject, by_name: bool) -> Subject:
    model = subject.model
    if subject.device.type != "cpu" and isinstance(model, nn.Module) and not by_name:
        model = copy.deepcopy(model).cpu()
    return replace(subject, model=absent if by_name else model)


_unpacked: dict[str, Job] = {}
"""The job of the run that a node's process works for, by the run's token: weights are unpickled once per process."""


def work(token: str, cargo: Array, task: Task, images: Images) -> Outcome | Trouble:
    """Does a step on a node: ``cargo`` are the bytes of ``packed``, ``images`` those of the chunk."""
    node = _node()
    try:
        job = _job(token, cargo)
        if job.kept.number != task.key.chunk:
            job.keep(task.key.chunk, chunk_of(job, task, images))
        return replace(STEPS[task.key.kind](job, task, None), node=node)
    except SpecChanged as error:
        return Trouble(str(error), node, "changed")
    except AlmakitError as error:
        return Trouble(str(error), node)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {str(error)[:300]} ({os.path.basename(where.filename)}, line {where.lineno})"
        return Trouble(reason, node, "memory" if out_of_memory(error) else "")


def _job(token: str, cargo: Array) -> Job:
    if token not in _unpacked:
        _unpacked.clear()
        loaded: _Cargo = pickle.loads(cargo.data)  # made by ``packed`` in our own driver
        torch.set_num_threads(loaded.threads)
        job = loaded.job
        surrogate = None if job.surrogate is None else _placed(job.surrogate, job.spec, loaded.by_name)
        _unpacked[token] = replace(job, subject=_placed(job.subject, job.spec, loaded.by_name), surrogate=surrogate)
    return _unpacked[token]


def _placed(then: Subject, spec: RunSpec, by_name: bool) -> Subject:
    """The model on this node's device: Ray shows a process the GPUs it may use, and the first of them is its own."""
    if by_name:
        return opened_again(then, spec, then.device.type, f" (on the node {_node()})")
    device = torch.device(then.device.type, 0) if then.device.type == "cuda" else then.device
    model = then.model.to(device) if isinstance(then.model, nn.Module) else then.model
    return replace(then, model=model, device=device)


def _node() -> str:
    import ray

    return f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()[:6]}"


# Code that only this machine has travels by value.


def _own_modules(job: Job) -> list[ModuleType]:
    """The modules of the user's that model and attacks are made of: not installed, so the nodes cannot be expected to
    have them."""
    things: list[Any] = []
    for model in (subject.model for subject in (job.subject, job.surrogate) if subject is not None):
        things += map(type, model.modules()) if isinstance(model, nn.Module) else [model, type(model)]
    for attack in job.attacks:
        things += _parts(attack)
    names = {name for thing in things if isinstance(name := getattr(thing, "__module__", None), str)}
    names |= {name for name in sys.modules if name.startswith("almakit_user_")}
    files = {
        name: Path(file).resolve()
        for name in sys.modules
        if isinstance(file := getattr(sys.modules[name], "__file__", None), str)
    }
    folders = {files[name].parent for name in names if name in files and not _installed(files[name])}
    return [
        sys.modules[name]
        for name, file in files.items()
        if name.partition(".")[0] not in ("almakit", "__main__") and file.parent in folders and not _installed(file)
    ]


def _parts(thing: Any) -> list[Any]:
    """The kinds and functions an attack is made of."""
    found = [thing, type(thing)]
    if isinstance(thing, Attack):
        for f in fields(thing):
            value = getattr(thing, f.name)
            for item in value if isinstance(value, (tuple, list)) else (value,):
                found += _parts(item)
    found += (
        [value for value in vars(thing).values() if callable(value)]
        if hasattr(thing, "__dict__") and not isinstance(thing, Attack)
        else []
    )
    return found


def _installed(file: Path) -> bool:
    places = {*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()}
    return any(file.is_relative_to(Path(place).resolve()) for place in places if place)


@contextmanager
def _by_value(cloudpickle: Any, modules: Sequence[ModuleType]) -> Iterator[None]:
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
