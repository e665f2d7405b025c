"""The course of an attack: best distances after 10, 30, 100, ... forwards, as an onlooker counts them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from almakit import ALMA, FMN, Ensemble
from almakit.core import Attack, Problem
from almakit.core.counts import MARKS

INFINITE = float("inf")


class Halfspace(nn.Module):
    """Class 1 where the mean is above a half."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.flatten(1).mean(1)
        return torch.stack([0.5 - mean, mean - 0.5], 1)


@dataclass(frozen=True)
class Onlooker(Attack):
    """Draws a point outside at a time of some images, nearer and nearer, and notes for itself what is known after how
    many forwards."""

    seen: list[tuple[list[int], list[float]]] = field(default_factory=list)
    rows: bool = False
    inside: bool = False

    def run(self, problem: Problem) -> None:
        self.seen.append((problem.forwards.tolist(), problem.best_distance.tolist()))
        for step in range(140):
            reach = (0.45 + 0.3 * 0.97**step) * torch.ones_like(problem.x)
            if self.rows:
                who = torch.arange(len(problem))[torch.arange(len(problem)) % 3 <= step % 3].repeat(1 + step % 2)
                problem.query((problem.x + reach)[who], images=who, grad=False)
            else:
                problem.query(problem.x + reach, grad=False)
            if step == 60 and self.inside:
                problem.release(torch.arange(len(problem)) % 2 == 0)
            self.seen.append((problem.forwards.tolist(), problem.best_distance.tolist()))


def images(count: int = 6) -> tuple[Tensor, Tensor]:
    x = 0.1 * torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return x, torch.zeros(count, dtype=torch.long)


@pytest.mark.parametrize("kind", ["everyone", "rows", "released"])
def test_the_course_is_what_an_onlooker_counts(kind: str) -> None:
    attack = Onlooker(rows=kind == "rows", inside=kind == "released")
    result = attack(Halfspace(), *images())
    for image in range(6):
        for place, mark in enumerate(MARKS):
            known = [best[image] for forwards, best in attack.seen if forwards[image] <= mark]
            assert float(result.course[image, place]) == pytest.approx(known[-1]), (image, mark)
    assert bool((result.course[:, -1] == result.distances).all())
    assert bool((result.course[:, 1:] <= result.course[:, :-1]).all()) and bool(
        (result.course[:, 2] < result.course[:, 0]).all()
    )


def test_images_that_need_nothing_and_images_for_which_nothing_is_found() -> None:
    x, labels = images()
    labels[0] = 1
    result = FMN(distance="l2", steps=1)(Halfspace(), x, labels)
    assert result.course[0].tolist() == [0.0] * 5
    assert all(value == INFINITE for value in result.course[1:].flatten().tolist())


def test_an_ensemble_never_forgets_what_an_earlier_attack_found() -> None:
    members = (FMN(distance="l2", steps=40), ALMA(distance="l2", steps=80))
    x, labels = images()
    result, first = Ensemble(members)(Halfspace(), x, labels), members[0](Halfspace(), x, labels)
    assert torch.equal(result.course[:, :2], first.course[:, :2])
    assert bool((result.course[:, 2] <= first.distances).all()) and bool(
        (result.course[:, 1:] <= result.course[:, :-1]).all()
    )


def test_the_course_follows_rows_files_and_sums(tmp_path) -> None:
    from almakit import best_of
    from almakit.core import Result

    result = FMN(distance="l2", steps=40)(Halfspace(), *images())
    assert torch.equal(result[2:4].course, result.course[2:4])
    assert torch.equal(Result.load(result.save(tmp_path / "result.safetensors")).course, result.course)
    assert best_of([result, result]).course is None
