"""Lower bounds: radii within which a network provably keeps its class. The smallest adversarial distance lies between
this radius and the distance that an attack found."""

from __future__ import annotations

from .radius import METHODS, certified_radius, verified

__all__ = ["METHODS", "certified_radius", "verified"]
