"""The files and folders that the architecture page names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_places_of_the_page_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:src/almakit/)?[a-z_]+/[a-z_]*(?:\.py)?)`", page.partition("## Where")[2]))
    assert len(named) >= 12
    for name in named:
        assert (
            (ROOT / name).exists() or (ROOT / "src" / "almakit" / name).exists() or (ROOT / "tests" / name).exists()
        ), name
