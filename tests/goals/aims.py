"""Every registered goal with outputs that suit it, on linear models: what the tests of goals go through. A new name
must be given a sample here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from almakit import goals
from almakit.goals.base import Goal

SHAPE = (2, 3)
PIXELS = 6
BATCH = 4
X = 0.3 + 0.4 * torch.rand(BATCH, *SHAPE, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
Reached = Callable[[Tensor], Tensor]
Union = Callable[[int, Tensor], list[tuple[Tensor, Tensor]]]


class Linear(nn.Module):
    """outputs = W (x - 1/2) + b, reshaped: rows of a batch never touch, whatever its size."""

    def __init__(self, outputs: tuple[int, ...], seed: int = 0, kind: Callable[[Tensor], Any] | None = None):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        count = int(torch.tensor(outputs).prod())
        self.weight = nn.Parameter(torch.randn(count, PIXELS, generator=generator, dtype=torch.float64))
        self.bias = nn.Parameter(0.3 * torch.randn(count, generator=generator, dtype=torch.float64))
        self.outputs, self.kind = outputs, kind

    def flat(self, x: Tensor) -> Tensor:
        """(B, N) before anything is made of it."""
        return ((x.flatten(1) - 0.5).unsqueeze(1) * self.weight.to(x)).sum(-1) + self.bias.to(x)

    def forward(self, x: Tensor) -> Any:
        outputs = self.flat(x).reshape(len(x), *self.outputs)
        return outputs if self.kind is None else self.kind(outputs)


@dataclass(frozen=True)
class Aim:
    """A goal, its model, labels (B, ...) where it needs them, and what it means: a union of polytopes in the flat
    outputs, for each image.

    ``reached`` is the decision said in other words; ``union(row, clean)`` lists polytopes (A, c): the goal is reached
    where A z <= c for one of them.
    """

    name: str
    text: str
    goal: Goal
    model: Linear
    labels: Tensor | None
    reached: Reached
    union: Union


def _rows(count: int, entries: list[dict[int, float]], needs: list[float]) -> tuple[Tensor, Tensor]:
    matrix = torch.zeros(len(entries), count, dtype=torch.float64)
    for row, entry in enumerate(entries):
        for place, value in entry.items():
            matrix[row, place] = value
    return matrix, torch.tensor(needs, dtype=torch.float64)


def _model_labels(model: Linear) -> Tensor:
    with torch.no_grad():
        return model.flat(X).argmax(1)


def _aims() -> list[Aim]:
    from itertools import combinations

    five, two, one, tags, boxes = Linear((5,)), Linear((2,), 7), Linear((1,), 2), Linear((4,), 4), Linear((3, 2), 5)
    y = _model_labels(five)
    second = five.flat(X).detach().argsort(1, descending=True)[:, 1]
    third = five.flat(X).detach().argsort(1, descending=True)[:, 3]
    found: list[Aim] = []

    def add(text: str, goal: Goal, model: Linear, labels: Tensor | None, reached: Reached, union: Union) -> None:
        found.append(Aim(text.partition("(")[0], text, goal, model, labels, reached, union))

    def over(row_label: int, others: list[int]) -> list[tuple[Tensor, Tensor]]:
        return [_rows(5, [{row_label: 1.0, other: -1.0} for other in others], [0.0] * len(others))]

    add(
        "untargeted",
        goals.untargeted(),
        five,
        y,
        lambda z: z.argmax(1) != y,
        lambda row, clean: [p for k in range(5) if k != int(y[row]) for p in over(int(y[row]), [k])],
    )
    add(
        "targeted(target=3)",
        goals.targeted(second),
        five,
        None,
        lambda z: z.argmax(1) == second,
        lambda row, clean: [
            _rows(5, [{k: 1.0, int(second[row]): -1.0} for k in range(5) if k != int(second[row])], [0.0] * 4)
        ],
    )
    add(
        "top-k(k=2)",
        goals.top_k(k=2),
        five,
        y,
        lambda z: ~(z.topk(2, 1).indices == y[:, None]).any(1),
        lambda row, clean: [
            p
            for pair in combinations([k for k in range(5) if k != int(y[row])], 2)
            for p in over(int(y[row]), list(pair))
        ],
    )
    add(
        "top-k(k=2)",
        goals.top_k(targets=third, k=2),
        five,
        None,
        lambda z: (z.topk(2, 1).indices == third[:, None]).any(1),
        lambda row, clean: [
            _rows(5, [{k: 1.0, int(third[row]): -1.0} for k in beaten], [0.0] * 3)
            for beaten in combinations([k for k in range(5) if k != int(third[row])], 3)
        ],
    )
    present = tags.flat(X).detach() > 0
    for need in ("any", "all"):
        add(
            f"multilabel(need={need}, remove=[0], add=[1])",
            goals.multilabel(present=present, need=need),
            tags,
            None,
            lambda z, need=need: ((z > 0) != present).any(1) if need == "any" else ((z > 0) != present).all(1),
            lambda row, clean, need=need: [
                _rows(4, [{k: 1.0 if bool(present[row, k]) else -1.0} for k in group], [0.0] * len(group))
                for group in ([[0], [1], [2], [3]] if need == "any" else [[0, 1, 2, 3]])
            ],
        )
    add(
        "threshold(above=0.8)",
        goals.threshold(above=0.8),
        one,
        None,
        lambda z: z[:, 0] > 0.8,
        lambda row, clean: [_rows(1, [{0: -1.0}], [-0.8])],
    )
    add(
        "regression(by=0.7)",
        goals.regression(by=0.7),
        tags,
        None,
        lambda z: ((z - tags.flat(X).detach()).abs() > 0.7).any(1),
        lambda row, clean: [
            _rows(4, [{k: sign}], [sign * float(clean[k]) - 0.7]) for k in range(4) for sign in (1.0, -1.0)
        ],
    )
    labels = _model_labels(two)
    lead = float(torch.logit(torch.tensor(0.7, dtype=torch.float64)))
    add(
        "reject(probability=0.7)",
        goals.reject(probability=0.7),
        two,
        labels,
        lambda z: (z.argmax(1) != labels) & (z.softmax(1).amax(1) > 0.7),
        lambda row, clean: [_rows(2, [{int(labels[row]): 1.0, 1 - int(labels[row]): -1.0}], [-lead])],
    )
    guard = Linear((3,), 9, lambda z: (z[:, :2], z[:, 2]))
    kept = guard.flat(X).detach()[:, :2].argmax(1)
    add(
        "reject(detector=1, threshold=0.2)",
        goals.reject(detector=1, threshold=0.2),
        guard,
        kept,
        lambda z: (z[:, :2].argmax(1) != kept) & (z[:, 2] < 0.2),
        lambda row, clean: [_rows(3, [{int(kept[row]): 1.0, 1 - int(kept[row]): -1.0}, {2: 1.0}], [0.0, 0.2])],
    )
    # The optima of this model are away from the zero embedding, where the similarity has no gradient.
    plane, east = Linear((2,), 4), torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    add(
        "embedding(below=0.5)",
        goals.embedding(target=east.expand(BATCH, 2), above=0.8),
        plane,
        None,
        lambda z: torch.cosine_similarity(z, east) > 0.8,
        lambda row, clean: [_rows(2, [{0: -0.6, 1: -0.8}, {0: -0.6, 1: 0.8}], [0.0, 0.0])],
    )
    add(
        "detection(below=-0.3, index=1)",
        goals.detection(below=-0.3, index=1),
        boxes,
        None,
        lambda z: (z.reshape(-1, 3, 2)[..., 1] < -0.3).all(1),
        lambda row, clean: [_rows(6, [{1: 1.0}, {3: 1.0}, {5: 1.0}], [-0.3] * 3)],
    )
    maps = Linear((3, 2, 2), 13)
    pixel_labels = maps(X).detach().argmax(1)
    flat_labels = pixel_labels.flatten(1)
    add(
        "pixels(share=0.5)",
        goals.pixels(share=0.5),
        maps,
        pixel_labels,
        lambda z: (z.reshape(-1, 3, 4).argmax(1) != flat_labels).sum(1) >= 2,
        lambda row, clean: [
            _rows(
                12,
                [{4 * int(flat_labels[row, p]) + p: 1.0, 4 * k + p: -1.0} for p, k in zip(pair, kinds, strict=True)],
                [0.0, 0.0],
            )
            for pair in combinations(range(4), 2)
            for kinds in [
                (a, b)
                for a in range(3)
                for b in range(3)
                if a != int(flat_labels[row, pair[0]]) and b != int(flat_labels[row, pair[1]])
            ]
        ],
    )
    parts = (goals.threshold(above=1.5, index=0), goals.threshold(below=-1.0, index=2))
    add(
        "any-of(goals=[threshold(above=1.5), threshold(below=-1.0, index=2)])",
        parts[0] | parts[1],
        tags,
        None,
        lambda z: (z[:, 0] > 1.5) | (z[:, 2] < -1.0),
        lambda row, clean: [_rows(4, [{0: -1.0}], [-1.5]), _rows(4, [{2: 1.0}], [-1.0])],
    )
    mild = (goals.threshold(above=1.0, index=0), goals.threshold(below=-0.8, index=2))
    add(
        "all-of(goals=[threshold(above=1.0), threshold(below=-0.8, index=2)])",
        mild[0] & mild[1],
        tags,
        None,
        lambda z: (z[:, 0] > 1.0) & (z[:, 2] < -0.8),
        lambda row, clean: [_rows(4, [{0: -1.0}, {2: 1.0}], [-1.0, -0.8])],
    )
    return found


AIMS = _aims()


def optimum(aim: Aim, row: int) -> float:
    """The exact smallest l2 change of an image: for each polytope a projection with the box, by an active-set solver;
    the least of all."""
    from scipy.optimize import minimize

    weight, bias = aim.model.weight.detach(), aim.model.bias.detach()
    x = X[row].flatten()
    clean = weight @ (x - 0.5) + bias
    best = float("inf")
    for matrix, need in aim.union(row, clean):
        normal, limit = (matrix @ weight).numpy(), (need - matrix @ clean).numpy()
        for start in (0.0, 0.2, -0.2):
            found = minimize(
                lambda d: d @ d,
                [start] * PIXELS,
                jac=lambda d: 2 * d,
                method="SLSQP",
                options={"maxiter": 500, "ftol": 1e-14},
                bounds=[(-float(v), 1 - float(v)) for v in x],
                constraints=[
                    {"type": "ineq", "fun": lambda d, a=normal, c=limit: c - a @ d, "jac": lambda d, a=normal: -a}
                ],
            )
            if found.success and (limit - normal @ found.x).min() > -1e-7:
                best = min(best, float(found.fun) ** 0.5)
    return best
