"""Laws 1 to 4 of the design, for every attack in the registry: new names are picked up from there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from laws.models import Counted, RowWise
from laws.samples import Sample, each_attack
from torch import Tensor, nn

from almakit.core import Box, ClassGoal, Result, Status
from almakit.core.oracle import probe_rows
from almakit.errors import BadInput


def settle(model: nn.Module, images: Tensor) -> Tensor:
    """Logits of a fresh forward, image by image: another batch size than any the attack used."""
    with torch.no_grad():
        return torch.cat([model(image.unsqueeze(0)) for image in images])


def check_successes(sample: Sample, model: nn.Module, x: Tensor, result: Result, box: Box, reached: Tensor) -> None:
    """Law 1 for a result, where ``reached`` (B,) says what a fresh forward thinks of each point."""
    found = result.status == Status.SUCCESS
    assert bool(found.any()), f"nothing found, so nothing is tested: {result}"
    assert bool(reached[found].all())
    assert bool(box.contains(result.adversarials, x)[found].all())
    measured = sample.attack.measure(x, result.adversarials)
    assert torch.allclose(result.distances[found], measured[found], rtol=1e-5)
    assert bool((result.distances[found] > 0).all())
    lost = ~result.success
    assert bool(torch.isinf(result.distances[lost]).all())
    assert torch.equal(result.adversarials[lost], x[lost])
    assert all((reason is None) == bool(good) for reason, good in zip(result.reasons, result.success, strict=True))


@pytest.fixture()
def steady_rng() -> Iterator[None]:
    before = torch.random.get_rng_state()
    yield
    assert torch.equal(torch.random.get_rng_state(), before), "the global random generator was used"


@each_attack
def test_success_fools_and_counts_are_what_hooks_count(sample: Sample, steady_rng: None) -> None:
    model, x, labels = sample.problem()
    labels = torch.cat([labels[:-1], (labels[-1:] + 1) % 5])
    counted = Counted(model)
    result = sample.attack(model, x, labels)
    assert counted.forwards == int(result.forwards.sum()) + result.probes
    # Gradients taken of the clean pass go through the row of the image that is already wrong, too.
    assert counted.backwards == int(result.backwards.sum()) + counted.passes_of_first
    counted.remove()
    # One pass of some images before, and afterwards two of every success (one where each is alone in it).
    found = int(result.success.sum())
    assert result.probes == len(probe_rows(len(x))) + found * (2 if found > 2 else 1)
    check_successes(sample, model, x, result, Box(), settle(model, result.adversarials).argmax(1) != labels)
    assert int(result.status[-1]) == Status.ALREADY_WRONG
    assert float(result.distances[-1]) == 0 and int(result.forwards[-1]) == 1 and int(result.backwards[-1]) == 0
    assert torch.equal(result.adversarials[-1], x[-1])


@each_attack
def test_success_fools_on_the_grid(sample: Sample) -> None:
    model, x, labels = sample.problem(bits=8)
    box = Box(bits=8)
    result = sample.attack(model, x, labels, box=box)
    stored = (result.adversarials * 255).round().to(torch.uint8)
    check_successes(sample, model, x, result, box, settle(model, stored.float() / 255).argmax(1) != labels)
    assert torch.equal(stored.float() / 255, result.adversarials)


@each_attack
def test_success_fools_inside_a_mask(sample: Sample) -> None:
    model, x, labels = sample.problem()
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.7
    result = sample.attack(model, x, labels, box=Box(mask=mask))
    check_successes(sample, model, x, result, Box(mask=mask), settle(model, result.adversarials).argmax(1) != labels)
    assert torch.equal(result.adversarials[~mask], x[~mask])


@each_attack
def test_success_lies_in_the_box_of_each_feature(sample: Sample) -> None:
    """Vectors whose features have boxes of their own, some in whole steps, some fixed: by the mask or without room."""
    generator = torch.Generator().manual_seed(7)
    model, labels = RowWise((12,)).eval(), torch.zeros(6, dtype=torch.long)
    lo, sides = -torch.rand(12, generator=generator), 0.5 + 2 * torch.rand(12, generator=generator)
    sides[3], step = 0.0, torch.tensor([0.25, 0, 0, 0, 0.1, 0, 0, 0, 0, 1 / 3, 0, 0], dtype=torch.float64)
    box = Box(lo, lo + sides, mask=torch.arange(12) != 7, step=step)
    x = lo + sides * torch.rand(6, 12, generator=generator)
    x = box.around(x).project(x, x)
    with torch.no_grad():
        labels = model(x).argmax(1)
    if sample.shape != (3, 5, 5):
        with pytest.raises(BadInput, match="images"):
            sample.attack(model, x, labels, box=box)
        return
    result = sample.attack(model, x, labels, box=box)
    check_successes(sample, model, x, result, box.around(x), settle(model, result.adversarials).argmax(1) != labels)
    change = result.adversarials - x
    assert bool((change[:, [3, 7]] == 0).all()) and bool((result.adversarials >= lo).all())
    assert bool((result.adversarials <= lo + sides).all())
    for feature in (0, 4, 9):
        steps = ((result.adversarials - lo).double() / step)[:, feature]
        assert torch.allclose(steps, steps.round(), atol=1e-4), (feature, steps)


@each_attack
def test_success_leads_by_the_confidence(sample: Sample) -> None:
    model, x, labels = sample.problem()
    result = sample.attack(model, x, labels, goal=ClassGoal(confidence=0.05))
    logits = settle(model, result.adversarials)
    own = logits.gather(1, labels[:, None])[:, 0]
    rival = logits.scatter(1, labels[:, None], float("-inf")).amax(1)
    check_successes(sample, model, x, result, Box(), rival - own >= 0.05)


@each_attack
def test_success_reaches_the_target(sample: Sample) -> None:
    attack = sample.attack
    model, x, labels = sample.problem()
    targets = settle(model, x).argsort(1, descending=True)[:, 1]
    if not attack.can_target:
        with pytest.raises(ValueError, match="no targeted form"):
            attack(model, x, labels, targets)
        return
    result = attack(model, x, labels, targets)
    check_successes(sample, model, x, result, Box(), settle(model, result.adversarials).argmax(1) == targets)


def test_the_model_of_the_laws_has_independent_rows() -> None:
    """Without this the bit-for-bit comparison would mean nothing."""
    for shape in ((3, 5, 5), (3, 32, 32)):
        model = RowWise(shape).eval()
        x = torch.rand(7, *shape, generator=torch.Generator().manual_seed(1))

        def answers(images: Tensor, model: RowWise = model) -> tuple[Tensor, Tensor]:
            leaf = images.clone().requires_grad_(True)
            logits = model(leaf)
            return logits.detach(), torch.autograd.grad(logits.square().sum(), leaf)[0]

        logits, gradients = answers(x)
        for rows in ([0], [3], [6], [1, 5], [6, 5, 4, 3, 2, 1, 0]):
            part, slope = answers(x[rows])
            assert torch.equal(part, logits[rows]) and torch.equal(slope, gradients[rows])


def same_rows(whole: Result, rows: list[int], part: Result, among: list[int] | None = None) -> None:
    """Rows ``rows`` of one result equal rows ``among`` of another, bit for bit."""
    among = list(range(len(rows))) if among is None else among
    for field in ("status", "forwards", "backwards", "distances", "adversarials"):
        assert torch.equal(getattr(whole, field)[rows], getattr(part, field)[among]), field
    assert [whole.reasons[row] for row in rows] == [part.reasons[row] for row in among]


@each_attack
def test_a_result_does_not_depend_on_the_company(sample: Sample) -> None:
    # More rows than a vector register holds: what is computed in its lanes and what is left over must round alike.
    size = 19 if sample.shape == (3, 5, 5) else 5
    model, x, labels = sample.problem(batch=size)
    attack = sample.attack

    def run(images: Tensor, classes: Tensor, **options: Any) -> Result:
        return attack(model, images, classes, seed=3, **options)

    whole = run(x, labels)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(2)).tolist()
    same_rows(whole, order, run(x[order], labels[order]))
    for rows in ([size // 2], [1, size - 1]):
        same_rows(whole, rows, run(x[rows], labels[rows]))
    _, others, their_labels = sample.problem(batch=3, seed=1)
    mixed = run(
        torch.cat([others[:2], x[2:4], others[2:]]), torch.cat([their_labels[:2], labels[2:4], their_labels[2:]])
    )
    same_rows(whole, [2, 3], mixed, [2, 3])
    same_rows(whole, list(range(size)), run(x, labels, batch_size=8))


@each_attack
@pytest.mark.parametrize("budget", [1, 5, 17])
def test_a_budget_is_never_exceeded_and_spent_the_same_in_any_company(sample: Sample, budget: int) -> None:
    model, x, labels = sample.problem(batch=5)
    counted = Counted(model)
    whole = sample.attack(model, x, labels, budget=budget, check=False)
    counted.remove()
    assert int(whole.forwards.max()) <= budget and int(whole.backwards.max()) <= budget
    assert counted.forwards == int(whole.forwards.sum()) and whole.probes == 0
    assert counted.backwards == int(whole.backwards.sum()), "rows went through a backward pass that nobody paid for"
    for rows in ([1], [3, 4]):
        same_rows(whole, rows, sample.attack(model, x[rows], labels[rows], budget=budget, check=False))


@each_attack
def test_an_image_stops_once_it_is_broken_within_the_radius(sample: Sample) -> None:
    model, x, labels = sample.problem(batch=5)
    whole = sample.attack(model, x, labels)
    radius = float(whole.distances[whole.distances.isfinite()].median())
    counted = Counted(model)
    stopped = sample.attack(model, x, labels, stop_within=radius)
    counted.remove()
    assert counted.forwards == int(stopped.forwards.sum()) + stopped.probes
    assert counted.backwards == int(stopped.backwards.sum())
    limit = stopped.grid.limit(radius)
    broken = whole.distances <= limit
    assert bool(broken.any()) and torch.equal(stopped.distances <= limit, broken)
    assert torch.equal(stopped.success, whole.success)
    assert bool((stopped.forwards <= whole.forwards).all())
    same_rows(whole, (~broken).nonzero().flatten().tolist(), stopped[~broken])


@each_attack
def test_no_query_follows_a_success_within_the_radius(sample: Sample) -> None:
    model, x, labels = sample.problem(batch=1)
    whole, queried = sample.attack(model, x, labels, check=False), []

    def watched(images: Tensor) -> Tensor:
        logits = model(images)
        lead = logits.detach().topk(2).values
        wrong = (logits.detach().argmax(1) != labels) & (lead[:, 0] - lead[:, 1] > 1e-4)
        near = sample.attack.measure(x.expand_as(images), images.detach()) <= radius
        queried.append(bool((wrong & near).any()))
        return logits

    # Twice the smallest distance is reached well before the end.
    radius = float(whole.distances[0]) * (2 if sample.attack.minimal else 1)
    result = sample.attack(watched, x, labels, check=False, stop_within=radius)
    assert float(result.distances[0]) <= result.grid.limit(radius)
    assert True not in queried[:-1]


@each_attack
@pytest.mark.parametrize("budget", [None, 9])
def test_images_already_wrong_go_through_no_backward_but_the_clean_pass(sample: Sample, budget: int | None) -> None:
    """The clean pass settles who is attacked, and its graph holds the whole batch: gradients taken there pass through
    all rows, later ones do not."""
    model, x, labels = sample.problem(batch=8)
    wrong = torch.tensor([1, 6])
    labels = labels.index_copy(0, wrong, (labels[wrong] + 1) % 5)
    counted = Counted(model)
    result = sample.attack(model, x, labels, budget=budget, check=False)
    counted.remove()
    assert counted.forwards == int(result.forwards.sum()) and result.backwards[wrong].tolist() == [0, 0]
    idle = counted.backwards - int(result.backwards.sum())
    assert idle == len(wrong) * counted.passes_of_first


class Furnished(nn.Module):
    """A model with everything an attack could disturb: mixed modes, frozen and free parameters, statistics, hooks and
    gradients."""

    def __init__(self, inner: RowWise):
        super().__init__()
        self.inner, self.norm, self.calls, self.fail_at = inner, nn.BatchNorm1d(5), 0, -1
        self.norm.running_var.fill_(2.0)
        self.register_forward_hook(lambda module, inputs, output: None)
        inner.first.requires_grad_(False)
        inner.second.grad = torch.ones_like(inner.second)
        self.train()
        self.inner.eval()
        self.inner.drop.train()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.fail_at:
            raise RuntimeError("the model broke")
        return self.norm(self.inner(x))

    def state(self) -> dict[str, Any]:
        """Everything that must be as before, in a form that compares with ``==``."""
        found: dict[str, Any] = {"rng": torch.random.get_rng_state().tolist(), "default": torch.get_default_dtype()}
        for name, module in self.named_modules():
            hooks = [
                len(kind)
                for kind in (
                    module._forward_hooks,
                    module._forward_pre_hooks,
                    module._backward_hooks,
                    module._backward_pre_hooks,
                )
            ]
            found[f"module {name}"] = (module.training, hooks)
        for name, parameter in self.named_parameters():
            grad = None if parameter.grad is None else parameter.grad.tolist()
            found[name] = (
                parameter.requires_grad,
                parameter.dtype,
                parameter.device,
                parameter.is_leaf,
                grad,
                parameter.tolist(),
            )
        for name, buffer in self.named_buffers():
            found[name] = (buffer.dtype, buffer.device, buffer.tolist())
        return found


@each_attack
def test_the_model_leaves_as_it_came(sample: Sample) -> None:
    inner, x, _ = sample.problem(batch=3)
    model = Furnished(inner)
    training = [module.training for module in model.modules()]
    model.eval()
    with torch.no_grad():
        labels = model(x).argmax(1)
    for module, mode in zip(model.modules(), training, strict=True):
        module.training = mode
    before, kept = model.state(), x.clone()
    sample.attack(model, x, labels)
    assert model.state() == before and torch.equal(x, kept) and not x.requires_grad
    model.calls, model.fail_at = 0, 4  # after three images alone, the clean pass
    with pytest.raises(RuntimeError, match="the model broke"):
        sample.attack(model, x, labels)
    assert model.state() == before
