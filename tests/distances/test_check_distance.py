"""``check_distance`` accepts what is right and names what is wrong, one law at a time."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from almakit import distances
from almakit.distances.check import check_distance
from almakit.errors import BadInput, UnknownName

Function = Callable[[Tensor, Tensor], Tensor]


def good(x: Tensor, y: Tensor) -> Tensor:
    return (y - x).square().flatten(1).sum(1)


def changes_its_input(x: Tensor, y: Tensor) -> Tensor:
    value = good(x, y)
    with torch.no_grad():
        y.clamp_(0.4, 0.6)
    return value


def squeezes(x: Tensor, y: Tensor) -> Tensor:
    return (y - x).square().flatten(1).sum(1, keepdim=True).squeeze()


def only_float32(x: Tensor, y: Tensor) -> Tensor:
    return (y.flatten(1) - x.flatten(1)).square() @ torch.ones(y[0].numel())


def loses_its_dtype(x: Tensor, y: Tensor) -> Tensor:
    return good(x, y).float()


def normalised_by_the_batch(x: Tensor, y: Tensor) -> Tensor:
    return good(x, y) / (y - x).detach().abs().amax().clamp(min=1e-20)


def folds_back(x: Tensor, y: Tensor) -> Tensor:
    size = (y - x).abs().flatten(1).mean(1)
    return torch.where(size > 0.05, 0.1 - size, size).abs()


def rooted(x: Tensor, y: Tensor) -> Tensor:
    return good(x, y).sqrt()


def roots_of_pixels(x: Tensor, y: Tensor) -> Tensor:
    """The gradient of a root is infinite at each pixel that did not change; times zero it is NaN, although the value is
    right."""
    return (y - x).abs().sqrt().flatten(1).sum(1) * 0 + good(x, y)


def infinite_at_white(x: Tensor, y: Tensor) -> Tensor:
    return good(x, y) / (1 - y).flatten(1).amax(1)


BROKEN: list[tuple[str, Function, str]] = [
    ("runs", lambda x, y: (y - x) @ torch.ones(7), "raised RuntimeError"),
    ("shape", lambda x, y: (y - x).square().sum(), r"shape \(\) instead of \(4,\)"),
    ("shape", lambda x, y: (y - x).square().flatten(1).sum(1).tolist(), "returned a list"),
    ("shape", lambda x, y: (y - x).square().flatten(1).sum(1, keepdim=True), r"shape \(4, 1\)"),
    ("inputs kept", changes_its_input, "changed its inputs"),
    ("shape", squeezes, r"shape \(\) instead of \(1,\)"),
    ("deterministic", lambda x, y: good(x, y) * (1 + 1e-3 * torch.rand(len(x)).to(y)), "apart"),
    ("dtype", only_float32, "float64 images it raised RuntimeError"),
    ("dtype", loses_its_dtype, "float64 images on cpu it returned torch.float32"),
    ("dtype", lambda x, y: good(x, y).to("meta"), "float32 on meta"),
    ("finite", infinite_at_white, "not finite at a white image"),
    ("zero at identity", lambda x, y: good(x, y) + 1, r"D\(x, x\) = 1 "),
    ("not negative", lambda x, y: -good(x, y), "at least 0"),
    ("gradient", rooted, "not finite at y = x"),
    ("gradient", lambda x, y: good(x, y.detach()), "does not depend on y"),
    ("gradient", roots_of_pixels, "gradient is not finite at"),
    ("per image", normalised_by_the_batch, "in its batch"),
    ("monotone", folds_back, "of a perturbation and less"),
]


@pytest.mark.parametrize(
    ("law", "function", "says"), BROKEN, ids=[f"{law}-{number}" for number, (law, _, _) in enumerate(BROKEN)]
)
def test_each_broken_law_is_named(law: str, function: Function, says: str) -> None:
    report = check_distance(function)
    assert not report.ok
    found = dict(report.findings)
    assert law in found, str(report)
    assert re.search(says, found[law]), found[law]
    assert f"{law}: " in str(report)


def test_every_law_is_broken_once() -> None:
    from almakit.distances.check import _LAWS

    assert {law for law, _, _ in BROKEN} == set(_LAWS)


SINGLE = ("zero at identity", "monotone", "per image", "dtype", "gradient")


@pytest.mark.parametrize(
    ("law", "function"), [(law, function) for law, function, says in BROKEN if law in SINGLE and "meta" not in says]
)
def test_nothing_else_is_blamed(law: str, function: Function) -> None:
    assert [name for name, _ in check_distance(function).findings] == [law]


def test_a_good_function_is_accepted() -> None:
    for f in (good, "l2", distances.get("ssim"), lambda x, y: (y - x).abs().flatten(1).amax(1)):
        report = check_distance(f)
        assert report.ok and report.findings == () and "satisfies every requirement" in str(report)


def test_own_images_and_bad_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    assert check_distance("l1", torch.rand(3, 20, generator=generator)).ok
    assert check_distance("ssim", torch.rand(2, 1, 28, 28, generator=generator, dtype=torch.float64)).ok
    with pytest.raises(BadInput, match="window of 11 x 11"):
        check_distance("ssim", torch.rand(2, 1, 8, 8, generator=generator))
    with pytest.raises(BadInput, match="floating-point images"):
        check_distance("l1", torch.zeros(2, 3, dtype=torch.uint8))
    with pytest.raises(UnknownName):
        check_distance("l7")


def test_report_is_frozen_and_reads_as_sentences() -> None:
    report = check_distance(rooted)
    with pytest.raises(AttributeError):
        report.subject = "other"  # type: ignore[misc]
    lines = str(report).splitlines()
    assert lines[0] == "rooted violates 1 requirement of a distance:"
    assert lines[1].strip().startswith("gradient: ") and lines[1].endswith(".")


def test_the_caller_keeps_his_images() -> None:
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)
    before = x.detach().clone()
    check_distance(changes_its_input, x)
    assert torch.equal(x.detach(), before) and x.grad is None
