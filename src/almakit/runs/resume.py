"""Resuming: checks that a folder belongs to this run, with the same settings, weights, data and model outputs, and
finds the remaining steps."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..attacks import get
from ..core import Attack
from ..core.oracle import borrowed
from ..errors import BadInput
from . import folder
from .attack_text import as_written_now, text_of
from .failures import SpecChanged, StoreError
from .images import data_sha256
from .plan import Job, State
from .progress import Progress
from .spec import RunSpec
from .store import CLEAN, ChunkKey, Store, database_name, files
from .store.records import ImageInfo

SAMPLE = 16
"""Number of stored images that are queried again: those with the least confident predictions, which change first."""


def extended(spec: RunSpec, built: list[Attack], out: Path) -> tuple[RunSpec, list[Attack]]:
    """The spec and attacks of the run in ``out``, followed by the attacks of ``spec``."""
    if not (out / folder.SPEC).is_file() or not (out / database_name()).is_file():
        raise BadInput(f"{out} holds no run that attacks could be added to; join shards first (almakit merge).")
    recorded = RunSpec.from_toml(out / folder.SPEC)
    given = {text_of(attack): attack for attack in built}
    own = [given.get(as_written_now(text) or text) or get(text) for text in recorded.attacks]
    known = {text_of(attack) for attack in own}
    added = [text for text in given if text not in known]
    return replace(spec, attacks=(*recorded.attacks, *added)), own + [given[text] for text in added]


def continue_in(spec: RunSpec, out: Path, adding: bool = False) -> tuple[RunSpec, RunSpec | None]:
    """The spec completed from the folder, and the recorded spec (None in a new folder). Raises an error if the folder
    belongs to another spec.

    ``adding``: the spec may have more attacks than the folder.
    """
    if not (out / folder.SPEC).is_file():
        return spec, None
    recorded = RunSpec.from_toml(out / folder.SPEC)
    spec = spec.fill(recorded)
    if tuple(as_written_now(text) for text in recorded.attacks) == spec.attacks:
        # An older almakit may have written the same attacks differently: keep the folder's texts, and so its hash.
        spec = replace(spec, attacks=recorded.attacks)
    more = adding and spec.attacks[: len(recorded.attacks)] == recorded.attacks
    if differences := spec.differences(replace(recorded, attacks=spec.attacks) if more else recorded):
        names = {name for name, _, _ in differences}
        listed = "; ".join(
            f"{name} is {_shown(here)} now and was {_shown(there)} when it began" for name, here, there in differences
        )
        beside = (
            f" Attacks are added to it by --add; runs in two folders are reported together by `almakit report {out} "
            "<the other>`."
        )
        raise SpecChanged(
            f"{out} holds another run: {listed}. Choose another folder (--out), or give the settings it began with "
            f"(almakit run --config {out / folder.SPEC}).{beside * (names == {'attacks'})}"
        )
    return spec, recorded


def _shown(value: object) -> str:
    return "not given" if value in (None, []) else json.dumps(value, ensure_ascii=False)


FACTS = {
    "weights_sha256": "the weights of {model}",
    "code_sha256": "the contents of {model}",
    "imports_sha256": "the files that {model} imports from its folder",
    "surrogate_sha256": "the weights of the surrogate {surrogate}",
    "data_sha256": "the images, labels or targets of {data}",
    "features": "the features of {data} (names, ranges, steps, which are fixed)",
}
"""Facts that must not have changed since the run began."""


def facts_of(job: Job, shard: tuple[int, int] | None) -> dict[str, str | None]:
    """The facts that a database records in addition to the specification."""
    dataset, subject = job.dataset, job.subject
    return {
        **subject.facts,
        "surrogate_sha256": None if job.surrogate is None else job.surrogate.weights_sha256,
        "data_sha256": data_sha256(dataset.ids, job.hashes, dataset.labels.tolist(), job.targets),
        "images": str(len(dataset)),
        "aimed": "1" if subject.aimed else None,
        "class_names": json.dumps(dataset.class_names) if dataset.class_names else None,
        "features": dataset.features.to_json() if dataset.features is not None else None,
        "shard": f"{shard[0]}/{shard[1]}" if shard else None,
    }


def agree(store: Store, job: Job, facts: dict[str, str | None]) -> None:
    """Check that the database belongs to this spec, weights and data; a new database records them."""
    spec = job.spec
    recorded = store.meta("spec_sha256")
    if recorded is None:
        store.set_attacks(job.infos)
        store.set_meta(spec_sha256=spec.sha256, spec=spec.to_toml(), model=spec.model, data=spec.data, **facts)
        return
    if recorded != spec.sha256:
        # Attacks may have been added to run.toml, now or before an interruption; the spec agrees with it.
        before = RunSpec.from_text(store.meta("spec") or "", str(store.path)).attacks
        if spec.attacks[: len(before)] != before or replace(spec, attacks=before).sha256 != recorded:
            raise SpecChanged(f"{store.path} belongs to another run than the run.toml beside it.")
        store.set_attacks(job.infos[len(before) :])
        store.set_meta(spec_sha256=spec.sha256, spec=spec.to_toml())
    for key, what in FACTS.items():
        then, now = store.meta(key), facts[key]
        if then != now and (key, then) != ("imports_sha256", None):  # not recorded by older runs
            differing = key == "data_sha256" and [
                info.id for info in store.images() if job.hashes[info.index : info.index + 1] != [info.sha256]
            ]
            where = f" (the first that differs is {differing[0]})" if differing else ""
            raise SpecChanged(
                f"{what.format(**vars(spec))}{where} have changed since this run began ({key} was {then}, is {now}). "
                "Bring them back, or choose another folder (--out)."
            )
    recorded_infos = store.attacks()
    if len(recorded_infos) != len(job.infos):
        raise StoreError(f"{store.path} is damaged: it lists {len(recorded_infos)} of {len(job.infos)} attacks.")
    for then_info, now_info in zip(recorded_infos, job.infos, strict=True):
        for name, was, is_now in _changed_settings(then_info.settings, now_info.settings):
            raise SpecChanged(
                f"the attack {now_info.text} now runs with {name}={is_now} and ran with {name}={was} when this run "
                "began (another version of almakit?). Choose another folder (--out)."
            )


def _changed_settings(then: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(name, recorded, current) of each setting that both versions know and that differs, those of nested attacks as
    ``attack.steps``. Older runs stored nested attacks as text, which is not compared."""
    if isinstance(then, list) and isinstance(now, list):
        then, now = dict(enumerate(then)), dict(enumerate(now))
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() & now.keys(), key=str):
            yield from _changed_settings(then[key], now[key], f"{name}.{key}".lstrip("."))
    elif then != now and not isinstance(now, dict) and not name.endswith(".attack"):
        yield name, then, now


def state_of(store: Store, job: Job, out: Path, progress: Progress) -> State:
    """The state of the run. Chunks whose file is damaged or missing are discarded first."""
    for row in store.chunks():
        if fault := files.fault_of(out, row):
            progress.note(f"{out / str(row.file)} {fault}; chunk {row.key.chunk} is computed again.")
            store.discard(row.key)
    rows = store.chunks()
    # Memory limits found by an earlier session stay valid: the same chunks must go through the model in the same
    # pieces.
    batch = min([job.chunk_size, *(row.batch for row in rows if row.batch < row.images)])
    known, classes = {info.index: info for info in store.images()}, int(store.meta("classes") or 0)
    return State(batch, {row.key for row in rows}, known, classes)


def same_answers(job: Job, state: State) -> None:
    """Evaluate the model on a sample of the images with a stored clean pass, and raise an error if its outputs have
    changed.

    This is one forward pass of at most ``SAMPLE`` images that is not counted. Images whose logits were not finite are
    left out, because the cause may have been temporary. For a random model, the tolerance is the difference between two
    of its passes.
    """
    stored = [info for info in state.known.values() if ChunkKey(CLEAN, -1, info.chunk) in state.done and info.top]
    sample = sorted(stored, key=lambda info: (info.top[0][1], info.index))[:SAMPLE]
    if not sample:
        return
    subject, size = job.subject, min(state.batch, SAMPLE)
    chunk = job.dataset.chunk([info.index for info in sample])
    with borrowed(subject.model):
        chances = torch.softmax(subject.logits(chunk.x, size, chunk.truths), 1)
        apart = [_apart(info, row) for info, row in zip(sample, chances, strict=True)]
        if max(apart) <= subject.near:
            return
        again = torch.softmax(subject.logits(chunk.x, size // 2 + 1, chunk.truths), 1)
    near = max(subject.near, 4 * float((again - chances).abs().nan_to_num(0.0).max()))
    differing = [info.id for info, value in zip(sample, apart, strict=True) if value > near]
    if differing:
        raise SpecChanged(
            f"the model {job.spec.model} answers otherwise than when this run began, on {len(differing)} of "
            f"{len(sample)} stored images such as {differing[0]}. Bring the old model back (its code, settings, "
            "attributes and what its functions refer to), or choose another folder (--out)."
        )


def _apart(info: ImageInfo, chances: Tensor) -> float:
    """The largest difference between the recorded probabilities of an image and ``chances`` (K,); infinite if they
    cannot be compared."""
    differences = [abs(float(chances[label]) - p) if 0 <= label < len(chances) else math.inf for label, p in info.top]
    return max(math.inf if math.isnan(value) else value for value in differences)
