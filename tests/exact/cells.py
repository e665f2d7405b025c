"""The exact l2 optimum of a tiny ReLU network, by walking through its linear regions from the image outwards.

A ReLU network is linear on each cell of a partition into polytopes, one for every pattern of units that are on. Cells
are visited in the order of their distance from the image; the walk ends when the next one is further than the best
adversarial point (the idea of GeoCert, Jordan et al. 2019). All distances are least distance problems in the space of
the image.
"""

from __future__ import annotations

import heapq
import math
from itertools import count

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

Layers = list[tuple[np.ndarray, np.ndarray]]


def nearest(normals: np.ndarray, needs: np.ndarray) -> np.ndarray | None:
    """The shortest d with ``normals`` (M, n) d >= ``needs`` (M,), None where there is none (Lawson and Hanson, chapter
    23)."""
    system = np.vstack([normals.T, needs])
    wanted = np.zeros(len(system))
    wanted[-1] = 1
    weights, residual = nnls(system, wanted, maxiter=10_000)
    if residual < 1e-9:
        return None
    rest = system @ weights - wanted
    return -rest[:-1] / rest[-1]


def cell(parts: Layers, image: np.ndarray, on: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of the pattern ``on`` (2, H): its polytope normals d >= needs, and the logits slope d + level, all as functions
    of d = x - image."""
    slope, level = np.eye(len(image)), image
    normals, needs = [np.eye(len(image)), -np.eye(len(image))], [-image, image - 1]
    for (weight, bias), pattern in zip(parts[:-1], on, strict=True):
        slope, level = weight @ slope, weight @ level + bias
        side = np.where(pattern, 1.0, -1.0)
        normals.append(side[:, None] * slope)
        needs.append(-side * level)
        slope, level = pattern[:, None] * slope, pattern * level
    weight, bias = parts[-1]
    return np.vstack(normals), np.concatenate(needs), weight @ slope, weight @ level + bias


def pattern_at(parts: Layers, image: np.ndarray) -> np.ndarray:
    """(2, H) which units are on at the image."""
    rows, value = [], image
    for weight, bias in parts[:-1]:
        value = weight @ value + bias
        rows.append(value > 0)
        value = value.clip(min=0)
    return np.array(rows)


def nearest_by_cells(parts: Layers, image: np.ndarray, label: int, reach: float) -> tuple[float, Tensor]:
    """The smallest l2 distance to another class inside [0, 1], known to be below ``reach``, and the point."""
    start = pattern_at(parts, image)
    seen, order = {start.tobytes()}, count()
    heap = [(0.0, next(order), start)]
    best, move = reach, None
    while heap:
        distance, _, on = heapq.heappop(heap)
        if distance >= best:
            break
        normals, needs, slope, level = cell(parts, image, on)
        for rival in range(len(level)):
            if rival == label:
                continue
            found = nearest(
                np.vstack([normals, slope[rival] - slope[label]]), np.append(needs, level[label] - level[rival])
            )
            if found is not None and math.hypot(*found) < best:
                best, move = math.hypot(*found), found
        for unit in range(on.size):
            # Across a facet exactly one unit changes: the others' inputs are continuous.
            neighbour = on.copy()
            neighbour.flat[unit] ^= True
            if neighbour.tobytes() in seen:
                continue
            seen.add(neighbour.tobytes())
            found = nearest(*cell(parts, image, neighbour)[:2])
            if found is not None and math.hypot(*found) < best:
                heapq.heappush(heap, (math.hypot(*found), next(order), neighbour))
    assert move is not None, "no adversarial point within reach"
    return best, torch.from_numpy(image + move)
