"""``almakit.evaluate``: a model and images as people have them, attacked into a run folder, and the run with its
numbers."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from . import goals
from .core import Attack, Box
from .core.model import Model
from .data.given import Data, in_box, name_of
from .errors import wrong_setting
from .report.run import Run, finish
from .report.transfers import matrix
from .runs.attack_text import build_all, text_of
from .runs.certify import certify_run
from .runs.model import model_name, open_model
from .runs.plan import Options
from .runs.progress import Silent, shown
from .runs.radii import Radii, texts_of
from .runs.run import execute
from .runs.session import Engine, tell
from .runs.spec import RunSpec
from .runs.transfer import transfer_run
from .runs.units import parts_of
from .trackers import Track, all_of


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
    progress: bool | Silent = False,
    engine: str | Engine = "local",
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
    lender = settings.get("surrogate")
    if lender is not None and not isinstance(lender, str):
        settings["surrogate"] = model_name(lender)
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
    spec = RunSpec.from_dict({**named, **settings})
    if box is not None:
        data = in_box(data, None if spec.limit is None else spec.offset + spec.limit, **parts_of(box))
    keep = tempfile.TemporaryDirectory(prefix="almakit-") if out is None else None
    place = Path(keep.name) if keep is not None else Path(out or ".")
    options = Options(
        model=model,
        data=data,
        attacks=built,
        targets=targets if rule == "python:targets" else None,
        goal=None if isinstance(aim, str) else aim,
        surrogate=lender,
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
    return run(spec.complete(place), place, options)


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
        text = goal or (None if run.segmentation else run.spec.goal)
        aim = None if text is None else goals.get(text)
        for model in asked:
            transfer_run(run, open_model(model, replace(run.spec, device=device, trust=trust)), aim)
    return matrix(opened) or {"targets": [], "rows": []}


KEYWORDS = tuple(name for name in inspect.signature(evaluate).parameters if name != "settings")


def run(spec: RunSpec, out: Path, options: Options) -> Run:
    """Carries a specification out in the folder ``out`` and opens what it left there, ``summary.json`` and certificates
    included; of a shard its own records alone."""
    job = execute(spec, out, options)
    if options.shard is not None:
        tell(options.trackers, {"event": "end", "ending": "done", "summary": None})
        return Run(out, options.keep, options.shard)
    done = finish(out, options.keep)
    if options.certify is not None:
        certify_run(done, job.subject, options.certify, progress=options.progress)
        done = finish(out, options.keep)
    tell(options.trackers, {"event": "end", "ending": "done", "summary": done.summary})
    return done
