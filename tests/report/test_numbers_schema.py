"""Summary.json and exported records keep to the shipped JSON Schemas; the model card is YAML with the
run's numbers."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
import yaml
from runs.small_runs import ATTACKS, small_run

from almakit.cli.main import main
from almakit.report import subjects
from almakit.report.run import report_summary
from almakit.report.summary import FORMAT
from almakit.runs.export import flat_rows, json_schema


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


def test_summaries_and_records_keep_to_the_schemas(runs):
    summary, record = schema(f"summary-{FORMAT}"), schema("record-1")
    for run in runs:
        summary.validate(json.loads((run.folder / "summary.json").read_text()))
        for row in flat_rows(run):
            record.validate(row)
        for part in report_summary(subjects.load([run.folder]))["runs"]:
            summary.validate(json.loads(json.dumps(part)))
    wrong = json.loads((runs[0].folder / "summary.json").read_text())
    wrong["attacks"][0]["median_all"]["middle"] = 1
    with pytest.raises(jsonschema.ValidationError):
        summary.validate(wrong)


def test_the_shipped_schema_of_records_is_the_table_of_fields():
    """After a new field of Record: json.dumps(almakit.runs.export.json_schema(), indent=1) into
    report/schemas/record-1.json."""
    assert json.loads(files("almakit.report").joinpath("schemas", "record-1.json").read_text()) == json_schema()


def test_a_model_card(runs, capsys):
    assert main(["export", str(runs[0].folder), "--as", "model-card"]) == 0 and "README.md" in capsys.readouterr().out
    text = (runs[0].folder / "model-card.yaml").read_text()
    (model,) = yaml.safe_load(text)["model-index"]
    (result,) = model["results"]
    metrics = {metric["name"]: metric["value"] for metric in result["metrics"]}
    assert metrics["Clean accuracy"] == runs[0].summary["clean_accuracy"]["value"]
    assert metrics["Robust accuracy at ℓ2 ≤ 0.25, 2 attacks"] == runs[0].robust_accuracy({"l2": 0.25})
    assert metrics["Median ℓ2 of the smallest change, ALMA 12"] == runs[0].summary["attacks"][0]["median_all"]["value"]
    assert "untargeted" in text and runs[0].meta["weights_sha256"] in text
