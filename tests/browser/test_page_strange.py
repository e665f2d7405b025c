"""The report's page of runs out of the ordinary: nothing found, one image, thirty attacks, hostile names, half a run,
several models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser.readings import readout, robust, verified
from report.made_runs import FOUR, MadeAttack, make_run

from almakit import Run
from almakit.report import subjects
from almakit.report.page import render

EVIL = "<img src=x onerror=alert(1)>"


def test_no_success_at_all(made: Any, visit: Any) -> None:
    nothing = (MadeAttack(failing=1.0), MadeAttack("ddn", "DDN", failing=1.0))
    _, file = made("nothing", attacks=nothing, images=20, already_wrong=0.0)
    page = visit(file)
    assert readout(page, "ALMA 100") == "100.0"
    assert "No attack claims a success" in page.locator("#trust").inner_text()
    page.locator("#gallery .card-button").first.click()
    assert "No adversarial image was found" in page.locator("dialog[open]").inner_text()


@pytest.mark.slow
def test_one_image(made: Any, visit: Any) -> None:
    run, file = made("one", images=1, attacks=FOUR[:1], already_wrong=0.0)
    page = visit(file)
    page.locator("#curves input.epsilon").fill("0.01")
    assert readout(page, "ALMA 100") == "100.0"
    page.locator("#curves input.epsilon").fill(str(float(verified(run, 0)[0]) * 1.01))
    assert readout(page, "ALMA 100") == "0.0"
    assert "needs two attacks" in page.locator("#scatter").inner_text()


@pytest.mark.slow
def test_thirty_attacks(made: Any, visit: Any) -> None:
    many = tuple(MadeAttack(f"attack{n}", f"Attack {n}", steps=100, strength=1 + n / 50) for n in range(30))
    run, file = made("thirty", attacks=many, images=30)
    page = visit(file)
    assert page.locator("table.readout tbody tr").count() == 31
    page.locator("#curves input.epsilon").fill("1.3")
    assert readout(page, "Attack 17 100") == robust(run, 17, 1.3)
    page.locator("#curves .u-over").hover(position={"x": 200, "y": 80})
    assert "and 18 more" in page.locator("#curves .tip").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1000


def test_names_from_outside_stay_text(made: Any, visit: Any) -> None:
    attack = MadeAttack(title=f"{EVIL}</script><script>alert(2)</script>", settings={"note": "'\"><b>"})
    attacks = (attack, FOUR[1], replace(attack, distance="<b> my distance"))
    outside = {"model": EVIL, "data": "</script><script>alert(3)</script>", "label": f"\u2028{EVIL}.png"}
    _, file = made(
        "evil",
        attacks=attacks,
        images=12,
        class_names=(EVIL, *"bcdefghij"),
        findings=((EVIL, "warn", EVIL, EVIL),),
        **outside,
    )
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


@pytest.mark.slow
def test_unfinished_run_says_so(made: Any, visit: Any) -> None:
    run, file = made("half", images=96, unfinished=5)
    page = visit(file)
    assert "Not finished" in page.locator(".banner").inner_text()
    there = len(Run(run).records)
    assert f"{there} of {4 * 96} results are there" in page.locator("#trust").inner_text()
    assert page.locator("table.results").get_by_role("button", name="images").count() == 1
    done = verified(run, 2)
    assert 0 < len(done) < 96
    page.locator("#curves input.epsilon").fill("1.2")
    assert readout(page, "DDN 100") == f"{100 * float((done > 1.2).mean()):.1f}"
    assert readout(page, "DDN 1000") == "–"  # nothing yet


@pytest.mark.slow
def test_limited_pictures_are_said_to_be(made: Any, visit: Any) -> None:
    _, file = made("limited", 9, images=40)
    page = visit(file)
    assert "pictures of 9 of 40 images" in page.locator("#explore-limit").inner_text()
    assert page.locator("#explore-count").inner_text() == "9 images"


@pytest.mark.slow
def test_several_models_share_an_epsilon(tmp_path: Path, visit: Any) -> None:
    runs = [
        make_run(tmp_path / name, 40, model=f"mnist/{name}", weights=name * 64, seed=n) for n, name in enumerate("ab")
    ]
    file = tmp_path / "index.html"
    file.write_text(render(subjects.load(runs)), encoding="utf-8")
    page = visit(file, 1600)
    assert page.locator("#curves figure").count() == 2
    page.locator("#curves input.epsilon").fill("1.1")
    row = (
        page.locator("table.readout tbody tr")
        .first.locator("td")
        .evaluate_all("cells => cells.map((cell) => cell.firstChild.textContent)")
    )
    assert [cell.replace("\u2009%", "") for cell in row] == [robust(run, 0, 1.1) for run in runs]
    page.locator("#explore-model").select_option(label="mnist/b")
    assert page.locator("#gallery .card-button").count() > 0
