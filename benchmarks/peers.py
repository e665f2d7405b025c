"""The same attacks in other libraries, each as a function of (model, images, labels, steps), for the comparison in
``baselines.py``.

A peer returns its adversarial images and nothing else: success, distance and cost are judged outside, the same way for
all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from numpy.linalg import LinAlgError
from torch import Tensor, nn

Peer = Callable[[nn.Module, Tensor, Tensor, int], Tensor]


class Counting(nn.Module):
    """A model that counts the images which go through it, forwards and backwards."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model, self.forwards, self.backwards = model, 0, 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += len(x)
        logits = self.model(x)
        if logits.requires_grad:
            logits.register_hook(self._count)
        return logits

    def _count(self, gradient: Tensor) -> None:
        self.backwards += len(gradient)


@cache
def library(name: str) -> Any:
    """A peer's module by name, after filling in what it imports but never calls here."""
    _stand_ins()
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"{error.name} is not installed for {sys.executable}; other libraries' pins do not go with ours, so make "
            "them an environment of their own: python3.11 -m venv bench && echo 'setuptools<81' > constraint.txt && "
            "PIP_CONSTRAINT=constraint.txt bench/bin/pip install torch torchvision safetensors numba scipy six "
            "cloudpickle adv-lib==0.2.8 foolbox==3.3.4 pyautoattack==0.2.0 adversarial-robustness-toolbox==1.20.1 && "
            "bench/bin/pip install --no-deps torchattacks==3.5.1"
        ) from error


@cache
def _stand_ins() -> list[torch.library.Library]:
    """torchvision's compiled operators, which may be absent beside a CPU torch, are declared; adv-lib's plotting client
    is left empty."""
    kept = []
    if find_spec("visdom") is None:
        sys.modules["visdom"] = ModuleType("visdom")
    try:
        _ = torch.ops.torchvision.nms
    except AttributeError:
        operators = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            operators.define(f"{operator}(Tensor a, Tensor b, float c) -> Tensor")
        # The declaration lives as long as the library object does.
        kept.append(operators)
    return kept


def adv_lib(function: str, steps_as: str = "steps", **settings: Any) -> Peer:
    """An attack of adv-lib's: a function of (model, inputs, labels, ...); "module.function" for those it does not
    export."""
    module, _, name = f"adv_lib.attacks.{function}".rpartition(".")

    def run(model: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Tensor:
        return getattr(library(module), name)(model, x, labels, **{steps_as: steps}, **settings)

    return run


def adv_lib_alma_prox(model: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Tensor:
    """adv-lib's attack on segmentation models, on a classifier: logit maps of one pixel."""

    def as_map(images: Tensor) -> Tensor:
        return model(images)[:, :, None, None]

    module = library("adv_lib.attacks.segmentation.alma_prox")
    # Its proximal map is compiled, for which a C++ compiler is needed; the function itself is the same.
    module.prox_linf_indicator = getattr(
        module.prox_linf_indicator, "_torchdynamo_orig_callable", module.prox_linf_indicator
    )
    return module.alma_prox(as_map, x, labels[:, None, None], num_steps=steps)


def foolbox(name: str, steps_as: str = "steps", **settings: Any) -> Peer:
    """A minimisation attack of foolbox's."""

    def run(model: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Tensor:
        fb = library("foolbox")
        wrapped = fb.PyTorchModel(model, bounds=(0, 1), device=x.device)
        attack = getattr(fb.attacks, name)(**{steps_as: steps}, **settings)
        return attack.run(wrapped, x, fb.criteria.Misclassification(labels))

    return run


def shared_out(peer: Peer, searches: int = 9) -> Peer:
    """An attack with an outer search of so many rounds by default, its steps shared out between them."""
    return lambda model, x, labels, steps: peer(model, x, labels, max(1, steps // searches))


def foolbox_from_others(name: str, **settings: Any) -> Peer:
    """An attack of foolbox's that starts at adversarial points: each image starts at the nearest of the others that has
    another class.

    Its own search for starting points ends with an error where one image has none.
    """

    def run(model: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Tensor:
        fb = library("foolbox")
        wrapped = fb.PyTorchModel(model, bounds=(0, 1), device=x.device)
        apart = torch.cdist(x.flatten(1), x.flatten(1)).masked_fill(labels[:, None] == labels[None], float("inf"))
        starts = x[apart.argmin(1)].clone()

        def of(rows: Tensor) -> Tensor:
            attack = getattr(fb.attacks, name)(steps=steps, **settings)
            try:
                return attack.run(
                    wrapped, x[rows], fb.criteria.Misclassification(labels[rows]), starting_points=starts[rows]
                )
            except LinAlgError:
                # Its solver may meet a singular matrix, which ends the whole batch: halve it until the images at fault
                # fail alone.
                half = len(rows) // 2
                return torch.cat([of(rows[:half]), of(rows[half:])]) if half else x[rows]

        return of(torch.arange(len(x)))

    return run


def foolbox_at(name: str, epsilon: float, **settings: Any) -> Peer:
    """An attack of foolbox's inside a given radius."""

    def run(model: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Tensor:
        fb = library("foolbox")
        wrapped = fb.PyTorchModel(model, bounds=(0, 1), device=x.device)
        attack = getattr(fb.attacks, name)(steps=steps, **settings)
        return attack.run(wrapped, x, fb.criteria.Misclassification(labels), epsilon=epsilon)

    return run


def torchattacks(name: str, steps_as: str = "steps", **settings: Any) -> Peer:
    """An attack of torchattacks'."""

    def run(model: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Tensor:
        attack = getattr(library("torchattacks"), name)(model, **{steps_as: steps}, **settings)
        return attack(x, labels)

    return run
