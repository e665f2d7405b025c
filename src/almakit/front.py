"""``almakit.attack`` and ``almakit.standard_evaluation``: attacks on images as people have them, in one call."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from . import goals
from .attacks import get
from .attacks.standard import CURRENT, Standard, StandardEvaluation, evaluate_in_stages
from .core import Attack, Result
from .core.attack import DistanceLike
from .core.model import Model
from .core.problem import expected_forwards
from .data import load
from .data.dataset import Dataset
from .data.given import Data, tensors_of
from .errors import SYNONYMS, BadInput, wrong_setting
from .goals.base import GoalLike
from .models import opened
from .runs.attack_text import text_of
from .runs.progress import Silent, forwards_per_image, shown
from .runs.units import box_of, in_units
from .runs.watching import watched

CALL = tuple(
    name
    for name in inspect.signature(Attack.__call__).parameters
    if name not in ("self", "model", "x", "labels", "targets", "goal")
)
"""The options of every attack's call; what else is given is a setting of the attack."""
FOR_THE_CALL = ("labels", "targets", *CALL)


def attack(
    model: str | Model,
    x: Data,
    labels: Tensor | Sequence[int] | None = None,
    targets: Tensor | Sequence[int] | int | None = None,
    *,
    goal: str | GoalLike | None = None,
    attack: str | Attack = "soft-walk",
    distance: DistanceLike | None = None,
    steps: int | None = None,
    progress: bool | Silent = False,
    **options: Any,
) -> Result:
    """The smallest change of the images ``x`` (B, ...) that makes ``model`` leave ``labels`` (B,), or reach ``targets``
    (B,), or one class for all.

    ``model`` maps images in [0, 1] to logits, or is a model's URI. ``x`` is a tensor, a numpy array, a list of images,
    or data that bring their labels: a pair (images, labels), a ``DataLoader``, a data set of torch, torchvision or
    Hugging Face, a pandas frame of paths, a URI. ``goal`` is anything else to reach: one of ``almakit.goals``, its
    text, or a function of the model's outputs that returns a margin for each image, negative when it is reached; labels
    are then needed only where the goal says so. ``attack`` is a name, a text or an attack object, by default the soft
    walk in l2 with 100 steps. ``distance`` is a name or norm or any function ``f(x, y) -> (B,)``; ``steps`` is the
    budget of forwards and backwards per image. Further options are the attack's settings (``epsilon=8/255`` of
    ``attack="pgd"``), ``progress=True``, which shows how it goes, and those of every attack's call: ``box``,
    ``confidence``, ``batch_size``, ``seed``, ``trace`` ...
    """
    settings = {
        name: value
        for name, value in {"distance": distance, "steps": steps, **options}.items()
        if value is not None and name not in CALL
    }
    call = {name: value for name, value in options.items() if name in CALL}
    if call.get("surrogate") is not None:
        call["surrogate"] = opened(call["surrogate"])
    for name in settings:
        if SYNONYMS.get(name) in FOR_THE_CALL:
            raise wrong_setting("almakit.attack", name, FOR_THE_CALL)
    built = get(attack, **settings)
    aim = None if goal is None else goals.get(goal)
    alone = aim is not None and labels is None and isinstance(x, Tensor)
    data = load(x) if isinstance(x, str) and labels is None else x
    images, wanted = (data, None) if alone and isinstance(data, Tensor) else tensors_of(data, labels)
    asked_model = opened(model)
    if isinstance(data, Dataset) and (features := data.features) is not None:
        asked_model = in_units(asked_model, features)
        call.setdefault("box", box_of(features))
    if isinstance(targets, int):
        targets = [targets] * len(images)
    with counted(asked_model, built, images, shown(progress)) as asked:
        return built(asked, images, wanted, targets, aim, **call)


@contextmanager
def counted(model: Model, attack: Attack, x: Tensor, show: Silent) -> Iterator[Model]:
    """The model while ``show`` tells how many forwards the images ``x`` (B, ...) have had, of about as many as the
    attack's settings say."""
    if type(show) is Silent or not callable(model) or not len(x):
        yield model
        return
    show.begin(text_of(attack), 0, len(x))
    try:
        yield watched(model, forwards_per_image(show.inside, expected_forwards(attack), len(x)))
        show.advance(len(x))
    finally:
        show.end()


def standard_evaluation(
    model: str | Model,
    x: Data,
    y: Tensor | Sequence[int] | None = None,
    norm: str | float = "Linf",
    eps: float | str | None = None,
    bs: int = 250,
    *,
    targets: Tensor | Sequence[int] | int | None = None,
    version: str = CURRENT,
    progress: bool | Silent = False,
    **options: Any,
) -> StandardEvaluation:
    """Robust accuracy at one radius by the standard attacks of ``norm``, or without ``eps`` at every radius.

    At a radius, named stages follow each other; each attacks the images that the stages before it did not break. Say
    the version with the number: "almakit-standard-v1, Linf, eps = 8/255: 52.3 %". Without a radius every image is
    attacked to its smallest change, which costs several times as much and answers for all radii.

    Args:
        model: from images (B, ...) in [0, 1] to logits (B, K), or a model's URI.
        x: images, in all the forms ``almakit.attack`` takes.
        y: labels (B,); None where ``x`` brings them.
        norm: "Linf", "L2", "L1", or "L0" without a radius.
        eps: the radius, such as 8/255 or "8/255".
        bs: images that go through the model at a time.
        targets: classes (B,), or one for all, to reach instead of leaving the labels.
        version: name of the composition.
        progress: True prints a line as each stage ends and shows how far the present one is.
        options: those of every attack's call (``seed``, ``box``, ``eot`` ...); the number is comparable with their
            defaults.

    Returns:
        A ``StandardEvaluation``: a ``Result`` that knows which stage broke each image and what each stage spent.
    """
    if "epsilon" in options:
        eps = options.pop("epsilon")
    for name in ("budget", "stop_within", "tolerance"):
        if name in options:
            raise BadInput(f"standard_evaluation has no {name}=: its stages say how long each image is attacked.")
    for name in options:
        if name not in CALL:
            known = ["norm", "eps", "bs", "targets", "version", "progress", *CALL]
            raise wrong_setting("almakit.standard_evaluation", name, known)
    standard = Standard.of(norm, version, eps)
    images, labels = tensors_of(x, y)
    aims = [targets] * len(images) if isinstance(targets, int) else targets
    options = {"batch_size": bs} | options
    opened_model, show = opened(model), shown(progress)

    def watched(attack: Attack, images: Tensor) -> AbstractContextManager[Model]:
        return counted(opened_model, attack, images, show)

    if standard.epsilon is not None and len(images):
        aims = None if aims is None else torch.as_tensor(aims)
        staged = evaluate_in_stages(standard, watched, images, labels, aims, show.note, **options)
        for sign in staged.signs:
            warnings.warn(sign, stacklevel=2)
        return staged
    with watched(standard, images) as asked:
        found = standard(asked, images, labels, aims, **options)
    kept = {field.name: getattr(found, field.name) for field in fields(found)}
    return StandardEvaluation(**kept, version=version, norm=standard.norm, epsilon=standard.epsilon)
