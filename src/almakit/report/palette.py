"""Colours of the page and the figures: a light and a dark set, distinguishable with common colour-vision deficiencies.

The series colours follow Okabe and Ito's hues, darkened or lightened until each has a contrast of 3 to 1 with its
background and every two differ by a CIEDE2000 of at least 10 for normal, protan, deutan and tritan vision (tested).
"""

from __future__ import annotations

SERIES_LIGHT = ("#0069D0", "#C03A0C", "#1B6646", "#B04A85", "#CA7C00", "#009BE8", "#2A2326")
SERIES_DARK = ("#1F97EE", "#E8552A", "#00DDA5", "#BC7A9E", "#E8CB2C", "#B2C0DF", "#FFFFFF")

LIGHT = {
    "page": "#F6F6F3",
    "card": "#FFFFFF",
    "inset": "#F1F1ED",
    "text": "#1B1C20",
    "muted": "#5B5E67",
    "line": "#DCDCD5",
    "grid": "#ECECE7",
    "accent": "#0B5CAD",
    "accent-soft": "#E5EFFA",
    "good": "#1B6646",
    "good-soft": "#E3F1EA",
    "warn": "#8A5200",
    "warn-soft": "#FBF0DC",
    "bad": "#A8240A",
    "bad-soft": "#FBE6E1",
}
DARK = {
    "page": "#0F1115",
    "card": "#15171C",
    "inset": "#1D2027",
    "text": "#E9EAEE",
    "muted": "#A3A8B4",
    "line": "#2E323B",
    "grid": "#242831",
    "accent": "#7DB8F7",
    "accent-soft": "#16283D",
    "good": "#4FD3A5",
    "good-soft": "#11291F",
    "warn": "#F0BE5B",
    "warn-soft": "#2F2411",
    "bad": "#FF8A70",
    "bad-soft": "#351A14",
}
MARKERS = ("", "circle", "square", "triangle", "diamond")
"""Markers for more methods than colours: the first ``len(SERIES_LIGHT)`` methods have none, the next have circles, and
so on."""


def slot(method: int) -> tuple[int, int]:
    """Colour and marker of the method with this number."""
    return method % len(SERIES_LIGHT), (method // len(SERIES_LIGHT)) % len(MARKERS)


def dash(rank: int, ranks: int) -> str:
    """Line style of a method's budget: the largest (rank 0) solid, the smallest dotted, others between them dashed."""
    if rank == 0:
        return "solid"
    return "dotted" if rank == ranks - 1 else "dashed"


def css() -> str:
    """The CSS custom properties of both themes. The system's setting chooses, unless the page's switch is used."""
    light, dark = _properties(LIGHT, SERIES_LIGHT, "light"), _properties(DARK, SERIES_DARK, "dark")
    series = "".join(
        f".stroke-{i}{{stroke:var(--series-{i})}}.fill-{i}{{fill:var(--series-{i})}}" for i in range(len(SERIES_LIGHT))
    )
    return (
        f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f":root[data-theme=dark]{{{dark}}}\n@media "
        f"print{{:root,:root[data-theme=dark],:root:not([data-theme=light]){{{light}}}}}\n{series}\n"
    )


def _properties(colours: dict[str, str], series: tuple[str, ...], scheme: str) -> str:
    named = "".join(f"--{name}:{value};" for name, value in colours.items())
    return f"color-scheme:{scheme};{named}" + "".join(f"--series-{i}:{value};" for i, value in enumerate(series))
