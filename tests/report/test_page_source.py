"""The page as a file: self-contained, guarded by its policy, safe data, small; the vendored library as its package has
it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from report.made_runs import MadeAttack, make_run

from almakit.report import page as report_page
from almakit.report import subjects
from almakit.report.page import render


class Reader(HTMLParser):
    """Tags, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, str]] = []
        self.open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open = tag in ("script", "style")
        if self.open:
            self.inside.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        self.open = False

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inside[-1] = (self.inside[-1][0], self.inside[-1][1] + data)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(subjects.load([make_run(tmp_path_factory.mktemp("page") / "run", 30)]))


def test_policy_allows_exactly_what_is_there(page: str) -> None:
    reader = Reader(page)
    policy = (
        next(attrs["content"] for tag, attrs in reader.tags if attrs.get("http-equiv") == "Content-Security-Policy")
        or ""
    )
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "connect-src" not in policy
    data = [attrs.get("type") == "application/json" for tag, attrs in reader.tags if tag == "script"]
    scripts = [text for tag, text in reader.inside if tag == "script"]
    for text, is_data in zip(scripts, data, strict=True):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert (f"'sha256-{digest}'" in policy) != is_data
    assert sum(data) == 1 and policy.count("sha256-") == len(scripts)


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    for tag, attrs in Reader(page).tags:
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        assert "style" not in attrs, (tag, attrs)
        for name in ("src", "href"):
            value = attrs.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, attrs)
    css = "".join(text for tag, text in Reader(page).inside if tag == "style")
    assert "url(" not in css and "@import" not in css


def test_data_cannot_leave_its_script() -> None:
    evil = "</script><!--<script>\u2028&amp;"
    text = report_page.embedded({"name": evil})
    assert not set(text) & set("<>&\u2028\u2029") and json.loads(text) == {"name": evil}


def test_without_pictures_the_page_is_small(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 40, tuple(MadeAttack(f"a{n}", f"A{n}") for n in range(30)))
    page = render(subjects.load([run]), 0)
    assert len(page.encode()) < 0.8e6


def test_vendored_library_is_the_packages() -> None:
    folder = files("almakit.report").joinpath("templates", "vendor")
    stated = folder.joinpath("VERSIONS.txt").read_text(encoding="utf-8")
    for name in ("uPlot.iife.min.js", "uPlot.min.css"):
        digest = hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest()
        assert re.search(rf"{re.escape(name)}\s+sha256 {digest}", stated), name
    version = re.search(r"uPlot (\d+\.\d+\.\d+)", stated)
    assert version and f"(v{version[1]})" in folder.joinpath("uPlot.iife.min.js").read_text(encoding="utf-8")
