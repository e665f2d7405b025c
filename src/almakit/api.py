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
from .core.attack import DistanceLike, expected_forwards
from .core.oracle import EOT, Model
from .data import load
from .data.coerce import Data, dataset_of, name_of, tensors_of
from .data.dataset import Dataset
from .errors import SYNONYMS, BadInput, wrong_setting
from .goals.base import GoalLike
from .models import opened
from .report.run import Run, finish
from .report.transfer import matrix
from .runs.attack_text import build_all, text_of
from .runs.certify import certify_run
from .runs.executors import Executor
from .runs.images import box_of, in_units, parts_of
from .runs.model import Attacked, goal_of, model_name, open_of
from .runs.plan import Request
from .runs.progress import Progress, forwards_per_image, shown
from .runs.radii import Radii, texts_of
from .runs.session import prepared, tell
from .runs.spec import RunSpec
from .runs.transfer import transfer_run
from .trackers import Track, all_of

CALL = tuple(
    name
    for name in inspect.signature(Attack.__call__).parameters
    if name not in ("self", "model", "x", "labels", "targets", "goal", "unknown")
)
"""The options of every attack's call; other arguments are settings of the attack."""
FOR_THE_CALL = ("labels", "targets", *CALL)


def attack(
    model: str | Model,
    x: Data,
    labels: Tensor | Sequence[int] | None = None,
    targets: Tensor | Sequence[int] | int | None = None,
    *,
    goal: GoalLike | None = None,
    attack: str | Attack = "soft-walk",
    distance: DistanceLike | None = None,
    steps: int | None = None,
    progress: bool | Progress = False,
    **options: Any,
) -> Result:
    """Finds the smallest change of each image that makes the model wrong.

    By default the model is wrong on an image if it predicts another class than its label. With ``targets`` it is wrong
    if it predicts the target. Any other definition is a ``goal``.

    Args:
        model: function from images (B, ...) in [0, 1] to logits (B, K), or a name of ``almakit ls models``.
        x: images: a tensor, a numpy array or a list of images. Or data that contain their labels: a pair (images,
            labels), a ``DataLoader``, a data set of torch, torchvision or Hugging Face, a pandas frame of paths, or a
            name of ``almakit ls data``.
        labels: true classes (B,). Not needed if ``x`` contains them, or if the goal does not use labels.
        targets: classes (B,) to reach, or one class for all images.
        goal: one of ``almakit.goals``, its text, or a function of the model's outputs that returns one margin per
            image, negative if the goal is reached.
        attack: name, text (``"fmn(steps=50)"``) or object of an attack.
        distance: name of a distance, order of a norm, or function ``f(x, y) -> (B,)``; default: the attack's own, l2
            for the soft walk.
        steps: number of steps; for the soft walk, the largest number of forwards and backwards per image (default 100).
        progress: True shows a progress bar.
        options: settings of the attack, such as ``epsilon=8/255`` for ``attack="pgd"``, and the arguments of every
            attack's call: ``box``, ``stop_within``, ``budget``, ``batch_size``, ``seed``, ``eot``, ``surrogate``,
            ``trace`` and others; see ``almakit.Attack``.

    Returns:
        A ``Result`` with one row per image: the best verified adversarial image, its distance, status and counts.

    Examples:
        >>> import almakit
        >>> model = almakit.models.load("mnist/smallcnn-tiny")
        >>> x, labels = almakit.data.load("mnist-demo", limit=4).tensors()
        >>> result = almakit.attack(model, x, labels, distance="linf", steps=20)
        >>> result.success.all().item()
        True

    See also:
        ``evaluate`` records and verifies several attacks in a run folder. ``standard_evaluation`` gives robust accuracy
        at one radius.
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
    alone = goal is not None and labels is None and isinstance(x, Tensor)
    data = load(x) if isinstance(x, str) and labels is None else x
    images, wanted = (data, None) if alone and isinstance(data, Tensor) else tensors_of(data, labels)
    attacked = opened(model)
    if isinstance(data, Dataset) and (features := data.features) is not None:
        attacked = in_units(attacked, features)
        call.setdefault("box", box_of(features))
    if isinstance(targets, int):
        targets = [targets] * len(images)
    with counted(attacked, built, images, shown(progress)) as reported:
        return built(reported, images, wanted, targets, goal, **call)


@contextmanager
def counted(model: Model, attack: Attack, x: Tensor, progress: Progress) -> Iterator[Model]:
    """Yield the model; ``progress`` shows the share of finished forwards of the images ``x`` (B, ...)."""
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
    """Robust accuracy at one radius by a fixed sequence of attacks, as AutoAttack measures it.

    Each stage attacks only the images that the stages before it did not break. Quote the version with the number:
    "almakit-standard-v1, Linf, eps = 8/255: 52.3 %". Without ``eps``, every image is attacked to its smallest change,
    which gives robust accuracy at every radius and costs several times as much.

    Args:
        model: function from images (B, ...) in [0, 1] to logits (B, K), or a name of ``almakit ls models``.
        x: images, in any form that ``almakit.attack`` accepts.
        y: labels (B,); None if ``x`` contains them.
        norm: "Linf", "L2" or "L1"; without a radius also "L0".
        eps: the radius, such as 8/255 or "8/255".
        bs: batch size.
        targets: classes (B,) to reach, or one class for all images; default: leave the labels.
        version: name of the sequence.
        progress: True shows the progress of each stage and prints a line when a stage ends.
        options: further arguments of an attack's call (``seed``, ``box``, ``eot`` ...). Numbers are comparable between
            papers only with their defaults.

    Returns:
        A ``StandardEvaluation``: a ``Result`` with the stage that broke each image and the cost of each stage.

    Examples:
        >>> import almakit
        >>> model = almakit.models.load("mnist/smallcnn-tiny")
        >>> x, y = almakit.data.load("mnist-demo", limit=2).tensors()
        >>> found = almakit.standard_evaluation(model, x, y, norm="Linf", eps=0.4)
        >>> found.robust_accuracy(0.4)
        0.0

    See also:
        ``attack`` runs a single attack.
    """
    if "epsilon" in options:
        eps = options.pop("epsilon")
    for name in ("budget", "stop_within"):
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
    """Runs attacks on a data set, verifies every success and records everything in a run folder, as ``almakit run``
    does.

    The same call resumes an interrupted run. For a finished run it only checks that the model is unchanged.

    Args:
        model: torch module, function from images in [0, 1] to logits, or name (``almakit ls models``,
            ``file.py:function``).
        data: name of a data set, pair (images (N, C, H, W) in [0, 1], labels (N,)), ``DataLoader``, data set of torch,
            torchvision or Hugging Face, or pandas frame of paths and labels.
        attacks: texts or attack objects; default: the soft walk in l2 and in linf, 100 steps.
        out: the run folder; default: a temporary folder that is deleted with the returned ``Run``.
        add: adds ``attacks`` to those of the run in ``out``.
        targets: targets of a targeted run: a rule such as ``"random"``, ``"least-likely"`` or ``"all"``, one class, or
            classes (N,).
        shard: ``(i, n)`` computes chunks i, i + n, ... only; ``almakit merge`` joins the shards.
        preflight: checks the model before the run, and refuses a run whose numbers would be meaningless.
        progress: True shows progress and the findings of preflight. Otherwise findings that change what the numbers
            mean are Python warnings.
        engine: ``"local"``, ``"ray"``, or an executor of ``almakit.runs.executors``.
        address: with Ray: ``"local"`` starts a cluster on this machine, ``"auto"`` joins the running one, ``host:port``
            joins another.
        workers: number of processes, one thread each, or ``"auto"`` for one per core if the model is small; with Ray,
            the largest number of tasks at a time. The numbers do not depend on it. Models that exist only in this
            Python session use one process.
        epsilons: radii at which tables and summary show robust accuracy: ``{"linf": [4/255, "8/255"], "l2": 0.5}``, or
            numbers for every distance.
        track: trackers that receive progress and results: ``"tensorboard:<folder>"``, ``"file.py:function"`` or
            functions of an event.
        certify: certifies the images after the run: ``"ibp"``, ``"crown"``, ``"alpha-crown"`` or ``"exact"``.
        box: ranges, steps and mask of inputs (N, ...) of any rank in their own units. The run scales them to [0, 1], so
            distances are fractions of the ranges.
        settings: the other fields of ``RunSpec``: ``limit``, ``goal``, ``surrogate``, ``eot``, ``budget``,
            ``stop_within``, ``bits``, ``seed``, ``batch_size``, ``device``, ``dtype``, ``allow``, ``trust`` and others.

    Returns:
        The ``Run``: its table, records, results and report.

    Examples:
        >>> import almakit
        >>> run = almakit.evaluate("mnist/smallcnn-tiny", "mnist-demo", "fmn(distance=linf, steps=20)", limit=4)
        >>> len(run.records)
        4

    See also:
        ``open`` opens the folder again. ``attack`` returns the result of one attack without recording it.
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
        data = dataset_of(data, None if spec.limit is None else spec.offset + spec.limit, units=parts_of(box))
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
    """Tests the adversarial images of runs on other models, as ``almakit transfer`` does.

    The results are stored in the run folders, where reports find them, and are reused.

    Args:
        runs: runs that ``evaluate`` or ``open`` returned, or their folders.
        models: models to test, as modules or names.
        goal: the goal of the runs, if it is Python code.
        device: device of models that are given by name.
        trust: allows the files of models to be unpickled, which can run code in them.

    Returns:
        The transfer matrix: ``targets`` names its columns, ``rows`` holds one dict per run and attack.
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
    """Carry out a request and open its folder with ``summary.json`` and certificates; for a shard, only its own
    records."""
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
