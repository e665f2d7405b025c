"""Before a run begins or goes on: is the folder this run's, may the model be attacked, what is open, what is left to
do?"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from ..attacks import get
from ..core import Attack
from ..core.model import CONTIGUOUS, faster_layout
from ..data.dataset import Chunk, Dataset
from ..errors import AlmakitError, BadInput
from ..models.preflight import preflight
from . import chunkfiles, folder
from .attacktext import text_of
from .failures import Refused, SpecChanged
from .memory import measured_batch_size
from .precision import measured_dtype
from .progress import Silent
from .spec import AUTO, DEFAULT, RunSpec
from .store import ChunkKey, Store, database_name
from .subject import autocast_of
from .work import Bench

LOOKED_AT = 256  # images preflight looks at, fewer of large ones


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


def as_written_now(text: str) -> str | None:
    """An attack's text, perhaps an older almakit's, as this one writes it; None for what it does not know.

    A colon means code outside almakit, which a file found in a folder must not set going.
    """
    try:
        return None if ":" in text else text_of(get(text))
    except AlmakitError:
        return None


def _shown(value: object) -> str:
    return "not given" if value in (None, []) else json.dumps(value, ensure_ascii=False)


def settle(bench: Bench, show: Silent) -> RunSpec:
    """Decides what the user left open: from here on it is part of the run."""
    spec, sample = bench.spec, looked_at(bench.dataset)
    if spec.batch_size == DEFAULT:
        spec = replace(
            spec, batch_size=usual_batch_size(bench.subject.device.type, sample.x[0].numel(), len(bench.dataset))
        )
    elif spec.batch_size == AUTO:
        spec = replace(spec, batch_size=min(measured_batch_size(bench.subject, sample.x), len(bench.dataset)))
        show.note(f"Batch size {spec.batch_size} (measured).")
    if spec.layout == DEFAULT:
        spec = replace(spec, layout=CONTIGUOUS)
    elif spec.layout == AUTO:
        spec = replace(
            spec, layout=faster_layout(bench.subject.model, bench.subject.place(sample.x[: int(spec.batch_size)]))
        )
        show.note(f"Layout {spec.layout} (measured).")
    if spec.dtype == AUTO:
        dtype, reason = measured_dtype(bench.subject, sample, bench.attacks[0], int(spec.batch_size))
        spec = replace(spec, dtype=dtype)
        bench.subject = replace(bench.subject, autocast=autocast_of(dtype))
        show.note(f"Precision {dtype}: {reason}.")
    return spec


def usual_batch_size(device: str, pixels: int, images: int) -> int:
    """The batch size nobody asked for: the same wherever the same command runs on such a device. ``pixels``: values of
    one image."""
    most, room = (64, 2_400_000) if device == "cpu" else (256, 40_000_000)
    return max(1, min(most, max(8, room // pixels), images))


def looked_at(dataset: Dataset, most: int = LOOKED_AT) -> Chunk:
    """The first images, as many as a glance can take: 256 digits, 66 photos."""
    pixels = dataset.chunk([0]).x[0].numel()
    return dataset.chunk(range(min(most, max(16, 10_000_000 // pixels), len(dataset))))


def at_a_time(sample: Chunk) -> int:
    """How many of the images may go through an unknown model with gradients before anything is known of its memory."""
    return max(1, min(64, 2_400_000 // sample.x[0].numel()))


def check(bench: Bench, wanted: bool, show: Silent) -> list[tuple[str, str, str, str]]:
    """Preflight's findings, shown; a refusal that is not allowed ends the run before it begins."""
    if not wanted:
        return [("preflight-skipped", "warn", "Preflight was skipped.", "Leave preflight on.")]
    sample = looked_at(bench.dataset)
    size = at_a_time(sample)
    x = sample.x.to(bench.subject.device)
    report = preflight(
        bench.subject.model,
        x,
        sample.truth,
        allow=bench.spec.allow,
        batch_size=size,
        measure=False,
        class_names=bench.dataset.class_names,
        alphabetical=bench.dataset.alphabetical,
        gradients=any(attack.needs_gradients() for attack in bench.attacks),
    )
    for finding in report.findings:
        allowed = " (allowed)" if finding.name in bench.spec.allow else ""
        show.note(f"{finding.severity}{allowed}: {finding.name}: {finding.sentence} {finding.way_out}")
    if report.refusals:
        names = " ".join(f"--allow {finding.name}" for finding in report.refusals)
        listed = "".join(f"\n  - {finding.name}: {finding.sentence} {finding.way_out}" for finding in report.refusals)
        raise Refused(f"preflight refuses this run:{listed}\nTo run it all the same: {names}.")
    return [(finding.name, finding.severity, finding.sentence, finding.way_out) for finding in report.findings]


def agree(store: Store, bench: Bench, facts: dict[str, str | None]) -> None:
    """Makes sure the database belongs to this spec, these weights and these data; a new one is told so."""
    spec = bench.spec
    store.check_facts()
    if store.meta("spec_sha256") is None:
        store.set_attacks(bench.infos)
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
            store.set_attacks(bench.infos[len(before.attacks) :])
            store.set_meta(spec_sha256=spec.sha256, spec=spec.to_toml())
    if store.meta("spec_sha256") != spec.sha256:
        raise SpecChanged(
            f"{store.path} belongs to another run than the run.toml beside it; choose another folder (--out)."
        )
    for key, what in (
        ("weights_sha256", f"the weights of {spec.model}"),
        ("code_sha256", f"the contents of {spec.model}"),
        ("imports_sha256", f"the files that {spec.model} imports from its folder"),
        ("data_sha256", f"the images, labels or targets of {spec.data}"),
    ):
        # Runs begun before imports were looked at have no such fact; a file that had none has another hash itself when
        # it gets one.
        if (then := store.meta(key)) != (now := facts[key]) and not (key == "imports_sha256" and then is None):
            where = _first_change(store, bench) if key == "data_sha256" else ""
            raise SpecChanged(
                f"{what}{where} have changed since this run began ({key} was {then}, is {now}). Bring the old file "
                "back, "
                "or choose another folder (--out) for a new run."
            )
    for attack, then_info, now_info in zip(bench.attacks, store.attacks(), bench.infos, strict=True):
        for name in sorted({*then_info.settings, *now_info.settings}):
            found = _difference(name, then_info.settings.get(name), now_info.settings.get(name))
            if found is not None and (name in then_info.settings or not _at_default(attack, name)):
                setting, was, now_value = found
                raise SpecChanged(
                    f"the attack {now_info.text} now runs with {setting}={now_value} and ran with {setting}={was} "
                    "when this run began "
                    f"(another version of almakit?). Write {setting.split('.')[-1]}={was} into the attack of a new "
                    "run, or choose another folder (--out)."
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


def _first_change(store: Store, bench: Bench) -> str:
    """Which image is not what it was, where one of those already recorded is."""
    for info in store.images():
        if info.index >= len(bench.hashes):
            return f" (there were more than {len(bench.hashes)})"
        if info.sha256 != bench.hashes[info.index] or info.label != int(bench.dataset.labels[info.index]):
            return f" (the first that differs is {info.id})"
    return ""


def remaining(store: Store, bench: Bench, shard: tuple[int, int] | None, out: Path, show: Silent) -> list[ChunkKey]:
    """What is left to do; chunks whose file is damaged or gone are taken back first."""
    for key in store.damaged():
        show.note(
            f"{store.path}: the rows of chunk {key.chunk} are not the ones that were written; it is computed again."
        )
        store.discard(key)
    for row in store.chunks():
        if row.file is not None and (fault := chunkfiles.fault_of(chunkfiles.inside(out, row.file), str(row.sha256))):
            show.note(f"{out / row.file} {fault}; chunk {row.key.chunk} is computed again.")
            store.discard(row.key)
    rows = store.chunks()
    done = {row.key for row in rows}
    bench.known = {info.index: info for info in store.images()}
    bench.classes = int(store.meta("classes") or 0)
    # What an earlier session learnt about memory holds on: the same chunks must go through the model in the same
    # pieces.
    shrunk = [row.batch for row in rows if row.batch < row.images]
    bench.batch = min([bench.batch, *shrunk])
    return [key for key in bench.keys(shard) if key not in done]
