"""The ratios to the exact optimum of linear models that each attack is held to, measured and rounded up; worst and median."""

from __future__ import annotations

import math

SETTINGS: dict[str, str] = {}
RATIOS: dict[str, dict[str, tuple[float, float]]] = {"alma": {"l1": (math.inf, math.inf)}}
