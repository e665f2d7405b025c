"""Labels of distances, attacks, methods and budgets. No torch here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..radius import readable
from ..runs.store.records import AttackInfo
from ..runs.threat import Threat, appended
from .palette import dash
from .table import escape

BUDGET = ("steps", "searches")
"""Settings that are budgets. Attacks that differ in nothing else are the same method."""


@dataclass(frozen=True)
class DistanceName:
    """The name of a distance in plain text and in LaTeX."""

    label: str
    long: str
    tex: str


DISTANCES = {
    "l1": DistanceName("ℓ1", "ℓ1 norm", r"$\ell_1$"),
    "l2": DistanceName("ℓ2", "ℓ2 norm", r"$\ell_2$"),
    "linf": DistanceName("ℓ∞", "ℓ∞ norm", r"$\ell_\infty$"),
    "l0": DistanceName("ℓ0", "ℓ0 (values changed)", r"$\ell_0$"),
    "ciede2000": DistanceName("CIEDE2000", "CIEDE2000 (colour difference)", "CIEDE2000"),
    "ciede2000-paper": DistanceName("CIEDE2000, paper's", "CIEDE2000 as the paper computes it", "CIEDE2000 (paper's)"),
    "lpips": DistanceName("LPIPS", "LPIPS (the paper's, unweighted)", "LPIPS"),
    "lpips-learned": DistanceName("LPIPS, learned", "LPIPS with learned weights", "LPIPS (learned)"),
    "ssim": DistanceName("1 − SSIM", "1 − SSIM (structural dissimilarity)", r"$1-\mathrm{SSIM}$"),
    "ms-ssim": DistanceName(
        "1 − MS-SSIM", "1 − MS-SSIM (structural dissimilarity over scales)", r"$1-\mathrm{MS\,SSIM}$"
    ),
}
"""Distances in the order of the tables, the paper's first."""


def distance_name(key: str) -> DistanceName:
    """The name of a distance; its stored name if it has no other."""
    return DISTANCES.get(key, DistanceName(key, key, escape(key)))


def distance_order(keys: Collection[str]) -> list[str]:
    """Sort key of distances in tables: those of ``DISTANCES`` first, then others by name."""
    return [key for key in DISTANCES if key in keys] + sorted(set(keys) - DISTANCES.keys())


@dataclass(frozen=True)
class AttackLabel:
    """Label, method and line style of an attack on the page."""

    label: str  # e.g. "ALMA 100" or "C&W 9×1000 (rate=0.1)"
    method: str  # the label without the budget, which determines the colour
    spend: float  # steps times searches, which orders the budgets of a method
    dash: str  # solid, dashed or dotted


UNLABELLED = AttackLabel("", "", 0.0, "solid")


def extras(info: AttackInfo) -> str:
    """The settings in the attack's text other than distance, budget and fixed radius, e.g. ``alpha=0.9``."""
    _, bracket, inside = info.text.partition("(")
    if not bracket:
        return ""
    elsewhere = ("distance", *BUDGET) if info.minimal else ("distance", "epsilon", *BUDGET)
    parts = [part.strip() for part in _split(inside.rsplit(")", 1)[0])]
    return ", ".join(part for part in parts if part.partition("=")[0].strip() not in elsewhere and part)


def _at(info: AttackInfo) -> str:
    """``, ε = 8/255`` for an attack whose text contains a fixed radius."""
    own = info.settings.get("epsilon")
    return "" if info.minimal or not isinstance(own, (int, float)) else f", ε = {readable(own, info.distance)}"


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, last = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(text[last:place])
            last = place + 1
    return [*parts, text[last:]]


def budget(info: AttackInfo) -> tuple[str, float]:
    """The budget as the paper writes it, ``100`` or ``9×1000``, and steps times searches; empty and 0 for an attack
    without steps."""
    steps, searches = info.settings.get("steps"), info.settings.get("searches")
    if not isinstance(steps, int):
        return "", 0.0
    times = searches if isinstance(searches, int) else 1
    return f"{times}×{steps}" if times > 1 else str(steps), float(steps * times)


def label_attacks(infos: Sequence[AttackInfo], threats: Sequence[Threat] = ()) -> list[AttackLabel]:
    """Labels for attacks that are shown together. Attacks that differ only in their budget share a method; the line of
    its largest budget is solid, that of its smallest dotted.

    ``threats`` are the threat models of their runs. Unusual settings, and settings in which they differ, are part of
    the label.
    """
    more_words = appended(threats) if threats else [", targeted" if info.targeted else "" for info in infos]
    parts = []
    for info, words in zip(infos, more_words, strict=True):
        more, (size, spend) = extras(info), budget(info)
        settings = f" ({more})" if more else ""
        tail = settings + _at(info) + words
        parts.append((" ".join(filter(None, (info.title, size))) + tail, info.title + tail, spend, info.distance))
    budgets: dict[tuple[str, str], set[float]] = {}
    for _, method, spend, distance in parts:
        budgets.setdefault((method, distance), set()).add(spend)
    ranks = {key: sorted(known, reverse=True) for key, known in budgets.items()}
    return [
        AttackLabel(label, method, spend, dash(ranks[method, distance].index(spend), len(ranks[method, distance])))
        for label, method, spend, distance in parts
    ]
