"""The built site in a real browser: nothing is fetched or fails, mathematics is set, no page is wider than its window,
the search finds the page that answers.

``make docs`` builds it; these tests look at site/ (or the folder of ALMAKIT_SITE) and are run by ``make site-test``.
"""

from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.at_hand import chromium
from docs.prose import ROOT, site_pages

pytestmark = pytest.mark.slow
SITE = Path(os.environ.get("ALMAKIT_SITE", ROOT / "site"))
PAGES = sorted(
    name
    for path in SITE.rglob("index.html")
    if (name := path.parent.relative_to(SITE).as_posix()) not in site_pages().RENAMED
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield found
        found.close()


SEARCHES = {
    "8/255": "standard",
    "AutoAttack": "coming-from",
    "mask": "guide-own",
    "targeted": "guide-own",
    "LaTeX": "report",
    "segmentation": "segmentation",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The site behind a server, which the search's worker needs."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.mark.parametrize("text", SEARCHES)
def test_the_search_finds_the_right_page_first(text: str, browser: Any, address: str) -> None:
    tab = browser.new_page(viewport={"width": 1440, "height": 900})
    tab.goto(address)
    tab.click("input.md-search__input")
    tab.keyboard.type(text)
    tab.wait_for_selector(".md-search-result__item a")
    tab.wait_for_timeout(500)
    found = tab.locator(".md-search-result__item a").first.get_attribute("href")
    tab.close()
    assert f"/{SEARCHES[text]}/" in found, found


@pytest.mark.parametrize("old", site_pages().RENAMED)
def test_an_old_address_leads_to_its_page(old: str, browser: Any) -> None:
    tab = browser.new_page()
    tab.goto((SITE / old / "index.html").as_uri())
    tab.wait_for_url(f"**/{site_pages().RENAMED[old]}/**")
    tab.close()


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
    assert tab.locator(".katex-error").count() == 0
    missing = tab.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.src)")
    assert not missing, f"a picture of {page} is missing: {missing}"
    tab.close()
