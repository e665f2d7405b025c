"""The standard evaluation: fixed compositions, stages at a radius, the smallest change without one."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from laws.models import RowWise

import almakit
from almakit import Result
from almakit.attacks import get, standard
from almakit.core.result import Status
from almakit.errors import AlmakitError
from almakit.runs.attack_text import text_of
from almakit.runs.progress import Progress

PUBLISHED = {"almakit-standard-v1": "8935f0bb2643676e"}
# How the stages decide on the first 6 demo digits: who is broken (1), robust (0) or wrong from the start (2).
DECISIONS = {("linf", 0.1): "000010", ("l2", 1.2): "001011", ("l1", 6.0): "101111"}


@pytest.fixture(scope="module")
def images():
    model = RowWise((3, 5, 5)).eval()
    x = torch.rand(4, 3, 5, 5, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        labels = model(x).argmax(1)
    labels[2] = (labels[2] + 1) % 5
    return model, x, labels


@pytest.fixture(scope="module")
def evaluated(images):
    return almakit.standard_evaluation(*images, norm="L2", bs=4)


def test_a_published_composition_never_changes() -> None:
    """If this fails, give the new composition a new version name; papers quote the old one."""
    found = {
        name: hashlib.sha256(json.dumps([standard.AT_RADIUS[name], standard.SMALLEST[name]]).encode()).hexdigest()[:16]
        for name in standard.SMALLEST
    }
    assert found == PUBLISHED
    for members in standard.SMALLEST.values():
        for distance, texts in members.items():
            assert all(repr(get(text).measure) == distance and get(text).minimal for text in texts)
    for norms in standard.AT_RADIUS.values():
        for distance, stages in norms.items():
            assert all(repr(get(text.format(0.5)).measure) == distance for text in stages.values())
    every = json.dumps([standard.AT_RADIUS, standard.SMALLEST])
    assert not any(alias in every for alias in almakit.registry.ALIASES["attacks"])


@pytest.mark.parametrize("norm, eps", DECISIONS)
def test_decisions_on_the_demo_digits(norm: str, eps: float) -> None:
    x, labels = almakit.data.load("mnist-demo", limit=6).tensors()
    found = almakit.standard_evaluation("mnist/smallcnn-tiny", x, labels, norm, eps)
    codes = {Status.SUCCESS: "1", Status.FAILED: "0", Status.ALREADY_WRONG: "2"}
    assert "".join(codes[Status(int(status))] for status in found.status) == DECISIONS[norm, eps]


@pytest.mark.parametrize("norm, eps", [("linf", 0.12), ("l2", 0.6), ("l1", 4.0)])
def test_stages_decide_as_the_attack_does_and_attack_survivors_alone(images, norm: str, eps: float) -> None:
    model, x, labels = images
    lines: list[str] = []

    class Lines(Progress):
        def note(self, sentence: str) -> None:
            lines.append(sentence)

    staged = almakit.standard_evaluation(model, x, labels, norm, eps, bs=2, progress=Lines())
    whole = get(f"almakit:standard-v1(distance={norm}, epsilon={eps})")(model, x, labels, batch_size=4)
    assert torch.equal(staged.status, whole.status) and torch.equal(staged.adversarials, whole.adversarials)
    assert staged.robust_accuracy(eps) == whole.robust_accuracy(eps) and staged.radii == (eps,)
    assert len(lines) == len(staged.stages) and "robust" in lines[0]
    assert lines[0].startswith(f"{staged.stages[0].name}: ")
    left = len(x)
    for number, stage in enumerate(staged.stages):
        assert stage.images == left and stage.broken == int((staged.broken_by == number).sum())
        left -= stage.broken + (int((staged.status == Status.ALREADY_WRONG).sum()) if number == 0 else 0)
    assert staged.robust_accuracy(eps) == left / len(x) == staged.stages[-1].robust
    assert sum(stage.forwards for stage in staged.stages) == int(staged.forwards.sum())
    with torch.no_grad():
        broken = staged.status == Status.SUCCESS
        assert bool((model(staged.adversarials[broken]).argmax(1) != labels[broken]).all())
    assert bool((staged.distances[broken] <= eps * (1 + 1e-5)).all())


def test_it_is_saved_with_its_stages(images, tmp_path) -> None:
    found = almakit.standard_evaluation(*images, "linf", 0.12)
    again = almakit.StandardEvaluation.load(found.save(tmp_path / "standard.safetensors"))
    assert again.stages == found.stages and again.signs == found.signs and torch.equal(again.broken_by, found.broken_by)
    assert repr(again) == repr(found) and torch.equal(again.adversarials, found.adversarials)


def test_targets_are_reached(images) -> None:
    model, x, labels = images
    found = almakit.standard_evaluation(model, x, labels, "L2", 3, targets=(labels + 1) % 5)
    broken = found.status == Status.SUCCESS
    with torch.no_grad():
        assert bool(broken.any()) and bool((model(found.adversarials).argmax(1) == (labels + 1) % 5)[broken].all())


class Rounded(torch.nn.Module):
    """A network behind a rounding of the input, whose gradient is zero."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner((x * 7).round() / 7)


def test_masked_gradients_are_said() -> None:
    model, (x, labels) = almakit.models.load("mnist/smallcnn-tiny"), almakit.data.load("mnist-demo", limit=4).tensors()
    with pytest.warns(UserWarning, match="zero gradient"):
        found = almakit.standard_evaluation(Rounded(model).eval(), x, labels, "linf", 0.2)
    assert int((found.broken_by == len(found.stages) - 1).sum()) == found.stages[-1].broken > 0
    assert [("surrogate=" in sign, sign.split()[0]) for sign in found.signs] == [
        (True, "4"),
        (True, str(found.stages[-1].broken)),
    ]
    assert almakit.standard_evaluation(model, x, labels, "linf", 0.02).signs == ()


def test_square_goes_on_only_where_gradients_fail() -> None:
    model, (x, labels) = almakit.models.load("mnist/smallcnn-tiny"), almakit.data.load("mnist-demo", limit=4).tensors()
    text = "square(distance=linf, epsilon=0.05, steps=120, trial=50)"
    for network, most in ((model, 1 + 10 + 50), (Rounded(model).eval(), 1 + 10 + 50 + 120)):
        found = get(text)(network, x, labels)
        robust = found.status == Status.FAILED
        assert bool(robust.any()) and most - 1 <= int(found.forwards[robust].max()) <= most


def test_robust_accuracy_at_any_radius_without_eps(evaluated) -> None:
    found = evaluated
    assert found.version == "almakit-standard-v1" and found.norm == "l2" and "almakit-standard-v1" in repr(found)
    assert found.clean_accuracy == 3 / 4 == found.robust_accuracy(0) and found.stages == ()
    ordered = sorted(found.distances.tolist())
    assert ordered[0] == 0
    for rank, distance in enumerate(ordered):
        assert found.robust_accuracy(distance) == (3 - rank) / 4, "a point at the radius is inside"
    assert found.curve([0, ordered[-1]]) == [(0.0, 3 / 4), (ordered[-1], 0.0)]
    with pytest.raises(AlmakitError, match="0 or more"):
        found.robust_accuracy(-1)


def test_it_is_at_least_as_good_as_its_first_member_and_costs_more(images, evaluated) -> None:
    model, x, labels = images
    alone: Result = get(standard.SMALLEST["almakit-standard-v1"]["l2"][0])(model, x, labels, batch_size=4)
    assert bool((evaluated.distances <= alone.distances).all())
    assert int(evaluated.forwards.sum()) > 2 * int(alone.forwards.sum())
    with torch.no_grad():
        assert bool((model(evaluated.adversarials).argmax(1) != labels).all())


def test_norms_as_people_write_them() -> None:
    for norm in ("Linf", "linf", "L_inf".replace("_", ""), float("inf"), "inf"):
        assert standard.Standard.of(norm).norm == "linf"
    assert standard.Standard.of(2).norm == standard.Standard.of("L2").norm == "l2"
    with pytest.raises(AlmakitError, match="defined for linf, l2, l1, l0"):
        standard.Standard.of("ssim")
    with pytest.raises(AlmakitError, match="known: almakit-standard-v1"):
        standard.Standard.of("l2", "almakit-standard-v0")
    with pytest.raises(AlmakitError, match="at one radius is defined for linf, l2, l1"):
        standard.Standard.of("l0", epsilon=3)


@pytest.mark.parametrize("option", ["budget", "stop_within"])
def test_options_that_would_change_the_number_are_refused(images, option: str) -> None:
    with pytest.raises(AlmakitError, match=f"has no {option}="):
        almakit.standard_evaluation(*images, "L2", 0.5, **{option: 0.5})


def test_it_is_an_attack_of_the_command_line() -> None:
    attack = get("almakit:standard-v1(distance=l1)")
    assert attack == standard.Standard.of("L1") and text_of(attack) == "almakit:standard-v1(distance=l1)"
    at = get("almakit:standard-v1(distance=linf, epsilon=8/255)")
    assert at == standard.Standard.of("Linf", epsilon="8/255") and at.radii == (8 / 255,)
    assert get(text_of(at)) == at
    with pytest.raises(AlmakitError, match="no setting 'steps'"):
        get("almakit:standard-v1(steps=3)")
