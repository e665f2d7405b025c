"""Tables in the paper's layout: dashes for medians that are not defined, geometric means over the same models, numbers
that come back from a file."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from almakit.errors import BadInput
from almakit.paper import tables
from almakit.paper.entries import Entry, from_json, to_json
from almakit.paper.grid import Published
from almakit.report.table import comma_separated, latex

BASE = Entry(
    *["mnist", "smallcnn", "SmallCNN", "l2", "alma", "100", "small", "alma(distance=l2, steps=100)"],
    *[20, 1.0, 1.4, 1.2, 1.6, 1.4, 100.0, 99.0, 0.01, 0.99, Published(1.0, 1.38, 100.0, 100.0), True],
    *[0, "2026-01-01T00:00:00", "a", "b", "c", "runs/x"],
)
DDN = replace(BASE, model="smallcnn-ddn", label="SmallCNN-DDN", median=2.8, low=2.5, high=None)
DDN = replace(DDN, paper=Published(1.0, 2.68, 100.0, 100.0))
FMN = replace(BASE, attack="fmn", text="fmn(distance=l2)", success=0.4, median=None, low=None, high=None)
FMN = replace(FMN, paper=Published(0.8204, 1.53, 100, 100))
FMN_DDN = replace(FMN, model="smallcnn-ddn", label="SmallCNN-DDN", success=0.9, median=2.0)
FMN_DDN = replace(FMN_DDN, paper=Published(0.9, None, 100.0, 100.0))
ALL = [FMN, FMN_DDN, BASE, DDN]


def test_each_model_has_its_table_with_the_papers_numbers() -> None:
    found = tables.by_model(ALL)
    assert [table.title for table in found] == ["ℓ2, SmallCNN", "ℓ2, SmallCNN-DDN"]
    assert "clean accuracy 99.0 % of 20 images" in found[0].notes[0]
    lines = found[0].markdown().splitlines()
    assert lines[4] == "| FMN 100 | 20 | 40.0 | – | 100 | 99 | 82.04 | 1.53 | 100 / 100 | – |"
    assert lines[5].startswith("| ALMA 100 | 20 | 100.0 | 1.400 (1.200 to 1.600) | 100 | 99 | 100.00 | 1.38 | ")
    assert lines[5].endswith("| 1.014 |")
    other = found[1].markdown().splitlines()
    assert "| 2.800 (2.500 to ∞) |" in other[5]
    assert "| 90.00 | – | 100 / 100 | – |" in other[4], "a dash of the paper stays one"


def test_geometric_means_are_over_the_same_models() -> None:
    (table,) = tables.geometric(ALL)
    fmn, alma = table.rows
    assert alma["median"]["value"] == pytest.approx((1.4 * 2.8) ** 0.5)
    assert alma["paper_median"] == pytest.approx((1.38 * 2.68) ** 0.5)
    assert fmn["median"]["value"] is None and fmn["success"] == pytest.approx(0.6) and fmn["paper_median"] is None
    assert alma["median"]["low"] == pytest.approx((1.2 * 2.5) ** 0.5)
    assert alma["median"]["high"] is None, "an end that is infinite stays so"
    assert "over SmallCNN, SmallCNN-DDN" in table.notes[0] and "ALMA 100 99.72 % / 2.38" in table.notes[0]
    assert tables.geometric([BASE, FMN]) == [], "one model has no mean"
    assert len(tables.geometric([BASE, DDN, FMN])[0].rows) == 1, "an attack that one model lacks has no mean"


def test_networks_the_paper_has_not_stand_without_its_figures() -> None:
    (table,) = tables.geometric([replace(entry, label=f"mine/{entry.model}", paper=None) for entry in ALL])
    assert "the same models" not in table.notes[0] and "over mine/smallcnn, mine/smallcnn-ddn." in table.notes[0]


def test_every_format_holds_every_line() -> None:
    found = [*tables.geometric(ALL), *tables.by_model(ALL)]
    assert tables.markdown(found).count("| ALMA 100 |") == 3
    rows = list(csv.DictReader(comma_separated(found).splitlines()))
    assert len(rows) == 6 and rows[2]["median"] == "" and float(rows[3]["paper_median"]) == 1.38
    tex = latex(found)
    assert tex.count(r"\begin{tabular}") == 3 and tex.count("ALMA 100") == 3 and "–" not in tex
    assert "<td" in found[1].html() and "&lt;b&gt;" in replace(found[1], title="<b>").html()


def test_entries_come_back_from_their_file(tmp_path: Path) -> None:
    place = tmp_path / "reproduce.json"
    place.write_text(
        to_json(
            ALL, {"processor": "one", "cores": 2, "commit": "abc", "release": "left out"}, ["CROWN-IBP is not at hand"]
        )
    )
    entries, rest = from_json(place)
    assert entries == ALL and rest["skipped"] == ["CROWN-IBP is not at hand"]
    assert rest["machine"]["processor"] == "one" and "release" not in rest["machine"]
    place.write_text('{"format": 1, "entries": [{}]}')
    with pytest.raises(BadInput, match=r"not a reproduce.json"):
        from_json(place)
