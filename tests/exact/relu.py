"""Tiny ReLU networks whose smallest adversarial perturbation is found exactly: l1 and linf by a mixed-integer program,
l2 cell by cell."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from exact.cells import Layers, nearest_by_cells
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor, nn

INPUTS, HIDDEN, CLASSES = 8, 16, 3


@cache
def tiny_network(seed: int) -> nn.Sequential:
    """Two hidden layers of 16 units, in double precision, so that rounding is no part of the comparison."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    ).double()
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, nn.Linear):
                layer.weight.copy_(
                    torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64)
                    * (2 / layer.in_features) ** 0.5
                )
                layer.bias.copy_(torch.randn(layer.bias.shape, generator=generator, dtype=torch.float64) * 0.1)
        # Logits alike at the centre, so that all classes occur.
        centre = torch.full((1, INPUTS), 0.5, dtype=torch.float64)
        model[4].bias.sub_(model(centre)[0])
    return model.eval().requires_grad_(False)


def images(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Images (B, 8) in [0, 1] and the labels the network gives them."""
    x = torch.rand(count, INPUTS, generator=torch.Generator().manual_seed(1000 + seed), dtype=torch.float64)
    return x, tiny_network(seed)(x).argmax(1)


def layers(model: nn.Sequential) -> Layers:
    return [(layer.weight.numpy(), layer.bias.numpy()) for layer in model if isinstance(layer, nn.Linear)]


def some_point(model: nn.Sequential, image: Tensor, label: int, norm: float) -> Tensor:
    """A point (8,) of another class: the nearest that 4000 random segments from the image cross; it bounds the exact
    search."""
    far = torch.rand(4000, INPUTS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    far = far[model(far).argmax(1) != label]
    inside, outside = torch.zeros(len(far), 1, dtype=torch.float64), torch.ones(len(far), 1, dtype=torch.float64)
    for _ in range(40):
        middle = (inside + outside) / 2
        crossed = (model(image + middle * (far - image)).argmax(1) != label).unsqueeze(1)
        inside, outside = torch.where(crossed, inside, middle), torch.where(crossed, middle, outside)
    points = image + outside * (far - image)
    return points[torch.linalg.vector_norm(points - image, norm, dim=1).argmin()]


def pre_activation_bounds(
    parts: Layers, image: np.ndarray, reach: float, norm: float
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Bounds of each hidden layer's inputs within ``reach`` of the image, by interval arithmetic: the big-M of the
    program."""
    low, high, found = (image - reach).clip(min=0), (image + reach).clip(max=1), []
    for index, (weight, bias) in enumerate(parts[:-1]):
        up, down = weight.clip(min=0), weight.clip(max=0)
        low, high = up @ low + down @ high + bias, up @ high + down @ low + bias
        if index == 0 and norm == 1:
            # In the l1 ball a unit's input moves by no more than the reach times its largest weight.
            middle, swing = weight @ image + bias, reach * np.abs(weight).max(1)
            low, high = np.maximum(low, middle - swing), np.minimum(high, middle + swing)
        found.append((low, high))
        low, high = low.clip(min=0), high.clip(min=0)
    return found


def optima(model: nn.Sequential, image: Tensor, label: int) -> dict[float, tuple[float, Tensor]]:
    """For l1, l2 and linf: the exact smallest distance from ``image`` (8,) to another class inside [0, 1], and a point
    (8,) there.

    The quick ones go first; their points are near in the next norm too and narrow its search. What was solved once is
    not solved again: several files ask for the same images.
    """
    return _solved(model, tuple(image.tolist()), label)


@cache
def _solved(model: nn.Sequential, pixels: tuple[float, ...], label: int) -> dict[float, tuple[float, Tensor]]:
    image = torch.tensor(pixels, dtype=torch.float64)
    found: dict[float, tuple[float, Tensor]] = {}
    near = some_point(model, image, label, math.inf)
    for norm in (math.inf, 2.0, 1.0):
        reach = float(torch.linalg.vector_norm(near - image, norm)) * 1.0001 + 1e-6
        if norm == 2:
            found[norm] = nearest_by_cells(layers(model), image.numpy(), label, reach)
        else:
            found[norm] = nearest_by_program(model, image.numpy(), label, reach, norm)
        near = found[norm][1]
    return found


def nearest_by_program(
    model: nn.Sequential, image: np.ndarray, label: int, reach: float, norm: float
) -> tuple[float, Tensor]:
    """l1 or linf by a mixed-integer linear program with the big-M of the bounds, solved by HiGHS; a point as near as
    ``reach`` is known."""
    parts, rivals = layers(model), [k for k in range(CLASSES) if k != label]
    # The variables: x, each hidden layer's outputs and switches, the rival's switch, bounds of |x - image|.
    counts = [INPUTS, *[HIDDEN] * 4, len(rivals), INPUTS if norm == 1 else 1]
    x, *hidden, chosen, away = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
    low, high, integer = np.zeros(sum(counts)), np.full(sum(counts), np.inf), np.zeros(sum(counts))
    constraints: list[LinearConstraint] = []

    def add(least: np.ndarray | float, most: np.ndarray | float, *blocks: tuple[np.ndarray, np.ndarray]) -> None:
        """least <= sum of blocks of the matrix times their variables <= most."""
        matrix = np.zeros((len(blocks[0][1]), sum(counts)))
        for columns, block in blocks:
            matrix[:, columns] = block
        constraints.append(LinearConstraint(matrix, least, most))

    low[x], high[x] = (image - reach).clip(min=0), (image + reach).clip(max=1)
    before, one = x, np.eye(HIDDEN)
    for (weight, bias), (least, most), out, switch in zip(
        parts[:-1], pre_activation_bounds(parts, image, reach, norm), hidden[::2], hidden[1::2], strict=True
    ):
        slack, high[out] = least.clip(max=0), most.clip(min=0)
        # A unit that is on or off everywhere needs no choice.
        low[switch], high[switch], integer[switch] = least > 0, most > 0, 1
        # out >= value + bias; out <= value + bias - slack (1 - switch); out <= most switch.
        add(bias, np.inf, (out, one), (before, -weight))
        add(-np.inf, bias - slack, (out, one), (switch, -np.diag(slack)), (before, -weight))
        add(-np.inf, 0.0, (out, one), (switch, -np.diag(high[out])))
        before = out
    weight, bias = parts[-1]
    high[chosen], integer[chosen] = 1, 1
    add(1.0, 1.0, (chosen, np.ones((1, len(rivals)))))
    lead, shift = weight[rivals] - weight[label], bias[rivals] - bias[label]
    worst = lead.clip(max=0) @ high[before] + shift
    # lead.h + shift >= worst (1 - chosen): binding where this rival is the chosen one.
    add(worst - shift, np.inf, (before, lead), (chosen, np.diag(worst)))
    each = np.eye(INPUTS) if norm == 1 else np.ones((INPUTS, 1))
    add(-image, np.inf, (away, each), (x, -np.eye(INPUTS)))
    add(image, np.inf, (away, each), (x, np.eye(INPUTS)))
    cost = np.zeros(sum(counts))
    cost[away] = 1
    answer = milp(
        cost, constraints=constraints, integrality=integer, bounds=Bounds(low, high), options={"mip_rel_gap": 1e-6}
    )
    assert answer.status == 0, answer.message
    return float(answer.fun), torch.from_numpy(answer.x[:INPUTS])
