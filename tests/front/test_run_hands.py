"""Methods of a run: opened by its folder, as a pandas frame, at any radius, with its images, its report, in a
notebook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from laws.models import RowWise

import almakit
from almakit import Run
from almakit.errors import AlmakitError, BadInput

ATTACKS = ["alma(distance=l2, steps=12)", "ddn(steps=12)", "alma(distance=linf, steps=12)"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    model = RowWise((1, 8, 8)).eval()
    x = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        labels = model(x).argmax(1)
    labels[3] = (labels[3] + 1) % 5
    return almakit.evaluate(model, (x, labels), ATTACKS, out=tmp_path_factory.mktemp("run"), batch_size=5)


def test_opened_by_its_folder_and_without_torch(run: Run) -> None:
    again = almakit.open(run.folder)
    assert isinstance(again, Run) and again.summary == run.summary
    script = (
        "import sys, almakit; run = almakit.open(sys.argv[1]); run.robust_accuracy({'Linf': 8/255, 2: 0.5}); "
        "run.adversarials(0); run._repr_html_()\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(run.folder)], check=True)
    with pytest.raises(AlmakitError, match="there is no run folder"):
        almakit.open(run.folder / "nothing")


def test_pandas(run: Run) -> None:
    frame = run.to_pandas()
    assert len(frame) == 36 and set(frame["attack"]) == {info.text for info in run.attacks}
    assert frame["verified"].tolist() == [record.verified for record in run.records]
    assert (frame["status"] == "already-wrong").sum() == 3


def test_robust_accuracy_over_all_attacks(run: Run) -> None:
    """The number of the tables' row "all attacks": attacks in a distance answer for it."""
    proven = [np.array([record.verified for record in run.records_of(index)]) for index in range(3)]
    l2, linf = np.minimum(proven[0], proven[1]), proven[2]
    eps = float(np.median(l2))
    assert run.robust_accuracy({"l2": eps}) == pytest.approx((l2 > eps).mean())
    assert run.robust_accuracy({"l2": 0, "linf": 0}) == pytest.approx(11 / 12)
    radius = float(np.median(linf))
    assert run.robust_accuracy({"Linf": radius, 2: eps}) == pytest.approx(((linf > radius) & (l2 > eps)).mean())
    worst = {
        (part["distance"], row["epsilon"]): row["value"]
        for part in run.summary["worst_case"]
        for row in part["robust_accuracy"]
    }
    assert worst and all(run.robust_accuracy({name: at}) == value for (name, at), value in worst.items())
    own = np.array([record.verified for record in run.records_of("ddn")])
    assert np.isfinite(own).sum() > 6 and (l2 <= own).all()
    assert run.robust_accuracy(float(np.median(own)), attack="ddn") == pytest.approx((own > np.median(own)).mean())
    wrong = [
        (0.3, "give radii by distance"),
        ({"l1": 1.0}, "this run has attacks in l2, linf"),
        ({"l2": -1}, "0 or more"),
        ({"l2": "8/0"}, "0 or more"),
    ]
    for eps_given, sentence in [*wrong, ({}, "give radii by distance")]:
        with pytest.raises(BadInput, match=sentence):
            run.robust_accuracy(eps_given)
    with pytest.raises(BadInput, match="this run has no attack 'pgd'; it has alma"):
        run.robust_accuracy(0.1, attack="pgd")
    with pytest.raises(BadInput, match="say which attack is meant"):
        run.robust_accuracy(0.1, attack="alma")


def test_adversarials_where_images_were_already_wrong(run: Run) -> None:
    """The example of the engine's page, which raised."""
    points = run.adversarials(run.records_of(0))
    assert points.shape == (12, 1, 8, 8) and np.array_equal(points[3], run.originals([3])[0])
    assert run.records_of(0)[3].slot is None and not np.array_equal(points[0], run.originals([0])[0])
    assert np.array_equal(run.adversarials(ATTACKS[0]), points) and np.array_equal(run.adversarials(0), points)


def test_what_an_attack_found_as_a_result(run: Run) -> None:
    result = run.result("ddn")
    assert isinstance(result, almakit.Result)
    assert result.distance == "l2"
    assert result[3].status is almakit.Status.ALREADY_WRONG
    assert result.distances.tolist() == pytest.approx([record.verified for record in run.records_of("ddn")])
    assert len(result.show(0).axes) == 3
    assert np.array_equal(result.adversarials.numpy(), run.adversarials("ddn"))


def test_report_and_notebook(run: Run, tmp_path: Path) -> None:
    page = run.report(tmp_path / "page", figures=False)
    assert page == tmp_path / "page" / "index.html" and page.stat().st_size > 10_000
    table = run._repr_html_()
    assert table.count("<tr>") == 5 and "ddn(steps=12)" in table
