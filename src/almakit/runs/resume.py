"""A folder that was begun before: is it this run's, with the settings, weights, data and answers it began with, and
what is left to do?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
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
from .failures import SpecChanged
from .images import data_sha256
from .plan import Job, State
from .progress import Progress
from .spec import RunSpec
from .store import CLEAN, ChunkKey, Store, database_name, files
from .store.records import ImageInfo

SAMPLE = 16
"""So many stored images are asked about again, those the model was least sure of: there a change shows first."""


def extended(spec: RunSpec, built: list[Attack], out: Path) -> tuple[RunSpec, list[Attack]]:
    """The spec and the attacks of the run in ``out`` with those of ``spec`` added after its own."""
    if not (out / folder.SPEC).is_file() or not (out / database_name()).is_file():
        raise BadInput(
            f"{out} holds no run that attacks could be added to; a run in shards is joined first (almakit merge)."
        )
    recorded = RunSpec.from_toml(out / folder.SPEC)
    given = {text_of(attack): attack for attack in built}
    own = [given.get(as_written_now(text) or text) or get(text) for text in recorded.attacks]
    known = {text_of(attack) for attack in own}
    added = [text for text in given if text not in known]
    return replace(spec, attacks=(*recorded.attacks, *added)), own + [given[text] for text in added]


def continue_in(spec: RunSpec, out: Path, adding: bool = False) -> tuple[RunSpec, bool]:
    """The spec with the folder's recorded choices, and whether the folder was begun before; refuses a folder of another
    spec.

    ``adding``: the spec may have more attacks than the folder.
    """
    if not (out / folder.SPEC).is_file():
        return spec, False
    recorded = RunSpec.from_toml(out / folder.SPEC)
    spec = spec.fill(recorded)
    if tuple(as_written_now(text) for text in recorded.attacks) == spec.attacks:
        spec = replace(
            spec, attacks=recorded.attacks
        )  # the same attacks as an older almakit wrote them: the hash stays the folder's
    more = adding and spec.attacks[: len(recorded.attacks)] == recorded.attacks
    if differences := spec.differences(replace(recorded, attacks=spec.attacks) if more else recorded):
        listed = "; ".join(
            f"{name} is {_shown(here)} now and was {_shown(there)} when it began" for name, here, there in differences
        )
        beside = ""
        if [name for name, _, _ in differences] == ["attacks"]:
            beside = (
                " Attacks are added to it by --add; runs in two folders are reported together by `almakit "
                f"report {out} <the other>`."
            )
        raise SpecChanged(
            f"{out} holds another run: {listed}. Choose another folder (--out), or give the settings it began with "
            f"(almakit run --config {out / folder.SPEC}).{beside}"
        )
    return spec, True


def _shown(value: object) -> str:
    return "not given" if value in (None, []) else json.dumps(value, ensure_ascii=False)


def facts_of(job: Job, shard: tuple[int, int] | None) -> dict[str, str | None]:
    """What a database records of its run beside the specification."""
    dataset, subject = job.dataset, job.subject
    return {
        "weights_sha256": subject.weights_sha256,
        "code_sha256": subject.code_sha256,
        "imports_sha256": subject.imports_sha256,
        "settings_sha256": subject.settings_sha256,
        "surrogate_sha256": None if job.surrogate is None else job.surrogate.weights_sha256,
        "data_sha256": data_sha256(dataset.ids, job.hashes, dataset.labels.tolist(), job.targets),
        "images": str(len(dataset)),
        "aimed": None if subject.aim is None else "1",
        "class_names": json.dumps(dataset.class_names) if dataset.class_names else None,
        "features": dataset.features.to_json() if dataset.features is not None else None,
        "shard": f"{shard[0]}/{shard[1]}" if shard else None,
    }


def agree(store: Store, job: Job, facts: dict[str, str | None]) -> None:
    """Makes sure the database belongs to this spec, these weights and these data; a new one is told so."""
    spec = job.spec
    store.check_facts()
    if store.meta("spec_sha256") is None:
        store.set_attacks(job.infos)
        store.set_meta(spec_sha256=spec.sha256, spec=spec.to_toml(), model=spec.model, data=spec.data, **facts)
        return
    if store.meta("spec_sha256") != spec.sha256:
        # The run.toml beside it, which this spec agrees with, may have more attacks: they were added, now or before a
        # stop.
        before = RunSpec.from_text(store.meta("spec") or "", str(store.path))
        if (
            spec.attacks[: len(before.attacks)] == before.attacks
            and replace(before, attacks=spec.attacks).sha256 == spec.sha256
        ):
            store.set_attacks(job.infos[len(before.attacks) :])
            store.set_meta(spec_sha256=spec.sha256, spec=spec.to_toml())
    if store.meta("spec_sha256") != spec.sha256:
        raise SpecChanged(
            f"{store.path} belongs to another run than the run.toml beside it; choose another folder (--out)."
        )
    for key, what in (
        ("weights_sha256", f"the weights of {spec.model}"),
        ("code_sha256", f"the contents of {spec.model}"),
        ("imports_sha256", f"the files that {spec.model} imports from its folder"),
        ("surrogate_sha256", f"the weights of the surrogate {spec.surrogate}"),
        ("data_sha256", f"the images, labels or targets of {spec.data}"),
        ("features", f"the features of {spec.data} (names, ranges, steps, which are fixed)"),
    ):
        # Runs begun before imports were looked at have no such fact; a file that had none has another hash itself when
        # it gets one.
        if (then := store.meta(key)) != (now := facts[key]) and not (key == "imports_sha256" and then is None):
            where = _first_change(store, job) if key == "data_sha256" else ""
            raise SpecChanged(
                f"{what}{where} have changed since this run began ({key} was {then}, is {now}). Bring the old file "
                "back, or choose another folder (--out) for a new run."
            )
    for attack, then_info, now_info in zip(job.attacks, store.attacks(), job.infos, strict=True):
        for name in sorted({*then_info.settings, *now_info.settings}):
            found = _difference(name, then_info.settings.get(name), now_info.settings.get(name))
            if found is not None and (name in then_info.settings or not _at_default(attack, name)):
                setting, was, now_value = found
                raise SpecChanged(
                    f"the attack {now_info.text} now runs with {setting}={now_value} and ran with {setting}={was} when "
                    f"this run began (another version of almakit?). Write {setting.split('.')[-1]}={was} into the "
                    "attack of a new run, or choose another folder (--out)."
                )


def _difference(name: str, was: Any, now: Any) -> tuple[str, Any, Any] | None:
    """The setting that is not what it was, also inside an attack that is itself a setting; None where all are.

    Older runs kept an attack inside another as its text alone. A setting that one did not have then is at its default
    now, or the text would differ.
    """
    if isinstance(was, dict) and isinstance(now, dict):
        found = (_difference(f"{name}.{key}", was[key], now.get(key)) for key in was if key != "attack")
        return next((one for one in found if one is not None), None)
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        found = (_difference(f"{name}.{i}", *pair) for i, pair in enumerate(zip(was, now, strict=True)))
        return next((one for one in found if one is not None), None)
    if isinstance(was, str) and isinstance(now, dict):
        now = now["attack"]
    return None if was == now else (name, was, now)


def _at_default(attack: Attack, name: str) -> bool:
    """Whether a setting has the value nobody has to give: one that came with a later almakit then leaves older runs as
    they are."""
    for f in fields(attack):
        if f.name == name:
            default = f.default_factory() if f.default_factory is not MISSING else f.default
            return bool(getattr(attack, name) == default)
    return False


def _first_change(store: Store, job: Job) -> str:
    """Which image is not what it was, where one of those already recorded is."""
    for info in store.images():
        if info.index >= len(job.hashes):
            return f" (there were more than {len(job.hashes)})"
        if info.sha256 != job.hashes[info.index] or info.label != int(job.dataset.labels[info.index]):
            return f" (the first that differs is {info.id})"
    return ""


def state_of(store: Store, job: Job, out: Path, progress: Progress) -> State:
    """How far the run is; chunks whose file is damaged or gone are taken back first."""
    for key in store.damaged():
        progress.note(
            f"{store.path}: the rows of chunk {key.chunk} are not the ones that were written; it is computed again."
        )
        store.discard(key)
    for row in store.chunks():
        if fault := files.fault_of(out, row):
            progress.note(f"{out / str(row.file)} {fault}; chunk {row.key.chunk} is computed again.")
            store.discard(row.key)
    # What an earlier session learnt about memory holds on: the same chunks must go through the model in the same
    # pieces.
    shrunk = [row.batch for row in store.chunks() if row.batch < row.images]
    known, classes = {info.index: info for info in store.images()}, int(store.meta("classes") or 0)
    return State(min([job.chunk_size, *shrunk]), known, classes)


def remaining(store: Store, job: Job, shard: tuple[int, int] | None, state: State) -> list[ChunkKey]:
    """The steps that are left to do, as far as they are known."""
    done = {row.key for row in store.chunks()}
    return [key for chunk in job.chunks(shard) for key in job.keys(chunk, state.classes) if key not in done]


# The model's answers.


def same_answers(job: Job, state: State, todo: Sequence[ChunkKey]) -> None:
    """Asks the model about a sample of the images whose clean pass is stored, and refuses one that answers otherwise
    than it did then.

    One forward pass of at most ``SAMPLE`` images, which counts for none of them. Images without finite logits then are
    not asked about: a fault may have passed. A model whose answers change from pass to pass is held to no more than it
    holds itself to.
    """
    open_chunks = {key.chunk for key in todo if key.kind == CLEAN}
    stored = [info for info in state.known.values() if info.chunk not in open_chunks and info.top]
    sample = sorted(stored, key=lambda info: (info.top[0][1], info.index))[:SAMPLE]
    if not sample:
        return
    subject, size = job.subject, min(state.batch, SAMPLE)
    chunk = job.dataset.chunk([info.index for info in sample])
    x, truths = chunk.x, chunk.truths
    with borrowed(subject.model):
        logits = subject.logits(x, size, truths)
        apart = [_apart(info, row) for info, row in zip(sample, logits, strict=True)]
        if max(apart) <= subject.near:
            return
        other = torch.softmax(subject.logits(x, size // 2 + 1, truths), 1) - torch.softmax(logits, 1)
    near = max(subject.near, 4 * float(torch.nan_to_num(other, nan=0.0).abs().max()))
    differing = [place for place, value in enumerate(apart) if value > near]
    if differing:
        first, now = sample[differing[0]], _says(logits[differing[0]])
        raise SpecChanged(
            f"the model {job.spec.model} answers otherwise than when this run began: {len(differing)} of {len(sample)} "
            f"stored images that were asked about again differ, image {first.id} for one (then class {first.top[0][0]} "
            f"with {first.top[0][1]:.4f}, now {now}). Bring the old model back (its code, what its functions and "
            "attributes refer to, its settings), or choose another folder (--out) for a new run."
        )


def _apart(info: ImageInfo, logits: Tensor) -> float:
    """The largest difference between the recorded probabilities of an image and those of ``logits`` (K,); infinite
    where they cannot be compared."""
    if not bool(torch.isfinite(logits).all()) or any(not 0 <= label < len(logits) for label, _ in info.top):
        return float("inf")
    now = torch.softmax(logits, 0)
    return max(abs(float(now[label]) - probability) for label, probability in info.top)


def _says(logits: Tensor) -> str:
    if not bool(torch.isfinite(logits).all()):
        return "no finite logits"
    probability, label = torch.softmax(logits, 0).max(0)
    return f"class {int(label)} with {float(probability):.4f}"
