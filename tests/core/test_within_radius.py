"""Which distances lie within a radius: against integer counting, on grids, boxes, norms and attacks; and radii that an
attack was not run at."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import almakit
from almakit import Box
from almakit.attacks import get
from almakit.core import Result, best_of
from almakit.radius import Grid, grid_step, same

BOXES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0), (-2.1, 2.6), (100.0, 101.0))


def network(box: tuple[float, float], seed: int = 0) -> nn.Module:
    """A small network whose first layer scales the box to [0, 1]."""
    torch.manual_seed(seed)
    lo, hi = box

    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x - lo) / (hi - lo)

    return nn.Sequential(Scaled(), nn.Flatten(), nn.Linear(48, 16), nn.Tanh(), nn.Linear(16, 4)).eval()


def images(box: tuple[float, float], bits: int, count: int = 24) -> tuple[Tensor, Tensor, Box]:
    """Images on the grid of a box, their level numbers, and the box."""
    domain, top = Box(*box, bits=bits), 2**bits - 1
    numbers = torch.randint(0, top + 1, (count, 3, 4, 4), generator=torch.Generator().manual_seed(bits))
    x = numbers.double() / top * (box[1] - box[0]) + box[0]
    return domain.project(x.float(), x.float()), numbers, domain


def levels(result: Result, numbers: Tensor, box: tuple[float, float], bits: int) -> Tensor:
    """(B, n) by how many levels each value of the adversarial images differs, counted in integers."""
    found = (result.adversarials.double() - box[0]) / (box[1] - box[0]) * (2**bits - 1)
    return (found.round() - numbers).abs().flatten(1).long()


def counted(result: Result, changed: Tensor, distance: str, radius: int) -> float:
    """Robust accuracy by integers: ``radius`` in levels, squared in l2."""
    size = {"l1": changed.sum(1), "l2": changed.square().sum(1), "linf": changed.amax(1)}[distance]
    return float((~(result.success & (size <= radius))).double().mean())


@pytest.mark.parametrize("bits", [1, 3, 8])
@pytest.mark.parametrize("box", BOXES, ids=str)
@pytest.mark.parametrize(
    "text", ["fmn(distance={})", "search(attack=pgd(distance={}), halvings=4)", "alma(distance={})"]
)
def test_robust_accuracy_on_a_grid_equals_integer_counting(text: str, box: tuple[float, float], bits: int) -> None:
    x, numbers, domain = images(box, bits)
    model, level = network(box), (box[1] - box[0]) / (2**bits - 1)
    with torch.no_grad():
        labels = model(x).argmax(1)
    # Float32 holds values near 100 to 2e-3 levels only, which squares of many levels do not survive.
    for distance in ("l1", "linf") if box[0] == 100 else ("l1", "l2", "linf"):
        attack = text.format(distance).replace("pgd(distance=l", "pgd(steps=5, distance=l")
        if not attack.startswith("search"):
            attack = attack[:-1] + ", steps=8)"
        result = almakit.attack(model, x, labels, attack=attack, box=domain)
        changed = levels(result, numbers, box, bits)
        sizes = {"l1": changed.sum(1), "l2": changed.square().sum(1), "linf": changed.amax(1)}[distance]
        for radius in sorted(
            {0, 1, 2, *sizes[result.success].tolist(), *(sizes[result.success] - 1).clamp_min(0).tolist()}
        ):
            eps = level * (math.sqrt(radius) if distance == "l2" else radius)
            assert result.robust_accuracy(eps) == counted(result, changed, distance, radius), (attack, radius)
        assert dict(result.curve())[0.0] == result.clean_accuracy


@pytest.mark.parametrize("bits", [1, 3, 8])
@pytest.mark.parametrize("box", BOXES, ids=str)
@pytest.mark.parametrize("name", ["pgd", "apgd", "square"])
def test_an_attack_at_whole_levels_succeeds_there_and_agrees_with_itself(
    name: str, box: tuple[float, float], bits: int
) -> None:
    x, numbers, domain = images(box, bits)
    model, level = network(box), (box[1] - box[0]) / (2**bits - 1)
    with torch.no_grad():
        logits = model(x)
    labels, successes = logits.topk(2, dim=1).indices[:, 0], 0
    for radius in (1, 2, 4, 8):
        if radius > 2**bits - 1:
            continue
        result = almakit.attack(
            model, x, labels, attack=f"{name}(distance=linf, epsilon={radius * level!r}, steps=8)", box=domain
        )
        changed = levels(result, numbers, box, bits)
        assert all(size <= radius for size in changed[result.success].amax(1).tolist())
        share = float((~result.success).double().mean())
        assert result.robust_accuracy(radius * level) == share == counted(result, changed, "linf", radius)
        successes += int(result.success.sum())
    assert successes or name == "square"


@pytest.mark.parametrize("name", ["pgd", "apgd"])
@pytest.mark.parametrize("levels_allowed", [1, 2, 3, 4])
def test_eight_bits_cost_a_linf_attack_nothing_at_whole_levels(name: str, levels_allowed: int) -> None:
    x, _, domain = images((0.0, 1.0), 8, 64)
    model = network((0.0, 1.0))
    with torch.no_grad():
        labels = model(x).argmax(1)
    model[-1].weight.data *= 20
    text = f"{name}(distance=linf, epsilon={levels_allowed / 255!r}, steps=20)"
    free, grid = (almakit.attack(model, x, labels, attack=text, box=box) for box in (Box(), domain))
    assert int(free.success.sum()) > 0 and int(grid.success.sum()) >= 0.9 * int(free.success.sum())


@pytest.mark.parametrize("distance", ["l1", "l2"])
@pytest.mark.parametrize("name", ["pgd", "apgd"])
def test_rounding_to_the_grid_leaves_no_ball_of_any_norm(name: str, distance: str) -> None:
    x, numbers, domain = images((0.0, 1.0), 8, 64)
    model = network((0.0, 1.0))
    with torch.no_grad():
        labels = model(x).argmax(1)
    eps = 0.2 if distance == "l2" else 1.0
    result = almakit.attack(
        model, x, labels, attack=f"{name}(distance={distance}, epsilon={eps}, steps=20)", box=domain
    )
    changed = levels(result, numbers, (0.0, 1.0), 8)[result.success].double()
    size = changed.square().sum(1) if distance == "l2" else changed.sum(1)
    assert len(size) and bool((size <= (255 * eps) ** (2 if distance == "l2" else 1)).all())


def test_the_next_level_is_outside_also_where_it_is_nearer_than_float_rounding() -> None:
    grid = Grid.of("l2", 1 / 255)
    inside, outside = (math.sqrt(count) / 255 for count in (65025, 65026))
    assert inside <= grid.limit(1.0) < outside < 1.0 * (1 + 1e-5)
    assert 100000 <= Grid.of("l0").limit(100000.0) < 100001
    sixteen = Grid.of("linf", grid_step(16))
    assert 60000 / 65535 <= sixteen.limit(60000 / 65535) < 60001 / 65535


def test_without_a_grid_the_tolerance_is_float_rounding() -> None:
    grid = Grid.of("linf")
    assert 0.1 * (1 + 9e-6) <= grid.limit(0.1) < 0.1 * (1 + 2e-5) and grid.limit(0.0) == 0.0
    assert grid.limit(8 / 255) >= float(np.float32(8 / 255)) and Grid.of("ssim", 1 / 255).step == 0
    assert same(8 / 255, 0.0313725) and not same(8 / 255, 0.0314) and same(math.inf, math.inf)


def test_distances_off_the_levels_are_not_counted_in_levels() -> None:
    assert Grid.of("linf", 1 / 255, [1 / 255, 8.4 / 255]).step == 0.0
    assert Grid.of("linf", 1 / 255, [1 / 255, 8.00001 / 255, math.inf]).step == 1 / 255
    x = torch.full((2, 1, 4, 4), 0.5001)  # between two levels
    result = almakit.attack(network_of_one(), x, [0, 0], attack="fmn(distance=linf, steps=5)", box=Box(bits=8))
    assert result.step == 0.0


def network_of_one() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()


@pytest.mark.parametrize("widths", [(10, 10, 10, 10), (3, 7, 100, 1000)], ids=["one step", "several steps"])
def test_integer_features_of_a_table_are_counted_whole(widths: tuple[int, ...], tmp_path: Path) -> None:
    tops = np.array(widths)
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, top + 1, 40) for top in widths], 1)
    torch.manual_seed(1)
    inner = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)).eval()

    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 5 * inner(x / torch.tensor(widths))

    model, x = Own(), torch.tensor(rows, dtype=torch.float32)
    with torch.no_grad():
        labels = model(x).argmax(1)
    box = Box(0.0, torch.tensor(widths, dtype=torch.float32), step=1.0)
    run = almakit.evaluate(
        model, (x, labels), ["fmn(distance=linf, steps=30)"], box=box, out=tmp_path / "run", preflight=False
    )
    result = run.result()
    own = np.rint(result.adversarials.double().numpy() * tops).astype(int)
    changed = np.abs(own - rows)
    found = result.success.numpy()
    for place in range(len(rows)):
        for column, width in enumerate(widths):
            radius = changed[place, column] / width
            # |change| / width <= radius, in whole numbers
            inside = (changed * width <= changed[place, column] * tops[None]).all(1) & found
            assert run.robust_accuracy(radius) == pytest.approx(float(1 - inside.mean()), abs=1e-12)
            assert result.robust_accuracy(radius) == pytest.approx(float(1 - inside.mean()), abs=1e-12)


def test_a_result_at_a_fixed_epsilon_is_nan_at_other_radii(tmp_path: Path) -> None:
    x, _, domain = images((0.0, 1.0), 8)
    model = network((0.0, 1.0))
    with torch.no_grad():
        labels = model(x).argmax(1)
    result = almakit.attack(model, x, labels, attack="pgd(epsilon=8/255, steps=5)", box=domain)
    assert (
        result.robust_accuracy("8/255") == result.robust_accuracy(8 / 255) == float((~result.success).double().mean())
    )
    assert math.isnan(result.robust_accuracy("4/255")) and math.isnan(result.robust_accuracy(0.5))
    assert result.robust_accuracy(0) == result.clean_accuracy == 1.0
    assert [eps for eps, _ in result.curve()] == [0.0, 8 / 255]
    again = Result.load(result.save(tmp_path / "r.safetensors"))
    assert again.radii == result.radii and again.step == result.step and math.isnan(again.robust_accuracy(0.5))
    minimal = almakit.attack(model, x, labels, attack="fmn(distance=linf, steps=5)", box=domain)
    assert not math.isnan(best_of([result, minimal]).robust_accuracy(0.5))
    assert math.isnan(best_of([result, result]).robust_accuracy(0.5)) and math.isnan(result[:3].robust_accuracy(0.5))
    both = "ensemble(attacks=[pgd(epsilon=4/255, steps=3), apgd(epsilon=8/255, steps=3)])"
    several = almakit.attack(model, x, labels, attack=both, box=domain)
    assert several.robust_accuracy("4/255") >= several.robust_accuracy("8/255")
    assert math.isnan(several.robust_accuracy("6/255"))


def test_fixed_radius_attacks_share_the_default_distance() -> None:
    assert {get(name).distance for name in ("pgd", "apgd", "square")} == {"linf"}


def test_an_epsilon_wider_than_the_box_warns() -> None:
    x, _, domain = images((0.0, 1.0), 8, 2)
    model = network((0.0, 1.0))
    for text in ("pgd(epsilon=8, steps=2)", "apgd(distance=l2, epsilon=8, steps=2)"):
        with pytest.warns(UserWarning, match="largest l.* distance in the box"):
            almakit.attack(model, x, [0, 1], attack=text, box=domain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        almakit.attack(model, x, [0, 1], attack="pgd(epsilon=1, steps=2)", box=domain)
        almakit.attack(model, x, [0, 1], attack="pgd(distance=l2, epsilon=6, steps=2)", box=domain)
