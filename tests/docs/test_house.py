"""The drawing of the house is what the imports say now, and the rooms of the walk exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_drawing_is_of_the_imports() -> None:
    drawn = subprocess.run(
        [sys.executable, str(ROOT / "docs" / ".site" / "house.py")], capture_output=True, text=True, check=True
    ).stdout
    assert drawn == (ROOT / "docs" / "figures" / "house.svg").read_text(), (
        "draw it anew: python docs/.site/house.py > docs/figures/house.svg"
    )


def test_the_places_of_the_walk_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:src/almakit/)?[a-z_]+/[a-z_]*(?:\.py)?)`", page.partition("## Where")[2]))
    assert len(named) >= 12
    for name in named:
        assert (
            (ROOT / name).exists() or (ROOT / "src" / "almakit" / name).exists() or (ROOT / "tests" / name).exists()
        ), name
