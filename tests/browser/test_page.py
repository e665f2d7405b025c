"""The report's page in Chromium: opens from a file with no error and no request, and does what it says."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from browser.readings import readout, robust, verified
from report.made_runs import FOUR, MadeAttack

from almakit import Run


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1600, "dark")])
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
    field = page.locator("#curves input.epsilon")
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


def test_a_fixed_radius_is_one_mark(made: Any, visit: Any) -> None:
    """An attack at a fixed epsilon has no curve, and counts among all attacks from its epsilon on."""
    fixed = MadeAttack("apgd", "APGD", settings={"epsilon": 0.9}, failing=0.3)
    run, file = made("fixed", attacks=(fixed, MadeAttack()))
    page = visit(file)
    field, label = page.locator("#curves input.epsilon"), "APGD 100, ε = 0.9"
    alone = f"{100 * float(np.isinf(verified(run, 0)).mean()):.1f}\u2009% at ε = 0.9"
    for epsilon in (0.5, 0.9, 1.7):
        field.fill(str(epsilon))
        row = page.locator("table.readout tr", has=page.get_by_role("button", name=label, exact=True))
        shown = row.locator("td").first.evaluate("cell => cell.firstChild.textContent")
        assert shown == alone, "the same wherever one reads"
        assert readout(page, "ALMA 100") == robust(run, 1, epsilon)
        broken = verified(run, 1) <= epsilon
        if epsilon >= 0.9:
            broken |= np.isfinite(verified(run, 0))
        share = f"{100 * float((~broken).mean()):.1f}"
        assert (
            page.locator("#curves .said").inner_text()
            == f"At ℓ2 ≤ {epsilon}, {share}\u2009% of the images resist every attack here."
        )
    assert page.locator("#budget-legend li").count() == 1 and page.locator("#scatter-controls").is_hidden()
    _, only = made("fixed alone", attacks=(fixed,))
    page = visit(only)
    assert "look at ε = 0.9 only" in page.locator("#curves .said").inner_text()
    page.locator("#explore-status").select_option("robust")
    assert page.locator("#gallery .badge.robust").count() > 0
    page.locator("#gallery .card-button").first.click()
    assert "robust there as far as it can tell" in page.locator("#detail .verdict").inner_text()


@pytest.mark.slow
def test_log_axis_keeps_the_reading(made: Any, visit: Any) -> None:
    run, file = made("usual")
    page = visit(file)
    page.locator("#curves input.epsilon").fill("1.25")
    page.get_by_label("log axis").check()
    assert readout(page, "ALMA 100") == robust(run, 0, 1.25)
    slider = page.locator("#curves input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    assert 0 < float(page.locator("#curves input.epsilon").input_value()) < verified(run, 1)[verified(run, 1) > 0].min()


@pytest.mark.slow
def test_clicking_and_hovering_a_curve(made: Any, visit: Any) -> None:
    run, file = made("usual")
    page = visit(file)
    over = page.locator("#curves .u-over")
    over.hover(position={"x": 150, "y": 100})
    tip = page.locator("#curves .tip")
    assert tip.is_visible() and "ALMA 1000" in tip.inner_text()
    over.click(position={"x": 150, "y": 100})
    epsilon = float(page.locator("#curves input.epsilon").input_value())
    assert readout(page, "DDN 1000") == robust(run, 3, epsilon)


@pytest.mark.slow
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


@pytest.mark.slow
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
            [
                math.inf if text == "∞" else float(text)
                for text in bodies.nth(n).locator("tr:not(.together) td:nth-child(4) .value").all_inner_texts()
            ]
            for n in range(bodies.count())
        ]

    head = (
        page.locator("table.results")
        .nth(1)
        .locator("th", has=page.get_by_role("button", name="median distance", exact=True))
    )
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert [len(block) for block in medians()] == [3, 4] and medians()[1] == sorted(medians()[1])
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert medians()[1] == sorted(medians()[1], reverse=True)
    other = page.locator("table.results").first.get_by_role("button", name="median distance", exact=True)
    for _ in range(2):
        other.click()
        assert medians()[0][-1] == math.inf, "what has no value stays last"
    name = page.locator("table.results").nth(1).get_by_role("button", name="attack", exact=True)
    name.focus()
    page.keyboard.press("Enter")
    labels = page.locator("table.results tbody").nth(1).locator("th").all_inner_texts()
    assert labels == ["ALMA 100", "ALMA 1000", "DDN 100", "DDN 1000", "all attacks"], (
        "what is over all attacks stays last"
    )


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
    by_distance = sorted(
        (record for record in records if record.status == "success"), key=lambda record: record.verified
    )
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
