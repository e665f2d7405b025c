"""The numbers of benchmarks/paper/claim.py against answers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.paper.claim_numbers import curves, difference, pooled


def cell(attack: str, distances: list[list[float | None]], network: str = "a", cost: float = 1.0) -> dict[str, object]:
    return {
        "network": network,
        "distance": "l2",
        "attack": attack,
        "forwards": [10, 30, 100, 100, 100, 100],
        "images": list(range(len(distances))),
        "distances": [[*row[:3], row[2], row[2], row[2]] for row in distances],
        "seconds": [cost, 1.0],
    }


def test_quality_is_the_nearest_over_the_found() -> None:
    found = curves(
        {
            "1": cell("alma", [[None, 4.0, 2.0], [8.0, 4.0, 4.0]]),
            "2": cell("ddn", [[2.0, 2.0, 1.0], [None, None, None]], cost=2.0),
            "3": cell("alma", [[1.0, 1.0, 1.0]], network="b"),
        }
    )["l2"]
    ddn, alma = found
    assert [curve.attack for curve in found] == ["ddn", "alma"], "ours last"
    assert pooled(ddn, "queries", 100, ["a"])[0] == pytest.approx((1 + 0) / 2)
    assert pooled(alma, "queries", 100, ["a", "b"])[0] == pytest.approx(((1 / 2 + 1) / 2 + 1) / 2), (
        "networks count the same"
    )
    assert pooled(alma, "queries", 30, ["a", "b"])[0] == pytest.approx(((1 / 4 + 1) / 2 + 1) / 2)
    assert pooled(alma, "queries", 5, ["a", "b"])[0] == 0, "nothing before the first mark"
    assert pooled(ddn, "seconds", 60, ["a"])[0] == pytest.approx((1 / 2) / 2), "30 queries take the time of 60 passes"
    between = float(np.exp((np.log(30) + np.log(100)) / 2))
    assert pooled(ddn, "queries", between, ["a"])[0] == pytest.approx((0.75 + 0) / 2)
    mean, error = difference(alma, ddn, "queries", 100, ["a"])
    assert mean == pytest.approx((-1 / 2 + 1) / 2) and error == pytest.approx(1.5 / np.sqrt(2) / np.sqrt(2))
    assert alma.lasts("a", "queries", 100) and not alma.lasts("a", "queries", 1000)
    assert ddn.lasts("a", "seconds", 200) and not ddn.lasts("b", "queries", 100), "it was not run there"
    untimed = {key: value for key, value in cell("alma", [[1.0, 1.0, 1.0]]).items() if key != "seconds"}
    (alone,) = curves({"1": untimed})["l2"]
    assert alone.lasts("a", "queries", 100) and not alone.lasts("a", "seconds", 100) and alone.points() == []


def test_images_that_only_one_attack_had_are_left_out() -> None:
    many, fewer = [[1.0, 1.0, 1.0]] * 60, [[2.0, 2.0, 2.0]] * 25
    ddn, alma = curves({"1": cell("alma", many), "2": cell("ddn", fewer), "3": cell("cw", fewer[:3])})["l2"][1:]
    assert len(alma.best("a", "queries", 100)[0]) == len(ddn.best("a", "queries", 100)[0]) == 25
