"""Tables as text, Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from report.made_runs import FOUR, MadeAttack, make_run

from almakit import Run
from almakit.errors import BadInput
from almakit.report import subjects, tables
from almakit.report.table import Column, Table, escape, figure, latex, text_table

EVIL = "a_b & 100% $x$ {y} #1 \\input{z} ~^ <|>"
SHARE = {"value": 0.0, "low": 0.0, "high": 0.107}
SMALL = Table(
    (
        Column("name", "attack"),
        Column("share", "success", "share"),
        Column("median", "median", "distance", bold="smallest"),
        Column("empty", "nothing", "distance"),
        Column("more", "detail", "count", "detail"),
    ),
    [
        {"name": "one", "share": SHARE, "median": 1.25e-5, "more": 3},
        {"name": "two", "share": None, "median": math.inf},
        {"name": "all", "median": 1e-6},
    ],
    "A title",
    footer=1,
)


def test_every_format_shows_the_same_cells() -> None:
    assert SMALL.text().splitlines()[1:4] == [
        "attack          success %    median",
        "------  -----------------  --------",
        "one     0.0 (0.0 to 10.7)  1.25e-05",
    ]
    assert SMALL.text().splitlines()[4].split() == ["two", "-", "inf"]
    assert "| one | 0.0 (0.0 to 10.7) | **1.25e-05** | 3 |" in SMALL.markdown()
    assert "| two | – | ∞ | – |" in SMALL.markdown()
    assert r"one & 0.0 {\scriptsize [0.0, 10.7]} & \textbf{$1.25\cdot 10^{-5}$} \\" in SMALL.latex()
    assert r"two & -- & $\infty$ \\" in SMALL.latex()
    assert '<td data-v="1.25e-05"><span class="value"><b>1.25·10⁻⁵</b></span></td>' in SMALL.html()
    assert SMALL.csv().splitlines()[:3] == [
        "name,share,share_low,share_high,median,empty,more",
        "one,0.0,0.0,0.107,1.25e-05,,3",
        "two,,,,,,",
    ]
    for shown in (SMALL.text(True), SMALL.markdown(), SMALL.latex(), SMALL.html()):
        assert "nothing" not in shown, "a column without a value is left out"


def test_a_table_for_a_terminal_keeps_to_its_width() -> None:
    columns = tuple(Column(str(k), f"a long heading {k}", "share") for k in range(12))
    row = {str(k): {"value": 0.5, "low": 0.4, "high": 0.6} for k in range(12)}
    table = Table((Column("name", "attack"), *columns), [{"name": "soft walk with many words", **row}])
    for width in (60, 80, 100):
        text = table.text(width=width)
        assert max(map(len, text.splitlines())) <= width and text.count("40.0-60.0") == 12
    assert text_table(("a", "bb"), [("xyz", 1), ("x", 22)]) == "a    bb\n---  --\nxyz   1\nx    22"


def test_distances_have_four_digits() -> None:
    assert [figure(value) for value in (0.0, 0.123456, 12.0, 123456.0, 1.23e-7, None, math.inf)] == [
        "0", "0.1235", "12.00", "1.235e+05", "1.23e-07", "–", "∞",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tables.Tables]:
    root = tmp_path_factory.mktemp("formats")
    fixed = MadeAttack("apgd", "APGD", "linf", settings={"epsilon": 8 / 255}, failing=0.5)
    attacks = (*FOUR, MadeAttack("ead", "EAD", "l1", 100, 1.0), MadeAttack("x", "=cmd|'/c calc'!A1", "l1", failing=0.7))
    run = make_run(root / "run", 60, (*attacks, fixed), model=EVIL)
    return run, tables.tables_of(subjects.load([run]))


def test_the_smallest_median_of_each_block_is_bold(made: tuple[Path, tables.Tables]) -> None:
    (mine,) = made[1].values()
    assert [table.rows[0]["distance"] for table in mine] == ["l1", "l2", "linf"]
    bold = re.findall(r"\| (\S+ \d+) \|[^\n]*\*\*", tables.written(made[1], "markdown"))
    assert bold == ["EAD 100", "ALMA 1000"]


def test_markdown_is_escaped(made: tuple[Path, tables.Tables]) -> None:
    text = tables.written(made[1], "markdown")
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({re.sub(r"\\\|", "", line).count("|") for line in lines}) <= 1
    assert "<|>" not in text and "&lt;" in text


def test_csv_reads_back(made: tuple[Path, tables.Tables]) -> None:
    rows = list(csv.DictReader(io.StringIO(tables.written(made[1], "csv"))))
    assert rows[0]["model"] == EVIL and sum(row["attack"] == "all attacks" for row in rows) == 2
    by_text = {part["attack"]: part for part in Run(made[0]).summary["attacks"]}
    for row in (row for row in rows if row["text"]):
        part = by_text[row["text"]]
        assert float(row["success_rate"]) == part["success_rate"]["value"]
        assert float(row["success_rate_low"]) == part["success_rate"]["low"]
        assert (float(row["median"]) if row["median"] else None) == part["median_all"]["value"]
    assert all(not row["attack"].startswith("=") for row in rows)


def test_latex_is_ascii_balanced_and_escaped(made: tuple[Path, tables.Tables]) -> None:
    text = tables.written(made[1], "latex")
    assert text.isascii() and "8/255" in text and r"$\epsilon$" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 6
    columns = 0
    for line in text.splitlines():
        if found := re.search(r"\\begin\{tabular\}\{(\w+)\}", line):
            columns = len(found[1])
        if line.endswith(r"\\"):
            assert len(re.findall(r"(?<!\\)&", line)) == columns - 1, line
    assert r"\textbf{" in text and r"\pm" not in text and r"\input" not in text


def test_every_special_character_is_escaped() -> None:
    assert escape("a_b%c&d#e$f{g}~^\\") == r"a\_b\%c\&d\#e\$f\{g\}\textasciitilde{}\textasciicircum{}\textbackslash{}"
    assert escape("a\x00b\nc") == "ab c" and escape("é ≤ ε 中") == r"e $\leq$ $\epsilon$ ?"


# IEEEtran asks for Times, which a small TeX installation lacks.
TIMES = r"\DeclareFontFamily{OT1}{ptm}{}\DeclareFontShape{OT1}{ptm}{m}{n}{<->ssub*cmr/m/n}{}"
IEEE = TIMES + r"\documentclass{IEEEtran}\renewcommand{\rmdefault}{cmr}"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("head", [r"\documentclass[twocolumn]{article}", IEEE])
def test_latex_compiles_within_a_page_of_two_columns(
    made: tuple[Path, tables.Tables], tmp_path: Path, head: str
) -> None:
    if "IEEE" in head and not subprocess.run(["kpsewhich", "IEEEtran.cls"], capture_output=True).stdout:
        pytest.skip("IEEEtran is not installed")
    text = latex(made[1][EVIL])
    head += "\n\\usepackage{booktabs,graphicx}\n\\begin{document}\n"
    (tmp_path / "paper.tex").write_text(head + text + "\n\\end{document}\n", encoding="ascii")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"], cwd=tmp_path, capture_output=True
    )
    log = (tmp_path / "paper.log").read_text(errors="replace")
    assert done.returncode == 0 and "Overfull" not in log and "LaTeX Warning" not in log, log[-2000:]


def test_a_run_gives_its_table_in_every_format(made: tuple[Path, tables.Tables]) -> None:
    run = Run(made[0])
    assert max(map(len, re.split(r"\n", run.table().partition("\n\n")[2].partition("Shares and")[0]))) <= 100
    assert "ALMA 1000" in run.table() and "optimality" not in run.table() and "optimality" in run.table(verbose=True)
    assert run.table("markdown").startswith("### ") and run.table("latex").count(r"\begin{table*}") == 3
    assert run.table("csv").startswith("attack,model,distance,goal,text,images,success_rate")
    with pytest.raises(BadInput, match="choose one of text, markdown, csv, latex"):
        run.table("pdf")
