"""Small functions on batches of tensors, used by goals, steps and attacks."""

from __future__ import annotations

import math
import os

import torch
from torch import Tensor

TINY = 1e-30
"""Keeps divisors positive without changing any sum."""
SMALL = 1e-12
"""Below every distance, margin and multiplier that matters."""


def per_image(values: Tensor, like: Tensor) -> Tensor:
    """(B,) -> (B, 1, ..., 1), to multiply images shaped like ``like`` (B, ...)."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def cheap_sync(device: torch.device) -> bool:
    """Whether reading values back from ``device`` is cheap, as on a CPU. For tests, the environment variable
    ``ALMAKIT_CHEAP_SYNC=0`` selects the code path of accelerators on a CPU."""
    return device.type == "cpu" and os.environ.get("ALMAKIT_CHEAP_SYNC") != "0"


def largest_entry(values: Tensor) -> Tensor:
    """(B,) the largest absolute entry of ``values`` (B, ...)."""
    flat = values.flatten(1)
    if not cheap_sync(values.device):
        largest: Tensor = torch.linalg.vector_norm(flat, float("inf"), dim=1)
        return largest
    # On a CPU two reductions cost less than one and a tensor of absolute values, and that less than a norm.
    return torch.maximum(flat.amax(1), -flat.amin(1))


def extremes(values: Tensor) -> tuple[Tensor, Tensor]:
    """(B, ...) the smallest and the largest entry of ``values`` (B, K, ...) over the second dimension."""
    if cheap_sync(values.device):
        return values.amin(1), values.amax(1)
    least, most = torch.aminmax(values, dim=1)
    return least, most


def soft_maximum(values: Tensor, temperature: Tensor) -> Tensor:
    """(B,) T logsumexp(values / T) over ``values`` (B, N), at ``temperature`` (B,); entries of -inf do not count."""
    best = values.detach().amax(1)
    return temperature * torch.logsumexp((values - best.unsqueeze(1)) / temperature.unsqueeze(1), dim=1) + best


def deviation(values: Tensor) -> Tensor:
    """(B,) the standard deviation of each row of ``values`` (B, N)."""
    if values.dtype == torch.float32:
        return values.std(1)
    # In double precision the last bit of std depends on the other rows.
    centred = values - values.mean(1, keepdim=True)
    return (centred.square().sum(1) / (values.shape[1] - 1)).sqrt()


def choose(rows: Tensor, chosen: Tensor, others: Tensor, cheap: bool) -> Tensor:
    """``chosen`` (B, ...) in the marked ``rows`` (B,), ``others`` (B, ...) elsewhere; ``cheap`` allows reading which
    rows are marked.

    A mask over whole images is slow on a CPU, and usually few rows are marked.
    """
    if not cheap:
        return torch.where(per_image(rows, chosen), chosen, others)
    places = rows.nonzero().flatten()
    return others.index_copy(0, places, chosen[places]) if len(places) else others


def ranks(order: Tensor) -> Tensor:
    """(B, N) the rank of each value, from the ``order`` (B, N) of an argsort."""
    return torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )


def unit(direction: Tensor) -> Tensor:
    """``direction`` (B, ...) with l2 length 1 per image, zero where it is zero."""
    length = torch.linalg.vector_norm(direction.flatten(1), dim=1)
    return direction / per_image(torch.where(length > 0, length, torch.ones_like(length)), direction)


def powers(base: float, exponent: Tensor) -> Tensor:
    """(B,) ``base`` to the power of ``exponent`` (B,). torch.pow is not used, because its last bit depends on the
    position in the batch."""
    return torch.exp(exponent * math.log(base))
