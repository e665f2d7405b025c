"""foolbox and AutoAttack in our engine, and ours in foolbox and in the call of adv-lib; the other libraries are in
benchmarks/libraries/bridges.py."""

from __future__ import annotations

import sys

import eagerpy
import foolbox
import pytest
import torch
from laws.models import Counted, RowWise
from torch import Tensor

import almakit
from almakit.attacks import get
from almakit.bridges.attackbench import as_function
from almakit.bridges.foolbox import FoolboxAttack
from almakit.core import Status
from almakit.errors import AlmakitError, BadInput
from almakit.runs.attack_text import describe, text_of

TEXTS = [
    "foolbox:DDNAttack(steps=15)",
    "foolbox:LInfFMNAttack(steps=15)",
    "foolbox:L0FMNAttack(steps=15)",
    "foolbox:EADAttack(binary_search_steps=2, steps=15)",
    "foolbox:L2DeepFoolAttack(steps=5)",
    "foolbox:LinfPGD(steps=5, epsilon=0.2)",
    "foolbox:LinearSearchBlendedUniformNoiseAttack(steps=5, distance=linf)",
    "autoattack:apgd-ce(norm=Linf, eps=0.2)",
    "autoattack:fab(eps=2.0, norm=L2)",
    "autoattack:square(eps=0.2, norm=Linf)",
]


@pytest.fixture(scope="module")
def digits() -> tuple[torch.nn.Module, Tensor, Tensor]:
    x, labels = almakit.data.load("mnist-demo", limit=6).tensors()
    return almakit.models.load("mnist/smallcnn-tiny"), x, labels


def small(batch: int = 5) -> tuple[RowWise, Tensor, Tensor]:
    model = RowWise((3, 8, 8)).eval()
    x = torch.rand(batch, 3, 8, 8, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        return model, x, model(x).argmax(1)


@pytest.mark.parametrize("text", TEXTS)
def test_their_attacks_are_counted_capped_and_verified(text: str) -> None:
    model, x, labels = small()
    attack = get(text)
    counted = Counted(model)
    result = attack(model, x, labels, check=False)
    assert counted.forwards == int(result.forwards.sum()) and counted.backwards == int(result.backwards.sum())
    counted.remove()
    found = result.status == Status.SUCCESS
    with torch.no_grad():
        assert bool((model(result.adversarials[found]).argmax(1) != labels[found]).all())
    assert bool(found.any()), "a test on failures alone shows nothing"
    if not attack.minimal:
        assert bool((result.distances[found] <= dict(attack.settings).get("eps", attack.epsilon) * (1 + 1e-5)).all())
    few = attack(model, x, labels, check=False, budget=4)
    assert int(few.forwards.max()) <= 4 and int(few.backwards.max()) <= 4
    assert text_of(get(text_of(attack))) == text_of(attack)
    assert describe(attack, 0, False).settings["version"].split()[0] in ("foolbox", "pyautoattack", "autoattack")


def test_our_result_is_at_least_as_near_as_theirs(digits: tuple[torch.nn.Module, Tensor, Tensor]) -> None:
    """What foolbox itself returns for the same attack is never nearer than the best point that was seen."""
    model, x, labels = digits
    fmodel = foolbox.PyTorchModel(model.eval(), bounds=(0, 1))
    theirs = foolbox.attacks.DDNAttack(steps=30).run(fmodel, x, foolbox.criteria.Misclassification(labels))
    ours = get("foolbox:DDNAttack(steps=30)")(model, x, labels)
    assert bool((ours.distances <= (theirs - x).flatten(1).norm(dim=1) * (1 + 1e-5)).all())
    assert bool(ours.success.all()) and ours.forwards.tolist() == [31] * 6


def test_their_targeted_attacks(digits: tuple[torch.nn.Module, Tensor, Tensor]) -> None:
    model, x, labels = digits
    targets = (labels + 1) % 10
    result = get("foolbox:L2FMNAttack(steps=40)")(model, x, labels, targets)
    found = result.success
    with torch.no_grad():
        assert bool(found.any()) and torch.equal(model(result.adversarials[found]).argmax(1), targets[found])
    with pytest.raises(AlmakitError, match="no targeted form"):
        get("autoattack:standard(eps=0.1)")(model, x, labels, targets)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("foolbox:LinfFMN", "did you mean LInfFMNAttack"),
        ("foolbox:DDNAttack(stps=3)", "has no setting 'stps'; its settings are init_epsilon, steps"),
        ("foolbox:LinfPGD(steps=3)", "give epsilon"),
        ("foolbox:DDNAttack(epsilon=1)", "takes no epsilon"),
        ("foolbox:LinearSearchContrastReductionAttack", "add distance=l2"),
        ("foolbox:VirtualAdversarialAttack(epsilon=1)", "needs steps="),
        ("autoattack:standart(eps=0.1)", "did you mean standard"),
        ("autoattack:standard(bs=3)", "has no setting 'bs'"),
        ("foolbx:DDNAttack", "no library of attacks called 'foolbx'; did you mean foolbox"),
        ("clever:hans", "known: foolbox, torchattacks"),
        ("python:mine", "almakit.evaluate"),
    ],
)
def test_mistakes_are_sentences(text: str, words: str) -> None:
    with pytest.raises(AlmakitError, match=words):
        get(text)


def test_an_error_inside_a_library_is_a_sentence() -> None:
    model, x, labels = small()
    with pytest.raises(AlmakitError, match=r"foolbox:DDNAttack failed with .* comes from foolbox"):
        get("foolbox:DDNAttack(steps=3, init_epsilon=much)")(model, x, labels)


def test_libraries_are_imported_only_when_named() -> None:
    import subprocess

    code = "import sys, almakit; almakit.attacks.get('alma'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"foolbox", "torchattacks", "art", "pyautoattack", "adv_lib", "almakit.bridges.libraries"} & set(loaded)


def test_foolbox_drives_ours(digits: tuple[torch.nn.Module, Tensor, Tensor]) -> None:
    model, x, labels = digits
    fmodel = foolbox.PyTorchModel(model, bounds=(0, 1))
    ours = almakit.ALMA(distance="l2", steps=30)
    plain = ours(model, x, labels)
    attack = FoolboxAttack("alma(distance=l2, steps=30)")
    raw, clipped, success = attack(fmodel, x, labels, epsilons=None)
    assert torch.equal(raw, plain.adversarials) and torch.equal(clipped, raw) and torch.equal(success, plain.success)
    assert torch.equal(attack.result.forwards, plain.forwards)
    radii = [0.5, 2.0, 4.0]
    _, _, inside = attack(
        fmodel, eagerpy.astensor(x), foolbox.criteria.Misclassification(eagerpy.astensor(labels)), epsilons=radii
    )
    # foolbox shortens what is longer than a radius, and the shortened point may still fool the model.
    within = plain.distances <= torch.tensor(radii)[:, None]
    assert torch.equal(inside.raw & within, within) and not bool(inside.raw[0].any())
    targets = (labels + 3) % 10
    aimed, _, _ = attack(fmodel, x, foolbox.criteria.TargetedMisclassification(targets), epsilons=None)
    assert torch.equal(aimed, ours(model, x, labels, targets).adversarials)
    with pytest.raises(BadInput, match="foolbox's distances are norms"):
        FoolboxAttack(almakit.ALMA(distance=lambda x, y: (y - x).abs().flatten(1).mean(1), steps=20))


def test_foolbox_drives_ours_with_other_bounds(digits: tuple[torch.nn.Module, Tensor, Tensor]) -> None:
    model, x, labels = digits
    fmodel = foolbox.PyTorchModel(model, bounds=(0, 1)).transform_bounds((-1, 1))
    raw, _, success = FoolboxAttack("alma(distance=l2, steps=40)")(fmodel, 2 * x - 1, labels, epsilons=None)
    assert bool(success.all()) and float(raw.min()) >= -1 and float(raw.max()) <= 1


@pytest.mark.parametrize(
    "targets",
    [torch.arange(40) % 10, torch.tensor([0]), torch.tensor([-1, 0]), torch.tensor([99, 1]), torch.tensor([0.5, 1.0])],
)
def test_targets_that_do_not_fit_are_a_sentence(
    digits: tuple[torch.nn.Module, Tensor, Tensor], targets: Tensor
) -> None:
    model, x, _ = digits
    fmodel = foolbox.PyTorchModel(model, bounds=(0, 1))
    with pytest.raises(BadInput, match="target"):
        FoolboxAttack("alma(distance=l2, steps=5)").run(
            fmodel, x[:2], foolbox.criteria.TargetedMisclassification(targets)
        )
    with pytest.raises(BadInput, match="target"):
        as_function("alma(distance=l2, steps=5)")(model, x[:2], targets, targeted=True)


def test_adv_libs_call_drives_ours(digits: tuple[torch.nn.Module, Tensor, Tensor]) -> None:
    model, x, labels = digits
    ours, targets = almakit.ALMA(distance="l2", steps=20), (labels + 1) % 10
    call = as_function(ours)
    assert torch.equal(call(model, x, labels), ours(model, x, labels).adversarials)
    aimed = ours(model, x, labels, targets).adversarials
    assert torch.equal(call(model=model, inputs=x, labels=labels, targeted=True, targets=targets), aimed)
    assert torch.equal(call(model, x, targets, targeted=True), aimed)


BLACK_BOX = [
    "foolbox:HopSkipJumpAttack(steps=2)",
    "foolbox:BoundaryAttack(steps=40)",
    "foolbox:SaltAndPepperNoiseAttack(steps=20, distance=l0)",
    "autoattack:square(eps=0.3, norm=Linf)",
]


@pytest.mark.parametrize("text", BLACK_BOX)
def test_attacks_by_forwards_alone_run_on_models_without_gradients(text: str) -> None:
    model, x, labels = small(3)
    asked = 0

    def in_numpy(images: Tensor) -> object:
        nonlocal asked
        asked += len(images)
        return model(torch.from_numpy(images.numpy())).detach().numpy()

    attack = get(text)
    assert (not attack.needs_gradients() and repr(attack.measure) in text.lower()) or "l2" in repr(attack.measure)
    result = attack(in_numpy, x, labels, check=False, budget=300)
    assert asked == int(result.forwards.sum()) and int(result.backwards.max()) == 0
    assert int(result.forwards.max()) <= 300 and bool(result.success.any()), result
    with torch.no_grad():
        assert bool((model(result.adversarials[result.success]).argmax(1) != labels[result.success]).all())


@pytest.mark.parametrize("budget", [20, 150])
def test_an_attack_that_breaks_past_its_budget_has_ended(budget: int) -> None:
    model, x, labels = small(3)
    result = get("foolbox:HopSkipJumpAttack(steps=8)")(model, x, labels, budget=budget)
    assert int(result.forwards.max()) <= budget and bool(result.success.any())


def test_their_attacks_with_gradients_name_ours_without() -> None:
    model, x, labels = small(3)
    for text in ("foolbox:DDNAttack(steps=5)", "autoattack:apgd-ce(norm=Linf, eps=0.2)"):
        with pytest.raises(AlmakitError, match=r"square \(scores\) or hopskipjump"):
            get(text)(lambda images: model(images).detach(), x, labels)
