"""Certified radii in the tables and in the page's data: their columns only where there are any, their numbers those of
the folder."""

from __future__ import annotations

import csv
import io
import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from report.made_runs import make_run

from almakit import Run
from almakit.report import formats, payload, subjects
from almakit.report.blocks import blocks
from almakit.report.summary import FORMAT
from almakit.report.write import summary
from almakit.runs.store.derived import Certificate


def certify(folder: Path, share: float, leave_out: int = 0) -> dict[int, float]:
    """Certificates at ``share`` of the nearest distance of each image, of all but the first few."""
    run = Run(folder)
    norm = run.attacks[0].distance
    nearest = {
        info.index: min(record.verified for record in run.records if record.image == info.index)
        for info in run.images[leave_out:]
    }
    radii = {image: share * value for image, value in nearest.items() if np.isfinite(value)}
    radii |= {image: 1.0 for image, value in nearest.items() if not np.isfinite(value)}
    Certificate(norm, "crown", run.model_sha256, radii).write(folder)
    return radii


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def test_tables_have_no_certified_columns_where_nothing_is_certified(folder: Path) -> None:
    made = blocks(subjects.load([folder]))
    assert "Certified" not in formats.markdown(made) and "Certified" not in formats.latex(made)
    rows = list(csv.DictReader(io.StringIO(formats.comma_separated(made))))
    assert {row["certified_median"] for row in rows} == {""} == {row["certified_share"] for row in rows}
    assert payload.build(subjects.load([folder]), payload.USUAL)["certified"] == []


def test_tables_have_the_median_radius_and_the_gap(folder: Path) -> None:
    radii = certify(folder, 0.5)
    made = blocks(subjects.load([folder]))
    run, rows = Run(folder), list(csv.DictReader(io.StringIO(formats.comma_separated(made))))
    for info in run.attacks:
        records = [record for record in run.records_of(info.index) if record.attacked]
        row = next(row for row in rows if row["text"] == info.text)
        assert float(row["certified_median"]) == pytest.approx(np.median([radii[record.image] for record in records]))
        found = [record for record in records if np.isfinite(record.verified)]
        assert float(row["certified_share"]) == pytest.approx(
            np.median([radii[record.image] / record.verified for record in found])
        )
    best = min(rows, key=lambda row: float(row["median"] or "inf"))
    gap = f"{100 * (1 - float(best['certified_share'])):.0f} %"
    lines = formats.markdown(made).splitlines()
    head = next(line for line in lines if "Certified ≥ | Gap" in line)
    line = next(line for line in lines if best["attack"] in line and "**" in line)
    assert line.count("|") == head.count("|") and f"{float(best['certified_median']):.4g} | {gap}" in line
    assert "provably keeps its class" in lines[-1]
    tex = formats.latex(made)
    assert (
        r"Certified $\geq$ & Gap" in tex
        and f"{float(best['certified_median']):.4g} & {gap.replace('%', chr(92) + '%')}" in tex
    )
    widths = {row.count(" & ") for row in tex.splitlines() if row.endswith(r" \\")}
    assert widths == {
        tex.split("{tabular}{")[1].partition("}")[0].count("l")
        + tex.split("{tabular}{")[1].partition("}")[0].count("r")
        - 1
    }


def test_the_summary_of_a_certified_run_keeps_to_its_schema(folder: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    certify(folder, 0.5)
    (part,) = summary(subjects.load([folder]))["runs"]
    assert all("certified" in attack for attack in part["attacks"])
    schema = json.loads(files("almakit.report").joinpath("schemas", f"summary-{FORMAT}.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(part)))


def test_a_bound_below_a_tenth_is_called_not_certified(folder: Path) -> None:
    certify(folder, 0.05)
    made = blocks(subjects.load([folder]))
    assert "not certified | -" in formats.markdown(made) and "not certified & -" in formats.latex(made)


def test_the_page_gets_the_sorted_radii_of_a_block_only_if_every_image_has_one(folder: Path) -> None:
    radii = certify(folder, 0.5)
    (part,) = payload.build(subjects.load([folder]), payload.USUAL)["certified"]
    assert part["curve"] == payload.packed(np.sort(np.array(list(radii.values()))))
    certify(folder, 0.5, leave_out=1)
    assert payload.build(subjects.load([folder]), payload.USUAL)["certified"] == []
