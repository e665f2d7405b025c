"""Results: statuses are sentences, summaries count as the paper does."""

from __future__ import annotations

import math

import torch

from almakit import Result, Status


def made(statuses: list[Status], distances: list[float]) -> Result:
    counts = torch.arange(len(statuses))
    return Result(
        torch.zeros(len(statuses), 2),
        torch.tensor(distances),
        torch.tensor([int(s) for s in statuses]),
        counts,
        counts,
        ["why" if s in (Status.FAILED, Status.INVALID) else None for s in statuses],
        probes=1,
    )


def test_summaries_count_all_images() -> None:
    result = made(
        [Status.ALREADY_WRONG, Status.SUCCESS, Status.SUCCESS, Status.FAILED, Status.INVALID],
        [0.0, 1.0, 3.0, float("inf"), float("inf")],
    )
    assert result.success.tolist() == [True, True, True, False, False]
    assert result.success_rate == 0.6 and result.median == 3.0 and len(result) == 5
    text = repr(result)
    assert "5 images: 1 ALREADY_WRONG, 2 SUCCESS, 1 FAILED, 1 INVALID" in text and "60.0%" in text and "3" in text
    assert "None" not in text


def test_failures_make_the_median_infinite_without_a_warning() -> None:
    assert math.isinf(made([Status.FAILED] * 3, [float("inf")] * 3).median)


def test_an_empty_result_has_no_median() -> None:
    empty = made([], [])
    assert math.isnan(empty.median) and math.isnan(empty.success_rate) and "0 images: none" in repr(empty)


def test_even_counts_with_one_failure_at_the_middle() -> None:
    # Half found, half not: the median lies between a number and infinity, and must not be NaN.
    assert math.isinf(made([Status.SUCCESS, Status.FAILED], [1.0, float("inf")]).median)
    assert math.isinf(made([Status.FAILED] * 2 + [Status.SUCCESS], [float("inf")] * 2 + [1.0]).median)
    assert math.isinf(made([Status.FAILED] * 4, [float("inf")] * 4).median)


def test_concatenation_keeps_rows_and_reasons() -> None:
    one, two = made([Status.SUCCESS], [1.0]), made([Status.FAILED, Status.SUCCESS], [float("inf"), 2.0])
    both = Result.concatenate([one, two])
    assert both.status.tolist() == [1, 2, 1] and both.reasons == [None, "why", None] and both.probes == 2


def test_every_status_is_a_sentence() -> None:
    assert all(status.sentence.endswith(".") and len(status.sentence) > 20 for status in Status)
    assert Status.ALREADY_WRONG == 0
