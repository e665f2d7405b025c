"""What a run folder says of its plan and itself, against the specification and its own rows."""

from __future__ import annotations

from collections import Counter

from ... import registry
from ...errors import AlmakitError
from ...expression import parse
from ..folder import RunFolder
from ..images import RULES, data_sha256
from ..store import CLEAN
from ..store.records import AttackInfo
from .compare import Differences


def of_folder(found: Differences, run: RunFolder, classes: int) -> None:
    """Compares the facts of a folder with each other and with its rows."""
    meta, spec, images = run.meta, run.spec, run.images
    targets = [info.target or 0 for info in images] if spec.targets not in (None, "all", *RULES) else None
    total = data_sha256(
        [info.id for info in images], [info.sha256 for info in images], [info.label for info in images], targets
    )
    expected, recorded = int(meta.get("images", len(images))), meta.get("data_sha256", total)
    facts: list[tuple[str, object, object]] = [
        ("the name of the model", meta.get("model", spec.model), spec.model),
        ("the name of the data", meta.get("data", spec.data), spec.data),
        ("the attacks", [info.text for info in run.attacks], list(spec.attacks)),
    ]
    if len(images) == expected:
        facts.append(("the images' ids, hashes, labels and targets", recorded, total))
    elif recorded == total:
        facts.append(("the number of images", expected, len(images)))
    if images:
        facts.append(("the number of classes", meta.get("classes"), str(classes)))
    for what, stored, now in facts:
        if stored != now:
            found.note(what, "the folder", stored, now)
    for info in run.attacks:
        _attack(found, info, spec.targets is not None)
    _chunks(found, run, expected)


def _attack(found: Differences, info: AttackInfo, targeted: bool) -> None:
    """Compares an attack's row with what its text says."""
    if info.targeted != targeted:
        found.note("whether it is targeted", info.text, info.targeted, targeted)
    try:
        written = parse(info.text)
    except AlmakitError:
        return  # a text that only a Python session can write, such as one with a function in it
    if written.name in registry.BUILT_IN["attacks"]:
        minimal = registry.get("attacks", written.name).minimal
        if isinstance(minimal, bool) and info.minimal != minimal:
            found.note("whether it looks for the smallest change", info.text, info.minimal, minimal)
    for name, value in written.arguments.items():
        if isinstance(value, (bool, int, float)) and info.settings.get(name, value) != value:
            found.note(f"the setting {name}", info.text, info.settings[name], value)


def _chunks(found: Differences, run: RunFolder, expected: int) -> None:
    """Every finished chunk has all its images and records, and every stored image belongs to one."""
    size = int(run.spec.batch_size)
    clean = Counter(info.chunk for info in run.images)
    records = Counter((record.attack, run.image[record.image].chunk, record.round) for record in run.records)
    slots: dict[str | None, list[int]] = {}
    for record in run.records:
        if record.slot is not None:
            slots.setdefault(record.file, []).append(record.slot)
    for row in run.chunks:
        key = row.key
        where, whole = f"chunk {key.chunk}", min(size, expected - key.chunk * size)
        if row.images != whole or clean[key.chunk] != whole:
            found.note("the images of a chunk", where, f"{row.images}, with {clean[key.chunk]} rows", whole)
        if key.kind == CLEAN:
            continue
        where += f" of attack {key.attack}"
        if records[key.attack, key.chunk, key.round] != whole:
            found.note("the records of a chunk", where, records[key.attack, key.chunk, key.round], whole)
        stored, named = 0 if row.file is None else run.stored_in(row), sorted(slots.get(row.file, []))
        if named != list(range(stored)):
            found.note("the stored images", where, f"records of {len(named)}", f"{stored} in the file")
