"""The engine: from a specification to a folder of judged records, resumable at every chunk."""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import goals
from ..core import Attack, Goal
from ..core.goals import PixelGoal
from ..core.model import Model, borrowed
from ..data.given import Data, name_of
from ..errors import BadInput
from ..hints import wrong_setting
from ..models.load import is_foreign
from ..trackers import Track, all_of
from . import chunkfiles, folder
from .attacktext import build_all, describe, text_of
from .begin import agree, check, continue_in, extended, remaining, settle
from .certify import certify_run
from .engines.choose import opened
from .folder import Run, finish
from .interrupt import Stop
from .lock import only_writer
from .loop import Engine, Loop
from .pixels import share_of
from .progress import Silent, shown
from .radii import Radii, for_distances, texts_of
from .same_model import same_answers
from .spec import AUTO, RunSpec
from .store import Store, database_name
from .subject import data_sha256, model_name, open_data, open_model, side_of
from .targets import given_targets, without_class
from .tracking import tell, told
from .work import Bench


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
    **settings: Any,
) -> Run:
    """Attacks images of ``data`` on ``model`` and leaves a folder of judged, resumable records: what ``almakit run``
    does.

    ``model`` is a URI, a torch module or a function from images to logits; ``data`` a URI, a pair (images (N, C, H, W)
    in [0, 1], labels (N,)), a ``DataLoader``, a data set of torch, torchvision or Hugging Face, or a pandas frame of
    paths and labels; ``attacks`` are texts or attack objects, by default the soft walk in l2 and in linf. ``add=True``
    adds them to those of the run in ``out``. ``out`` is the run folder (a temporary one by default, gone with the
    returned ``Run``). ``goal``, a text, one of ``almakit.goals`` without tensors of its own or a function of the logits
    (and labels), is what to reach instead of another class. ``settings`` are the other fields of ``RunSpec``: limit,
    offset, seed, bits, batch_size, device, dtype, budget, ... The same call resumes an interrupted run; of a finished
    one it only makes sure that the model is still the same. ``progress=True`` shows how it goes. ``epsilons`` are radii
    that tables and summary give robust accuracy at: ``{"linf": [4/255, "8/255"], "l2": 0.5}``, or numbers for every
    distance. ``workers=N`` shares the chunks of a model given by name or file between N processes of one thread each,
    ``"auto"`` as many as there are cores where the model is small; the numbers do not depend on N. ``engine="ray"`` has
    the work done by the Ray cluster at ``address`` (``local``: one on this machine, ``auto``, or host:port),
    ``workers`` tasks at a time at most. ``track`` tells trackers how it goes: ``"tensorboard:<folder>"``,
    ``"mlflow:<experiment>"``, ``"wandb:<project>"`` or any function of an event. ``certify`` (ibp, crown, alpha-crown
    or exact) then certifies the images, as ``almakit certify`` does.
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
    name = model if isinstance(model, str) else model_name(model)
    source = data if isinstance(data, str) else name_of(data)
    targets = str(targets) if isinstance(targets, int) else targets
    rule = targets if targets is None or isinstance(targets, str) else "python:targets"
    texts = [text_of(attack) for attack in built or ()]
    asked = {"epsilon": texts_of(epsilons)} if epsilons else {}
    aim = settings.get("goal")
    if aim is not None and not isinstance(aim, str):
        aim, settings["goal"] = goals.get(aim), goals.text_of(aim)
    spec = RunSpec.from_dict({"model": name, "data": source, "attacks": texts, "targets": rule, **asked, **settings})
    keep = None
    if out is None:
        keep = tempfile.TemporaryDirectory(prefix="almakit-")
        out = keep.name
    given = targets if rule == "python:targets" else None
    return execute(
        spec.complete(Path(out)),
        Path(out),
        model=model,
        data=data,
        attacks=built,
        add=add,
        targets=given,
        goal=None if isinstance(aim, str) else aim,
        shard=shard,
        preflight=preflight,
        progress=shown(progress),
        engine=engine,
        address=address,
        workers=workers,
        keep=keep,
        track=track,
        certify=certify,
    )


KEYWORDS = tuple(name for name in inspect.signature(evaluate).parameters if name != "settings")


def execute(
    spec: RunSpec,
    out: Path,
    *,
    model: str | Model | None = None,
    data: Data | None = None,
    attacks: list[Attack] | None = None,
    add: bool = False,
    targets: Tensor | Sequence[int] | str | None = None,
    goal: Goal | None = None,
    shard: tuple[int, int] | None = None,
    preflight: bool = True,
    progress: Silent | None = None,
    engine: str | Engine = "local",
    address: str = "local",
    workers: int | str | None = None,
    keep: tempfile.TemporaryDirectory[str] | None = None,
    track: str | Track | Sequence[str | Track] | None = None,
    certify: str | None = None,
) -> Run:
    """Carries a specification out in the folder ``out``; ``model``, ``data``, ``attacks`` and ``targets`` stand in for
    what only Python has."""
    show, trackers = progress or Silent(), all_of(track)
    built = build_all(spec.attacks) if attacks is None else attacks
    spec = replace(spec, attacks=tuple(text_of(attack) for attack in built))
    if add:
        if shard is not None:
            raise BadInput("attacks are added to a whole run: leave --shard out.")
        spec, built = extended(spec, built, out)
    for_distances(spec.epsilon, [repr(attack.measure) for attack in built])
    spec, begun = continue_in(spec, out, add)
    for name, shared in (("batch_size", "one chunk grid"), ("layout", "one layout"), ("dtype", "one precision")):
        if shard is not None and getattr(spec, name) == AUTO:
            flag = "--" + name.replace("_", "-")
            raise BadInput(
                f"shards must share {shared}: {flag} auto would be measured by each; leave it out or give a value, "
                "the same for all shards."
            )
    subject = open_model(spec.model if model is None else model, spec)
    spec = replace(spec, device=str(subject.device)) if spec.device == AUTO else spec
    source = spec.data if data is None else data
    side = side_of(subject.model, source)
    dataset = open_data(source, spec, side).numbered_as(getattr(subject.model, "class_names", None))
    if spec.target_class is not None:
        dataset = without_class(dataset, spec.target_class, show)
    chosen = given_targets(spec.targets if targets is None else targets, dataset)
    hashes = [sha256 for chunk in dataset.chunks(64) for sha256 in chunk.sha256]
    aim: Goal | None = None
    if dataset.maps is not None:
        if spec.targets is not None or certify is not None or engine != "local":
            raise BadInput(
                f"{dataset.name} gives every pixel a class: leave out targets, certify and other engines than the "
                "local one."
            )
        subject = replace(subject, maps=True)
        spec = replace(spec, goal=f"pixels(share={share_of(spec.goal):g})")
    elif spec.goal is not None:
        aim = goals.get(spec.goal) if goal is None else goal
        if isinstance(aim, PixelGoal):
            raise BadInput(
                f"goal={spec.goal!r} is for data with label maps, and {dataset.name} has one class for each image; "
                "leave it out."
            )
        if certify is not None:
            raise BadInput("certificates are about any other class than the label; leave certify out, or the goal.")
        if ":" in spec.goal:
            if engine != "local" or isinstance(workers, int):
                raise BadInput(
                    f"goal={spec.goal!r} is code of your own, which other processes do not have: leave engine and "
                    "workers out."
                )
            workers = None
    infos = [describe(attack, index, spec.targets is not None) for index, attack in enumerate(built)]
    bench = Bench(
        spec,
        subject,
        dataset,
        hashes,
        chosen,
        built,
        infos,
        0,
        0,
        aim=aim,
        share=share_of(spec.goal) if dataset.maps is not None else 1.0,
    )
    facts = {
        "weights_sha256": subject.weights_sha256,
        "code_sha256": subject.code_sha256,
        "imports_sha256": subject.imports_sha256,
        "data_sha256": data_sha256(dataset.ids, hashes, dataset.labels.tolist(), chosen),
        "images": str(len(dataset)),
        "class_names": json.dumps(dataset.class_names) if dataset.class_names else None,
        "shard": f"{shard[0]}/{shard[1]}" if shard else None,
    }
    database = out / database_name(shard)
    stop = Stop()
    with stop.watching():
        findings = None
        if not begun:
            for sentence in (
                getattr(subject.model, "preprocessing", None),
                side and f"Photos are cut to {side} x {side}, the size the model was made for.",
            ):
                if sentence and (side or is_foreign(spec.model)):
                    show.note(sentence)
            findings = check(bench, preflight, show)
            spec = settle(bench, show)
        bench.spec, bench.chunk_size = spec, int(spec.batch_size)
        bench.batch = bench.chunk_size
        tell(trackers, {"event": "begin", "settings": spec.to_dict(), "folder": str(out)})
        with only_writer(database), _opened(spec, out, database, add) as store:
            agree(store, bench, facts)
            todo = remaining(store, bench, shard, out, show)
            same_answers(bench, todo)
            if todo or not bench.classes:
                if begun:
                    findings = check(bench, preflight, show)
                store.set_findings(findings or [])
                with borrowed(subject.model), opened(engine, bench, address, workers, show) as worker:
                    Loop(store, bench, out, shard, stop, show, told(worker, trackers)).run()
            else:
                show.note("Nothing is left to do: every chunk of this run is stored.")
    if shard is None:
        run = finish(out, keep)
        if certify is not None:
            run = certify_run(run, subject, certify, progress=show)
        tell(trackers, {"event": "end", "ending": "done", "summary": run.summary})
        return run
    tell(trackers, {"event": "end", "ending": "done", "summary": None})
    return _ShardRun(out, shard, keep)


def _opened(spec: RunSpec, out: Path, database: Path, add: bool) -> Store:
    """The database of the run, after its spec is on disk: a run that is killed in between goes on with the same grid
    and attacks. Radii may change."""
    if not continue_in(spec, out, add)[1] or add or RunSpec.from_toml(out / folder.SPEC).epsilon != spec.epsilon:
        chunkfiles.write_bytes(out / folder.SPEC, spec.to_toml().encode())
    return Store(database)


class _ShardRun(Run):
    """A shard's own records, whether the shards are joined or not."""

    def __init__(self, place: Path, shard: tuple[int, int], keep: tempfile.TemporaryDirectory[str] | None):
        self.shard = shard
        super().__init__(place, keep)

    def _store(self) -> Store:
        return Store(self.folder / database_name(self.shard), read_only=True)
