"""``almakit.attack``, ``standard_evaluation``, ``evaluate`` and ``transfer``: one call each, for models and images in
many forms."""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import goals
from .attacks import get
from .attacks.standard import CURRENT, Standard, StandardEvaluation, evaluate_in_stages
from .core import Attack, Box, Result
from .core.attack import DistanceLike
from .core.oracle import EOT, Model
from .core.problem import expected_forwards
from .data import load
from .data.coerce import Data, in_box, name_of, tensors_of
from .data.dataset import Dataset
from .errors import SYNONYMS, BadInput, wrong_setting
from .goals.base import GoalLike
from .models import opened
from .report.run import Run, finish
from .report.sections import matrix
from .runs.attack_text import build_all, text_of
from .runs.certify import certify_run
from .runs.executors import Executor
from .runs.images import box_of, in_units, parts_of
from .runs.model import Attacked, goal_of, model_name, open_of
from .runs.plan import Request
from .runs.progress import Progress, forwards_per_image, shown
from .runs.radii import Radii, texts_of
from .runs.run import prepared
from .runs.session import tell
from .runs.spec import RunSpec
from .runs.transfer import transfer_run
from .trackers import Track, all_of

CALL = tuple(
    name
    for name in inspect.signature(Attack.__call__).parameters
    if name not in ("self", "model", "x", "labels", "targets", "goal", "unknown")
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
    progress: bool | Progress = False,
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
    attacked = opened(model)
    if isinstance(data, Dataset) and (features := data.features) is not None:
        attacked = in_units(attacked, features)
        call.setdefault("box", box_of(features))
    if isinstance(targets, int):
        targets = [targets] * len(images)
    with counted(attacked, built, images, shown(progress)) as reported:
        return built(reported, images, wanted, targets, aim, **call)


@contextmanager
def counted(model: Model, attack: Attack, x: Tensor, progress: Progress) -> Iterator[Model]:
    """The model while ``progress`` shows how many forwards the images ``x`` (B, ...) have had, of about as many as the
    attack's settings say."""
    if type(progress) is Progress or not callable(model) or not len(x):
        yield model
        return
    progress.begin(text_of(attack), 0, len(x))
    try:
        yield Attacked(model, forwards_per_image(progress.inside, expected_forwards(attack), len(x)))
        progress.advance(len(x))
    finally:
        progress.end()


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
    progress: bool | Progress = False,
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
    attacked, shows = opened(model), shown(progress)

    def reported(attack: Attack, images: Tensor) -> AbstractContextManager[Model]:
        return counted(attacked, attack, images, shows)

    if standard.epsilon is not None and len(images):
        aims = None if aims is None else torch.as_tensor(aims)
        staged = evaluate_in_stages(standard, reported, images, labels, aims, shows.note, **options)
        for sign in staged.signs:
            warnings.warn(sign, stacklevel=2)
        return staged
    with reported(standard, images) as model_reported:
        found = standard(model_reported, images, labels, aims, **options)
    kept = {field.name: getattr(found, field.name) for field in fields(found)}
    return StandardEvaluation(**kept, version=version, norm=standard.norm, epsilon=standard.epsilon)


def evaluate(
    model: str | Model,
    data: Data,
    attacks: str | Attack | Sequence[str | Attack] | None = None,
    out: str | Path | None = None,
    *,
    add: bool = False,
    targets: str | int | Tensor | Sequence[int] | None = None,
    shard: tuple[int, int] | None = None,
    preflight: bool = True,
    progress: bool | Progress = False,
    engine: str | Executor = "local",
    address: str = "local",
    workers: int | str | None = None,
    epsilons: Radii = (),
    track: str | Track | Sequence[str | Track] | None = None,
    certify: str | None = None,
    box: Box | None = None,
    **settings: Any,
) -> Run:
    """Attacks images of ``data`` on ``model`` and leaves a folder of judged, resumable records: what ``almakit run``
    does.

    ``model`` is a URI, a torch module or a function from images to logits; ``data`` a URI, a pair (images (N, C, H, W)
    in [0, 1], labels (N,)), a ``DataLoader``, a data set of torch, torchvision or Hugging Face, or a pandas frame of
    paths and labels; ``attacks`` are texts or attack objects, by default the soft walk in l2 and in linf. ``add=True``
    adds them to those of the run in ``out``. ``out`` is the run folder (a temporary one by default, gone with the
    returned ``Run``). ``goal``, a text, one of ``almakit.goals`` without tensors of its own or a function of the logits
    (and labels), is what to reach instead of another class. ``surrogate``, a model as well, is where gradients come
    from while outputs and verdict stay those of ``model``. ``settings`` are the other fields of ``RunSpec``: limit,
    offset, seed, bits, batch_size, device, dtype, budget, ... The same call resumes an interrupted run; of a
    finished one it only makes sure that the model is still the same. ``progress=True`` shows how it goes and what
    preflight finds; without it the findings that may mislead come as Python warnings.
    ``epsilons`` are radii that tables and summary give robust accuracy at: ``{"linf": [4/255, "8/255"], "l2":
    0.5}``, or numbers for every distance. ``workers=N`` shares the chunks of a model given by name or file between
    N processes of one thread each, ``"auto"`` as many as there are cores where the model is small; the numbers do
    not depend on N. ``engine="ray"`` has the work done by the Ray cluster at ``address`` (``local``: one on this
    machine, ``auto``, or host:port), ``workers`` tasks at a time at most. ``track`` tells trackers how it goes:
    ``"tensorboard:<folder>"``, ``"mlflow:<experiment>"``, ``"wandb:<project>"`` or any function of an event.
    ``certify`` (ibp, crown, alpha-crown or exact) then certifies the images, as ``almakit certify`` does. ``box``
    is for values (N, ...) of any rank in units of their own, such as vectors and audio: the run scales it to [0,
    1], so distances are in its widths.
    """
    known = {field.name for field in fields(RunSpec)}
    for word in settings:
        if word not in known:
            raise wrong_setting(
                "almakit.evaluate",
                word,
                [*KEYWORDS, *sorted(known - {"model", "data", "attacks", "targets", "epsilon"})],
            )
    built = build_all(attacks) if attacks is not None else None
    targets = str(targets) if isinstance(targets, int) else targets
    rule = targets if targets is None or isinstance(targets, str) else "python:targets"
    surrogate = settings.get("surrogate")
    if surrogate is not None and not isinstance(surrogate, str):
        settings["surrogate"] = model_name(surrogate)
    aim = settings.get("goal")
    if aim is not None and not isinstance(aim, str):
        aim, settings["goal"] = goals.get(aim), goals.text_of(aim)
    named = {
        "model": model if isinstance(model, str) else model_name(model),
        "data": data if isinstance(data, str) else name_of(data),
        "attacks": [text_of(attack) for attack in built or ()],
        "targets": rule,
        **({"epsilon": texts_of(epsilons)} if epsilons else {}),
    }
    if isinstance(eot := settings.get("eot"), EOT):
        settings |= {"eot": eot.passes, "votes": eot.votes, "vote_share": eot.share}
    spec = RunSpec.from_dict({**named, **settings})
    if box is not None:
        data = in_box(data, None if spec.limit is None else spec.offset + spec.limit, **parts_of(box))
    keep = tempfile.TemporaryDirectory(prefix="almakit-") if out is None else None
    place = Path(keep.name) if keep is not None else Path(out or ".")
    return run(
        Request(
            spec.complete(place),
            place,
            model=model,
            data=data,
            attacks=built or (),
            targets=targets if rule == "python:targets" else None,
            goal=None if isinstance(aim, str) else aim,
            surrogate=surrogate,
            add=add,
            shard=shard,
            preflight=preflight,
            progress=shown(progress),
            engine=engine,
            address=address,
            workers=workers,
            keep=keep,
            trackers=all_of(track),
            certify=certify,
            warn=not progress,
        )
    )


def transfer(
    runs: Run | str | Path | Sequence[Run | str | Path],
    models: str | Model | Sequence[str | Model],
    *,
    goal: object = None,
    device: str = "cpu",
    trust: bool = False,
) -> dict[str, Any]:
    """The transfer matrix of runs: what was found with their models, judged by ``models``, as `almakit transfer` does.

    A run is one that ``evaluate`` or ``open`` returned, or its folder. ``goal`` is the runs' own, where it is code. The
    answers lie in the run folders, where reports find them; what is there is not asked again.
    """
    given = [runs] if isinstance(runs, (Run, str, Path)) else list(runs)
    opened = [run if isinstance(run, Run) else Run(Path(run)) for run in given]
    asked = [models] if isinstance(models, str) or callable(models) else list(models)
    for run in opened:
        wanted = goal_of(run, goal)
        aim = None if wanted is None else goals.get(wanted)
        for model in asked:
            transfer_run(run, open_of(run, model, device, trust), aim)
    return matrix(opened) or {"targets": [], "rows": []}


KEYWORDS = tuple(name for name in inspect.signature(evaluate).parameters if name != "settings")


def run(request: Request) -> Run:
    """Carries a request out and opens what its folder holds then, with ``summary.json`` and certificates; of a shard
    its own records alone."""
    out, keep, trackers = request.out, request.keep, request.trackers
    with prepared(request) as (job, session):
        if session is not None:
            session.run()
    if request.shard is not None:
        tell(trackers, {"event": "end", "ending": "done", "summary": None})
        return Run(out, keep, request.shard)
    done = finish(out, keep)
    if request.certify is not None:
        certify_run(done, job.subject, request.certify, progress=request.progress)
        done = finish(out, keep)
    tell(trackers, {"event": "end", "ending": "done", "summary": done.summary})
    return done
