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
from ..store.files import Array, pack, unpack


@dataclass(frozen=True)
class Trouble:
    """A piece of work that did not end well on a worker. ``fatal``: trying again would be wrong, not just useless."""

    reason: str
    node: str
    fatal: bool = False


@dataclass(frozen=True, eq=False)
class _Cargo:
    """A job without its images. ``uri``: the model is loaded on the node, for it does not survive being pickled."""

    job: Job
    uri: str | None
    threads: int


def packed(job: Job) -> bytes:
    """The job with its weights as bytes: images stay behind, weights lie in ordinary memory whatever device they are
    on."""
    from ray import cloudpickle

    subject = job.subject
    model = (
        subject.model
        if subject.device.type == "cpu" or not isinstance(subject.model, nn.Module)
        else copy.deepcopy(subject.model).cpu()
    )
    plain, threads = bare(job), torch.get_num_threads()
    with _by_value(cloudpickle, _own_modules(job)):
        try:
            return bytes(
                cloudpickle.dumps(
                    _Cargo(replace(plain, subject=replace(subject, model=model, steady=left_behind)), None, threads)
                )
            )
        except Exception as error:
            if job.spec.model.startswith("python:"):
                raise BadModel(
                    f"the model or the attack cannot be sent to other processes ({type(error).__name__}: "
                    f"{str(error)[:200]}); give the model by name or as file.py:function, or use the local engine."
                ) from error
            return bytes(
                cloudpickle.dumps(
                    _Cargo(
                        replace(plain, subject=replace(subject, model=left_behind, steady=left_behind)),
                        job.spec.model,
                        threads,
                    )
                )
            )


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
        _unpacked[token] = replace(loaded.job, subject=_placed(loaded))
    return _unpacked[token]


def _placed(cargo: _Cargo) -> Subject:
    """The model on this worker's device: Ray shows a worker the GPUs it may use, and the first of them is its own."""
    then, spec = cargo.job.subject, cargo.job.spec
    if cargo.uri is not None:
        here = open_model(cargo.uri, replace(spec, device=then.device.type))
        if (here.weights_sha256, here.code_sha256) != (then.weights_sha256, then.code_sha256):
            raise SpecChanged(
                f"{cargo.uri} is not the same model on the node {_node()} as where the run was started; bring the "
                "same file there."
            )
        return replace(here.with_features(then.features), maps=then.maps)
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
    model = job.subject.model
    things: list[Any] = [*map(type, model.modules())] if isinstance(model, nn.Module) else [model, type(model)]
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
