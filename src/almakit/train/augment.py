"""Training images moved and mirrored by lot."""

from __future__ import annotations

import torch
from torch import Tensor


def shifted(x: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each image (B, C, H, W) moved by its own whole number of pixels, at most ``most`` in each direction."""
    if most == 0:
        return x
    high, wide = x.shape[2:]
    padded = torch.nn.functional.pad(x, (most,) * 4)
    moves = torch.randint(0, 2 * most + 1, (2, len(x)), generator=generator)
    rows = (moves[0][:, None] + torch.arange(high))[:, None, :, None]
    columns = (moves[1][:, None] + torch.arange(wide))[:, None, None, :]
    return padded[
        torch.arange(len(x))[:, None, None, None], torch.arange(x.shape[1])[None, :, None, None], rows, columns
    ]


def mirrored(x: Tensor, wanted: bool, generator: torch.Generator) -> Tensor:
    """Half of the images (B, C, H, W), drawn by lot, with left and right exchanged."""
    if not wanted:
        return x
    chosen = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(chosen[:, None, None, None], x.flip(3), x)
