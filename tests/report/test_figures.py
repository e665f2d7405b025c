"""Figures for papers: exact steps, all kinds of files, the same bytes for the same numbers, odd names, nothing
found."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from report.made_runs import FOUR, MadeAttack, make_run

from almakit.report import figures, subjects


def test_steps_are_robust_accuracy() -> None:
    distances = np.sort(np.array([0.0, 0.5, 0.5, 1.0, 3.0, np.inf]))
    xs, ys = figures.steps(distances, 2.0)
    assert xs[0] == 0 and xs[-1] == 2
    for x, y in zip(xs, ys, strict=True):
        assert y == pytest.approx(100 * (distances > x).mean())


def test_many_images_are_thinned_without_moving_the_curve() -> None:
    distances = np.sort(np.random.default_rng(0).random(20000))
    xs, ys = figures.steps(distances, 1.0)
    assert len(xs) <= figures.POINTS + 2
    assert np.abs(ys - 100 * (1 - xs)).max() < 2


def test_files_are_written_and_the_same_twice(tmp_path: Path) -> None:
    found = subjects.load([make_run(tmp_path / "run", 40)])
    hashes = []
    for turn in ("one", "two"):
        (tmp_path / turn).mkdir()
        written = figures.draw_curves(found, tmp_path / turn)
        assert [path.name for path in written] == ["curves.svg", "curves.pdf", "curves.png"]
        hashes.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in written])
    assert hashes[0] == hashes[1]
    assert (tmp_path / "one" / "curves.pdf").read_bytes().startswith(b"%PDF")


def test_names_are_not_read_as_mathematics(tmp_path: Path) -> None:
    attacks = (MadeAttack(title="$\\frac{1}$ _^ $"), MadeAttack("b", "50 $ & % <b>", distance="my $distance"))
    found = subjects.load([make_run(tmp_path / "run", 20, attacks, model="$\\undefined{ <img src=x>")])
    assert figures.draw_curves(found, tmp_path, ("svg",))


def test_nothing_found_and_nothing_yet(tmp_path: Path) -> None:
    nothing = subjects.load([make_run(tmp_path / "nothing", 10, (MadeAttack(failing=1.0),), already_wrong=0.0)])
    assert figures.draw_curves(nothing, tmp_path, ("png",))
    begun = subjects.load([make_run(tmp_path / "begun", 10, FOUR[:1], unfinished=1)])
    assert figures.draw_curves(begun, tmp_path, ("png",))
