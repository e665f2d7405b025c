"""The built site in a real browser: nothing is fetched or fails, mathematics is set, no page is wider than its window.

``make docs`` builds it; these tests look at site/ (or the folder of ALMAKIT_SITE) and are run by ``make site-test``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.at_hand import chromium
from docs.prose import ROOT

pytestmark = pytest.mark.slow
SITE = Path(os.environ.get("ALMAKIT_SITE", ROOT / "site"))
PAGES = sorted(path.parent.relative_to(SITE).as_posix() for path in SITE.rglob("index.html"))
MATHEMATICS = {"guide-defence": 4, "guide-compare": 3, "guide-own": 3, "engine": 3, "notebooks/first-evaluation": 1}
"""Formulas a page has at least."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield found
        found.close()


def test_the_site_is_there() -> None:
    assert {
        "guide-defence",
        "guide-compare",
        "guide-own",
        "guide-large",
        "report",
        "notebooks/first-evaluation",
    } <= set(PAGES), "make docs first"


@pytest.mark.parametrize("width", [1440, 400])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_in_the_browser(page: str, width: int, browser: Any) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 900})
    asked: list[str] = []
    faults: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.goto((SITE / page / "index.html").as_uri())
    tab.wait_for_load_state("networkidle")
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] and not faults
    assert tab.evaluate("document.documentElement.scrollWidth") <= width, f"{page} is wider than {width}"
    assert tab.locator(".katex").count() >= MATHEMATICS.get(page, 0) and tab.locator(".katex-error").count() == 0
    missing = tab.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.src)")
    assert not missing, f"a picture of {page} is missing: {missing}"
    tab.close()
