"""A real browser for the report's page. Without one these tests are left out, and the end of the test run says so in
red."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.at_hand import LEFT_OUT, chromium, missing
from report.made_runs import make_run

from almakit.report import subjects
from almakit.report.page import render

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    why = missing()
    if why is None:
        return
    for item in items:
        if HERE in Path(item.fspath).parents:
            item.add_marker(pytest.mark.skip(reason=f"{LEFT_OUT}: {why}"))


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
        started = driver.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """``visit(file, width=..., scheme=...)`` opens a page; at the end nothing may have been said on the console nor
    asked for."""
    contexts, opened = [], []

    def opener(file: Path, width: int = 1000, scheme: str = "light", **settings: Any) -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **settings))
        contexts[-1].set_default_timeout(8000)
        opened.append((Page(contexts[-1].new_page()), file))
        return opened[-1][0].open(file)

    yield opener
    for page, file in opened:
        assert page.said == [], page.said
        assert page.asked == [file.resolve().as_uri()], page.asked
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """name -> (run folder, page), each made once."""
    root = tmp_path_factory.mktemp("pages")
    kept: dict[str, tuple[Path, Path]] = {}

    def make(name: str, images_shown: int = 60, **settings: Any) -> tuple[Path, Path]:
        if name not in kept:
            run = make_run(root / name / "run", **settings)
            page = root / name / "index.html"
            page.write_text(render(subjects.load([run]), images_shown), encoding="utf-8")
            kept[name] = run, page
        return kept[name]

    return make
