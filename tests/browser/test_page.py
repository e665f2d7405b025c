"""The report's page in Chromium: opens from a file with no error and no request, and does what it says."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from report.made_runs import FOUR, MadeAttack, make_run

from almakit.eval.folder import Run
from almakit.report import html, subjects
from almakit.report.payload import Limits

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """name -> (run folder, page), each made once."""
    root = tmp_path_factory.mktemp("pages")
    kept: dict[str, tuple[Path, Path]] = {}

    def make(name: str, limits: Limits = Limits(), **settings: Any) -> tuple[Path, Path]:  # noqa: B008 (frozen)
        if name not in kept:
            run = make_run(root / name / "run", **settings)
            page = root / name / "index.html"
            page.write_text(html.render(subjects.load([run]), limits), encoding="utf-8")
            kept[name] = run, page
        return kept[name]

    return make


def verified(run: Path, attack: int) -> np.ndarray:
    return np.array([record.verified for record in Run(run).records_of(attack)])


def robust(run: Path, attack: int, epsilon: float) -> str:
    return f"{100 * float((verified(run, attack) > epsilon).mean()):.1f}"


def readout(page: Any, label: str) -> str:
    row = page.locator("table.readout tr", has=page.get_by_role("button", name=label, exact=True))
    return str(row.locator("td").first.inner_text()).replace("\u2009%", "")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1000, 1600])
def test_opens_at_every_width_without_scrolling_sideways(made: Any, visit: Any, width: int, scheme: str) -> None:
    _, file = made("usual")
    page = visit(file, width, scheme)
    assert page.title().startswith("mnist/smallcnn")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#curves canvas").count() == 1
    assert page.locator("#gallery .card-button").count() > 0
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) < 150) == (scheme == "dark")


def test_slider_and_field_read_robust_accuracy(made: Any, visit: Any) -> None:
    run, file = made("usual")
    page = visit(file)
    field = page.locator("#curves input[type=number]")
    for epsilon in (0.5, 0.9123, 1.7):
        field.fill(str(epsilon))
        assert readout(page, "ALMA 100") == robust(run, 0, epsilon)
        assert readout(page, "DDN 100") == robust(run, 2, epsilon)
    slider = page.locator("#curves input[type=range]")
    slider.focus()
    before = float(field.input_value())
    for _ in range(25):
        page.keyboard.press("ArrowRight")
    moved = float(field.input_value())
    assert moved > before
    assert readout(page, "ALMA 1000") == robust(run, 1, moved)
    together = np.min([verified(run, attack) for attack in range(4)], axis=0)
    assert f"{100 * float((together > moved).mean()):.1f}" in page.locator("#curves .said").inner_text()
    assert page.locator("#curves .u-over").count() == 1


def test_item_4_a_fixed_radius_is_one_mark(made: Any, visit: Any) -> None:
    """Issue 19, item 4: an attack at a fixed epsilon has no curve, and counts among all attacks from its epsilon on."""
    fixed = MadeAttack("apgd", "APGD", settings={"epsilon": 0.9}, failing=0.3)
    run, file = made("fixed", attacks=(fixed, MadeAttack()))
    page = visit(file)
    field, label = page.locator("#curves input[type=number]"), "APGD 100, ε = 0.9"
    alone = f"{100 * float(np.isinf(verified(run, 0)).mean()):.1f}\u2009% at ε = 0.9"
    for epsilon in (0.5, 0.9, 1.7):
        field.fill(str(epsilon))
        row = page.locator("table.readout tr", has=page.get_by_role("button", name=label, exact=True))
        assert row.locator("td").first.inner_text() == alone, "the same wherever one reads"
        assert readout(page, "ALMA 100") == robust(run, 1, epsilon)
        broken = verified(run, 1) <= epsilon
        if epsilon >= 0.9:
            broken |= np.isfinite(verified(run, 0))
        share = f"{100 * float((~broken).mean()):.1f}"
        assert page.locator("#curves .said").inner_text() == f"At ℓ2 ≤ {epsilon}, {share}\u2009% of the images resist every attack here."
    assert page.locator("#budget-legend li").count() == 1 and page.locator("#scatter-controls").is_hidden()
    _, only = made("fixed alone", attacks=(fixed,))
    page = visit(only)
    assert "look at ε = 0.9 only" in page.locator("#curves .said").inner_text()
    page.locator("#explore-status").select_option("robust")
    assert page.locator("#gallery .badge.robust").count() > 0
    page.locator("#gallery .card-button").first.click()
    assert "robust there as far as it can tell" in page.locator("#detail .verdict").inner_text()


def test_log_axis_keeps_the_reading(made: Any, visit: Any) -> None:
    run, file = made("usual")
    page = visit(file)
    page.locator("#curves input[type=number]").fill("1.25")
    page.get_by_label("log axis").check()
    assert readout(page, "ALMA 100") == robust(run, 0, 1.25)
    slider = page.locator("#curves input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    assert (
        0 < float(page.locator("#curves input[type=number]").input_value()) < verified(run, 1)[verified(run, 1) > 0].min()
    )


def test_clicking_and_hovering_a_curve(made: Any, visit: Any) -> None:
    run, file = made("usual")
    page = visit(file)
    over = page.locator("#curves .u-over")
    over.hover(position={"x": 150, "y": 100})
    tip = page.locator("#curves .tip")
    assert tip.is_visible() and "ALMA 1000" in tip.inner_text()
    over.click(position={"x": 150, "y": 100})
    epsilon = float(page.locator("#curves input[type=number]").input_value())
    assert readout(page, "DDN 1000") == robust(run, 3, epsilon)


def test_curves_switch_off_and_on(made: Any, visit: Any) -> None:
    _, file = made("usual")
    page = visit(file)
    button = page.locator("table.readout").get_by_role("button", name="DDN 100", exact=True)
    picture = page.locator("#curves canvas")
    before = picture.screenshot()
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert picture.screenshot() != before
    button.click()
    assert button.get_attribute("aria-pressed") == "true"


def test_table_sorts_within_its_blocks(made: Any, visit: Any) -> None:
    two = (
        *FOUR,
        MadeAttack(distance="l1", strength=1.3),
        MadeAttack("fmn", "FMN", "l1", 100, 1.0),
        MadeAttack("fab", "FAB", "l1", 100, 1.1, failing=0.8),
    )
    _, file = made("two", attacks=two)
    page = visit(file)

    def medians() -> list[list[float]]:
        bodies = page.locator("table.results tbody")
        return [
            [math.inf if text == "–" else float(text) for text in bodies.nth(n).locator(".value").all_inner_texts()]
            for n in range(bodies.count())
        ]

    head = page.locator("table.results th", has=page.get_by_role("button", name="Median", exact=True))
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert [len(block) for block in medians()] == [3, 4] and all(block == sorted(block) for block in medians())
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert medians()[1] == sorted(medians()[1], reverse=True)
    assert medians()[0][-1] == math.inf  # what has no value stays last
    name = page.locator("table.results").get_by_role("button", name="Attack", exact=True)
    name.focus()
    page.keyboard.press("Enter")
    labels = page.locator("table.results tbody").nth(1).locator("tr:not(.block) th").all_inner_texts()
    assert labels == ["ALMA 100", "ALMA 1000", "DDN 100", "DDN 1000", "all attacks"], "what is over all attacks stays last"


def test_gallery_filters_sorts_and_opens(made: Any, visit: Any) -> None:
    run, file = made("usual")
    page = visit(file)
    page.locator("#explore-attack").select_option(label="DDN 100 (ℓ2)")
    records = Run(run).records_of(2)
    images = Run(run).images

    def shown() -> list[int]:
        while page.locator("#explore-more").is_visible():
            page.locator("#explore-more").click()
        return [
            int(value)
            for value in page.locator("#gallery .card-button").evaluate_all(
                "cards => cards.map(card => card.dataset.image)"
            )
        ]

    page.locator("#explore-status").select_option("failed")
    failed = [record.image for record in records if record.status == "failed"]
    assert failed and sorted(shown()) == failed
    page.locator("#explore-status").select_option("success")
    page.locator("#explore-sort").select_option("near")
    by_distance = sorted((record for record in records if record.status == "success"), key=lambda record: record.verified)
    assert shown() == [record.image for record in by_distance]
    page.locator("#explore-class").select_option(str(images[by_distance[0].image].label))
    assert {images[place].label for place in shown()} == {images[by_distance[0].image].label}

    page.locator("#gallery .card-button").first.click()
    dialog = page.locator("dialog[open]")
    first = by_distance[0]
    text = dialog.inner_text()
    assert f"Image {images[first.image].id}" in text and "51.0" in text and "93.0" in text
    assert ("Still adversarial after rounding" in text) == first.fooled_8bit
    assert dialog.locator("img").count() == 3
    assert dialog.locator("img").evaluate_all("all => all.every(one => one.complete && one.naturalWidth === 28)")
    for name in ("ℓ0", "ℓ1", "ℓ2", "ℓ∞", "1 − SSIM"):
        assert dialog.get_by_role("rowheader", name=name, exact=True).count() == 1
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_arrow_keys_walk_through_the_open_images(made: Any, visit: Any) -> None:
    _, file = made("usual")
    page = visit(file)
    page.locator("#gallery .card-button").first.focus()
    page.keyboard.press("Enter")
    title = page.locator("#detail-title")
    first = title.inner_text()
    page.keyboard.press("ArrowRight")
    assert title.inner_text() != first
    page.keyboard.press("ArrowLeft")
    assert title.inner_text() == first


def test_scatter_counts_wins(made: Any, visit: Any) -> None:
    run, file = made("usual")
    page = visit(file)
    page.locator("#scatter-b").select_option(label="DDN 100")
    a, b = verified(run, 0).astype(np.float32), verified(run, 2).astype(np.float32)
    open_ = ~((a == 0) & (b == 0))
    with np.errstate(invalid="ignore"):
        smaller = float((b < a * (1 - 1e-3))[open_].mean())
    assert f"DDN 100 found the smaller change on {100 * smaller:.1f}" in page.locator("#scatter-said").inner_text()
    page.locator("#scatter-swap").click()
    assert page.locator("#scatter-said").inner_text().count(f"{100 * smaller:.1f}") >= 1
    page.locator("#scatter-log").check()
    assert page.locator("#scatter-plot canvas").count() == 1


def test_course_of_an_attack(made: Any, visit: Any) -> None:
    _, file = made("usual")
    page = visit(file)
    titles = page.locator("#trace-panels figcaption").all_inner_texts()
    assert [title.removesuffix(" (log)") for title in titles] == [
        "ℓ2 distance",
        "multiplier μ",
        "penalty weight ρ",
        "constraint",
        "step size",
    ]
    page.locator("#trace-panels .plot").first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert page.locator("#trace-readout").inner_text().startswith("Step 2: distance ")
    page.locator("#trace-select").select_option(index=2)
    assert "multiplier μ" not in " ".join(page.locator("#trace-panels figcaption").all_inner_texts())


def test_theme_switch_and_print(made: Any, visit: Any) -> None:
    _, file = made("usual")
    page = visit(file)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.locator("#theme").click()
    assert page.evaluate(colour) != light and page.locator("#theme").get_attribute("aria-pressed") == "true"
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('.top')).display") == "none"
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--card')").strip() == "#FFFFFF"
    assert page.pdf()[:4] == b"%PDF"


def test_no_success_at_all(made: Any, visit: Any) -> None:
    nothing = (MadeAttack(failing=1.0), MadeAttack("ddn", "DDN", failing=1.0))
    _, file = made("nothing", attacks=nothing, images=20, already_wrong=0.0)
    page = visit(file)
    assert readout(page, "ALMA 100") == "100.0"
    assert "No attack claims a success" in page.locator("#trust").inner_text()
    page.locator("#gallery .card-button").first.click()
    assert "No adversarial image was found" in page.locator("dialog[open]").inner_text()


def test_one_image(made: Any, visit: Any) -> None:
    run, file = made("one", images=1, attacks=FOUR[:1], already_wrong=0.0)
    page = visit(file)
    page.locator("#curves input[type=number]").fill("0.01")
    assert readout(page, "ALMA 100") == "100.0"
    page.locator("#curves input[type=number]").fill(str(float(verified(run, 0)[0]) * 1.01))
    assert readout(page, "ALMA 100") == "0.0"
    assert "needs two attacks" in page.locator("#scatter").inner_text()


def test_thirty_attacks(made: Any, visit: Any) -> None:
    many = tuple(MadeAttack(f"attack{n}", f"Attack {n}", steps=100, strength=1 + n / 50) for n in range(30))
    run, file = made("thirty", attacks=many, images=30)
    page = visit(file)
    assert page.locator("table.readout tbody tr").count() == 31
    page.locator("#curves input[type=number]").fill("1.3")
    assert readout(page, "Attack 17 100") == robust(run, 17, 1.3)
    page.locator("#curves .u-over").hover(position={"x": 200, "y": 80})
    assert "and 18 more" in page.locator("#curves .tip").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1000


def test_names_from_outside_stay_text(made: Any, visit: Any) -> None:
    attack = MadeAttack(title=f"{EVIL}</script><script>alert(2)</script>", settings={"note": "'\"><b>"})
    attacks = (attack, FOUR[1], replace(attack, distance="<b> my distance"))
    outside = {"model": EVIL, "data": "</script><script>alert(3)</script>", "label": f"\u2028{EVIL}.png"}
    _, file = made("evil", attacks=attacks, images=12, class_names=(EVIL, *"bcdefghij"), findings=((EVIL, "warn", EVIL, EVIL),), **outside)
    page = visit(file)
    page.locator("#gallery .card-button").first.click()
    page.keyboard.press("Escape")
    assert page.get_by_label("Read at ε =").count() == 2
    assert "<b> my distance" in page.locator("#curves h3").nth(1).inner_text()
    page.locator("#curves .u-over").first.hover(position={"x": 100, "y": 100})
    assert EVIL in page.title() and EVIL in page.locator("h1").inner_text()
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("[...document.scripts].filter(script => script.textContent.startsWith('alert')).length") == 0
    assert page.locator("#explore-class option", has_text=EVIL).count() <= 1


def test_unfinished_run_says_so(made: Any, visit: Any) -> None:
    run, file = made("half", images=96, unfinished=5)
    page = visit(file)
    assert "Not finished" in page.locator(".banner").inner_text()
    there = len(Run(run).records)
    assert f"{there} of {4 * 96} results are there" in page.locator("#trust").inner_text()
    assert page.locator("table.results").get_by_role("button", name="Images").count() == 1
    done = verified(run, 2)
    assert 0 < len(done) < 96
    page.locator("#curves input[type=number]").fill("1.2")
    assert readout(page, "DDN 100") == f"{100 * float((done > 1.2).mean()):.1f}"
    assert readout(page, "DDN 1000") == "–"  # nothing yet


def test_limited_pictures_are_said_to_be(made: Any, visit: Any) -> None:
    _, file = made("limited", Limits(images=9), images=40)
    page = visit(file)
    assert "pictures of 9 of 40 images" in page.locator("#explore-limit").inner_text()
    assert page.locator("#explore-count").inner_text() == "9 images"


def test_several_models_share_an_epsilon(tmp_path: Path, visit: Any) -> None:
    runs = [
        make_run(tmp_path / name, 40, model=f"mnist/{name}", weights=name * 64, seed=n) for n, name in enumerate("ab")
    ]
    file = tmp_path / "index.html"
    file.write_text(html.render(subjects.load(runs)), encoding="utf-8")
    page = visit(file, 1600)
    assert page.locator("#curves figure").count() == 2
    page.locator("#curves input[type=number]").fill("1.1")
    row = page.locator("table.readout tbody tr").first.locator("td").all_inner_texts()
    assert [cell.replace("\u2009%", "") for cell in row] == [robust(run, 0, 1.1) for run in runs]
    page.locator("#explore-model").select_option(label="mnist/b")
    assert page.locator("#gallery .card-button").count() > 0


# Issue 19, item 7.


def test_item_7_a_link_shows_what_i_see(made: Any, browser: Any) -> None:
    run, file = made("usual")
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    page = context.new_page()
    page.goto(file.resolve().as_uri())
    page.locator("#curves input[type=number]").fill("1.25")
    page.locator("#explore-status").select_option("survives")
    page.locator("#gallery .card-button").first.click()
    shown, link = page.locator("#detail-title").inner_text(), page.url
    assert "epsilon" in link and "survives" in link
    other = context.new_page()
    other.goto(link)
    assert other.locator("#curves input[type=number]").input_value() == "1.25" and readout(other, "ALMA 100") == robust(run, 0, 1.25)
    assert other.locator("#explore-status").input_value() == "survives" and other.locator("#detail-title").inner_text() == shown
    other.keyboard.press("Escape")
    other.wait_for_function("!location.hash.includes('image')")
    broken = context.new_page()
    broken.goto(file.resolve().as_uri() + "#curves?image=%5B99%2C%22x%22%2C7%5D&epsilon%3Al2=zz")
    assert not broken.locator("#detail").is_visible() and broken.locator("#curves canvas").count() == 1
    context.close()


def test_item_7_charts_are_saved(made: Any, browser: Any, tmp_path: Path) -> None:
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
    assert name == "robust-accuracy-of-mnist-smallcnn-against-l2-perturbations-4-attacks.png" and picture.startswith(b"\x89PNG")
    for part, words in (("curves", ["ALMA 100", "DDN 1000", "all attacks", "robust accuracy (%)"]), ("budget", ["median ℓ2"]),
                        ("scatter", ["ALMA 1000: ℓ2"]), ("trace", ["step"])):  # fmt: skip
        name, content = save(part, "SVG")
        drawing = ElementTree.fromstring(content)
        texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
        assert name.endswith(".svg") and all(word in texts for word in words), (part, texts)
        assert len(drawing.findall(".//{http://www.w3.org/2000/svg}path")) > 5 and b"script" not in content
    name, _ = save("curves", "CSV")
    assert page.locator("#curves canvas").count() == 1 and said == [], "the page is as it was"
    page.locator("#curves input[type=number]").fill("1.1")
    head, first = (tmp_path / "CSV").read_text().splitlines()[:2]
    assert head == '"epsilon","ALMA 100","ALMA 1000","DDN 100","DDN 1000","all attacks"' and first.startswith("0,")
    context.close()


def test_item_7_a_point_of_the_scatter_plot_opens_its_image(made: Any, visit: Any) -> None:
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


@pytest.mark.parametrize("width", [400, 700, 1000, 1300, 1600])
def test_item_7_the_readout_is_not_clipped(made: Any, visit: Any, width: int) -> None:
    _, file = made("fixed", attacks=(MadeAttack("apgd", "APGD", settings={"epsilon": 0.9}, failing=0.3), MadeAttack()))
    page = visit(file, width)
    for scroll in page.locator("#curves .scroll").all():
        assert scroll.evaluate("e => e.scrollWidth - e.clientWidth") <= 0


def test_the_page_rounds_as_the_tables_do(made: Any, visit: Any) -> None:
    """26 of 32 images are 81.25 %: 81.2 in the table, and not 81.3 under the curve."""
    page = visit(made("usual")[1])
    values = [100 * part / whole for whole in (8, 16, 32, 40, 64, 96) for part in range(whole + 1)] + [0.05, 0.15, 0.25, 1e-9, 1234.5, 999999.95]
    shown = page.evaluate("values => values.map((value) => ak.fixed(value, 1))", values)
    assert shown == [f"{value:.1f}" for value in values]
    assert page.evaluate("ak.fixed(2.5, 0) + ak.fixed(3.5, 0) + ak.fixed(0.125, 2)") == "240.12"


@pytest.mark.parametrize("width", [400, 600, 800, 1000, 1300, 1600])
def test_item_7_no_table_is_cut_off(made: Any, visit: Any, width: int) -> None:
    """A table fits its card, or scrolls to its end in a region that says so by a shadow; nothing else is wider than what holds it."""
    fixed = MadeAttack("apgd", "APGD", distance="linf", settings={"epsilon": 8 / 255}, failing=0.3)
    _, file = made("wide", attacks=(*FOUR, fixed, MadeAttack(distance="linf")), model="mnist/a-network-with-a-rather-long-name")
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
