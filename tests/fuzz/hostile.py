"""Models that misbehave, and the judge of what an attack makes of them: a valid result or a sentence, never a wrong
success."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor

from almakit import attacks, registry
from almakit.core import Attack, Box, Result, Status


class Hostile:
    """A deterministic model whose rows never touch, of one of ``KINDS``; counts the rows it is called with."""

    def __init__(self, kind: str, pixels: int, classes: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.kind, self.rows, self.calls = kind, 0, 0
        self.weight = torch.randn(classes, pixels, generator=generator)
        self.bias = 0.3 * torch.randn(classes, generator=generator)

    def __call__(self, x: Tensor) -> Tensor:
        self.rows, self.calls = self.rows + len(x), self.calls + 1
        return self.answer(x)

    def answer(self, x: Tensor) -> Tensor:
        """Logits (B, K) of ``x`` (B, ...)."""
        flat, weight = x.flatten(1) - 0.5, self.weight.to(x.dtype)
        score = (flat.unsqueeze(1) * weight).sum(-1) + self.bias.to(x.dtype)
        away = flat.abs().sum(1, keepdim=True)
        return ANSWERS[self.kind](score, flat, away, self.bias.to(x.dtype))


ANSWERS: dict[str, Callable[..., Tensor]] = {
    "linear": lambda score, flat, away, bias: score,
    "constant": lambda score, flat, away, bias: 0 * score + bias,
    "saturated": lambda score, flat, away, bias: score.sign() * 1e30 * (1 + 0 * score),
    "steps": lambda score, flat, away, bias: (score * 4).round() / 4 + 0 * score,
    "torn gradient": lambda score, flat, away, bias: score + 0 * (away - away.detach()).abs().sqrt(),
    "infinite gradient": lambda score, flat, *_: score + (flat[:, :1] - flat[:, :1].detach()).abs().sqrt(),
    "nan region": lambda score, *_: torch.where(score[:, :1] > 0.2, score * float("nan"), score),
    "infinite region": lambda score, flat, away, bias: torch.where(
        away > away.detach().median() + 0.05, score + float("inf"), score
    ),
    "tied": lambda score, *_: 0 * score,
    "tiny": lambda score, *_: score * 1e-30,
    "flat": lambda score, flat, *_: score.detach() + 0 * flat[:, :1],
    "two faced": lambda score, *_: torch.where(score[:, :1] > 0, score, -score),
    "one pixel": lambda score, flat, away, bias: torch.cat(
        [flat[:, :1], -flat[:, :1], (flat[:, :1] * 0 - 9).expand(-1, score.shape[1] - 2)], 1
    ),
    "squared": lambda score, *_: score.square().clamp(max=3e38),
}
"""Logits (B, K) from the linear scores, the pixels about 0 (B, n), their sums (B, 1) and the biases (K,)."""
KINDS = tuple(ANSWERS)


def independent_rows(kind: str) -> bool:
    """Whether a row's answer does not depend on the rest of its batch."""
    return kind != "infinite region"


SMALL = {"steps": 6, "searches": 2, "outer": 2, "inner": 5, "halvings": 3, "refine": 3}
NEEDS = {
    "search": "attack=apgd(distance={distance}, steps=5)",
    "ensemble": "attacks=[alma(distance={distance}, steps=6), bb(distance={distance}, steps=3)]",
}


def small_text(name: str, distance: str) -> str:
    """The attack with settings that end soon; texts that no attack can be built from are part of the game."""
    known = [field.name for field in fields(registry.get("attacks", name))]
    settings = [f"{setting}={value}" for setting, value in SMALL.items() if setting in known]
    if name in NEEDS:
        settings.append(NEEDS[name].format(distance=distance))
    elif "distance" in known:
        settings.append(f"distance={distance}")
    return f"{name}({', '.join(settings)})"


def build(name: str, distance: str) -> Attack:
    return attacks.get(small_text(name, distance))


def check(
    attack: Attack,
    model: Hostile,
    x: Tensor,
    labels: Tensor,
    targets: Tensor | None,
    box: Box,
    result: Result,
    budget: int | None,
) -> None:
    """Everything a result promises about the images ``x`` (B, ...)."""
    assert len(result) == len(x) and result.adversarials.shape == x.shape and len(result.reasons) == len(x)
    points, status = result.adversarials, result.status.tolist()
    images = x if x.dtype in (torch.float32, torch.float64) else x.float()
    inside = box.contains(points, images) if len(x) else torch.ones(0, dtype=torch.bool)
    measured = attack.measure(images, points) if len(x) else torch.zeros(0)
    for row, state in enumerate(status):
        distance = float(result.distances[row])
        logits = model.answer(points[row : row + 1])[0]
        reached = bool(torch.isfinite(logits).all()) and (
            int(logits.argmax()) != int(labels[row]) if targets is None else int(logits.argmax()) == int(targets[row])
        )
        if state in (Status.ALREADY_WRONG, Status.SUCCESS):
            assert reached, f"a wrong success: row {row}, logits {logits.tolist()[:6]}, label {int(labels[row])}"
            assert 0 <= distance < float("inf") and result.reasons[row] is None
        else:
            assert distance == float("inf") and result.reasons[row], "a failure has a reason and no distance"
            assert torch.equal(points[row], images[row]), "a failure returns the clean image"
        if state == Status.ALREADY_WRONG:
            assert distance == 0 and torch.equal(points[row], images[row])
        if state == Status.SUCCESS:
            assert bool(inside[row]), "outside the box"
            assert abs(distance - float(measured[row])) <= 1e-4 * max(distance, float(measured[row])) + 1e-6, (
                distance,
                float(measured[row]),
            )
    if len(x):
        assert model.rows == int(result.forwards.sum()) + result.probes, (
            model.rows,
            int(result.forwards.sum()),
            result.probes,
        )
        assert budget is None or max(int(result.forwards.max()), int(result.backwards.max())) <= budget
