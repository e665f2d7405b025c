"""Figures of a result, made with matplotlib: the robust-accuracy curve, and images with their adversarial images."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import BadInput, Unavailable

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise Unavailable("figures need matplotlib: pip install 'almakit[report]'.") from error

if TYPE_CHECKING:
    from .result import Result

SIDE = 2.2  # inches of one picture


class Picture(Figure):
    """A matplotlib figure that notebooks display and ``savefig(path)`` writes. It does not belong to pyplot and need
    not be closed."""

    def _repr_png_(self) -> bytes:
        out = BytesIO()
        self.savefig(out, format="png", bbox_inches="tight", dpi=110)
        return out.getvalue()


def draw_curve(result: Result, ax: Any = None) -> Any:
    """Robust accuracy of ``result`` against the radius, with a step at every distance."""
    figure = Picture(figsize=(4.6, 3.0), layout="constrained") if ax is None else ax.figure
    ax = figure.add_subplot() if ax is None else ax
    points = result.curve()
    end = 1.05 * (points[-1][0] or 1.0)
    widest = max(end, ax.get_xlim()[1]) if ax.lines else end  # if the axes contain other curves, show all of them
    ax.step(
        [eps for eps, _ in points] + [end], [100 * share for _, share in points] + [100 * points[-1][1]], where="post"
    )
    ax.set(
        xlabel=f"{result.distance or 'distance'} radius", ylabel="robust accuracy (%)", xlim=(0, widest), ylim=(0, 101)
    )
    ax.grid(alpha=0.3)
    return figure


def draw_images(result: Result) -> Picture:
    """Image | adversarial image | difference, a row for each image of ``result``."""
    if result.originals is None:
        raise BadInput(
            "this result does not hold the clean images, so there is nothing to show beside the adversarial ones."
        )
    if result.adversarials.ndim != 4 or result.adversarials.shape[1] not in (1, 3):
        raise BadInput(
            f"points of shape {tuple(result.adversarials.shape[1:])} are no pictures; show() needs 1 or 3 channels, "
            "height and width."
        )
    if not len(result):
        raise BadInput("there is no image to show.")
    figure = Picture(figsize=(3 * SIDE, SIDE * 1.15 * len(result)), layout="constrained")
    for line, one in zip(figure.subplots(len(result), 3, squeeze=False), result, strict=True):
        assert one.original is not None
        change = one.adversarial - one.original
        largest = float(change.abs().max())
        label = "image" if not isinstance(one.label, int) else f"image, label {one.label}"
        found = f"{result.distance or 'distance'} {one.distance:.4g}" if one.success else "nothing found"
        _picture(line[0], one.original, label)
        _picture(line[1], one.adversarial, f"adversarial, {found}")
        _picture(
            line[2],
            0.5 + change / (2 * largest) if largest > 0 else torch.full_like(change, 0.5),
            f"difference, at most {largest:.3g}",
        )
    return figure


def _picture(ax: Any, image: Tensor, title: str) -> None:
    pixels = image.detach().float().cpu().clamp(0, 1).permute(1, 2, 0).numpy()
    ax.imshow(pixels if pixels.shape[2] == 3 else pixels[..., 0], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    ax.set_title(title, fontsize=8)
    ax.axis("off")
