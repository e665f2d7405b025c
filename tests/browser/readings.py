"""What the stored records say, and what the page reads, for the tests of the report's page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from almakit import Run


def verified(run: Path, attack: int) -> np.ndarray:
    return np.array([record.verified for record in Run(run).records_of(attack)])


def robust(run: Path, attack: int, epsilon: float) -> str:
    return f"{100 * float((verified(run, attack) > epsilon).mean()):.1f}"


def readout(page: Any, label: str) -> str:
    row = page.locator("table.readout tr", has=page.get_by_role("button", name=label, exact=True))
    return str(row.locator("td").first.evaluate("cell => cell.firstChild.textContent")).replace("\u2009%", "")
