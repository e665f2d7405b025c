"""Issue 19, item 7, in Chromium: links show what one sees, charts are saved, points open images, no table is cut off,
numbers are rounded alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from browser.readings import readout, robust, verified
from report.made_runs import FOUR, MadeAttack

from almakit import Run


@pytest.mark.slow
def test_a_link_shows_what_i_see(made: Any, browser: Any) -> None:
    run, file = made("usual")
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    page = context.new_page()
    page.goto(file.resolve().as_uri())
    page.locator("#curves input.epsilon").fill("1.25")
    page.locator("#explore-status").select_option("survives")
    page.locator("#gallery .card-button").first.click()
    shown, link = page.locator("#detail-title").inner_text(), page.url
    assert "epsilon" in link and "survives" in link
    other = context.new_page()
    other.goto(link)
    assert other.locator("#curves input.epsilon").input_value() == "1.25"
    assert readout(other, "ALMA 100") == robust(run, 0, 1.25)
    assert other.locator("#explore-status").input_value() == "survives"
    assert other.locator("#detail-title").inner_text() == shown
    other.keyboard.press("Escape")
    other.wait_for_function("!location.hash.includes('image')")
    broken = context.new_page()
    broken.goto(file.resolve().as_uri() + "#curves?image=%5B99%2C%22x%22%2C7%5D&epsilon%3Al2=zz")
    assert not broken.locator("#detail").is_visible() and broken.locator("#curves canvas").count() == 1
    context.close()


@pytest.mark.slow
def test_charts_are_saved(made: Any, browser: Any, tmp_path: Path) -> None:
    _, file = made("usual")
    context = browser.new_context(viewport={"width": 1000, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.goto(file.resolve().as_uri())
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))

    def save(part: str, kind: str) -> tuple[str, bytes]:
        with page.expect_download() as caught:
            page.locator(f"#{part} .save button", has_text=kind).first.click()
        caught.value.save_as(tmp_path / kind)
        return caught.value.suggested_filename, (tmp_path / kind).read_bytes()

    name, picture = save("curves", "PNG")
    assert name == "robust-accuracy-of-mnist-smallcnn-against-l2-perturbations-4-attacks.png"
    assert picture.startswith(b"\x89PNG")
    for part, words in (
        ("curves", ["ALMA 100", "DDN 1000", "all attacks", "robust accuracy (%)"]),
        ("budget", ["median ℓ2"]),
        ("scatter", ["ALMA 1000: ℓ2"]),
    ):
        name, content = save(part, "SVG")
        drawing = ElementTree.fromstring(content)
        texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
        assert name.endswith(".svg") and all(word in texts for word in words), (part, texts)
        assert len(drawing.findall(".//{http://www.w3.org/2000/svg}path")) > 5 and b"script" not in content
    name, _ = save("curves", "CSV")
    assert page.locator("#curves canvas").count() == 1 and said == [], "the page is as it was"
    page.locator("#curves input.epsilon").fill("1.1")
    head, first = (tmp_path / "CSV").read_text().splitlines()[:2]
    assert head == '"epsilon","ALMA 100","ALMA 1000","DDN 100","DDN 1000","all attacks"' and first.startswith("0,")
    context.close()


@pytest.mark.slow
def test_a_point_of_the_scatter_plot_opens_its_image(made: Any, visit: Any) -> None:
    run, file = made("usual")
    page = visit(file)
    x, y = verified(run, 0), verified(run, 1)
    place = int(np.argmax(np.where(np.isfinite(x) & np.isfinite(y), y, 0)))
    page.locator("#scatter").scroll_into_view_if_needed()
    box = page.locator("#scatter-plot .u-over").bounding_box()
    top = 1.06 * max(x[np.isfinite(x)].max(), y[np.isfinite(y)].max())
    page.mouse.move(box["x"] + box["width"] * x[place] / top, box["y"] + box["height"] * (1 - y[place] / top))
    page.mouse.down()
    page.mouse.up()
    assert page.locator("#detail-title").inner_text() == f"Image {Run(run).image[place].id}"


@pytest.mark.parametrize(
    "width", [400, *(pytest.param(width, marks=pytest.mark.slow) for width in (700, 1000, 1300, 1600))]
)
def test_the_readout_is_not_clipped(made: Any, visit: Any, width: int) -> None:
    _, file = made("fixed", attacks=(MadeAttack("apgd", "APGD", settings={"epsilon": 0.9}, failing=0.3), MadeAttack()))
    page = visit(file, width)
    for scroll in page.locator("#curves .scroll").all():
        assert scroll.evaluate("e => e.scrollWidth - e.clientWidth") <= 0


def test_the_page_rounds_as_the_tables_do(made: Any, visit: Any) -> None:
    """26 of 32 images are 81.25 %: 81.2 in the table, and not 81.3 under the curve."""
    page = visit(made("usual")[1])
    values = [100 * part / whole for whole in (8, 16, 32, 40, 64, 96) for part in range(whole + 1)] + [
        0.05,
        0.15,
        0.25,
        1e-9,
        1234.5,
        999999.95,
    ]
    shown = page.evaluate("values => values.map((value) => ak.fixed(value, 1))", values)
    assert shown == [f"{value:.1f}" for value in values]
    assert page.evaluate("ak.fixed(2.5, 0) + ak.fixed(3.5, 0) + ak.fixed(0.125, 2)") == "240.12"


@pytest.mark.parametrize(
    "width", [400, 1300, *(pytest.param(width, marks=pytest.mark.slow) for width in (600, 800, 1000, 1600))]
)
def test_no_table_is_cut_off(made: Any, visit: Any, width: int) -> None:
    """A table fits its card, or scrolls to its end in a region that says so by a shadow; nothing else is wider than
    what holds it."""
    fixed = MadeAttack("apgd", "APGD", distance="linf", settings={"epsilon": 8 / 255}, failing=0.3)
    _, file = made(
        "wide", attacks=(*FOUR, fixed, MadeAttack(distance="linf")), model="mnist/a-network-with-a-rather-long-name"
    )
    page = visit(file, width)
    for table in page.locator("main table").all():
        room = table.evaluate(
            """table => { const box = table.closest(".scroll") || table.parentElement, wide = table.getBoundingClientRect();
            box.scrollLeft = 1e6; const end = table.getBoundingClientRect().right - box.getBoundingClientRect().right; box.scrollLeft = 0;
            return [end, wide.left - box.getBoundingClientRect().left, box.classList.contains("scroll") || wide.width <= box.clientWidth + 1]; }"""
        )
        assert room[0] <= 1 and room[1] >= -1 and room[2], (width, table.get_attribute("class"), room)
    cut = page.evaluate(
        """[...document.querySelectorAll("td, th, dd, dt, button, figcaption, .said, h3")].filter((e) => e.offsetParent && e.scrollWidth > e.clientWidth + 1
        && getComputedStyle(e).display !== "inline" && !e.closest("nav")).map((e) => e.className + ":" + e.textContent.trim().slice(0, 40))"""
    )
    assert cut == []
    assert "at ε = 8/255" in page.locator("#curves").inner_text()
