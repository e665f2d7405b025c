"""Runs steps as tasks of a Ray cluster, on one machine or many. This process submits them and is the only writer."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import socket
import sys
import sysconfig
import threading
import time
import uuid
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from ..core.oracle import out_of_memory
from ..errors import AlmakitError, BadModel, Unavailable, optional
from .executors import TRIES, Executor, Lost, compute, received, sendable, sent
from .failures import SpecChanged
from .job import Outcome
from .model import Subject
from .plan import Job, Notify, Task
from .progress import Progress
from .store.files import Array

LOSSES = 20
"""Number of nodes that may be lost during a step before it is given up."""
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_agent_register_timeout_ms": "120000",  # a busy machine needs longer than Ray's 15 s to start a node
}


class RayExecutor(Executor):
    """Computes steps as tasks of a Ray cluster.

    The job is put into Ray's object store once, a chunk's images once. A task takes as many cores as this process has
    threads, so that its numbers are those of one process bit for bit, or one GPU where the model is on a GPU.

    Args:
        address: ``local`` (a cluster is started here and ended with the run), ``auto`` or host:port.
        workers: number of tasks at a time at most.
        progress: receives a message when nodes join or leave.
    """

    name = "ray"

    def __init__(self, address: str = "local", workers: int | None = None, progress: Progress | None = None):
        self.address, self.workers, self.progress = address, workers, progress or Progress()
        self._ray: Any = None
        self._ours = False
        self._job: Job | None = None
        self._work: Any = None  # starts a task
        self._images: dict[int, Any] = {}  # the images of each chunk in the object store
        self._running: dict[Future[Outcome], Any] = {}
        self._nodes: set[str] = set()
        self._slots, self._counted = 1, 0.0

    @property
    def capacity(self) -> int:
        """More tasks than the cluster can run at a time, so that no node is idle while this process writes."""
        if self._job is None:
            return 1
        if time.monotonic() - self._counted > 1:
            self._count_nodes(self._job)
        most = 2 * self._slots
        return most if self.workers is None or self.address == "local" else min(self.workers, most)

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        if self._job is not job:
            self._send(job)
        number = task.key.chunk
        if number not in self._images:
            self._images[number] = self._ray.put(sendable(job.load(number)))
            if len(self._images) > 4 * self._slots + 4:
                del self._images[next(iter(self._images))]
        reference, future = self._work(task, self._images[number]), Future[Outcome]()
        self._running[future] = reference
        reference.future().add_done_callback(lambda answer: self._finish(answer, future))
        return future

    def close(self) -> None:
        for reference in list(self._running.values()):
            self._ray.cancel(reference, force=True)
        if self._ours:
            self._ray.shutdown()
        self._ray = self._job = None

    def _finish(self, answer: Any, future: Future[Outcome]) -> None:
        """Set the result or exception of a step's ``future`` from its task."""
        self._running.pop(future, None)
        try:
            if isinstance(found := answer.result(), Exception):
                raise found
            future.set_result(found)
        except (Lost, SpecChanged, MemoryError) as error:
            future.set_exception(error)
        except Exception as error:  # the node or process died, or the node ran out of memory
            kind = type(error).__name__
            left = kind in ("NodeDiedError", "ObjectLostError", "LocalRayletDiedError")
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given.")
            future.set_exception(Lost(f"{kind}: {reason[:300]}", LOSSES if left else TRIES))

    def _connect(self) -> None:
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        ray = self._ray = optional(
            "ray", "the ray engine needs Ray: pip install 'almakit[ray]', or leave out --engine ray."
        )
        if ray.is_initialized():
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address == "local":
            cores = None if self.workers is None else self.workers * torch.get_num_threads()
            options |= {"num_cpus": cores, "include_dashboard": False}
        main = threading.current_thread() is threading.main_thread()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if main}
        try:
            host, _, port = self.address.rpartition("://")[2].rpartition(":")
            if host and port.isdigit():  # without a listener at this address, Ray would wait for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(address=self.address, **options)
            self._ours = True
        except Exception as error:  # Ray raises any exception here, also a plain Exception
            why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise Unavailable(
                f"Ray could not be started on this machine ({why}); see its logs, or leave out --engine ray."
                if self.address == "local"
                else f"no Ray cluster answers at {self.address!r} ({why}); start one with `ray start --head`, or let "
                "almakit start one on this machine with --address local."
            ) from error
        finally:
            for number, handler in handlers.items():  # Ray installs its own
                signal.signal(number, handler)

    def _send(self, job: Job) -> None:
        """Put the data that all tasks share into the object store."""
        if self._ray is None:
            self._connect()
        self._job = job
        gpu, threads = job.subject.device.type == "cuda", torch.get_num_threads()
        remote = self._ray.remote(max_retries=0, num_cpus=0 if gpu else threads, num_gpus=int(gpu))(work)
        cargo, token = self._ray.put(np.frombuffer(packed(job), dtype=np.uint8)), uuid.uuid4().hex
        self._work = lambda task, images: remote.remote(token, cargo, threads, task, images)

    def _count_nodes(self, job: Job) -> None:
        """Update the number of tasks that the cluster can run at a time, and report nodes that join or leave."""
        self._counted = time.monotonic()
        kind, share = ("GPU", 1) if job.subject.device.type == "cuda" else ("CPU", torch.get_num_threads())
        alive = {node["NodeID"]: node["Resources"].get(kind, 0) for node in self._ray.nodes() if node["Alive"]}
        self._slots = sum(int(count // share) for count in alive.values())
        if set(alive) != self._nodes:
            before = "The Ray cluster changed" if self._nodes else "Ray"
            self._nodes = set(alive)
            many = f"{len(alive)} node{'s' * (len(alive) != 1)}"
            self.progress.note(f"{before}: {many}, {self._slots} tasks at a time, {share} {kind} each.")


def packed(job: Job) -> bytes:
    """The job as bytes, with weights and the user's code, without images. Models that cannot be pickled are left out if
    nodes can load them by name."""
    from ray import cloudpickle

    own = _own_modules()
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(sent(job.with_models(_on_cpu), False)))
    except Exception as error:
        if not all(subject is None or subject.by_name for subject in (job.subject, job.surrogate)):
            raise BadModel(
                f"the model or the attack cannot be sent to other processes ({type(error).__name__}: "
                f"{str(error)[:200]}); give the model by name or as file.py:function."
            ) from error
        return bytes(cloudpickle.dumps(sent(job, True)))
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


def _own_modules() -> list[ModuleType]:
    """The modules that contain the user's own code, which nodes may not have."""
    library, own = Path(sysconfig.get_path("stdlib")).resolve(), []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and name.partition(".")[0] not in ("almakit", "__main__"):
            path = Path(file).resolve()
            installed = {"site-packages", "dist-packages"} & {*path.parts} or path.is_relative_to(library)
            own += [] if installed else [module]
    return own


def _on_cpu(subject: Subject) -> Subject:
    model = subject.model
    on_device = isinstance(model, nn.Module) and subject.device.type != "cpu"
    return replace(subject, model=copy.deepcopy(model).cpu()) if on_device else subject  # type: ignore[attr-defined]


# On a node.

_jobs: dict[str, Job] = {}
"""The unpickled job of a node's process, by the run's token."""


def work(token: str, cargo: Array, threads: int, task: Task, images: dict[str, Any]) -> Outcome | Exception:
    """Compute a step on a node. An error is returned, because Ray would replace its type.

    Args:
        token: identifies the run.
        cargo: the job as returned by ``packed``.
        threads: number of threads of the driver.
        task: the step.
        images: images of its chunk.
    """
    try:
        if token not in _jobs:
            torch.set_num_threads(threads)
            _jobs.clear()
            job = pickle.loads(cargo.data)  # packed by almakit's own driver
            where = f" (on the node {socket.gethostname()})"
            _jobs[token] = received(job, job.subject.device.type, where).with_models(_on_gpu)
        return compute(_jobs[token], task, images)
    except SpecChanged as error:
        return error
    except Exception as error:
        reason = str(error) if isinstance(error, AlmakitError) else f"{type(error).__name__}: {str(error)[:300]}"
        return MemoryError(reason) if out_of_memory(error) else Lost(reason)


def _on_gpu(subject: Subject) -> Subject:
    """The subject on the GPU that Ray assigned to this process, if it uses a GPU."""
    if subject.device.type != "cuda":
        return subject
    device, model = torch.device("cuda", 0), subject.model
    return replace(subject, device=device, model=model.to(device) if isinstance(model, nn.Module) else model)
