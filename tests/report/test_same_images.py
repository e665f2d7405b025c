"""Images of different runs are matched by contents and label."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs.small_runs import images, small_run

from almakit.errors import BadInput
from almakit.report import subjects
from almakit.report.compare import compare

ATTACK = "ddn(steps=8)"


def test_an_image_under_two_labels_is_paired_with_itself(tmp_path: Path) -> None:
    x, labels = images(8)
    x[5], labels[5] = x[0], (labels[0] + 1) % 5  # the same pixels: right at first, wrong already the second time
    x[6], labels[6] = x[1], labels[1]  # and once more in full
    for name in ("a", "b"):
        small_run(tmp_path / name, data=(x, labels), attacks=ATTACK, preflight=False)
    (pair,) = compare(tmp_path / "a", tmp_path / "b")["comparisons"]
    assert (pair["images"], pair["ties"]) == (8, 8)
    backwards = (x.flip(0), labels.flip(0))
    small_run(tmp_path / "c", data=backwards, attacks=ATTACK, preflight=False, batch_size=8)
    (pair,) = compare(tmp_path / "a", tmp_path / "c")["comparisons"]
    assert (pair["images"], pair["ties"]) == (8, 8)


def test_runs_with_other_labels_are_not_mixed(tmp_path: Path) -> None:
    x, labels = images(8)
    other = labels.clone()
    other[:2] = (labels[:2] + 1) % 5
    small_run(tmp_path / "a", data=(x, labels), attacks=ATTACK, preflight=False)
    small_run(tmp_path / "b", data=(x, other), attacks=ATTACK, preflight=False)
    small_run(tmp_path / "c", data=(x, (labels + 1) % 5), attacks=ATTACK, preflight=False)
    found = subjects.load([tmp_path / "a", tmp_path / "b"])
    assert len(found) == len({subject.name for subject in found}) == 2
    (pair,) = compare(tmp_path / "a", tmp_path / "b")["comparisons"]
    assert (pair["images"], pair["ties"]) == (6, 6)
    with pytest.raises(BadInput, match="matched by their contents and labels"):
        compare(tmp_path / "a", tmp_path / "c")
