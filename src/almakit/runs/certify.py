"""Certified radii for the images of a run, stored chunk by chunk in its folder, so that an interrupted call resumes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..certify import METHODS, certified_radius
from ..certify.exact import exact_radius
from ..certify.intervals import NORMS
from ..errors import BadInput, BadModel
from .folder import RunFolder
from .model import Subject
from .progress import Progress
from .store.derived import Certificate, check_radii
from .store.records import ImageInfo, Record

ALL_METHODS = (*METHODS, "exact")
CHUNK = {"exact": 1}
"""By method, the number of images that are certified and written together; 16 for other methods."""


def certify_run(
    run: RunFolder,
    subject: Subject,
    method: str,
    norms: tuple[str, ...] = (),
    seconds: float = 60.0,
    progress: Progress | None = None,
) -> None:
    """Certifies a run's images in the distances of its attacks (or in ``norms``), checks every success against the
    radii. The caller must write summary.json again."""
    if method not in ALL_METHODS:
        raise BadInput(f"there is no bound called {method!r}; choose {', '.join(ALL_METHODS)}.")
    if run.spec.targets is not None:
        raise BadInput("certified radii are distances to any other class: certify an untargeted run.")
    if run.spec.goal is not None:
        raise BadInput(
            f"the goal of this run is {run.spec.goal}, which is no difference of two logits, as certified radii are."
        )
    if not isinstance(subject.model, torch.nn.Module) and not callable(subject.model):
        raise BadModel(f"{subject.name} is no torch model; bounds read a model's layers.")
    chosen = norms or tuple(dict.fromkeys(info.distance for info in run.attacks if info.distance in NORMS))
    if not chosen:
        names = ", ".join(dict.fromkeys(info.distance for info in run.attacks))
        raise BadInput(f"the attacks are in {names}; certified radii are in {', '.join(NORMS)}: give --distance.")
    show = progress or Progress()
    known = {(part.norm, part.method): part for part in run.certificates}
    for norm in chosen:
        part = known.setdefault((norm, method), Certificate(norm, method, run.model_sha256))
        todo = [info for info in run.images if info.index not in part.radii]
        size = CHUNK.get(method, 16)
        for begin in range(0, len(todo), size):
            chunk = todo[begin : begin + size]
            part.radii |= radii_of(run, subject, chunk, norm, method, seconds)
            part.write(run.folder)
            check_radii(run.folder, [part], run.records, run.image)
            show.note(f"{norm} by {method}: {min(begin + size, len(todo))} of {len(todo)} images certified.")
    check_radii(run.folder, list(known.values()), run.records, run.image)


def radii_of(
    run: RunFolder, subject: Subject, images: Sequence[ImageInfo], norm: str, method: str, seconds: float = 60.0
) -> dict[int, float]:
    """The certified radii of ``images`` by their index in the run. The arguments are those of ``certify_run``."""
    x = torch.from_numpy(run.originals([info.index for info in images])).to(torch.float32)
    labels = torch.tensor([info.label for info in images])
    nearest = torch.tensor([_nearest(run.records, info.index, norm) for info in images], dtype=torch.float64)
    if method == "exact":
        found = exact_radius(subject.model, x, labels, norm, found=nearest, seconds=seconds)
        radii = [bracket.lower for bracket in found]
    else:
        radii = certified_radius(subject.model, x, labels, norm, method, guess=nearest).tolist()
    return dict(zip((info.index for info in images), radii, strict=True))


def _nearest(records: list[Record], image: int, norm: str) -> float:
    """The nearest verified success of an image in ``norm``; infinite where there is none."""
    values = [
        record.measures.get(norm)
        for record in records
        if record.image == image and record.attacked and record.verified < float("inf")
    ]
    return min((value for value in values if value is not None), default=float("inf"))
