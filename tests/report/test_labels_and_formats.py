"""Names for people, and the table as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from report.made_runs import FOUR, MadeAttack, make_run

from almakit.report import formats, subjects
from almakit.report.blocks import Block, blocks
from almakit.report.labels import budget, distance_name, distance_order, extras, label_attacks
from almakit.report.tex import escape

EVIL = "a_b & 100% $x$ {y} #1 \\input{z} ~^ <|>"


def test_labels_name_method_and_budget() -> None:
    made = [
        MadeAttack(),
        MadeAttack(steps=1000),
        MadeAttack(steps=1000, settings={"alpha": 0.9}),
        MadeAttack("cw", "C&W", settings={"searches": 9}),
        MadeAttack("cw", "C&W", steps=10, settings={"searches": 9, "box": "(0, 1)"}),
    ]
    infos = [one.info(place) for place, one in enumerate(made)]
    labels = label_attacks(infos)
    assert [label.label for label in labels] == [
        "ALMA 100",
        "ALMA 1000",
        "ALMA 1000 (alpha=0.9)",
        "C&W 9×100",
        "C&W 9×10 (box=(0, 1))",
    ]
    assert [label.dash for label in labels] == ["dotted", "solid", "solid", "solid", "solid"]
    assert labels[0].method == labels[1].method != labels[2].method
    assert extras(infos[2]) == "alpha=0.9" and budget(infos[3]) == "9×100"


def test_three_budgets_and_two_distances() -> None:
    made = [MadeAttack(steps=steps, distance=distance) for distance in ("l1", "l2") for steps in (10, 100, 1000)]
    labels = label_attacks([one.info(place) for place, one in enumerate(made)])
    assert [label.dash for label in labels] == ["dotted", "dashed", "solid"] * 2
    assert len({label.method for label in labels}) == 1


def test_distances_in_the_papers_order() -> None:
    assert distance_order(["zeta", "l2", "ssim", "l1", "my<b>"]) == ["l1", "l2", "ssim", "my<b>", "zeta"]
    assert distance_name("l2").label == "ℓ2" and distance_name("my_one").tex == r"my\_one"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Block]:
    root = tmp_path_factory.mktemp("formats")
    attacks = (*FOUR, MadeAttack("ead", "EAD", "l1", 100, 1.0), MadeAttack("x", "=cmd|'/c calc'!A1", "l1", failing=0.7))
    return blocks(subjects.load([make_run(root / "run", 60, attacks, model=EVIL)]))


def test_blocks_mark_the_smallest_median(made: list[Block]) -> None:
    assert [block.distance for block in made] == ["l1", "l2"]
    best = [row.label for block in made for row in block.rows if row.best]
    assert best == ["EAD 100", "ALMA 1000"]
    for block in made:
        known = {row.label: row.median for row in block.rows if row.median is not None}
        assert all(row.median == min(known.values()) for row in block.rows if row.best)


def test_markdown(made: list[Block]) -> None:
    text = formats.markdown(made)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 6 + 2 and len({re.sub(r"\\\|", "", line).count("|") for line in lines}) == 1
    row = next(line for line in lines if "ALMA 1000" in line)
    assert re.search(r"\*\*\d\.\d+ ± \d\.\d+\*\*", row) and "1000 / 999" in row
    failed = next(line for line in lines if "cmd" in line)
    assert "–" in failed
    assert "<|>" not in text and "&lt;" in text


def test_csv_reads_back(made: list[Block]) -> None:
    rows = list(csv.DictReader(io.StringIO(formats.comma_separated(made))))
    assert len(rows) == 6 + 2 and rows[0]["model"] == EVIL and [row["text"] for row in rows].count("") == 2, (
        "one row for all attacks of a block"
    )
    rows = [row for row in rows if row["text"]]
    by_label = {row.label: row for block in made for row in block.rows}
    for row in rows:
        original = by_label[row["attack"].removeprefix("'")]
        assert float(row["success_rate"]) == original.success
        assert (float(row["median"]) if row["median"] else None) == original.median
    assert all(not row["attack"].startswith("=") for row in rows)


def test_latex_is_balanced_and_escaped(made: list[Block]) -> None:
    text = formats.latex(made)
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    for rule in (r"\toprule", r"\bottomrule"):
        assert text.count(rule) == 1
    assert text.count(r"\midrule") == 2
    columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1])  # type: ignore[index]
    for line in text.splitlines():
        if line.endswith(r"\\"):
            assert len(re.findall(r"(?<!\\)&", line)) == columns - 1, line
    assert r"\mathbf{" in text and r"\pm" in text
    bare = re.sub(r"\\[a-zA-Z]+\{?|\\[&%$#_{},\\]", "", text.replace("% needs", ""))
    assert "%" not in bare and "#" not in bare and "_" not in re.sub(r"\$[^$]*\$", "", bare)
    assert r"\input" not in text


def test_every_special_character_is_escaped() -> None:
    assert escape("a_b%c&d#e$f{g}~^\\") == r"a\_b\%c\&d\#e\$f\{g\}\textasciitilde{}\textasciicircum{}\textbackslash{}"
    assert escape("a\x00b\nc") == "ab c"


def test_half_widths_have_the_medians_places(tmp_path: Path) -> None:
    (block,) = blocks(subjects.load([make_run(tmp_path / "run", 50, FOUR[:2])]))
    for row in block.rows:
        text, half = formats.with_error(row)
        assert len(text.partition(".")[2]) == len(half.partition(".")[2])
        assert float(half) == pytest.approx(row.half_width, abs=10.0 ** -len(half.partition(".")[2]))
