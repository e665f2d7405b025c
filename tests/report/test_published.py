"""The paper's figures are found for the same model, data, distance, attack and settings, and for nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report.made_runs import MadeAttack

from almakit.report.published import Published, published

ALMA = MadeAttack().info(0)


def test_the_same_cell_is_found() -> None:
    assert published("mnist/smallcnn@mine.pt", "mnist", ALMA) == Published(1.0, 1.38, 100, 100)
    fmn = replace(ALMA, text="fmn(distance=l1, steps=100, adaptive=false, overshoot=0.0)")
    assert published("mnist/crown-ibp-large", "mnist", fmn).median is None, "the paper prints a dash"


@pytest.mark.parametrize(
    ("model", "data", "info"),
    [
        ("mnist/smallcnn", "cifar10", ALMA),
        ("mnist/smallcnn-tiny", "mnist", ALMA),
        ("my-model.py:load", "mnist", ALMA),
        ("mnist/smallcnn", "mnist", MadeAttack(steps=99).info(0)),
        ("mnist/smallcnn", "mnist", MadeAttack(settings={"alpha": 0.9}).info(0)),
        ("mnist/smallcnn", "mnist", replace(ALMA, targeted=True)),
        ("cifar10/wrn-28-10", "cifar10", MadeAttack(distance="ciede2000").info(0)),
    ],
)
def test_other_cells_are_not(model, data, info) -> None:
    assert published(model, data, info) is None
