"""What a run folder says of its images, its plan and itself, against a fresh look and against its own rows."""

from __future__ import annotations

import math
from collections import Counter

from torch import Tensor

from ... import registry
from ...errors import AlmakitError
from ...expression import parse
from ..folder import RunFolder
from ..images import RULES, data_sha256, round_target, rule_target
from ..store import ATTACK, CLEAN
from ..store.records import ALREADY_WRONG, INVALID, AttackInfo, ImageInfo, Record, Top
from .differences import Differences, same_top


def of_plan(found: Differences, record: Record, run: RunFolder, image: ImageInfo, clean: Tensor, near: float) -> None:
    """Compares what is decided beforehand: the target, the limits, and whether there was anything to do (``clean``
    (K,): probabilities)."""
    where, spec, classes = f"image {image.id}", run.spec, len(clean)
    if spec.targets == "all":
        if record.target != (target := round_target(image.label, record.round, classes)):
            found.note("the target", where, record.target, target)
    elif record.target != image.target:
        found.note("the target", where, record.target, image.target)
    most = math.inf if spec.most_passes is None else spec.most_passes
    if not (1 <= record.forwards <= most and 0 <= record.backwards <= most):
        found.note(
            "forwards or backwards",
            where,
            f"{record.forwards} and {record.backwards}",
            f"at least one forward, at most {most}",
        )
    course = [math.inf if value is None else value for value in record.course.values()]
    if min(course, default=math.inf) < math.inf and course != sorted(course, reverse=True):
        found.note("the best distances so far", where, course, "none above the one before")
    if not math.isfinite(record.seconds) or record.seconds < 0:
        found.note("the seconds", where, record.seconds, "a time")
    by_class = image.pixels is None and spec.goal is None
    if (
        spec.dtype in ("float32", "float64")
        and by_class
        and record.attacked
        and record.status != INVALID
        and bool(clean.isfinite().all())
    ):
        goal = image.label if record.target is None else record.target
        if not 0 <= goal < classes:
            return
        if spec.eot is not None:
            reached = float(clean[goal]) if record.target is not None else 1 - float(clean[goal])
            if reached > spec.vote_share + near:
                found.note("the status", where, record.status, ALREADY_WRONG)
            return
        others = float(clean.clone().index_fill_(0, clean.new_tensor([goal]).long(), -1.0).max())
        lead = float(clean[goal]) - others if record.target is not None else others - float(clean[goal])
        if lead > near:
            found.note("the status", where, record.status, ALREADY_WRONG)


def of_image(
    found: Differences, image: ImageInfo, run: RunFolder, prediction: int, top: Top, logits: Tensor, near: float
) -> None:
    """Compares a clean image's row with the model's fresh answer, ``logits`` (K,)."""
    where, rule = f"image {image.id}", run.spec.targets
    tied = dict(top).get(image.prediction, 0.0) >= max(dict(top).values(), default=1.0) - near
    if image.prediction != prediction and not tied:
        found.note("the clean prediction", where, image.prediction, prediction)
    if not same_top(image.top, top, near):
        found.note("a clean probability", where, list(image.top[:2]), list(top[:2]))
    if image.chunk != image.index // int(run.spec.batch_size):
        found.note("the chunk", where, image.chunk, image.index // int(run.spec.batch_size))
    if rule in RULES and prediction >= 0 and 0 <= image.label < len(logits):
        target = rule_target(rule, logits, image.label, image.sha256, run.spec.seed)
        nearly = (
            rule == "least-likely"
            and image.target is not None
            and 0 <= image.target < len(logits)
            and image.target != image.label
        )
        if image.target != target and not (
            nearly and float(logits[image.target or 0] - logits[target]) <= near * float(logits.max() - logits.min())
        ):
            found.note("the target", where, image.target, target)
    elif rule in (None, "all") and image.target is not None:
        found.note("the target", where, image.target, None)


def of_folder(found: Differences, run: RunFolder, classes: int) -> None:
    """Compares the facts of a folder with each other and with its rows."""
    meta, spec, images = run.meta, run.spec, run.images
    given = [info.target or 0 for info in images] if spec.targets not in (None, "all", *RULES) else None
    total = data_sha256(
        [info.id for info in images], [info.sha256 for info in images], [info.label for info in images], given
    )
    expected = int(meta.get("images", len(images)))
    if (len(images) == expected and meta.get("data_sha256", total) != total) or any(
        not 0 <= info.index < expected for info in images
    ):
        found.note("the images' ids, hashes, labels and targets", "data_sha256", meta.get("data_sha256"), total)
    if len(images) != expected and meta.get("data_sha256") == total:
        found.note("the number of images", "meta", expected, len(images))
    if images and meta.get("classes") != str(classes):
        found.note("the number of classes", "meta", meta.get("classes"), classes)
    for key, now in (("model", spec.model), ("data", spec.data)):
        if meta.get(key, now) != now:
            found.note(f"the name of the {key}", "meta", meta.get(key), now)
    if [info.text for info in run.attacks] != list(spec.attacks):
        found.note("the attacks", "the list", [info.text for info in run.attacks], list(spec.attacks))
    for info in run.attacks:
        _attack(found, info, spec.targets is not None)
    _chunks(found, run, expected)


def _attack(found: Differences, info: AttackInfo, targeted: bool) -> None:
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
        if isinstance(value, (bool, int, float)) and name in info.settings and info.settings[name] != value:
            found.note(f"the setting {name}", info.text, info.settings[name], value)


def _chunks(found: Differences, run: RunFolder, expected: int) -> None:
    """Every finished chunk has all its images and records, and every stored image belongs to one."""
    size = int(run.spec.batch_size)
    places = {info.index: info.chunk for info in run.images}
    clean = Counter(places.values())
    records = Counter((record.attack, places[record.image], record.round) for record in run.records)
    slots: dict[str | None, list[int]] = {}
    for record in run.records:
        if record.slot is not None:
            slots.setdefault(record.file, []).append(record.slot)
    for row in run.chunks:
        where, key = (
            f"chunk {row.key.chunk}" + (f" of attack {row.key.attack}" if row.key.kind == ATTACK else ""),
            row.key,
        )
        whole = min(size, expected - key.chunk * size)
        if row.images != whole or clean[key.chunk] != whole:
            found.note("the images of a chunk", where, f"{row.images}, with {clean[key.chunk]} rows", whole)
        if key.kind != CLEAN and records[key.attack, key.chunk, key.round] != whole:
            found.note("the records of a chunk", where, records[key.attack, key.chunk, key.round], whole)
        stored = 0 if row.file is None else run.stored_in(row)
        if key.kind != CLEAN and sorted(slots.get(row.file, [])) != list(range(stored)):
            found.note(
                "the stored images", where, f"records of {len(slots.get(row.file, []))}", f"{stored} in the file"
            )
