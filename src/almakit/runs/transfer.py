"""Tensors to the device and back. With CUDA through pinned memory, so that a copy need not wait for what the device is
doing (not measured yet)."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(x: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """``x`` on ``device``, in ``dtype`` where given."""
    if device.type == "cuda" and x.device.type == "cpu":
        # The cast is done on the device: what is copied stays small.
        moved = x.pin_memory().to(device, non_blocking=True)
        return moved if dtype is None else moved.to(dtype)
    return x.to(device, dtype or x.dtype)


def to_host(x: Tensor) -> Tensor:
    """``x`` in the CPU's memory, all there when this returns; only the work of this thread's stream is waited for."""
    if x.device.type != "cuda":
        return x.cpu()
    kept = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    kept.copy_(x, non_blocking=True)
    torch.cuda.current_stream(x.device).synchronize()
    return kept
