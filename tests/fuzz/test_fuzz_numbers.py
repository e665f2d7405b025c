"""Numbers of run folders of every kind altered with valid checksums: verify must notice every one."""

from __future__ import annotations

import random
import shutil

import pytest
from fuzz.amount import TIMES, outcome
from runs.forgery import NUMBERS, Colours, alter, colour_run

from almakit import Run
from almakit.errors import AlmakitError
from almakit.runs.model import open_model
from almakit.runs.spec import RunSpec
from almakit.runs.verify import verify_run

SUBJECT = open_model(Colours(), RunSpec(model="m", data="d"))
RUNS = {
    "targets of its own": {},
    "all targets": {"targets": "all", "limit": 6},
    "random targets": {"targets": "random"},
    "untargeted": {"targets": None},
}


def trusted(folder) -> bool:
    run = Run(folder)
    return verify_run(run, SUBJECT).good and run.meta["weights_sha256"] == SUBJECT.weights_sha256


@pytest.mark.slow  # tests/runs/test_trust_verify.py alters each number of one kind of run
@pytest.mark.parametrize("kind", RUNS)
def test_altered_numbers_are_noticed(kind, tmp_path):
    whole = colour_run(tmp_path / "whole", **RUNS[kind]).folder
    assert trusted(whole), "an honest folder passes"
    outcome("run folders with all their numbers as they were", "result")
    for turn in range(TIMES or 1):
        for place, (table, column) in enumerate(NUMBERS):
            folder = tmp_path / "altered"
            shutil.copytree(whole, folder)
            done = alter(folder, table, column, random.Random(f"{kind} {turn} {place}"))
            try:
                assert not trusted(folder), f"{done} passed"
            except AlmakitError as error:
                assert len(str(error)) > 20, error
            outcome("run folders with one wrong number", "sentence")
            shutil.rmtree(folder)
