"""What an attack returns: one row per image with its status, and the numbers, pictures and files of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from html import escape
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
"""Which images: a slice, positions (R,), or a boolean mask (B,); numpy arrays too."""


HEADER = "almakit-result"
OTHER_COUNTS = ("surrogate_forwards", "distance_gradients")
"""Counts (B,) that a result may have beside forwards and backwards."""


class Status(IntEnum):
    """How an image ended. The sentences are in ``sentence``."""

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
    """One image of a ``Result``: ``result[3]``. ``adversarial`` (...) is the clean image where nothing was found."""

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
    """One row per image: the best verified point, its distance, how it ended and what it cost.

    ``adversarials`` (B, ...) holds the clean image where nothing was found; ``distances`` (B,) is 0 where the goal was
    reached from the start and inf where nothing was found. ``forwards`` and ``backwards`` (B,) count model passes of
    each image. ``probes`` counts the forwards of the checks before and after the attack, which belong to no image's
    budget. ``originals`` (B, ...), ``labels`` (B,) and the name of the ``distance`` are what the attack was
    given. ``course`` (B, 5) is the best distance after 10, 30, 100, 300 and 1000 forwards. ``shares`` (B,), of a random
    model: in which share of fresh passes the goal is reached. ``surrogate_forwards`` (B,): passes of the model that
    gradients came from, whose are all ``backwards`` then. ``distance_gradients`` (B,): gradients of the distance that
    each image took, None in lp norms, where they are a formula. ``step``: the spacing of the grid on which originals
    and adversarial images lie, 0 where there is none. ``radii``: those of attacks at a fixed epsilon, empty where the
    smallest distance was looked for. ``stop_within``: the radius at which images stopped; distances up to it are not
    the smallest. ``result[3]`` is one image, ``result[mask]`` and ``result[:10]`` are results again.
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

    # One image, some images, all of them in turn.

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
                # IndexError ends a loop over a sequence.
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
        """(B,) whether an image fools the model (already wrong ones included, as the paper counts)."""
        return (self.status == Status.ALREADY_WRONG) | (self.status == Status.SUCCESS)

    @property
    def success_rate(self) -> float:
        return float(self.success.double().mean()) if len(self) else float("nan")

    @property
    def median(self) -> float:
        """Median distance over all images: already wrong counts 0, failed infinity."""
        if not len(self):
            return float("nan")
        # Not by quantile(): between two infinities it interpolates to NaN.
        ordered = self.distances.double().sort().values
        return float(ordered[(len(self) - 1) // 2] + ordered[len(self) // 2]) / 2

    @property
    def clean_accuracy(self) -> float:
        """The share of images on which the goal is not reached from the start: those classified as their label, where
        there are no targets."""
        return self.robust_accuracy(0.0)

    @cached_property
    def grid(self) -> Grid:
        """Which distances lie within a radius."""
        size = float(self.adversarials.abs().max()) if self.adversarials.numel() else 1.0
        return Grid.of(self.distance, self.step, rounding=torch.finfo(self.distances.dtype).eps * size)

    def robust_accuracy(self, eps: float | str) -> float:
        """The share of images with no verified adversarial image within ``eps``: 1/B #{i: d_i > eps}. A stronger attack
        can only lower it.

        Args:
            eps: a radius, such as 0.5 or "8/255". Float rounding (1e-5 relative) never makes a broken image robust; on
                a grid, whole levels are counted.

        Returns:
            The share; NaN where there are no images, for attacks at a fixed epsilon at any other radius but 0, and
            between 0 and ``stop_within``.
        """
        radius = number(eps)
        unknown = bool(self.radii) and radius > 0 and not any(same(radius, known) for known in self.radii)
        if self.stop_within is not None and 0 < radius < self.stop_within and not same(radius, self.stop_within):
            unknown = True
        if unknown or not len(self):
            return float("nan")
        return float((self.distances.double() > self.grid.limit(radius)).double().mean())

    def curve(self, epsilons: Iterable[float | str] | None = None) -> list[tuple[float, float]]:
        """(eps, robust accuracy) for each radius; without radii for 0 and every distance found, where the curve has its
        steps, or the radii of an attack at a fixed epsilon."""
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
        """Robust accuracy against the radius, a matplotlib figure; drawn into the axes ``ax`` where given."""
        from .plots import draw_curve

        picture: Picture = draw_curve(self, ax)
        return picture

    def show(self, rows: int | Rows | None = None) -> Picture:
        """Image, adversarial image and their difference side by side, a matplotlib figure: of one image, of some, or of
        the first five found."""
        from .plots import draw_images

        if rows is None:
            rows = self.success.nonzero().flatten()[:5] if bool(self.success.any()) else slice(5)
        return draw_images(self[[int(rows)] if _one(rows) else rows])  # type: ignore[arg-type]

    def save(self, path: str | Path) -> Path:
        """Writes all of it into one safetensors file, its words and numbers as JSON in the file's header;
        ``Result.load`` reads it back."""
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
        """What ``save`` wrote."""
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

    def _repr_html_(self) -> str:
        """For notebooks: the sentence of ``repr`` and a table of the first ten images."""
        head = "".join(
            f"<th>{name}</th>"
            for name in ("image", "label", "status", f"distance {escape(self.distance)}", "forwards", "backwards")
        )
        body = "".join(
            f"<tr><td>{place}</td><td>{one.label if isinstance(one.label, int) else ''}</td>"
            f"<td>{one.status.name.lower().replace('_', ' ')}</td>"
            f"<td>{one.distance:.4g}</td><td>{one.forwards}</td><td>{one.backwards}</td></tr>"
            for place, one in enumerate(self[:10])
        )
        more = f"<p>and {len(self) - 10} more</p>" if len(self) > 10 else ""
        return f"<p>{escape(repr(self))}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    # Put together.

    @staticmethod
    def empty(x: Tensor) -> Result:
        """The result for no images; ``x`` (0, ...) says their shape."""
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
            # An attack that looks for the smallest distance answers for every radius.
            radii=tuple(dict.fromkeys(radius for part in parts for radius in part.radii))
            if all(part.radii for part in parts)
            else (),
            stop_within=max((part.stop_within for part in parts if part.stop_within is not None), default=None),
        )


def _one(rows: object) -> bool:
    """Whether it is one whole number: Python's, numpy's or a tensor's."""
    return getattr(rows, "ndim", 0) == 0 and hasattr(rows, "__index__")


def best_of(results: Iterable[Result]) -> Result:
    """The smallest verified distance of each image over several attacks on the same images; forwards and backwards are
    their sums.

    Of equal distances the first result's point is taken. The attacks must have minimised the same distance.
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
    # How near they came for how many passes in all depends on their order, which nobody chose.
    return replace(merged, **sums, probes=sum(part.probes for part in parts), course=None)
