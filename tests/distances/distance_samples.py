"""Images the distance tests share: real-looking, awkward, and small enough to be quick."""

from __future__ import annotations

import torch
from torch import Tensor

from almakit.distances import get
from almakit.errors import BadInput


def smallest_size(name: str) -> int:
    """The side of the smallest square images among a few sizes that the distance accepts."""
    for size in (12, 32, 180):
        try:
            get(name).check(torch.zeros(1, 3, size, size))
        except BadInput:
            continue
        return size
    raise AssertionError(f"{name} accepts none of the sizes tried")


def images(name: str, dtype: torch.dtype = torch.float64) -> Tensor:
    """(4, 3, S, S) in [0.02, 0.98]: noise, a smooth colour field, flat grey, a grey ramp."""
    size = smallest_size(name)
    generator = torch.Generator().manual_seed(3)
    ramp = torch.linspace(0, 1, size, dtype=dtype)
    down, across = torch.meshgrid(ramp, ramp, indexing="ij")
    noise = torch.rand(3, size, size, generator=generator, dtype=dtype)
    smooth = torch.stack(
        [0.5 + 0.4 * torch.sin(3 * down + phase + 2 * across * (1 + phase)) for phase in (0.0, 1.0, 2.0)]
    )
    grey, flat = (0.2 + 0.6 * across).expand(3, -1, -1), torch.full_like(smooth, 0.4)
    return torch.stack([noise, smooth, flat, grey]).clamp(0.02, 0.98)


def direction(x: Tensor, seed: int = 5) -> Tensor:
    """A random direction of unit l-infinity norm per image, with no zero entry."""
    step = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(x)
    return step / step.abs().flatten(1).amax(1).view(-1, 1, 1, 1)


def relative(error: Tensor, of: Tensor) -> float:
    """The largest |error| / |of| over images, Euclidean."""
    error, of = (value.detach().reshape(len(value), -1) for value in (error, of))
    return float((error.norm(dim=1) / of.norm(dim=1)).max())
