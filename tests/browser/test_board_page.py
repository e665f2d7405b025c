"""The leaderboard in Chromium: four networks and eight attacks, opened from a file, sorted, filtered, linked to; no
error, no request."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report.made_runs import MadeAttack, make_run

from almakit import Run
from almakit.report.board import write_board

METHODS = (
    ("alma", "ALMA", 1.0),
    ("ddn", "DDN", 1.1),
    ("fmn", "FMN", 1.15),
    ("fab", "FAB", 1.3),
    ("cw", "C&W", 1.05),
    ("deepfool", "DeepFool", 1.6),
)
NETS = "abcd"


def attacks(place: int) -> tuple[MadeAttack, ...]:
    """Six in l2 for the smallest change, one at a fixed radius, one in linf."""
    own = 1 + 0.2 * ((place * 5) % 6)
    smallest = tuple(
        MadeAttack(name, title, strength=own * strength, steps=100 + 50 * rank)
        for rank, (name, title, strength) in enumerate(METHODS)
    )
    return (
        *smallest,
        MadeAttack("pgd", "PGD", steps=20, settings={"epsilon": 0.9}, failing=0.1 * place),
        MadeAttack(distance="linf", strength=own),
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    root = tmp_path_factory.mktemp("board")
    runs = {}
    for place, name in enumerate(NETS):
        more = {"model": f"mnist/net-{name}", "weights": name * 64, "seed": place}
        runs[name] = make_run(root / name, 40, attacks(place), **more)
    half = {"model": "mnist/net-half", "weights": "7" * 64, "chunk": 10, "unfinished": 4}
    runs["half"] = make_run(root / "half", 40, attacks(0)[:3], **half)
    other = {"model": "mnist/net-a", "weights": "a" * 64, "data": "fashion"}
    runs["other"] = make_run(root / "other", 25, attacks(1)[:2], **other)
    write_board(list(runs.values()), root / "site", {"l2": [0.9, 1.5]})
    return root / "site" / "index.html", runs


def proven(run: Path, attack: int) -> np.ndarray:
    return np.array([record.verified for record in Run(run).records_of(attack)])


def column(page: Any, place: int) -> list[str]:
    """A column of the first table, top to bottom, of the rows that are shown."""
    cells = page.locator(".matrix").first.locator(f"tbody tr:not([hidden]) > :nth-child({place})").all_inner_texts()
    return [cell.split("\n")[0] for cell in cells]


def names(page: Any) -> list[str]:
    return column(page, 2)


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1600, "dark")])
def test_opens_at_every_width(site: Any, visit: Any, width: int, scheme: str) -> None:
    page = visit(site[0], width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".matrix").count() == 3, "l2 and linf of four networks, l2 of the other images"
    first = page.locator(".matrix").first
    assert first.locator("tbody tr").count() == 5 and first.locator("thead th[data-column]").count() == 3 + 7
    text = page.locator("section.title").inner_text()
    assert "5 models, 8 attacks" in text and "2 sets of images." in text and "half (" in text
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) < 150) == (scheme == "dark")
    for scroll in page.locator(".block-card .scroll").all():  # a table is whole, or can be scrolled to its end
        scroll.evaluate("e => { e.scrollLeft = 1e6; }")
        assert (
            scroll.evaluate(
                "e => e.querySelector('table').getBoundingClientRect().right - e.getBoundingClientRect().right"
            )
            <= 1
        )


def test_robust_accuracy_at_any_radius(site: Any, visit: Any) -> None:
    file, runs = site
    page = visit(file, 1600)
    epsilon = page.locator("input.epsilon").first
    for text, value in (("0.9", 0.9), ("6/5", 1.2), ("1.5", 1.5)):
        epsilon.fill(text)
        shown = dict(zip(names(page), column(page, 5), strict=True))
        for name in NETS:
            assert shown[f"mnist/net-{name}"] == f"{100 * float((proven(runs[name], 0) > value).mean()):.1f}"
        together = dict(zip(names(page), column(page, 4), strict=True))
        for place, name in enumerate(NETS):
            broken = np.min([proven(runs[name], attack) for attack in range(6)], axis=0) <= value
            assert (
                together[f"mnist/net-{name}"]
                == f"{100 * float((~(broken | np.isfinite(proven(runs[name], 6)))).mean()):.1f}"
            ), place
        assert f"at ℓ2 ≤ {text}" in page.locator(".block-said").first.inner_text()
    fixed = page.locator(".matrix").first.locator("tbody tr").first.locator("td").last
    assert fixed.inner_text() == "–" and fixed.get_attribute("title") == "looks at ε = 0.9 only"
    before = column(page, 5)
    for wrong in ("8/0", "1/255/2", "-1", "abc", ""):
        epsilon.fill(wrong)
        assert epsilon.get_attribute("aria-invalid") == "true" and column(page, 5) == before
    page.get_by_role("button", name="0.9", exact=True).first.click()
    assert epsilon.input_value() == "0.9" and epsilon.get_attribute("aria-invalid") is None


def test_sorts_by_robust_accuracy_median_and_cost(site: Any, visit: Any) -> None:
    file, runs = site
    page = visit(file, 1600)
    page.locator("input.epsilon").first.fill("1.5")
    together = [float(cell) for cell in column(page, 4)]
    assert together == sorted(together, reverse=True), "the most robust first"
    head = page.locator(".matrix").first.locator("th[data-column='0']")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert column(page, 5) == sorted(column(page, 5), key=float, reverse=True)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending" and column(page, 5) == sorted(column(page, 5), key=float)
    page.locator("#measure").select_option("median")
    medians = dict(zip(names(page), map(float, column(page, 5)), strict=True))
    assert medians["mnist/net-c"] == pytest.approx(float(np.median(proven(runs["c"], 0))), rel=1e-3)
    assert list(medians.values()) == sorted(medians.values())
    page.locator("#measure").select_option("passes")
    assert set(column(page, 5)) == {"199"} and column(page, 6)[0] == "299", "100 and 150 steps"
    page.locator("#measure").select_option("seconds")
    assert "Seconds per image" in page.locator(".block-said").first.inner_text()
    missing = page.locator(".matrix").first.locator("th[data-column='4']")
    for _ in range(2):
        missing.get_by_role("button").click()
        assert names(page)[-1].startswith("mnist/net-half"), "what has no value stays last in both directions"


@pytest.mark.slow
def test_filters(site: Any, visit: Any) -> None:
    page = visit(site[0], 1600)
    page.locator("#filter-models").fill("NET-B")
    assert names(page) == ["mnist/net-b"] and "1 of 6 models" in page.locator("#filtered").inner_text()
    page.locator("#filter-models").fill("")
    page.locator("#filter-finished").check()
    assert not any("half" in name for name in names(page)) and len(names(page)) == 4
    page.locator("#filter-attacks").fill("alma")
    assert page.locator(".matrix").first.locator("thead th[data-column]:visible").all_inner_texts()[3:] == ["ALMA 100"]


@pytest.mark.slow
def test_a_number_says_where_it_comes_from(site: Any, visit: Any) -> None:
    file, runs = site
    page = visit(file, 1600)
    page.locator(".matrix").first.locator("tbody tr", has_text="mnist/net-d").locator(".cell").nth(1).click()
    said = page.locator(".source").first.inner_text()
    assert "ALMA 100 on mnist/net-d, ℓ2 norm" in said and Run(runs["d"]).sha256 in said and "torch 2.13.0" in said
    assert "untargeted, any value in [0, 1], float32, seed 0" in said
    half = page.locator(".matrix").first.locator("tbody tr", has_text="mnist/net-half")
    assert "not finished" in half.inner_text() and "of 7 attacks" in half.inner_text()


@pytest.mark.slow
def test_a_link_shows_what_i_see_and_leads_to_the_models_page(site: Any, browser: Any) -> None:
    file, _ = site
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    page = context.new_page()
    said: list[str] = []
    page.goto(file.resolve().as_uri())
    page.locator("input.epsilon").first.fill("6/5")
    page.locator("#filter-models").fill("net")
    page.locator(".matrix").first.locator("th[data-column='2']").get_by_role("button").click()
    page.locator(".matrix").first.locator("tbody tr", has_text="mnist/net-d").locator(".cell").nth(1).click()
    shown, link = page.locator(".block-card").first.inner_text(), page.url
    other = context.new_page()
    other.on("console", lambda message: said.append(message.text))
    other.on("pageerror", lambda error: said.append(str(error)))
    other.goto(link)
    assert other.locator(".block-card").first.inner_text() == shown
    assert other.locator("#filter-models").input_value() == "net"
    other.locator(".matrix").first.get_by_role("link", name="mnist/net-d").click()
    other.wait_for_url("**/models/*")
    assert other.locator("#curves input.epsilon").first.input_value() == "1.2"
    assert other.locator("h1").inner_text() == "mnist/net-d"
    other.get_by_role("link", name="almakit board").click()
    other.wait_for_url("**/index.html")
    broken = context.new_page()
    broken.on("pageerror", lambda error: said.append(str(error)))
    broken.goto(file.resolve().as_uri() + "#x?measure=7&sort%3Azz=1&cell%3Azz=%7B%7D&epsilon%3Azz=%22%22&models=%5B%5D")
    assert broken.locator(".matrix").first.locator("tbody tr").count() == 5 and said == []
    context.close()


def test_names_from_outside_stay_text(tmp_path: Path, visit: Any) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    run = make_run(
        tmp_path / "run", 12, (MadeAttack(title=evil), MadeAttack("ddn", "DDN", "<b>d")), model=evil, data=evil
    )
    write_board([run], tmp_path / "site")
    page = visit(tmp_path / "site" / "index.html")
    page.locator(".cell").first.click()
    assert page.locator("img").count() == 0 and evil in page.locator("main").inner_text()
