"""The scripts of examples/ run as they are, print what they promise, and stay short."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAYS = {
    "multi_label": r"any of the labels wrong: 100%.*\nall of the labels wrong: 100%",
    "regression": r"off by 3 pixels \(either\): 100%",
    "two_towers": r"another prompt is nearer: .* 100% reached",
    "tabular": r"12 of 12 decisions can be turned without another age\napplicant 0: income",
    "segmentation": r"half of the pixels wrong: 100% of the images",
    "random_model": r"100% found.*\nwrong in .* of 50 fresh passes.*\nimage 0: l2 .* of the verdict.s passes",
}


def test_every_example_is_here_and_short() -> None:
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert {script.stem for script in scripts} == set(SAYS)
    assert all(len(script.read_text().splitlines()) <= 60 for script in scripts)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert re.search(SAYS[name], said), said
