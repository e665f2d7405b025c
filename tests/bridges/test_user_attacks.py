"""Foreign attacks behind the problem: whatever their habits, passes are counted by image, the budget holds and the best
verified point is kept."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from bridges import own_attacks
from laws.models import Counted, RowWise
from runs.small_runs import contents, source_file
from torch import Tensor

from almakit import Run
from almakit.attacks import get
from almakit.bridges.user_file import UserAttack
from almakit.cli.main import main
from almakit.core import Box, ClassGoal, Result, Status
from almakit.errors import AlmakitError, BadInput
from almakit.runs.attack_text import text_of

FILE = Path(own_attacks.__file__)
HABITS = ["whole", "only_the_right_ones", "one_by_one", "several_of_each", "never_asks", "outside"]
BUDGETS = [*((habit, budget) for habit in HABITS for budget in (1, 4)), ("hungry", 4)]


def attack(name: str):
    return get(f"{FILE}:{name}")


def problem(batch: int = 6, seed: int = 0) -> tuple[RowWise, Tensor, Tensor]:
    model = RowWise((3, 5, 5)).eval()
    x = torch.rand(batch, 3, 5, 5, generator=torch.Generator().manual_seed(100 + seed))
    with torch.no_grad():
        return model, x, model(x).argmax(1)


def holds(model: RowWise, x: Tensor, labels: Tensor, result: Result, box: Box | None = None) -> None:
    """Every success fools the model in the domain, at the distance that is claimed."""
    found = result.status == Status.SUCCESS
    with torch.no_grad():
        assert bool((model(result.adversarials[found]).argmax(1) != labels[found]).all())
    assert bool((box or Box()).contains(result.adversarials, x).all())
    assert bool(torch.isinf(result.distances[~found]).all())


@pytest.mark.parametrize("habit", HABITS)
def test_counts_are_what_hooks_count_and_successes_hold(habit: str) -> None:
    model, x, labels = problem()
    counted = Counted(model)
    result = attack(habit)(model, x, labels, check=False)
    assert counted.forwards == int(result.forwards.sum()) and counted.backwards == int(result.backwards.sum())
    counted.remove()
    holds(model, x, labels, result)


@pytest.mark.parametrize(("habit", "budget"), BUDGETS)
def test_a_budget_is_never_exceeded(habit: str, budget: int) -> None:
    model, x, labels = problem()
    counted = Counted(model)
    result = attack(habit)(model, x, labels, check=False, budget=budget)
    assert int(result.forwards.max()) <= budget and int(result.backwards.max()) <= budget
    assert counted.forwards == int(result.forwards.sum()) and counted.backwards == int(result.backwards.sum())


@pytest.mark.parametrize("habit", [habit for habit in HABITS if habit != "several_of_each"])
def test_every_pass_is_charged_to_its_own_image(habit: str) -> None:
    """What an image is charged in company is what it is charged when the attack gets one image at a time."""
    model, x, labels = problem()
    together, alone = attack(habit)(model, x, labels), get(f"{FILE}:{habit}(at_once=1)")(model, x, labels)
    assert torch.equal(together.forwards, alone.forwards) and torch.equal(together.backwards, alone.backwards)


def test_several_candidates_of_an_image_are_all_charged_to_it() -> None:
    model, x, labels = problem(batch=12)
    # The clean pass, three copies, and where the copy returned was not wrong it may be judged once more.
    assert set(attack("several_of_each")(model, x, labels).forwards.tolist()) <= {4, 5}
    # As many rows as images may still be copies of one.
    x, labels = x[:6], labels[:6]

    def population(model, x, y):
        with torch.no_grad():
            model(x[2:3] + 0.01 * torch.randn(len(x), *x.shape[1:]))
        return x

    result = UserAttack.of(population)(model, x, labels)
    assert result.forwards.tolist() == [1, 1, 7, 1, 1, 1]


@pytest.mark.parametrize("targeted", [False, True])
def test_past_its_budget_an_image_hears_its_label_and_feels_no_slope(targeted: bool) -> None:
    model, x, labels = problem()
    heard, slopes = [], []

    def curious(model, x, y, targets=None):
        for _ in range(5):  # the last image is left out, so that the attack goes on
            point = (x[:-1] + 1e-4).requires_grad_(True)
            logits = model(point)
            (gradient,) = torch.autograd.grad(logits.square().sum(), point)
            heard.append(logits.detach().argmax(1))
            slopes.append(gradient.abs().flatten(1).amax(1))
        return x

    own, right = ((labels + 1) % 5, labels[:-1]) if targeted else (labels, labels[:-1])
    result = UserAttack.of(curious)(model, x, own, (labels + 2) % 5 if targeted else None, budget=3, check=False)
    assert result.forwards.tolist() == [3] * 5 + [1]
    # The clean pass is one of the three: two answers are the model's own.
    assert all(torch.equal(classes, right) for classes in heard[:2])
    assert all(torch.equal(classes, own[:-1]) for classes in heard[2:]) and len(heard) == 5
    assert all(float(slope.min()) > 0 for slope in slopes[:2]) and all(float(slope.max()) == 0 for slope in slopes[2:])


def test_the_best_point_is_kept_though_the_attack_forgets_it() -> None:
    model, x, labels = problem()
    with torch.no_grad():
        wrong = model(1 - x).argmax(1) != labels

    def forgetful(model, x, y):
        model(1 - x)
        return x

    result = UserAttack.of(forgetful)(model, x, labels)
    assert torch.equal(result.status == Status.SUCCESS, wrong) and bool(wrong.any())
    assert torch.equal(result.adversarials[wrong], 1 - x[wrong]) and result.forwards.tolist() == [2] * 6


def test_what_is_returned_is_judged_and_charged_unless_it_was_queried_last() -> None:
    model, x, labels = problem()
    result = attack("never_asks")(model, x, labels)
    with torch.no_grad():
        assert torch.equal(result.status == Status.SUCCESS, model(1 - x).argmax(1) != labels)
    assert result.forwards.tolist() == [2] * 6 and result.backwards.tolist() == [0] * 6

    def last(model, x, y):
        model(x + 1e-3)
        return x + 1e-3

    assert UserAttack.of(last)(model, x, labels).forwards.tolist() == [2] * 6


def test_candidates_are_brought_into_the_domain() -> None:
    model, x, labels = problem()
    box = Box(bits=8)
    x = box.project(x, x)
    seen = []
    model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    for habit in ("outside", "whole"):
        holds(model, x, labels, attack(habit)(model, x, labels, box=box), box)
    for points in seen:
        assert torch.equal((points * 255).round() / 255, points)
    mask = torch.rand(3, 5, 5, generator=torch.Generator().manual_seed(0)) < 0.6
    holds(model, x, labels, attack("whole")(model, x, labels, box=Box(mask=mask)), Box(mask=mask))


def test_a_success_in_a_ball_lies_in_it() -> None:
    model, x, labels = problem(batch=12)
    for eps in (0.05, 0.3):
        built = get(f"{FILE}:in_ball(eps={eps})")
        assert not built.minimal and repr(built.measure) == "linf"
        result = built(model, x, labels)
        found = result.status == Status.SUCCESS
        assert bool((result.distances[found] <= eps * (1 + 1e-5)).all())
    assert bool(found.any()) and not bool(found.all())


def test_targets_reach_the_function() -> None:
    model, x, labels = problem()
    targets = (labels + 1) % 5
    result = get(f"{FILE}:whole(steps=20, rate=0.05)")(model, x, labels, targets)
    found = result.status == Status.SUCCESS
    assert bool(found.any())
    with torch.no_grad():
        assert torch.equal(model(result.adversarials[found]).argmax(1), targets[found])
    with pytest.raises(BadInput, match="no targeted form"):
        attack("never_asks")(model, x, labels, targets)


def test_a_demanded_confidence_is_reached_by_an_attack_that_knows_nothing_of_it() -> None:
    model, x, labels = problem()
    result = get(f"{FILE}:only_the_right_ones(steps=40)")(model, x, labels, goal=ClassGoal(confidence=0.5))
    found = result.status == Status.SUCCESS
    with torch.no_grad():
        logits = model(result.adversarials[found])
    lead = logits.scatter(1, labels[found, None], float("-inf")).amax(1) - logits.gather(1, labels[found, None])[:, 0]
    assert bool(found.any()) and float(lead.min()) >= 0.5


def test_randomness_is_the_seeds_and_the_global_generators_are_left_alone() -> None:
    model, x, labels = problem()

    def drawing(model, x, y):
        noise = torch.rand_like(x) * np.random.rand() * random.random()
        model(noise)
        return noise

    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    first, again, other = (UserAttack.of(drawing)(model, x, labels, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.adversarials, again.adversarials)
    assert not torch.equal(first.adversarials, other.adversarials)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before[1:]


def test_the_model_leaves_as_it_came_and_its_errors_are_its_own() -> None:
    model, x, labels = problem()
    model.train()
    model.first.requires_grad_(False)

    def meddling(model, x, y):
        model.train()
        model.requires_grad_(True)
        model.to(torch.float64)
        with torch.no_grad():
            return model(x.double()).double()[:, :1, None, None] * 0 + x

    UserAttack.of(meddling)(model, x, labels)
    assert model.training and model.first.dtype == torch.float32
    assert not model.first.requires_grad and model.second.requires_grad
    calls = []

    class Breaking(RowWise):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(len(x))
            if len(calls) == 3:
                raise RuntimeError("the model broke")
            return super().forward(x)

    def swallowing(model, x, y):
        for _ in range(5):
            with suppress(Exception):
                model(1 - x)
        return x

    with pytest.raises(RuntimeError, match="the model broke"):
        UserAttack.of(swallowing)(Breaking((3, 5, 5)), x, labels, check=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("breaks", "failed with KeyError"),
        ("wrong_shape", "returned shape"),
        ("returns_nothing", ""),
        ("too_few", r"function of \(model, x, y\)"),
        ("whole(stps=3)", "has no setting 'stps'; its settings are steps, rate"),
        ("whole(at_once=0)", "at least 1"),
        ("whole(distance=l3)", "no distance called 'l3'"),
        ("hole", "did you mean whole"),
        ("whole(steps=3", "missing at the end"),
    ],
)
def test_mistakes_are_sentences(text: str, words: str) -> None:
    model, x, labels = problem()
    if not words:
        assert attack(text)(model, x, labels).forwards.tolist() == [2] * 6
        return
    with pytest.raises(AlmakitError, match=words):
        attack(text)(model, x, labels)


def test_texts_build_the_attack_again(tmp_path: Path) -> None:
    for text in ("whole(rate=0.1, steps=3)", "in_ball(eps=0.2)", "whole(distance=linf, at_once=4)", "hungry"):
        built = attack(text)
        assert text_of(get(text_of(built))) == text_of(built)
    assert text_of(attack("whole(rate=0.1, steps=6)")) == f"{FILE}:whole(steps=6, rate=0.1)"
    assert text_of(attack("whole(rate=0.05)")) == f"{FILE}:whole(steps=6)", "defaults are left out, but not the steps"
    assert repr(attack("hungry").measure) == "linf" and repr(attack("whole(distance=l1)").measure) == "l1"
    odd = tmp_path / "my attacks (new).py"
    odd.write_text(FILE.read_text())
    built = get(f'"{odd}:whole"(steps=2)')
    assert text_of(get(text_of(built))) == text_of(built) == f'"{odd}:whole"(steps=2)'


def test_a_run_with_an_attack_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = source_file(tmp_path)
    code = tmp_path / "attack.py"
    code.write_text(FILE.read_text())
    command = ["run", "--model", f"{mine}:model", "--data", f"{mine}:data", "--attack", f"{code}:whole(steps=20)"]
    command += ["--attack", "alma(steps=12)", "--batch-size", "8", "--out", str(tmp_path / "run"), "--quiet"]
    assert main(command) in (0, 4)
    run = Run(tmp_path / "run")
    assert run.attacks[0].text == f"{code}:whole(steps=20)" and run.attacks[0].settings["version"].startswith("sha256")
    found = [record for record in run.records_of(0) if record.status == "success"]
    assert found and all(
        record.fooled and record.measured == pytest.approx(record.distance, rel=1e-4) for record in found
    )
    assert run.traces and main(["report", str(tmp_path / "run"), "--no-figures"]) == 0
    # A resume with another state of the file would mix two attacks.
    before = contents(tmp_path / "run")
    code.write_text(FILE.read_text() + "\n# changed\n")
    capsys.readouterr()
    assert main(command) == 1 and "ran with version=sha256" in capsys.readouterr().err
    assert contents(tmp_path / "run") == before
