"""Records as AttackBench stores them, read back as its analysis reads them; and why its optimality is
not ours."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from runs.small_runs import ATTACKS, small_run

from almakit.cli.main import main
from almakit.errors import BadInput
from almakit.runs.export import OPTIMALITY, export_attackbench


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run(
        tmp_path_factory.mktemp("bench") / "run", attacks=[*ATTACKS, "pgd(distance=l2, epsilon=0.25, steps=5)"]
    )


def test_the_records_come_back(run, tmp_path, capsys):
    assert main(["export", str(run.folder), "--as", "attackbench", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert OPTIMALITY in said
    assert "Left out: pgd(epsilon=0.25, distance=l2, steps=5): it works at a fixed radius" in said
    files = sorted(tmp_path.glob("*/l2/*/*/**/info.json"))
    assert len(files) == 1 and files[0].parent.name == "1" and files[0].parent.parent.name.startswith("almakit alma")
    config, info = (json.loads((files[0].parent / name).read_text()) for name in ("config.json", "info.json"))
    assert config["attack"]["threat_model"] == "l2" and config["model"]["name"] == run.meta["model"]
    assert config["dataset"]["batch_size"] == run.spec.batch_size
    # As AttackBench's analysis does: infinite where nothing was found, 0 where the clean image was wrong already.
    distances = np.array(info["best_optim_distances"]["l2"])
    distances[~np.array(info["adv_success"])] = np.inf
    distances[np.array(info["ori_success"])] = 0
    assert distances.tolist() == [record.verified for record in run.records_of(0)]
    assert 0 in distances and len(distances) == len(run.images)
    assert info["hashes"][3] == hashlib.sha512(run.originals([3])[0].astype(np.float32).tobytes()).hexdigest()
    assert info["num_forwards"] == [record.forwards for record in run.records_of(0)]
    assert info["ASR"] == run.summary["attacks"][0]["success_rate"]["value"]
    assert info["accuracy"] == run.summary["clean_accuracy"]["value"]


def test_what_does_not_fit_is_said(tmp_path):
    every = small_run(tmp_path / "all", attacks=ATTACKS[:1], targets="all", limit=4)
    with pytest.raises(BadInput, match=r"fits AttackBench's format: .*a result for every target"):
        export_attackbench(every, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_trapezoid_rule_favours_ties():
    """An attack whose successes all lie at a few radii: the exact figure is below 1, that of the trapezoid rule
    above."""
    from almakit.report.numbers import optimality

    def trapezoid(found: np.ndarray, best: np.ndarray) -> float:
        def area(values):
            at, counts = np.unique(values, return_counts=True)
            left = 1 - counts.cumsum() / len(values)
            return float(np.sum((left[1:] + left[:-1]) / 2 * np.diff(at)))

        top, ideal = best.max(), area(best)
        return 1 - (area(np.minimum(found, top)) - ideal) / (np.count_nonzero(best) / len(best) * top - ideal)

    best = np.array([0.1, 1.5, 2.5, 2.9, 3.0])
    tied = np.array([1.0, 3.0, 3.0, 3.0, 3.0])
    assert optimality(tied, best, 1.0)[0] < 0.5 < 1 < trapezoid(tied, best)
