"""Robustness per class and which attack came nearest, recomputed from the records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from runs.small_runs import small_run

from almakit.report import subjects
from almakit.report.page import render
from almakit.report.sections import classes_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    attacks = ["ddn(steps=10)", "alma(distance=l2, steps=12)", "pgd(distance=l2, epsilon=0.2, steps=5)"]
    return small_run(tmp_path_factory.mktemp("classes") / "run", attacks=attacks, epsilons={"l2": [0.1, 0.2]})


def test_classes_and_nearest_attacks(run):
    found = subjects.load([run.folder])
    ((robust, winners),) = (card.tables for card in classes_of(found[0]))
    a, b = (run.records_of(0), run.records_of(1))
    best = np.minimum([record.verified for record in a], [record.verified for record in b])
    labels = np.array([info.label for info in run.images])
    assert [row["class"] for row in robust.rows] == [str(label) for label in sorted(set(labels.tolist()))]
    for row in robust.rows:
        mine = best[labels == int(row["class"])]
        assert row["images"] == len(mine) and row["median"] == pytest.approx(float(np.median(mine)))
        shares = [row["at 0.1"]["value"], row["at 0.2"]["value"]]
        assert shares == pytest.approx([float((mine > epsilon).mean()) for epsilon in (0.1, 0.2)])
    attacked = [(one.verified, two.verified) for one, two in zip(a, b, strict=True) if one.status == "success"]
    assert {row["attack"]: row["images"] for row in winners.rows} == {
        "DDN 10": sum(x <= 1.001 * min(x, y) for x, y in attacked),
        "ALMA 12": sum(y <= 1.001 * min(x, y) for x, y in attacked),
    }
    page = render(found)
    assert "Class by class" in page and "Nearest on how many images" in page


def test_many_classes_are_listed(run):
    (subject,) = subjects.load([run.folder])
    wide = replace(subject, images=[replace(info, label=info.index) for info in subject.images])
    (card,) = classes_of(wide)
    assert len(card.tables[0].rows) == 20 and card.note == "20 classes with fewer images are not shown."
