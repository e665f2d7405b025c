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
from almakit.report import page, subjects, tables
from almakit.report.run import report_summary
from almakit.report.summary import FORMAT
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
    made = tables.tables_of(subjects.load([folder]))
    assert "certified" not in tables.written(made, "markdown") and "certified" not in tables.written(made, "latex")
    rows = list(csv.DictReader(io.StringIO(tables.written(made, "csv"))))
    assert {row["certified_median"] for row in rows} == {""} == {row["certified_share"] for row in rows}
    assert page.build(subjects.load([folder]))["certified"] == []


def test_tables_have_the_median_radius_and_the_gap(folder: Path) -> None:
    radii = certify(folder, 0.5)
    made = tables.tables_of(subjects.load([folder]))
    run, rows = Run(folder), list(csv.DictReader(io.StringIO(tables.written(made, "csv"))))
    for info in run.attacks:
        records = [record for record in run.records_of(info.index) if record.attacked]
        row = next(row for row in rows if row["text"] == info.text)
        assert float(row["certified_median"]) == pytest.approx(np.median([radii[record.image] for record in records]))
        found = [record for record in records if np.isfinite(record.verified)]
        assert float(row["certified_share"]) == pytest.approx(
            np.median([radii[record.image] / record.verified for record in found])
        )
    best = min(rows, key=lambda row: float(row["median"] or "inf"))
    cells = [f"{float(best['certified_median']):#.4g}", f"{100 * float(best['certified_share']):.1f}"]
    lines = tables.written(made, "markdown").splitlines()
    heads = [head.strip() for head in next(line for line in lines if "certified radius" in line).split("|")]
    line = [cell.strip() for cell in next(line for line in lines if best["attack"] in line and "**" in line).split("|")]
    assert [line[heads.index(name)] for name in ("certified radius", "certified / found %")] == cells
    assert any("provably keeps its class" in line for line in lines)
    assert r"\shortstack[r]{certified\\radius} & \shortstack[r]{certified\\/ found (\%)} &" in tables.written(
        made, "latex"
    )
    assert " & ".join(cells) in tables.written(made, "latex")


def test_the_share_of_images_whose_certificate_is_within_a_percent_of_the_distance(folder: Path) -> None:
    for part, some in ((0.995, True), (0.985, False)):
        radii = certify(folder, part)
        run = Run(folder)
        shares = []
        for info, numbers in zip(run.attacks, run.summary["attacks"], strict=True):
            records = [record for record in run.records_of(info.index) if record.attacked]
            shares.append(np.mean([radii[record.image] > 0.99 * record.verified for record in records]))
            assert numbers["certified_equal"]["value"] == pytest.approx(shares[-1])
        assert (max(shares) > 0) == some
        assert "certified = found %" in run.table("markdown")
        assert r"\shortstack[r]{certified\\= found (\%)}" in run.table("latex")
        assert "certified_equal,certified_equal_low" in run.table("csv")


def test_the_summary_of_a_certified_run_keeps_to_its_schema(folder: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    certify(folder, 0.5)
    (part,) = report_summary(subjects.load([folder]))["runs"]
    assert all("certified" in attack for attack in part["attacks"])
    schema = json.loads(files("almakit.report").joinpath("schemas", f"summary-{FORMAT}.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(part)))


def test_the_page_gets_the_sorted_radii_of_a_block_only_if_every_image_has_one(folder: Path) -> None:
    radii = certify(folder, 0.5)
    (part,) = page.build(subjects.load([folder]))["certified"]
    assert part["curve"] == page.packed(np.sort(np.array(list(radii.values()))))
    certify(folder, 0.5, leave_out=1)
    assert page.build(subjects.load([folder]))["certified"] == []
