"""Summary.json keeps to the shipped JSON Schema."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
from runs.small_runs import ATTACKS, small_run

from almakit.report import subjects
from almakit.report.run import report_summary
from almakit.report.summary import FORMAT


def schema(name):
    found = json.loads(files("almakit.report").joinpath("schemas", f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("schema")
    fixed = "pgd(distance=l2, epsilon=0.25, steps=5)"
    return [
        small_run(root / "mixed", attacks=[*ATTACKS, fixed], epsilons={"l2": 0.25}),
        small_run(root / "all", attacks=ATTACKS[:1], targets="all"),
    ]


def test_summaries_keep_to_the_schema(runs):
    summary = schema(f"summary-{FORMAT}")
    for run in runs:
        summary.validate(json.loads((run.folder / "summary.json").read_text()))
        for part in report_summary(subjects.load([run.folder]))["runs"]:
            summary.validate(json.loads(json.dumps(part)))
    wrong = json.loads((runs[0].folder / "summary.json").read_text())
    wrong["attacks"][0]["median_all"]["middle"] = 1
    with pytest.raises(jsonschema.ValidationError):
        summary.validate(wrong)
