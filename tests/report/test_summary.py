"""The numbers of a summary against what they are by definition, worked out by hand or by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almakit.report import numbers, results
from almakit.report.results import Together, best_known
from almakit.report.summary import MEASURES, attack_summary
from almakit.report.tables import run_text
from almakit.runs.store.records import AttackInfo, Record

INF = math.inf
INFO = AttackInfo(0, "alma(distance=l2, steps=100)", "ALMA", "l2", True, False, "", "", {})
OTHER = AttackInfo(1, "ddn(steps=100)", "DDN", "l2", True, False, "", "", {})


def Results(info, records, best=None, epsilons=(), **more):
    return results.Results(info, records, None, best, epsilons, **more)


def record(
    image: int,
    distance: float,
    attack: int = 0,
    fooled: bool = True,
    coarse: float | None = None,
    l1: float | None = None,
) -> Record:
    status = "already-wrong" if distance == 0 else "success" if math.isfinite(distance) else "failed"
    found = math.isfinite(distance)
    return Record(
        attack,
        image,
        None,
        status,
        None,
        distance,
        100,
        98,
        2 if found else None,
        (),
        found and fooled,
        distance if found else None,
        {"l2": distance if found else None, "l1": l1},
        coarse is not None,
        coarse,
        seconds=0.5,
        slot=0,
    )


def test_numbers_as_the_paper_counts():
    records = [
        record(0, 0.0, coarse=0.0),
        record(1, 1.0, coarse=1.25),
        record(2, 2.0),
        record(3, 4.0, coarse=4.5),
        record(4, INF),
    ]
    part = attack_summary(Results(INFO, records, epsilons=[1.0, 3.0]))
    assert part["success_rate"]["value"] == 0.8 and part["success_rate_attacked"] == 0.75
    assert part["median_all"]["value"] == 2.0, "already wrong counts 0, nothing found infinity"
    assert part["median_attacked"]["value"] == 3.0 and part["mean_all"] is None and part["mean_attacked"] is None
    assert part["mean_found"] == pytest.approx(7 / 3)
    assert part["success_rate_8bit"]["value"] == 0.6 and part["median_all_8bit"]["value"] == 4.5
    robust = {row["epsilon"]: row["value"] for row in part["robust_accuracy"]}
    assert robust[0.0] == 0.8 and robust[1.0] == 0.6 and robust[3.0] == 0.4
    assert part["forwards"] == {"mean": 100.0, "median": 100.0, "max": 100, "total": 400}
    assert part["backwards"]["mean"] == 98.0
    assert part["seconds"] == {"per_image": 0.5, "total": 2.5}
    assert part["status"] == {"already-wrong": 1, "success": 3, "failed": 1, "invalid": 0}


def test_a_claim_the_verdict_refutes_counts_as_nothing_found():
    part = attack_summary(Results(INFO, [record(0, 1.0), record(1, 2.0, fooled=False)]))
    assert part["refuted"] == 1 and part["success_rate"]["value"] == 0.5 and part["median_all"]["value"] is None


def test_optimality_is_exact():
    best = np.array([0.0, 1.0, 2.0, 4.0])
    clean = 0.75
    assert numbers.optimality(best, best, clean) == (1.0, 4.0)
    nothing = np.array([0.0, INF, INF, INF])
    assert numbers.optimality(nothing, best, clean)[0] == pytest.approx(0.0, abs=1e-15), (
        "an attack that finds nothing scores 0"
    )
    here = np.array([0.0, 1.5, INF, 4.0])
    expected = 1 - ((1.5 + 4 + 4) / 4 - 7 / 4) / (0.75 * 4 - 7 / 4)
    assert numbers.optimality(here, best, clean)[0] == pytest.approx(expected)


def test_optimality_is_the_area_between_the_curves():
    """xi = 1 - (area under the attack's curve - area under the best one's)/(area under no attack's - that), integrated
    by brute force."""
    random = np.random.default_rng(0)
    best = np.where(random.random(50) < 0.1, 0.0, random.random(50) * 3)
    here = np.where(best == 0, 0.0, best * (1 + random.random(50)))
    here[random.random(50) < 0.2] = INF
    here[best == 0] = 0.0
    clean, furthest = float((best > 0).mean()), float(best.max())
    grid = (np.arange(200_000) + 0.5) / 200_000 * furthest

    def area(d):
        return np.searchsorted(np.sort(d), grid, side="right")

    curve = {name: (1 - area(d) / 50).mean() * furthest for name, d in (("here", here), ("best", best))}
    expected = 1 - (curve["here"] - curve["best"]) / (clean * furthest - curve["best"])
    assert numbers.optimality(here, best, clean)[0] == pytest.approx(expected, abs=1e-4)


def test_optimality_without_a_scale_is_not_a_number():
    assert math.isnan(numbers.optimality(np.array([INF]), np.array([INF]), 1.0)[0])
    assert math.isnan(numbers.optimality(np.array([2.0]), np.array([2.0]), 1.0)[0]), (
        "one image: d_max is its own distance"
    )


def test_the_best_known_distance_may_come_from_another_attack():
    l1 = AttackInfo(1, "alma(distance=l1, steps=100)", "ALMA", "l1", True, False, "", "", {})
    records = [
        record(0, 2.0, l1=9.0),
        record(1, 3.0, l1=5.0),
        Record(1, 0, None, "success", None, 7.0, 1, 1, 2, (), True, 7.0, {"l2": 1.5, "l1": 7.0}),
        Record(1, 1, None, "success", None, 4.0, 1, 1, 2, (), False, 4.0, {"l2": 0.1, "l1": 4.0}),
    ]
    best = best_known([Results(INFO, records[:2]), Results(l1, records[2:])])
    assert best == {"l2": {(0, None): 1.5, (1, None): 3.0}, "l1": {(0, None): 7.0, (1, None): 5.0}}, (
        "a refuted image holds no record"
    )


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.one_of(st.floats(0, 1e6), st.just(INF)), min_size=1, max_size=30),
    at=st.sampled_from([0.05, 0.25, 0.5, 0.9]),
)
def test_quantiles_are_numpys_and_know_infinity(values, at):
    array = np.array(values)
    finite = np.where(np.isinf(array), 1e300, array)
    expected = float(np.quantile(finite, at))
    found = numbers.quantile(array, at)
    assert found == pytest.approx(expected, rel=1e-9) if expected < 1e290 else found == INF


def test_intervals_are_seeded_and_cover():
    values = np.random.default_rng(1).exponential(size=400)
    draw = numbers.Bootstrap(400, seed=3)
    low, high = draw.of_median(values)
    assert low < np.median(values) < high and high - low < 0.4
    assert (
        numbers.Bootstrap(400, seed=3).of_median(values)
        == (low, high)
        != numbers.Bootstrap(400, seed=4).of_median(values)
    )
    keep = values > 0.5
    low, high = draw.of_median(values, keep)
    assert low < np.median(values[keep]) < high
    covered = 0
    for seed in range(100):
        sample = np.random.default_rng(seed).exponential(size=200)
        low, high = numbers.Bootstrap(200, seed=seed, resamples=300).of_median(sample)
        covered += low <= math.log(2) <= high
    assert 85 <= covered <= 100


def test_geometric_means():
    # ALMA, l2, 100 steps on CIFAR-10 and its summary: any three medians and their geometric mean.
    assert numbers.geometric_mean([0.1, 0.6, 0.7]) == pytest.approx((0.1 * 0.6 * 0.7) ** (1 / 3))
    assert numbers.geometric_mean([0.5, INF]) == INF
    assert numbers.geometric_mean([0.0, 2.0]) == 0.0
    assert math.isnan(numbers.geometric_mean([]))


def test_the_table_of_a_run_says_what_preflight_found_and_what_failed():
    part = attack_summary(Results(INFO, [record(0, 1.0), record(1, INF)])) | {"label": "ALMA 100", "goal": "untargeted"}
    summary = {
        "run": {"model": "m", "data": "d", "threat_model": "untargeted", "bits": None},
        "images": 2,
        "clean_name": "clean accuracy",
        "clean_accuracy": {"value": 1.0, "low": 1.0, "high": 1.0},
        "findings": [
            {"name": "probabilities", "severity": "warn", "sentence": "They sum to 1.", "way_out": "Return logits."},
            {"name": "few-images", "severity": "note", "sentence": "Two.", "way_out": "Give ten."},
        ],
        "attacks": [part],
        "radii": {"l2": [0.5]},
        "worst_case": [{"distance": "l2", "goal": "untargeted", "masked": 0}],
        "failed_chunks": [],
        "complete": True,
        "missing_records": 0,
    }
    table = run_text(summary)
    assert "Preflight, probabilities: They sum to 1. Return logits." in table and "few-images" not in table
    assert (
        "Nothing was found for 1 attacked images: ALMA 100 (ℓ2): 1 of 2" in table and "inf" in table and "50.0" in table
    )


def test_images_that_stopped_early_say_nothing_of_smaller_radii():
    records = [record(0, 0.0), record(1, 1.0), record(2, 1.5), record(3, 4.0), record(4, INF)]
    part = attack_summary(Results(INFO, records, {}, [1.0, 2.0, 3.0], stop=2.0))
    robust = {row["epsilon"]: row["value"] for row in part["robust_accuracy"]}
    assert 1.0 not in robust and robust[0.0] == 0.8 and robust[2.0] == robust[3.0] == 0.4
    assert part["stop_within"] == 2.0 and part["median_all"]["value"] is None and part["mean_found"] is None
    assert "optimality" not in part
    (cell,) = (measure.read(part) for measure in MEASURES if measure.name == "median")
    assert cell == "\u2264 2"
    together = Together([Results(INFO, records, stop=2.0)])
    assert together.start == 2.0 and math.isnan(together.share(1.0)) and together.share(2.0) == 0.4
    free = Together([Results(INFO, records, stop=2.0), Results(OTHER, [record(k, 3.0, 1) for k in range(5)])])
    assert free.start == 0.0 and free.share(1.25) == 0.6, "the other attack answers for all radii"


def test_empty_runs_have_a_summary():
    part = attack_summary(Results(INFO, [], {}))
    assert part["records"] == 0 and part["success_rate"]["value"] is None
