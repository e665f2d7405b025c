"""The 11 x 11 Gaussian window of SSIM, separable, over the region where it fits, as products with small banded
matrices.

A band of 32 output rows needs 42 input rows: one dense (32, 42) product a block. That is faster on a CPU than a
depthwise convolution. On a GPU it is not rounded to TF32 as convolutions are, which would destroy distances of 1e-7.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

WINDOW, SIGMA = 11, 1.5
_BLOCK = 32


@lru_cache(maxsize=32)
def _band(dtype: torch.dtype, device: torch.device) -> Tensor:
    """(32, 42): row i holds the window's weights at columns i .. i + 10."""
    offsets = torch.arange(WINDOW, dtype=torch.float64) - WINDOW // 2
    weights = torch.softmax(-offsets.square() / (2 * SIGMA**2), 0)
    band = torch.zeros(_BLOCK, _BLOCK + WINDOW - 1, dtype=torch.float64)
    for row in range(_BLOCK):
        band[row, row : row + WINDOW] = weights
    return band.to(device, dtype)


def _rows(images: Tensor) -> Tensor:
    """The window along dimension -2: (..., H, W) -> (..., H - 10, W)."""
    band, height = _band(images.dtype, images.device), images.shape[-2] - WINDOW + 1
    sizes = [(start, min(_BLOCK, height - start)) for start in range(0, height, _BLOCK)]
    blocks = [
        band[:size, : size + WINDOW - 1] @ images[..., start : start + size + WINDOW - 1, :] for start, size in sizes
    ]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, -2)


def _rows_adjoint(images: Tensor) -> Tensor:
    """The transpose of ``_rows``: (..., H - 10, W) -> (..., H, W)."""
    band, height = _band(images.dtype, images.device), images.shape[-2]
    result = images.new_zeros(*images.shape[:-2], height + WINDOW - 1, images.shape[-1])
    for start in range(0, height, _BLOCK):
        size = min(_BLOCK, height - start)
        block = band[:size, : size + WINDOW - 1].mT @ images[..., start : start + size, :]
        result[..., start : start + size + WINDOW - 1, :] += block
    return result


def blur(images: Tensor) -> Tensor:
    """Gaussian means of (..., H, W) over all windows that fit, *transposed*: (..., W - 10, H - 10). Nothing after it
    needs the other order."""
    return _rows(_rows(images).mT)


def blur_adjoint(images: Tensor) -> Tensor:
    """The transpose of ``blur`` as a linear map: (..., W - 10, H - 10) -> (..., H, W)."""
    return _rows_adjoint(_rows_adjoint(images).mT)
