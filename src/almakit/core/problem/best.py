"""The nearest verified point of each image, as a value: what a query finds makes a new one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...tensors import choose, per_image
from .query import Query


@dataclass(frozen=True, eq=False)
class Best:
    """``point`` (B, ...) and its ``distance`` (B,), infinite where nothing is known; ``look`` allows reading values
    back from the device."""

    point: Tensor
    distance: Tensor
    look: bool

    @classmethod
    def nothing(cls, x: Tensor, look: bool) -> Best:
        """For the clean images ``x`` (B, ...), before anything is known."""
        return cls(x.clone(), torch.full((len(x),), float("inf"), dtype=x.dtype, device=x.device), look)

    @property
    def found(self) -> Tensor:
        """(B,) whether an adversarial point is known."""
        return torch.isfinite(self.distance)

    def with_query(self, query: Query, images: Tensor | None) -> Best:
        """With the successes of ``query``, whose rows are of the images ``images`` (R,), or of all in order."""
        success = query.success & (query.distance.abs() < float("inf"))
        if images is None:
            better = success & (query.distance < self.distance)
            distance = torch.where(better, query.distance, self.distance)
            return Best(choose(better, query.point, self.point, self.look), distance, self.look)
        distance = torch.where(success, query.distance, torch.full_like(query.distance, float("inf")))
        smallest = self.distance.scatter_reduce(0, images, distance, "amin")
        # Of several candidates of one image with the same distance the first is kept, whatever the device's scatter
        # order.
        order = torch.arange(len(images), device=images.device)
        wins = success & (distance == smallest[images]) & (distance < self.distance[images])
        none = torch.full((len(self.distance),), len(images), device=images.device)
        first = none.scatter_reduce(0, images, torch.where(wins, order, len(images)), "amin")
        improved = (first < len(images)).nonzero().flatten()
        return Best(
            self.point.index_copy(0, improved, query.point[first[improved]]),
            self.distance.index_copy(0, improved, smallest[improved]),
            self.look,
        )

    def nearer(self, other: Best) -> Best:
        """The nearer point of both for each image; of equals the other's."""
        closer = other.distance <= self.distance
        return Best(
            choose(closer, other.point, self.point, self.look),
            torch.where(closer, other.distance, self.distance),
            self.look,
        )

    def within(self, limit: Tensor, other: Best) -> Best:
        """Its points within the distance ``limit`` (B,), those of ``other`` elsewhere."""
        inside = self.distance <= limit
        return Best(
            torch.where(per_image(inside, self.point), self.point, other.point),
            torch.where(inside, self.distance, other.distance),
            self.look,
        )
