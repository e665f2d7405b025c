"""A real browser for the report's page. Without one these tests are left out, and the end of the test run says so in red."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
HERE = Path(__file__).parent


def _missing() -> str | None:
    """Why there is no browser to test with."""
    if _chromium() is None:
        return "there is no chromium: apt-get install -y --no-install-recommends chromium (or set ALMAKIT_CHROMIUM)"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "Playwright is not installed: pip install playwright"
    return None


def _chromium() -> str | None:
    return os.environ.get("ALMAKIT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    why = _missing()
    if why is None:
        return
    for item in items:
        if HERE in Path(item.fspath).parents:
            item.add_marker(pytest.mark.skip(reason=f"BROWSER TESTS LEFT OUT: {why}"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Said by the process the user looks at, whether or not the tests ran in workers."""
    why = _missing()
    if why is not None:
        terminalreporter.section("BROWSER TESTS LEFT OUT", sep="!", red=True, bold=True)
        terminalreporter.line(f"The report's page was not tested in a browser: {why}.", red=True)


class Page:
    """An opened page with what it said and asked for."""

    def __init__(self, page: Any):
        self.page, self.said, self.asked = page, [], []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("dialog", lambda dialog: (self.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def open(self, file: Path) -> Any:
        self.page.goto(file.resolve().as_uri())
        return self.page


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=_chromium(), args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """``visit(file, width=..., scheme=...)`` opens a page; at the end nothing may have been said on the console nor asked for."""
    contexts, opened = [], []

    def opener(file: Path, width: int = 1000, scheme: str = "light", **settings: Any) -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **settings))
        opened.append((Page(contexts[-1].new_page()), file))
        return opened[-1][0].open(file)

    yield opener
    for page, file in opened:
        assert page.said == [], page.said
        assert page.asked == [file.resolve().as_uri()], page.asked
    for context in contexts:
        context.close()
