"""The engine: from a specification to a folder of judged records, resumable at every chunk."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ..core import Attack
from ..core.oracle import Model, borrowed
from ..data.dataset import Dataset
from ..errors import BadInput
from ..trackers import Track, all_of
from . import chunkfiles, folder
from .attacktext import build_all, describe, text_of
from .begin import agree, check, continue_in, remaining, settle
from .engines.choose import opened
from .folder import Run, finish
from .interrupt import Stop
from .lock import only_writer
from .loop import Engine, Loop
from .progress import Silent
from .radii import Radii, for_distances, texts_of
from .same_model import same_answers
from .spec import AUTO, RunSpec
from .store import Store, database_name
from .subject import data_sha256, model_name, open_data, open_model
from .targets import given_targets
from .tracking import tell, told
from .work import Bench


def evaluate(
    model: str | Model,
    data: str | Dataset | tuple[Any, Any],
    attacks: str | Attack | Sequence[str | Attack],
    out: str | Path | None = None,
    *,
    targets: str | Tensor | Sequence[int] | None = None,
    shard: tuple[int, int] | None = None,
    preflight: bool = True,
    progress: Silent | None = None,
    engine: str | Engine = "local",
    address: str = "local",
    workers: int | None = None,
    epsilons: Radii = (),
    track: str | Track | Sequence[str | Track] | None = None,
    **settings: Any,
) -> Run:
    """Attacks images of ``data`` on ``model`` and leaves a folder of judged, resumable records: what ``almakit run`` does.

    ``model`` is a URI, a torch module or a function from images to logits; ``data`` a URI, a data set or a pair (images (N, C, H, W) in [0, 1],
    labels (N,)); ``attacks`` are texts or attack objects. ``out`` is the run folder (a temporary one by default, gone with the returned ``Run``).
    ``settings`` are the other fields of ``RunSpec``: limit, offset, seed, bits, batch_size, device, dtype, budget, ... The same call resumes
    an interrupted run; of a finished one it only makes sure that the model is still the same. ``epsilons`` are radii that tables
    and summary give robust accuracy at: ``{"linf": [4/255, "8/255"], "l2": 0.5}``, or numbers for every distance.
    ``engine="ray"`` has the work done by the Ray cluster at ``address`` (``local``: one on this machine, ``auto``, or host:port),
    ``workers`` tasks at a time at most.
    ``track`` tells trackers how it goes: ``"tensorboard:<folder>"``, ``"mlflow:<experiment>"``, ``"wandb:<project>"`` or any function of an event.
    """
    built = build_all(attacks)
    name = model if isinstance(model, str) else model_name(model)
    source = data if isinstance(data, str) else data.name if isinstance(data, Dataset) else "python:arrays"
    rule = targets if targets is None or isinstance(targets, str) else "python:targets"
    spec = RunSpec.from_dict(
        {"model": name, "data": source, "attacks": [text_of(attack) for attack in built], "targets": rule,
         **({"epsilon": texts_of(epsilons)} if epsilons else {}), **settings}
    )
    keep = None
    if out is None:
        keep = tempfile.TemporaryDirectory(prefix="almakit-")
        out = keep.name
    given = targets if rule == "python:targets" else None
    return execute(
        spec.require_complete(),
        Path(out),
        model=model,
        data=data,
        attacks=built,
        targets=given,
        shard=shard,
        preflight=preflight,
        progress=progress,
        engine=engine,
        address=address,
        workers=workers,
        keep=keep,
        track=track,
    )


def execute(
    spec: RunSpec,
    out: Path,
    *,
    model: str | Model | None = None,
    data: str | Dataset | tuple[Any, Any] | None = None,
    attacks: list[Attack] | None = None,
    targets: Tensor | Sequence[int] | str | None = None,
    shard: tuple[int, int] | None = None,
    preflight: bool = True,
    progress: Silent | None = None,
    engine: str | Engine = "local",
    address: str = "local",
    workers: int | None = None,
    keep: tempfile.TemporaryDirectory[str] | None = None,
    track: str | Track | Sequence[str | Track] | None = None,
) -> Run:
    """Carries a specification out in the folder ``out``; ``model``, ``data``, ``attacks`` and ``targets`` stand in for what only Python has."""
    show, trackers = progress or Silent(), all_of(track)
    built = build_all(spec.attacks) if attacks is None else attacks
    spec = replace(spec, attacks=tuple(text_of(attack) for attack in built))
    for_distances(spec.epsilon, [repr(attack.measure) for attack in built])
    spec, begun = continue_in(spec, out)
    for name, shared in (("batch_size", "one chunk grid"), ("layout", "one layout"), ("dtype", "one precision")):
        if shard is not None and getattr(spec, name) == AUTO:
            flag = "--" + name.replace("_", "-")
            raise BadInput(f"shards must share {shared}: {flag} auto would be measured by each; leave it out or give a value, the same for all shards.")
    subject = open_model(spec.model if model is None else model, spec)
    spec = replace(spec, device=str(subject.device)) if spec.device == AUTO else spec
    dataset = open_data(spec.data if data is None else data, spec).numbered_as(getattr(subject.model, "class_names", None))
    chosen = given_targets(spec.targets if targets is None else targets, dataset)
    hashes = [sha256 for chunk in dataset.chunks(64) for sha256 in chunk.sha256]
    infos = [describe(attack, index, spec.targets is not None) for index, attack in enumerate(built)]
    bench = Bench(spec, subject, dataset, hashes, chosen, built, infos, 0, 0)
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
            findings = check(bench, preflight, show)
            spec = settle(bench, show)
        bench.spec, bench.chunk_size = spec, int(spec.batch_size)
        bench.batch = bench.chunk_size
        tell(trackers, {"event": "begin", "settings": spec.to_dict(), "folder": str(out)})
        with only_writer(database), _opened(spec, out, database) as store:
            agree(store, bench, facts)
            todo = remaining(store, bench, shard, out, show)
            same_answers(bench, todo)
            if todo or not bench.classes:
                if begun:
                    findings = check(bench, preflight, show)
                store.set_findings(findings or [])
                with borrowed(subject.model), opened(engine, address, workers, show) as worker:
                    Loop(store, bench, out, shard, stop, show, told(worker, trackers)).run()
            else:
                show.note("Nothing is left to do: every chunk of this run is stored.")
    if shard is None:
        run = finish(out, keep)
        tell(trackers, {"event": "end", "ending": "done", "summary": run.summary})
        return run
    tell(trackers, {"event": "end", "ending": "done", "summary": None})
    return _ShardRun(out, shard, keep)


def _opened(spec: RunSpec, out: Path, database: Path) -> Store:
    """The database of the run, after its spec is on disk: a run that is killed in between goes on with the same grid. Radii may change."""
    if not continue_in(spec, out)[1] or RunSpec.from_toml(out / folder.SPEC).epsilon != spec.epsilon:
        chunkfiles.write_bytes(out / folder.SPEC, spec.to_toml().encode())
    return Store(database)


class _ShardRun(Run):
    """A shard's own records, whether the shards are joined or not."""

    def __init__(self, place: Path, shard: tuple[int, int], keep: tempfile.TemporaryDirectory[str] | None):
        self.shard = shard
        super().__init__(place, keep)

    def _store(self) -> Store:
        return Store(self.folder / database_name(self.shard), read_only=True)
