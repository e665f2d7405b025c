"""ALMA against its algorithm: a plain one-image loop with autograd, and each rule seen in the trace."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, SECOND, X
from laws.models import RowWise
from torch import Tensor

import almakit
from almakit import ALMA, registry


def traced(attack: ALMA, **options: Any) -> tuple[almakit.Result, dict[str, Tensor]]:
    """A result and its trace, each value as (steps, images)."""
    notes: list[dict[str, Any]] = []
    result = attack(MODEL, X, LABELS, trace=notes.append, **options)
    assert [note["step"] for note in notes] == list(range(attack.steps - 1))
    return result, {
        name: torch.stack([note[name] for note in notes]) for name in notes[0] if name not in ("step", "image")
    }


def by_the_book(
    image: Tensor, label: int, distance: str, steps: int, epsilon: float, alpha: float, tolerance: float
) -> float:
    """Algorithm 2 as the authors ran it, for one image (1, ...), with autograd all the way and no shared code."""
    norm = {"l1": 1, "l2": 2}[distance]

    def measure(delta: Tensor) -> Tensor:
        return delta.abs().sum() if norm == 1 else delta.square().sum().sqrt()

    def penalty(y: Tensor, rho: float, mu: float) -> Tensor:
        return mu * y + mu * rho * y**2 + rho**2 * y**3 / 6 if bool(y >= 0) else mu * y / (1 - rho * y)

    delta = torch.zeros_like(image).requires_grad_(True)
    square, momentum = torch.ones_like(image), torch.zeros_like(image)
    mu, rho, rate, found_at, best, checked = 1.0, 1.0, 0.0, steps, math.inf, 0.0
    for step in range(steps):
        logits = MODEL(image + delta)[0]
        top = logits.sort(descending=True).values
        others = torch.cat([logits[:label], logits[label + 1 :]])
        y = (logits[label] - others.max() + tolerance * (top[0] - top[-1]).detach()) / (top[0] - top[2])
        if bool(logits[label] < others.max()):
            best, found_at = min(best, measure(delta).item()), min(found_at, step)
        if step == 0:
            checked = y.item()
        elif (step + 1) % 10 == 0:
            if math.isinf(best) and not y.item() < 0.95 * checked:
                rho *= 1.2
            checked = y.item()
        if step:
            leaf = y.detach().requires_grad_(True)
            (wanted,) = torch.autograd.grad(penalty(leaf, rho, mu), leaf)
            mu = min(max(alpha * mu + (1 - alpha) * float(wanted), 1e-6), 1e12)
        loss = penalty(y, rho, mu) + (measure(delta) if step else 0)
        (gradient,) = torch.autograd.grad(loss, delta)
        if step == 0:
            low, high = 0.0, 1e6
            for _ in range(80):
                rate = (low + high) / 2
                short = float(measure((image - rate * gradient).clamp(0, 1) - image)) < epsilon
                low, high = (rate, high) if short else (low, rate)
        decay = 0.01 ** (max(step - found_at, 0) / max(steps - found_at, 1))
        square = alpha * square + (1 - alpha) * gradient**2
        momentum = alpha * momentum + gradient / (square.sqrt() + 1e-8)
        delta = ((image + delta.detach() - rate * decay * momentum).clamp(0, 1) - image).requires_grad_(True)
    return best


@pytest.mark.parametrize(("distance", "steps"), [("l2", 100), ("l2", 40), ("l1", 40), ("l2", 200)])
def test_it_is_the_algorithm(distance: str, steps: int) -> None:
    attack = ALMA(distance=distance, steps=steps)
    result = attack(MODEL, X, LABELS)
    for row in range(3):
        epsilon = {"l1": 0.5, "l2": 0.1}[distance]
        expected = by_the_book(X[row : row + 1], int(LABELS[row]), distance, steps, epsilon, attack.smoothing, 1e-11)
        assert float(result.distances[row]) == pytest.approx(expected, rel=2e-3)


def test_alpha_follows_the_step_count() -> None:
    assert [ALMA(steps=n).smoothing for n in (10, 100, 1000, 5000)] == pytest.approx([0.5, 0.5, 0.9, 0.9])
    assert ALMA(steps=316).smoothing == pytest.approx(0.7, abs=1e-3) and ALMA(steps=100, alpha=0.8).smoothing == 0.8


@pytest.mark.parametrize(("distance", "epsilon"), [("l2", 0.1), ("l1", 0.5)])
@pytest.mark.parametrize("alpha", [0.5, 0.9])
def test_the_first_step_is_epsilon_by_the_raw_gradient(distance: str, epsilon: float, alpha: float) -> None:
    """The raw gradient would land at epsilon; the applied step is divided by the RMSProp root, so it goes up to
    1/sqrt(alpha) as far."""
    _, trace = traced(ALMA(distance=distance, steps=20, alpha=alpha))
    ratio = trace["distance"][1] / epsilon
    assert not bool(trace["distance"][0].any())
    assert bool((ratio <= alpha**-0.5 + 1e-6).all()) and bool((ratio > 0.3).all())


def test_epsilon_presets() -> None:
    paper = {"l1": 0.5, "l2": 0.1, "ssim": 3e-5, "ciede2000": 0.5, "ciede2000-paper": 0.05, "lpips": 1e-3}
    scripts = {"l1": 0.5, "l2": 0.1, "ssim": 1e-4, "ciede2000": 0.5, "ciede2000-paper": 0.05, "lpips": 1e-2}
    for name in paper:
        steps = registry.get("distances", name).first_step
        assert steps["paper"] == paper[name] and steps["scripts"] == scripts[name]
    near, far = traced(ALMA(steps=10, epsilon=0.01))[1], traced(ALMA(steps=10, epsilon=0.3))[1]
    assert bool((near["distance"][1] < 0.1 * far["distance"][1]).all())


def test_mu_is_a_moving_average_that_starts_at_the_second_step() -> None:
    penalty = registry.get("penalties", "p2")()
    for ema in (True, False):
        _, trace = traced(ALMA(steps=60, alpha=0.6, ema=ema))
        assert bool((trace["mu"][0] == 1).all())
        for step in range(1, 59):
            wanted = penalty.derivative(trace["constraint"][step], trace["rho"][step], trace["mu"][step - 1])
            expected = 0.6 * trace["mu"][step - 1] + 0.4 * wanted if ema else wanted
            assert torch.allclose(trace["mu"][step], expected.clamp(1e-6, 1e12))


def test_rho_grows_only_at_checks_without_progress_or_success() -> None:
    def stubborn(x: Tensor) -> Tensor:
        return MODEL(x) + 40 * torch.nn.functional.one_hot(LABELS, 5)[: len(x)]

    notes: list[dict[str, Any]] = []
    ALMA(steps=62)(stubborn, X, LABELS, trace=notes.append, check=False)
    rho = torch.stack([note["rho"] for note in notes])
    d = torch.stack([note["constraint"] for note in notes])
    changed = rho.diff(dim=0) != 0
    steps = [step + 1 for step in range(len(changed)) if bool(changed[step].any())]
    assert steps and all((step + 1) % 10 == 0 for step in steps)
    for step in range(9, 61, 10):
        earlier = d[step - 10] if step > 9 else d[0]
        expected = torch.where(d[step] >= 0.95 * earlier, rho[step - 1] * 1.2, rho[step - 1])
        assert torch.allclose(rho[step], expected)
    _, easy = traced(ALMA(steps=60))
    found = easy["success"].cumsum(0) > 0
    assert not bool((easy["rho"].diff(dim=0) != 0)[found[1:]].any())


@cache
def best(targeted: bool) -> Tensor:
    """The distances of a long run."""
    return ALMA(steps=500)(MODEL, X, LABELS, SECOND if targeted else None).distances


@pytest.mark.parametrize("penalty", registry.names("penalties"))
@pytest.mark.parametrize("targeted", [False, True])
def test_every_penalty_finds_points_near_the_best(penalty: str, targeted: bool) -> None:
    targets = SECOND if targeted else None
    result = ALMA(steps=200, penalty=penalty)(MODEL, X, LABELS, targets)
    assert result.success_rate == 1 and float((result.distances / best(targeted)).median()) < 1.03


@pytest.mark.parametrize("shape", [(12,), (3, 4), (1, 3, 4), (2, 1, 2, 3)])
def test_images_of_any_rank_are_the_same_images(shape: tuple[int, ...]) -> None:
    x = X[:, 0].flatten(1)[:, :12]
    model = RowWise((12,)).double().eval()
    labels = model(x).argmax(1)
    flat = ALMA(steps=30)(model, x, labels)
    shaped = ALMA(steps=30)(model, x.reshape(5, *shape), labels)
    assert torch.equal(shaped.adversarials.flatten(1), flat.adversarials)


def test_any_function_is_a_distance() -> None:
    def l4(x: Tensor, y: Tensor) -> Tensor:
        return ((y - x) ** 4).flatten(1).sum(1) ** 0.25

    # Its gradient is NaN at zero difference; the first step does not use it.
    result = ALMA(distance=l4, steps=200)(MODEL, X, LABELS)
    other = ALMA(distance="l2", steps=200)(MODEL, X, LABELS)
    assert result.success_rate == 1
    assert bool((result.distances <= l4(X, other.adversarials) * 1.001).all()), (
        "it is better in its own distance than an l2 attack"
    )
    wrong = ALMA(distance=lambda x, y: (x - y).abs().mean(), steps=5)
    with pytest.raises(almakit.AlmakitError, match="it must return one number per image"):
        wrong(MODEL, X, LABELS)


def test_an_attack_is_a_value() -> None:
    one, two = ALMA(distance="l1", steps=7), ALMA(distance="l1", steps=7)
    assert one == two and hash(one) == hash(two) and one != ALMA(distance="l1", steps=8)
    assert "distance='l1', steps=7" in repr(one) and one.describe()["penalty"] == "p2"
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.steps = 9  # type: ignore[misc]
    assert dataclasses.replace(one, steps=9).steps == 9


def test_the_seed_decides_random_directions() -> None:
    def flat(x: Tensor) -> Tensor:
        score = ((x - 0.5).flatten(1) * 8).round().sum(1) / 8
        return torch.stack([score, -score, torch.full_like(score, -9.0)], 1)

    x = 0.5 + 0.05 * (X - 0.5)
    x[:, 0, 0, 0] = 0.58
    labels = torch.zeros(5, dtype=torch.long)
    runs = [ALMA(steps=40)(flat, x, labels, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(runs[0].adversarials, runs[1].adversarials) and not torch.equal(
        runs[0].adversarials, runs[2].adversarials
    )
