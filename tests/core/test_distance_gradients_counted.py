"""Gradients of the distance are counted per image where attacks take them: in distances that are no lp norms, they take
most of the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from laws.models import RowWise
from torch import Tensor

import almakit
from almakit.core import best_of
from almakit.distances.base import Bound, Distance

MODEL = RowWise((1, 12, 12)).eval()
X = torch.rand(6, 1, 12, 12, generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    LABELS = MODEL(X).argmax(1)


class Watched(Distance):
    """A weighted squared difference that notes the rows of every gradient taken of it."""

    name = "watched"

    def __init__(self) -> None:
        self.rows = 0

    def bind(self, x: Tensor) -> Bound:
        watched = self

        class Inner(Bound):
            def __call__(self, y: Tensor) -> Tensor:
                return (y - self.x).square().flatten(1).sum(1)

            def value_and_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
                watched.rows += len(y)
                return super().value_and_grad(y)

        return Inner(self, x)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("alma", {"steps": 20}),
        ("soft-walk", {"steps": 20}),
        ("cw", {"steps": 12, "searches": 2}),
        ("alm", {"outer": 2, "inner": 8}),
        ("lpa", {"epsilon": 1e-9, "steps": 5, "searches": 2}),
    ],
)
def test_the_counts_are_the_gradients_that_were_taken(name: str, settings: dict[str, Any]) -> None:
    distance = Watched()
    # One image: every gradient is taken for it.
    result = almakit.attacks.get(name, distance=distance, **settings)(MODEL, X[:1], LABELS[:1], check=False)
    assert result.distance_gradients is not None
    assert int(result.distance_gradients) == distance.rows > 0


def test_the_soft_walk_takes_about_four_a_query_and_alma_one() -> None:
    few, many = (almakit.SoftWalk(distance=Watched(), steps=steps)(MODEL, X, LABELS) for steps in (20, 100))
    assert few.distance_gradients is not None and many.distance_gradients is not None
    assert bool((few.distance_gradients <= 4 * few.forwards).all())
    assert bool((many.distance_gradients >= 3.5 * many.forwards).all())
    assert bool((4 * few.distance_gradients < many.distance_gradients).all()), "a fifth of the steps"
    alma = almakit.ALMA(distance=Watched(), steps=20)(MODEL, X, LABELS)
    assert alma.distance_gradients is not None and bool((alma.distance_gradients == 18).all())


@pytest.mark.parametrize("attack", [almakit.SoftWalk, almakit.ALMA])
def test_an_images_count_does_not_depend_on_its_batch(attack: type) -> None:
    whole = attack(distance=Watched(), steps=30)(MODEL, X, LABELS, budget=25)
    parts = [
        attack(distance=Watched(), steps=30)(MODEL, X[rows], LABELS[rows], budget=25)
        for rows in (slice(0, 2), slice(2, 6))
    ]
    assert whole.distance_gradients is not None
    assert whole.distance_gradients.tolist() == [n for part in parts for n in part.distance_gradients.tolist()]


def test_lp_norms_are_not_counted_and_images_that_need_no_attack_take_none() -> None:
    assert almakit.SoftWalk(distance="l2", steps=10)(MODEL, X, LABELS).distance_gradients is None
    result = almakit.ALMA(distance=Watched(), steps=10)(MODEL, X, (LABELS + 1) % 5, check=False)
    assert result.distance_gradients is not None and not bool(result.distance_gradients.any())


def test_results_keep_them_when_cut_joined_and_saved(tmp_path: Path) -> None:
    result = almakit.ALMA(distance="ssim", steps=10)(MODEL, X, LABELS)
    counts = result.distance_gradients
    assert counts is not None and result[:3].distance_gradients.tolist() == counts[:3].tolist()  # type: ignore[union-attr]
    assert best_of([result, result]).distance_gradients.tolist() == (2 * counts).tolist()  # type: ignore[union-attr]
    loaded = almakit.Result.load(result.save(tmp_path / "kept.safetensors"))
    assert torch.equal(loaded.distance_gradients, counts)  # type: ignore[arg-type]
    assert result.to_pandas()["distance_gradients"].tolist() == counts.tolist()


def test_a_run_stores_sums_and_shows_them(tmp_path: Path) -> None:
    texts = ["alma(distance=ssim, steps=10)", "alma(distance=l2, steps=10)"]
    run = almakit.evaluate(MODEL, (X, LABELS), texts, out=tmp_path / "run")
    assert [record.distance_gradients for record in run.records] == [8] * 6 + [None] * 6
    ssim, l2 = run.summary["attacks"]
    assert ssim["distance_gradients"]["mean"] == 8 and "distance_gradients" not in l2
    assert run.result("alma(distance=ssim, steps=10)").distance_gradients.tolist() == [8] * 6  # type: ignore[union-attr]
    first, second = str(run.table()).split("\nl2")
    assert "gradients" in first and "gradients" not in second
