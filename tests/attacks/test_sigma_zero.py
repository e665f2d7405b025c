"""sigma-zero: fewest values on linear models, its trimming, counts and refusals."""

from __future__ import annotations

import torch
from closed_form.linear import Linear, random_problem
from torch import Tensor

from almakit.attacks.sigma_zero import SigmaZero


def fewest(model: Linear, x: Tensor, labels: Tensor) -> Tensor:
    """(B,) the exact smallest number of values: each to the end of the box that helps most, the most helpful first."""
    best = []
    for image, label in zip(x.flatten(1), labels.tolist(), strict=True):
        counts = []
        for k in set(range(len(model.weight))) - {label}:
            w = model.weight[k] - model.weight[label]
            need = -float(w @ image + model.bias[k] - model.bias[label])
            gain = torch.where(w > 0, w * (1 - image), -w * image).sort(descending=True).values.cumsum(0)
            counts.append(int((gain <= need).sum()) + 1)
        best.append(min(counts))
    return torch.tensor(best, dtype=torch.float64)


def test_linear_models() -> None:
    found, exact = [], []
    for seed in range(3):
        model, x, labels = random_problem(seed, 8, (3, 8, 8))
        found.append(SigmaZero()(model, x, labels).distances.double())
        exact.append(fewest(model, x, labels))
    more = torch.cat(found) - torch.cat(exact)
    assert bool((more >= 0).all())
    assert float((more / torch.cat(exact)).median()) <= 0.5


def test_trimming_restores_what_is_not_needed() -> None:
    """Without a threshold the descent leaves most values changed; trimming has to find the few that matter."""
    model, x, labels = random_problem(0, 8, (3, 8, 8))
    dense = SigmaZero(threshold=0.0, threshold_rate=0.0, trim=0)(model, x, labels).distances
    trimmed = SigmaZero(threshold=0.0, threshold_rate=0.0)(model, x, labels).distances
    assert bool((trimmed <= dense).all())
    assert float(trimmed.median()) < 0.25 * float(dense.median())


def test_counts_and_presets() -> None:
    model, x, labels = random_problem(0, 4, (40,))
    result = SigmaZero(steps=30, trim=0)(model, x, labels)
    assert result.forwards.tolist() == [30] * 4 and result.backwards.tolist() == [29] * 4
    trimmed = SigmaZero(steps=30, trim=5)(model, x, labels)
    assert (
        bool((trimmed.forwards > 30).all())
        and int(trimmed.forwards.max()) <= 36
        and trimmed.backwards.tolist() == [30] * 4
    )
    assert bool((trimmed.distances <= result.distances).all())
    assert SigmaZero(**SigmaZero.presets["paper"]) == SigmaZero(steps=1000, trim=0)  # type: ignore[arg-type]
