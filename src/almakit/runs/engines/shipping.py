"""What goes to other processes: the job as bytes, once per run, and a chunk's images; and how a worker does a piece of
work with them."""

from __future__ import annotations

import copy
import os
import pickle
import site
import socket
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ...core import Attack
from ...core.model import steady
from ...errors import AlmakitError, BadModel
from ..failures import SpecChanged
from ..job import Outcome, compute
from ..model import Subject, open_model
from ..plan import Job, Task
from ..spec import RunSpec
from ..store.files import Array, pack, unpack


@dataclass(frozen=True)
class Trouble:
    """A piece of work that did not end well on a worker. ``fatal``: trying again would be wrong, not just useless."""

    reason: str
    node: str
    fatal: bool = False


@dataclass(frozen=True, eq=False)
class _Cargo:
    """A job without its images. ``by_name``: its models are loaded on the node, for they do not survive being
    pickled."""

    job: Job
    by_name: bool
    threads: int


def packed(job: Job) -> bytes:
    """The job with its weights as bytes: images stay behind, weights lie in ordinary memory whatever device they are
    on."""
    from ray import cloudpickle

    subject, lender, plain, threads = job.subject, job.surrogate, bare(job), torch.get_num_threads()

    def cargo(by_name: bool) -> bytes:
        lent = None if lender is None else _sent(lender, by_name)
        sent = replace(plain, subject=_sent(subject, by_name), surrogate=lent)
        return bytes(cloudpickle.dumps(_Cargo(sent, by_name, threads)))

    with _by_value(cloudpickle, _own_modules(job)):
        try:
            return cargo(by_name=False)
        except Exception as error:
            if not subject.by_name or not (lender is None or lender.by_name):
                raise BadModel(
                    f"the model or the attack cannot be sent to other processes ({type(error).__name__}: "
                    f"{str(error)[:200]}); give the model by name or as file.py:function, or use the local engine."
                ) from error
            return cargo(by_name=True)


def _sent(subject: Subject, by_name: bool) -> Subject:
    model = subject.model
    if subject.device.type != "cpu" and isinstance(model, nn.Module) and not by_name:
        model = copy.deepcopy(model).cpu()
    return replace(subject, model=left_behind if by_name else model, steady=left_behind)


def bare(job: Job) -> Job:
    """The job without its images and their label maps."""
    maps = None if job.dataset.maps is None else left_behind
    return replace(job, dataset=replace(job.dataset, read=left_behind, maps=maps))


Images = tuple[Array, Array | None]
"""A chunk's images (B, ...), bytes where they lie on the 8-bit grid, and its label maps (B, H, W), if it has any, as
they travel."""


def images_of(job: Job, chunk: int) -> Images:
    found = job.read(chunk)
    return pack(found.x.numpy()), None if found.maps is None else found.maps.numpy()


_unpacked: dict[str, Job] = {}
"""The job of the run this worker works for, by the run's token: weights are unpickled once per process, not once per
chunk."""


def work(token: str, cargo: Array, task: Task, images: Images) -> Outcome | Trouble:
    """Does a piece of work on a worker: ``cargo`` are the bytes of ``packed``, ``images`` those of the chunk."""
    node = _node()
    try:
        return replace(compute(holding(_job(token, cargo), task, images), task), node=node)
    except SpecChanged as error:
        return Trouble(str(error), node, fatal=True)
    except AlmakitError as error:
        return Trouble(str(error), node)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Trouble(
            f"{type(error).__name__}: {str(error)[:300]} ({os.path.basename(where.filename)}, line {where.lineno})",
            node,
        )


def _job(token: str, cargo: Array) -> Job:
    if token not in _unpacked:
        _unpacked.clear()
        loaded: _Cargo = pickle.loads(cargo.data)  # made by ``packed`` in our own driver
        torch.set_num_threads(loaded.threads)
        job = loaded.job
        lender = None if job.surrogate is None else _placed(job.surrogate, job.spec, loaded.by_name)
        _unpacked[token] = replace(job, subject=_placed(job.subject, job.spec, loaded.by_name), surrogate=lender)
    return _unpacked[token]


def _placed(then: Subject, spec: RunSpec, by_name: bool) -> Subject:
    """The model on this worker's device: Ray shows a worker the GPUs it may use, and the first of them is its own."""
    if by_name:
        here = open_model(then.name, replace(spec, device=then.device.type))
        if (here.weights_sha256, here.code_sha256) != (then.weights_sha256, then.code_sha256):
            raise SpecChanged(
                f"{then.name} is not the same model on the node {_node()} as where the run was started; bring the "
                "same file there."
            )
        return replace(here.with_features(then.features), maps=then.maps, aim=then.aim, held=then.held)
    device = torch.device(then.device.type, 0) if then.device.type == "cuda" else then.device
    model = then.model.to(device) if isinstance(then.model, nn.Module) else then.model
    return replace(then, model=model, steady=steady(model, device), device=device)


def holding(job: Job, task: Task, images: Images) -> Job:
    """The job with the ``images`` of this task, as they travelled, in hand and no others."""
    first = job.positions(task.key.chunk)[0]

    def reader(found: Array) -> Callable[[Sequence[int]], Tensor]:
        tensor = torch.from_numpy(found if found.flags.writeable else found.copy())
        return lambda wanted: tensor[[index - first for index in wanted]]

    read, maps = reader(unpack(images[0])), None if images[1] is None else reader(images[1])
    return replace(job, dataset=replace(job.dataset, read=read, maps=maps))


def left_behind(*_: Any) -> Any:
    raise AssertionError("this part of the job is not shipped")


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
