"""Lower bounds: radii within which a network provably keeps its class. An attack's distance lies above, the truth in
between."""

from __future__ import annotations

from .radius import METHODS, certified_radius, verified

__all__ = ["METHODS", "certified_radius", "verified"]
