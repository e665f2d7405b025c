"""``Result``, which attacks return: one row per image, with numbers, pictures and files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import BadInput, Unavailable, optional
from ..radius import Grid, number, same

if TYPE_CHECKING:
    from .plots import Picture

R = TypeVar("R", bound="Result")
Rows = slice | Tensor | Sequence[int] | Sequence[bool]
"""A selection of images: a slice, positions (R,), or a boolean mask (B,), also as numpy arrays."""


HEADER = "almakit-result"
OTHER_COUNTS = ("surrogate_forwards", "distance_gradients")
"""Optional counts (B,) of a result besides forwards and backwards."""


class Status(IntEnum):
    """The outcome for an image; ``sentence`` describes it."""

    ALREADY_WRONG = 0
    SUCCESS = 1
    FAILED = 2
    INVALID = 3

    @property
    def sentence(self) -> str:
        return {
            Status.ALREADY_WRONG: "The goal is reached on the clean image; its distance is 0.",
            Status.SUCCESS: "An adversarial image was found and verified by the model's argmax.",
            Status.FAILED: "No adversarial image was found within the budget; its distance is infinite.",
            Status.INVALID: "The model gave no finite logits to work with; its distance is infinite.",
        }[self]


@dataclass(frozen=True, eq=False)
class ImageResult:
    """One image of a ``Result``: ``result[3]``. ``adversarial`` (...) is the clean image if the attack failed."""

    adversarial: Tensor
    distance: float
    status: Status
    forwards: int
    backwards: int
    reason: str | None = None
    original: Tensor | None = None
    label: int | Tensor | None = None

    @property
    def success(self) -> bool:
        return self.status in (Status.ALREADY_WRONG, Status.SUCCESS)

    def __repr__(self) -> str:
        label = f"label {self.label}, " if isinstance(self.label, int) else ""
        shape = " x ".join(map(str, self.adversarial.shape))
        return (
            f"ImageResult({shape}, {label}{self.status.name}, distance {self.distance:.4g}, {self.forwards} "
            f"forwards, {self.backwards} backwards)"
        )


@dataclass(frozen=True, eq=False)
class Result:
    """The result of an attack, one row per image.

    ``result[3]`` is one image; ``result[mask]`` and ``result[:10]`` are results.

    Args:
        adversarials: best verified points, shape (B, ...); the clean image if the attack failed.
        distances: their distances, shape (B,); 0 if the clean image reaches the goal, infinite if the attack failed.
        status: outcome of each image, shape (B,); see ``Status``.
        forwards: forward passes of each image, shape (B,).
        backwards: backward passes of each image, shape (B,).
        reasons: why an image failed, or a remark about its success; None otherwise.
        probes: forwards of the checks before and after the attack, which are not part of any image's budget.
        originals: clean images, shape (B, ...).
        labels: labels of the call, shape (B,).
        distance: name of the distance.
        course: best distance after 10, 30, 100, 300 and 1000 forwards, shape (B, 5).
        shares: for random models, the vote share of each point, shape (B,).
        surrogate_forwards: passes of the surrogate, to which all ``backwards`` then belong, shape (B,).
        distance_gradients: gradients of the distance, shape (B,); None in lp norms, whose gradient is a formula.
        step: spacing of the grid of the inputs, 0 without a grid.
        radii: radii of attacks at a fixed epsilon; empty for attacks that minimise the distance.
        stop_within: radius within which broken images stop; distances up to it are not the smallest.
    """

    adversarials: Tensor
    distances: Tensor
    status: Tensor
    forwards: Tensor
    backwards: Tensor
    reasons: list[str | None] = field(default_factory=list)
    probes: int = 0
    originals: Tensor | None = None
    labels: Tensor | None = None
    distance: str = ""
    course: Tensor | None = None
    shares: Tensor | None = None
    surrogate_forwards: Tensor | None = None
    distance_gradients: Tensor | None = None
    step: float = 0.0
    radii: tuple[float, ...] = ()
    stop_within: float | None = None

    # Selection of images.

    def __len__(self) -> int:
        return len(self.status)

    @overload
    def __getitem__(self, rows: int) -> ImageResult: ...

    @overload
    def __getitem__(self: R, rows: Rows) -> R: ...

    def __getitem__(self: R, rows: int | Rows) -> ImageResult | R:
        if _one(rows):
            rows = int(rows)  # type: ignore[arg-type]
            if not -len(self) <= rows < len(self):
                # IndexError ends a loop over the result.
                raise IndexError(f"there are {len(self)} images; {rows} is none of them.")
            label = None if self.labels is None else self.labels[rows]
            return ImageResult(
                self.adversarials[rows],
                float(self.distances[rows]),
                Status(int(self.status[rows])),
                int(self.forwards[rows]),
                int(self.backwards[rows]),
                self.reasons[rows] if self.reasons else None,
                None if self.originals is None else self.originals[rows],
                int(label) if label is not None and not label.ndim else label,
            )
        chosen = self._places(rows)  # type: ignore[arg-type]
        changes: dict[str, Any] = {
            f.name: value[chosen.to(value.device)]
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **changes, reasons=[self.reasons[row] for row in chosen.tolist()] if self.reasons else [])

    def _places(self, rows: Rows) -> Tensor:
        """Positions (R,) of a slice, a list, an array or a mask."""
        if isinstance(rows, slice):
            return torch.tensor(range(len(self))[rows], dtype=torch.long)
        try:
            chosen = torch.as_tensor(rows).cpu()
        except (TypeError, ValueError, RuntimeError):
            raise BadInput(
                f"a result is indexed by a number, a slice, a list of positions or a mask, not by {rows!r}."
            ) from None
        if chosen.dtype == torch.bool:
            if chosen.shape != (len(self),):
                raise BadInput(
                    f"the mask has shape {tuple(chosen.shape)}; for {len(self)} images it must have shape "
                    f"({len(self)},)."
                )
            return chosen.nonzero().flatten()
        if chosen.numel() and (
            chosen.is_floating_point()
            or chosen.ndim != 1
            or int(chosen.min()) < -len(self)
            or int(chosen.max()) >= len(self)
        ):
            raise BadInput(f"positions are whole numbers below {len(self)}, one after the other, not {rows!r}.")
        return torch.arange(len(self))[chosen.long()]

    def __iter__(self) -> Iterator[ImageResult]:
        return (self[row] for row in range(len(self)))

    # The numbers.

    @property
    def success(self) -> Tensor:
        """(B,) whether an image fools the model, including misclassified clean images, as in the paper."""
        return (self.status == Status.ALREADY_WRONG) | (self.status == Status.SUCCESS)

    @property
    def success_rate(self) -> float:
        return float(self.success.double().mean()) if len(self) else float("nan")

    @property
    def median(self) -> float:
        """Median distance over all images; 0 for misclassified clean images, infinite for failures."""
        if not len(self):
            return float("nan")
        # quantile() would interpolate two infinities to NaN.
        ordered = self.distances.double().sort().values
        return float(ordered[(len(self) - 1) // 2] + ordered[len(self) // 2]) / 2

    @property
    def clean_accuracy(self) -> float:
        """The share of clean images that do not reach the goal; without targets, those classified as their label."""
        return self.robust_accuracy(0.0)

    @cached_property
    def grid(self) -> Grid:
        """The rule that decides whether a distance is within a radius."""
        size = float(self.adversarials.abs().max()) if self.adversarials.numel() else 1.0
        return Grid.of(self.distance, self.step, rounding=torch.finfo(self.distances.dtype).eps * size)

    def robust_accuracy(self, eps: float | str) -> float:
        """The share of images with no verified adversarial image within ``eps``: 1/B #{i: d_i > eps}. A stronger attack
        can only lower it.

        Args:
            eps: a radius, such as 0.5 or "8/255". Float rounding (1e-5 relative) never makes a broken image robust; on
                a grid, whole levels are counted.

        Returns:
            The share. NaN without images, at radii other than 0 and epsilon for attacks at a fixed epsilon, and between
            0 and ``stop_within``.
        """
        radius = number(eps)
        unknown = bool(self.radii) and radius > 0 and not any(same(radius, known) for known in self.radii)
        if self.stop_within is not None and 0 < radius < self.stop_within and not same(radius, self.stop_within):
            unknown = True
        if unknown or not len(self):
            return float("nan")
        return float((self.distances.double() > self.grid.limit(radius)).double().mean())

    def curve(self, epsilons: Iterable[float | str] | None = None) -> list[tuple[float, float]]:
        """(eps, robust accuracy) for each radius. By default for 0 and all distances, where the curve has its steps;
        for an attack at a fixed epsilon, for its radii."""
        if epsilons is None:
            known = set(self.radii or self.distances[torch.isfinite(self.distances)].double().tolist())
            if self.stop_within is not None:
                known = {self.stop_within, *(radius for radius in known if radius > self.stop_within)}
            epsilons = sorted({0.0, *known})
        return [(number(eps), self.robust_accuracy(eps)) for eps in epsilons]

    def to_pandas(self) -> Any:
        """A pandas frame with one row per image: label, status, success, distance, forwards, backwards, reason."""
        pandas = optional("pandas", "to_pandas needs pandas: pip install pandas.")
        columns: dict[str, Any] = {"image": range(len(self))}
        if self.labels is not None and self.labels.ndim == 1:
            columns["label"] = self.labels.tolist()
        columns |= {
            "status": [Status(value).name.lower().replace("_", "-") for value in self.status.tolist()],
            "success": self.success.tolist(),
            "distance": self.distances.double().tolist(),
            "forwards": self.forwards.tolist(),
            "backwards": self.backwards.tolist(),
            **{name: counts.tolist() for name in OTHER_COUNTS if (counts := getattr(self, name)) is not None},
            "reason": self.reasons or [None] * len(self),
        }
        return pandas.DataFrame(columns).set_index("image")

    # Pictures and files.

    def plot(self, ax: Any = None) -> Picture:
        """Draw robust accuracy against the radius, into the matplotlib axes ``ax`` if given. Returns the figure."""
        from .plots import draw_curve

        picture: Picture = draw_curve(self, ax)
        return picture

    def show(self, rows: int | Rows | None = None) -> Picture:
        """Draw image, adversarial image and difference of one or several images, by default of the first five
        successes. Returns a matplotlib figure."""
        from .plots import draw_images

        if rows is None:
            rows = self.success.nonzero().flatten()[:5] if bool(self.success.any()) else slice(5)
        return draw_images(self[[int(rows)] if _one(rows) else rows])  # type: ignore[arg-type]

    def save(self, path: str | Path) -> Path:
        """Write the result to a safetensors file, with texts and numbers as JSON in its header. ``Result.load`` reads
        it."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        tensors = {
            name: value.detach().cpu().contiguous().clone()
            for name, value in values.items()
            if isinstance(value, Tensor)
        }
        words = {name: value for name, value in values.items() if not isinstance(value, Tensor)}
        place = Path(path).expanduser()
        if place.suffix not in ("", ".safetensors"):
            raise BadInput(
                f"a result is saved as {place.stem}.safetensors, not as {place.name}; "
                "result.show().savefig(...) writes a picture of its images."
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, place, {HEADER: json.dumps({"kind": type(self).__name__, **words}, default=vars)})
        return place

    @classmethod
    def load(cls: type[R], path: str | Path) -> R:
        """Read a result that ``save`` wrote."""
        place = Path(path).expanduser()
        if not place.is_file():
            raise Unavailable(f"there is no file {place}.")
        try:
            with safe_open(place, framework="pt") as opened:
                words: dict[str, Any] = json.loads((opened.metadata() or {})[HEADER])
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise BadInput(f"{place} is no result that almakit saved ({type(error).__name__}: {error}).") from error
        known = {f.name for f in fields(cls)}
        found = {name: value for name, value in {**words, **tensors}.items() if name in known}
        found["radii"] = tuple(found.get("radii", ()))
        try:
            return cls(**found)
        except TypeError as error:
            raise BadInput(f"{place} does not hold all of a {cls.__name__} ({error}).") from error

    def __repr__(self) -> str:
        counts = ", ".join(f"{int((self.status == s).sum())} {s.name}" for s in Status if int((self.status == s).sum()))
        return (
            f"{type(self).__name__}({len(self)} images: {counts or 'none'}; success {self.success_rate:.1%}, "
            f"median distance {self.median:.4g})"
        )

    # Put together.

    @staticmethod
    def empty(x: Tensor) -> Result:
        """The result for no images; ``x`` (0, ...) has their shape."""
        counts = torch.zeros(0, dtype=torch.long)
        return Result(x, x.new_zeros(0), counts, counts, counts)

    @staticmethod
    def concatenate(parts: Sequence[Result]) -> Result:
        """The rows of several results, in order."""

        def rows(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            return None if any(value is None for value in values) else torch.cat(values)

        names = {part.distance for part in parts}
        return Result(
            rows("adversarials"),
            rows("distances"),
            rows("status"),
            rows("forwards"),
            rows("backwards"),
            reasons=[reason for part in parts for reason in part.reasons or [None] * len(part)],
            probes=sum(part.probes for part in parts),
            originals=rows("originals"),
            labels=rows("labels"),
            distance=names.pop() if len(names) == 1 else "",
            course=rows("course"),
            shares=rows("shares"),
            **{name: rows(name) for name in OTHER_COUNTS},
            step=parts[0].step if len({part.step for part in parts}) == 1 else 0.0,
            # An attack that minimises the distance gives results for every radius.
            radii=tuple(dict.fromkeys(radius for part in parts for radius in part.radii))
            if all(part.radii for part in parts)
            else (),
            stop_within=max((part.stop_within for part in parts if part.stop_within is not None), default=None),
        )


def _one(rows: object) -> bool:
    """Whether a value is an integer of Python, numpy or a tensor."""
    return getattr(rows, "ndim", 0) == 0 and hasattr(rows, "__index__")


def best_of(results: Iterable[Result]) -> Result:
    """The smallest verified distance of each image over several attacks on the same images; forwards and backwards are
    their sums.

    If distances are equal, the first result's point is taken. All attacks must have minimised the same distance.
    """
    parts = list(results)
    if not parts:
        raise BadInput("best_of needs at least one result.")
    first = parts[0]
    for part in parts[1:]:
        same_images = first.originals is None or part.originals is None or torch.equal(first.originals, part.originals)
        if part.adversarials.shape != first.adversarials.shape or not same_images:
            raise BadInput("best_of takes results of the same images in the same order; these are of others.")
        if part.distance != first.distance:
            raise BadInput(
                f"best_of takes results in one distance, not in {first.distance or 'an unknown one'} and "
                f"{part.distance or 'an unknown one'}."
            )
    winner = torch.stack([part.distances for part in parts]).argmin(0).cpu()
    count = len(first)
    merged = Result.concatenate(parts)[winner * count + torch.arange(count)]
    sums: dict[str, Any] = {
        name: torch.stack([getattr(part, name) for part in parts]).sum(0)
        for name in ("forwards", "backwards", *OTHER_COUNTS)
        if all(getattr(part, name) is not None for part in parts)
    }
    # The distance after a total number of passes would depend on the order of the results.
    return replace(merged, **sums, probes=sum(part.probes for part in parts), course=None)
