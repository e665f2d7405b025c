"""The band between certified and found on the robust-accuracy curve: drawn, read at any radius, said in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from report.made_runs import make_run
from report.test_brackets import certify

from almakit.report import subjects
from almakit.report.board import write_board
from almakit.report.page import render

# How many pixels of the canvas are neither of the page's card nor fully drawn: the band is the only large faint area.
FAINT = """() => {
  const canvas = document.querySelector("#curves canvas"), data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let count = 0;
  for (let i = 3; i < data.length; i += 4) count += data[i] > 20 && data[i] < 80;
  return count / (canvas.width * canvas.height);
}"""


def page_of(folder: Path) -> Path:
    file = folder.parent / f"{folder.name}.html"
    file.write_text(render(subjects.load([folder])), encoding="utf-8")
    return file


def test_the_band_is_drawn_and_read(tmp_path: Path, visit: Any) -> None:
    plain, certified = make_run(tmp_path / "plain"), make_run(tmp_path / "certified")
    radii = certify(certified, 0.4)
    before = visit(page_of(plain))
    assert before.locator("table.readout tr", has_text="certified").count() == 0
    page = visit(page_of(certified))
    assert page.evaluate(FAINT) > before.evaluate(FAINT) + 0.03, "no band between certified and found"
    row = page.locator("table.readout tr", has_text="certified, at least")
    for epsilon in (0.2, 0.5, 0.9):
        page.locator("#curves input.epsilon").fill(str(epsilon))
        share = f"{100 * sum(radius > epsilon for radius in radii.values()) / len(radii):.1f}"
        assert row.locator("td").inner_text().startswith(share)
        assert f"{share}\u2009% provably resist every attack" in page.locator("#curves .said").inner_text()
    page.locator("#curves .u-over").hover(position={"x": 120, "y": 60})
    assert "certified, at least" in page.locator("#curves .tip").inner_text()


def test_the_board_says_what_is_certified(tmp_path: Path, visit: Any) -> None:
    folder = make_run(tmp_path / "certified")
    radii = certify(folder, 0.4)
    write_board([folder], tmp_path / "site", {"l2": [0.3]})
    page = visit(tmp_path / "site" / "index.html")
    cell = page.locator(".matrix td.all button").first
    assert f"certified ≥ {100 * sum(radius >= 0.3 for radius in radii.values()) / len(radii):.1f}" in cell.inner_text()
    cell.click()
    assert "median certified radius" in page.locator(".source").first.inner_text()
    page.locator("#measure").select_option("median")
    assert "certified ≥" in cell.inner_text()
