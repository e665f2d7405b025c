"""Runs of random models: preflight, the verdict's votes against known probabilities, verify, resume, and the page."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import almakit
from almakit import Run, evaluate
from almakit.errors import BadInput
from almakit.runs.failures import Refused, SpecChanged
from almakit.runs.model import open_model
from almakit.runs.spec import RunSpec
from almakit.runs.verify import verify_run
from almakit.wilson import wilson

NOISE, VOTES = 0.2, 200


class Shaken(nn.Module):
    """Two classes of vectors: z = (0, w.x - 0.5 + NOISE e) with e standard normal for every input and pass."""

    def __init__(self, secret: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.6, -0.8, 0.3, 0.2]))
        self.secret = torch.Generator().manual_seed(0) if secret else None

    def forward(self, x: Tensor) -> Tensor:
        score = x @ self.weight - 0.5 + NOISE * torch.randn(len(x), generator=self.secret)
        return torch.stack([torch.zeros_like(score), score], 1)


def vectors() -> tuple[Tensor, Tensor]:
    x = torch.rand(10, 4, generator=torch.Generator().manual_seed(0)) * 0.5 + torch.tensor([0.0, 0.5, 0.0, 0.0])
    x[:3] = torch.tensor([0.95, 0.05, 0.9, 0.9]) - 0.02 * torch.arange(3)[:, None]
    return x, (x @ Shaken().weight.detach() > 0.5).long()


def small(out: Path | None = None, model: nn.Module | None = None, **settings: object) -> Run:
    options: dict[str, object] = {"eot": 8, "votes": VOTES, "batch_size": 4, **settings}
    return evaluate(model or Shaken(), vectors(), "ddn(steps=12)", out, **options)  # type: ignore[arg-type]


def test_a_random_model_is_refused_without_eot_and_offered_it() -> None:
    with pytest.raises(Refused, match=r"not-deterministic.*--eot 16"):
        evaluate(Shaken(), vectors(), "ddn(steps=12)")


def test_votes_are_what_the_noise_says(tmp_path: Path) -> None:
    run = small(tmp_path / "run")
    points = torch.from_numpy(run.adversarials(0))
    score = (points @ Shaken().weight - 0.5).detach() / NOISE
    seen = 0
    for record, value in zip(run.records_of(0), score.tolist(), strict=True):
        assert record.forwards % 8 == 0 and record.backwards % 8 == 0
        if record.vote is None:
            assert record.status == "failed"
            continue
        one = statistics.NormalDist().cdf(value)
        true = one if run.images[record.image].label == 0 else 1 - one
        low, high = wilson(record.vote, VOTES)
        assert low - 0.04 <= true <= high + 0.04 and record.fooled == (record.vote >= 0.5)
        seen += record.status == "success"
    assert seen >= 8
    assert verify_run(run, open_model(Shaken(), run.spec)).good
    page = run.report(figures=False).read_text()
    assert "eot 8, 50% of 200 fresh passes" in page
    assert "vote" in run.to_pandas()
    again = small(tmp_path / "run")
    assert [vars(record) for record in again.records] == [vars(record) for record in run.records]
    with pytest.raises(SpecChanged, match="votes is 100 now and was 200"):
        small(tmp_path / "run", votes=100)


def test_the_same_seed_gives_the_same_numbers_in_other_chunks() -> None:
    one, two, other = small(batch_size=4), small(batch_size=10), small(seed=1)
    assert [(r.distance, r.vote) for r in one.records] == [(r.distance, r.vote) for r in two.records]
    assert [r.distance for r in one.records] != [r.distance for r in other.records]


def test_a_forged_vote_is_noticed(tmp_path: Path) -> None:
    run = small(tmp_path / "run")
    record = next(record for record in run.records if record.vote is not None)
    object.__setattr__(record, "vote", 0.999 if record.vote < 0.9 else 0.5)
    found = verify_run(run, open_model(Shaken(), run.spec))
    assert not found.good and any("vote disagrees" in sentence for sentence in found.sentences())


def test_randomness_that_seeds_do_not_reach_is_said_and_still_verified(tmp_path: Path) -> None:
    run = small(tmp_path / "run", Shaken(secret=True))
    assert any(finding["name"] == "randomness-elsewhere" for finding in run.findings)
    found = verify_run(run, open_model(Shaken(secret=True), run.spec))
    assert not [sentence for sentence in found.sentences() if "verdict" not in sentence]


def test_the_settings_are_part_of_the_run() -> None:
    plain = RunSpec(model="a", data="b")
    assert RunSpec(model="a", data="b", votes=7).sha256 == plain.sha256  # means nothing without eot
    shaken = RunSpec(model="a", data="b", eot=4, votes=7, vote_share=0.9)
    assert shaken.sha256 != plain.sha256 and RunSpec.from_text(shaken.to_toml(), "here") == shaken
    for wrong, sentence in (
        ({"eot": 0}, "eot=0: give a whole number"),
        ({"vote_share": 1.5}, "vote_share=1.5: give a share"),
        ({"votes": "many"}, "votes='many'"),
    ):
        with pytest.raises(BadInput, match=sentence):
            RunSpec(model="a", data="b", **wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="with eot=8 a query takes 8 passes"):
        small(budget=5)
    with pytest.raises(BadInput, match="leave certify out"):
        evaluate(Shaken(), vectors(), "ddn(steps=5)", eot=4, certify="ibp")


def test_another_goal_is_voted_on_too() -> None:
    run = small(goal=almakit.goals.get("reject(probability=0.6)"))
    assert any(record.status == "success" and record.fooled and record.vote >= 0.5 for record in run.records)
