"""The page decides which distances lie within a radius as Python does: its function, run in node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

import almakit
from almakit.radius import Grid

CORE = Path(almakit.__file__).parent / "report/templates/js/core.js"
GRIDS = [Grid.of(name, step) for name in ("l0", "l1", "l2", "linf", "ssim") for step in (0.0, 1 / 255, 1 / 15, 1.0)]
RADII = [0.0, 1e-6, 0.001, *(k / 255 for k in (1, 2, 3, 4, 8, 30, 36, 254)), 0.5, 0.9244760146030382, 1.0, 3.0, 1000.0]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_the_page_and_python_agree_on_what_lies_within_a_radius() -> None:
    source = CORE.read_text(encoding="utf-8")
    parts = [re.search(rf"  ak\.{name} = .*?\n  }};\n", source, re.S) for name in ("limit", "robust")]
    assert all(parts)
    script = (
        "const ak = {};\n"
        + "".join(part[0] for part in parts if part)
        + f"""
const grids = {json.dumps([asdict(grid) for grid in GRIDS])}, radii = {json.dumps(RADII)};
const levels = Object.assign(Float32Array.from([0, 1, 2, 8, 9, Infinity].map((k) => k / 255)), {{ grid: grids[13] }});
const shares = [0, 1, 2, 7, 8, 9].map((k) => ak.robust(levels, k / 255));
console.log(JSON.stringify([grids.map((grid) => radii.map((radius) => ak.limit(grid, radius))), shares]));
"""
    )
    said = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True, timeout=60)
    limits, shares = json.loads(said.stdout)
    for grid, row in zip(GRIDS, limits, strict=True):
        assert row == pytest.approx([grid.limit(radius) for radius in RADII], rel=1e-12, abs=1e-15)
    assert GRIDS[13] == Grid.of("linf", 1 / 255) and shares == [n / 6 for n in (5, 4, 3, 3, 2, 1)]
