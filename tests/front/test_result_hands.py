"""Methods of a result: it is indexed, iterated, read off at any radius, drawn, saved, and put together with others."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from laws.models import RowWise
from torch import Tensor

import almakit
from almakit import ImageResult, Result, Status
from almakit.errors import AlmakitError, BadInput, Unavailable

INF = float("inf")


def made(distances: list[float], statuses: list[Status] | None = None) -> Result:
    count = len(distances)
    kinds = statuses or [
        Status.ALREADY_WRONG if d == 0 else Status.FAILED if math.isinf(d) else Status.SUCCESS for d in distances
    ]
    x = torch.arange(count * 4, dtype=torch.float32).reshape(count, 1, 2, 2) / (4 * count)
    point = (x + torch.tensor([0.0 if math.isinf(d) else d for d in distances]).reshape(-1, 1, 1, 1) / 10).clamp(0, 1)
    steps = torch.arange(count)
    return Result(
        point,
        torch.tensor(distances),
        torch.tensor([int(kind) for kind in kinds]),
        steps + 1,
        steps,
        ["why" if math.isinf(d) else None for d in distances],
        1,
        x,
        steps % 3,
        "l2",
    )


@pytest.fixture(scope="module")
def attacked() -> tuple[RowWise, Tensor, Tensor, Result]:
    model = RowWise((3, 5, 5)).eval()
    x = torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        labels = model(x).argmax(1)
    labels[2] = (labels[2] + 1) % 5
    return model, x, labels, almakit.attack(model, x, labels, steps=20)


def test_one_image(attacked) -> None:
    _, x, labels, result = attacked
    one = result[3]
    assert isinstance(one, ImageResult) and one.success and one.status is Status.SUCCESS and one.label == int(labels[3])
    assert one.original is not None
    assert torch.equal(one.original, x[3])
    assert torch.equal(one.adversarial, result.adversarials[3])
    assert one.distance == float(result.distances[3])
    assert one.forwards == int(result.forwards[3])
    assert result[-1].distance == float(result.distances[-1])
    assert result[2].status is Status.ALREADY_WRONG
    assert result[np.int64(3)].distance == one.distance == result[torch.tensor(3)].distance
    assert repr(one).startswith(f"ImageResult(3 x 5 x 5, label {one.label}, SUCCESS, distance ")
    assert len(repr(one)) < 120
    with pytest.raises(IndexError, match="there are 6 images; 6 is none of them"):
        result[6]


def test_some_images() -> None:
    result = made([0.0, 1.0, INF, 2.0])
    mask = [False, True, True, False]
    for rows in (torch.tensor(mask), np.array(mask), mask, [1, 2], slice(1, 3), np.array([1, -2])):
        part = result[rows]
        assert isinstance(part, Result)
        assert part.distances.tolist() == [1.0, INF]
        assert part.reasons == [None, "why"]
        assert part.distance == "l2"
        assert part.originals is not None
        assert torch.equal(part.originals, result.originals[1:3])
        assert part.labels.tolist() == [1, 2]
    assert result[::-1].distances.tolist() == [2.0, INF, 1.0, 0.0] and len(result[[]]) == 0
    assert [one.distance for one in result] == [0.0, 1.0, INF, 2.0] and len(list(result)) == len(result) == 4
    assert result[result.success].success_rate == 1
    for wrong, sentence in (
        ([True], r"the mask has shape \(1,\)"),
        ([9], "whole numbers below 4"),
        ("a", "not by 'a'"),
        ([0.5], "whole numbers"),
    ):
        with pytest.raises(BadInput, match=sentence):
            result[wrong]


def test_robust_accuracy_and_its_curve() -> None:
    result = made([0.0, 1.0, INF, 2.0])
    assert [result.robust_accuracy(eps) for eps in (0, 0.5, 1, 1.5, 2, 99)] == [0.75, 0.75, 0.5, 0.5, 0.25, 0.25]
    assert result.clean_accuracy == 0.75
    assert result.curve() == [(0.0, 0.75), (1.0, 0.5), (2.0, 0.25)] and result.curve([1.5]) == [(1.5, 0.5)]
    assert math.isnan(made([]).robust_accuracy(1)) and made([]).curve()[0][0] == 0.0
    with pytest.raises(BadInput, match="0 or more"):
        result.robust_accuracy(-1)


def test_a_point_at_a_fixed_radius_is_inside_it(attacked) -> None:
    model, x, labels, _ = attacked
    for eps in (8 / 255, 0.1, 0.3):
        found = almakit.PGD(epsilon=eps, steps=10)(model, x, labels)
        assert found.robust_accuracy(eps) == 1 - found.success_rate


def test_pandas(attacked) -> None:
    frame = attacked[3].to_pandas()
    assert list(frame.columns) == ["label", "status", "success", "distance", "forwards", "backwards", "reason"]
    assert len(frame) == 6
    assert frame.loc[2, "status"] == "already-wrong"
    assert frame["distance"].iloc[3] == pytest.approx(float(attacked[3].distances[3]))
    assert made([1.0, INF]).to_pandas()["reason"].tolist()[1] == "why"


def test_without_pandas_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Unavailable, match="pip install pandas"):
        made([1.0]).to_pandas()


def test_figures(attacked, tmp_path: Path) -> None:
    result = attacked[3]
    curve = result.plot()
    (ax,) = curve.axes
    drawn = ax.lines[0]
    assert drawn.get_xdata()[0] == 0
    assert drawn.get_ydata()[0] == pytest.approx(100 * result.clean_accuracy)
    assert "l2" in ax.get_xlabel()
    assert result.plot(ax) is curve and len(ax.lines) == 2, "into axes that are there"
    figure = result.show(3)
    assert len(figure.axes) == 3
    assert "adversarial, l2" in figure.axes[1].get_title()
    assert f"label {result[3].label}" in figure.axes[0].get_title()
    assert np.allclose(figure.axes[1].images[0].get_array(), result.adversarials[3].permute(1, 2, 0))
    assert len(result.show().axes) == 3 * 5, "without a word the first five that were found"
    assert len(result.show([0, 1]).axes) == 6 and len(result.show(np.int64(1)).axes) == 3
    assert figure._repr_png_().startswith(b"\x89PNG")
    figure.savefig(tmp_path / "show.png")
    with pytest.raises(BadInput, match="no pictures"):
        Result(
            torch.zeros(1, 4),
            torch.ones(1),
            torch.ones(1).long(),
            torch.ones(1),
            torch.ones(1),
            originals=torch.zeros(1, 4),
        ).show(0)
    with pytest.raises(BadInput, match="does not hold the clean images"):
        Result(torch.zeros(1, 1, 2, 2), torch.ones(1), torch.ones(1).long(), torch.ones(1), torch.ones(1)).show(0)


def test_saved_and_loaded(attacked, tmp_path: Path) -> None:
    result = attacked[3]
    place = result.save(tmp_path / "deep" / "result.safetensors")
    again = Result.load(place)
    for name in ("adversarials", "distances", "status", "forwards", "backwards", "originals", "labels"):
        assert torch.equal(getattr(again, name), getattr(result, name)), name
    assert again.reasons == result.reasons
    assert again.probes == result.probes
    assert again.distance == "l2"
    assert repr(again) == repr(result)
    bare = Result(*[getattr(result, name) for name in ("adversarials", "distances", "status", "forwards", "backwards")])
    assert Result.load(bare.save(tmp_path / "bare.safetensors")).originals is None
    (tmp_path / "torn").write_bytes(b"torn")
    with pytest.raises(AlmakitError, match="no result that almakit saved"):
        Result.load(tmp_path / "torn")
    with pytest.raises(AlmakitError, match="there is no file"):
        Result.load(tmp_path / "nothing")
    with pytest.raises(AlmakitError, match=r"saved as digit\.safetensors, not as digit\.png"):
        result.save(tmp_path / "digit.png")
    assert not (tmp_path / "digit.png").exists()


def test_the_best_of_several(attacked) -> None:
    one, two = made([0.0, 1.0, INF, 2.0]), made([0.0, 3.0, 4.0, 1.5])
    best = almakit.best_of([one, two])
    assert best.distances.tolist() == [0.0, 1.0, 4.0, 1.5] and best.reasons == [None] * 4 and best.distance == "l2"
    assert best.forwards.tolist() == (one.forwards + two.forwards).tolist() and best.probes == 2 and len(best) == 4
    assert torch.equal(best.adversarials[1], one.adversarials[1])
    assert torch.equal(best.adversarials[3], two.adversarials[3])
    model, x, labels, found = attacked
    other = almakit.DDN(steps=20)(model, x, labels)
    both = almakit.best_of([found, other])
    assert torch.equal(both.distances, torch.minimum(found.distances, other.distances))
    assert torch.equal(almakit.best_of([found]).adversarials, found.adversarials)
    with pytest.raises(BadInput, match="same images"):
        almakit.best_of([one, one[:2]])
    with pytest.raises(BadInput, match="same images"):
        almakit.best_of([one[[0, 1]], one[[1, 0]]])
    with pytest.raises(BadInput, match="in one distance, not in l2 and linf"):
        almakit.best_of([found, almakit.attack(model, x, labels, distance="linf", steps=5)])
    with pytest.raises(BadInput, match="at least one"):
        almakit.best_of([])


def test_a_standard_evaluation_has_the_same_methods(attacked, tmp_path: Path) -> None:
    model, x, labels, _ = attacked
    found = almakit.standard_evaluation(model, x[:2], labels[:2], norm="L2")
    assert isinstance(found, Result)
    assert found[0].distance == float(found.distances[0])
    assert found[:1].version == "almakit-standard-v1"
    again = almakit.StandardEvaluation.load(found.save(tmp_path / "standard.safetensors"))
    assert again.version == found.version
    assert again.norm == "l2"
    assert again.robust_accuracy(1) == found.robust_accuracy(1)
    assert repr(again) == repr(found)


def test_a_result_brings_neither_matplotlib_nor_pandas() -> None:
    script = "import sys, almakit; almakit.Result, almakit.DDN; print({'matplotlib', 'pandas'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.strip()
        == "set()"
    )
