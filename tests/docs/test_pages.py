"""Every example of the documents is run: titled blocks become files, Python blocks run in order, lines that begin with almakit are commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```(?P<kind>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ["index", "quickstart", "standard", "brackets", "add-distance", "add-attack", "add-model", "add-data", "bridges", "trackers"]
NOTEBOOKS = ["first-evaluation", "own-distance", "compare-libraries"]


def photos(folder: Path) -> None:
    """What the quick start's reader has: a few small images in sub-folders named after their classes."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(folder / name / f"{number}.png")


def script_of(page: str, place: Path) -> str:
    """One script with all that a page tells its reader to do, in its order; its files are written to ``place``."""
    lines = ["import sys", "sys.path.insert(0, '.')", "from almakit.cli.main import main"]
    for found in BLOCK.finditer((DOCS / f"{page}.md").read_text()):
        if found["title"]:
            (place / found["title"]).write_text(found["body"])
        elif found["kind"] == "python":
            lines.append(found["body"])
        elif found["kind"] == "sh":
            for command in found["body"].splitlines():
                assert command.startswith("almakit "), command
                words = shlex.split(command)[1:]
                # 4: done, and an attack did not find something for every image, which a small example need not. 3: doctor's opinion of an untrained network.
                lines.append(f"assert main({words!r}) in {(0, 3) if words[0] == 'doctor' else (0, 4)}, {command!r}")
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES)
def test_a_pages_examples_run(page: str, tmp_path: Path) -> None:
    photos(tmp_path / "photos")
    script = tmp_path / "page.py"
    script.write_text(script_of(page, tmp_path))
    assert "main(" in script.read_text() or "almakit" in script.read_text()
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_was_executed_and_still_runs(name: str, tmp_path: Path) -> None:
    cells = json.loads((DOCS / "notebooks" / f"{name}.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "execute it anew, from top to bottom"
    assert not [output for cell in code for output in cell["outputs"] if output["output_type"] == "error"]
    assert any(cell["outputs"] for cell in code)
    script = tmp_path / "notebook.py"
    script.write_text("import matplotlib\nmatplotlib.use('Agg')\n" + "\n".join("".join(cell["source"]) for cell in code))
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-4000:]


def test_the_page_of_the_standard_names_its_attacks() -> None:
    from almakit.standard import ENSEMBLES

    page = (DOCS / "standard.md").read_text()
    for version, members in ENSEMBLES.items():
        assert version in page
        for texts in members.values():
            assert all(f"`{text}`" in page for text in texts)


def test_pages_say_nothing_of_this_machine() -> None:
    for path in [*DOCS.glob("*.md"), *DOCS.glob("notebooks/*.ipynb")]:
        for word in ("/work/", "/tmp/", "/root/", "/opt/"):
            assert word not in path.read_text(), f"{path.name} names {word}"
