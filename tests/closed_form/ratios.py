"""What each attack is held to on problems with an exact optimum: its ratios on linear models, measured and rounded up.

``PYTHONPATH=tests python -m closed_form.ratios`` prints them, with what is held on tiny ReLU networks, as the table of
docs/figures/parity.md.
"""

from __future__ import annotations

import math
from dataclasses import fields

from almakit import registry

NORM = {"l1": 1.0, "l2": 2.0, "linf": math.inf}

# The attack with its stated budget where that is not 100 steps.
TEXTS = {
    "cw": "cw(distance={distance}, steps=100, searches=9)",
    "search": "search(attack=apgd(distance={distance}, steps=30), halvings=10)",
    "square": "search(attack=square(distance={distance}, steps=150), halvings=10)",
    "hopskipjump": "hopskipjump(distance={distance}, steps=1000)",
    "alm": "alm(distance={distance}, outer=5, inner=20)",
    "alma-prox": "alma-prox(distance={distance}, steps=300)",
    "dag": "dag(distance={distance}, steps=300, rate=0.005)",
    "asma": "asma(distance={distance}, steps=300, tau=0.005, beta=0.005)",
}

# name -> distance -> (worst, median) over the 24 images of test_ratios.py.
RATIOS: dict[str, dict[str, tuple[float, float]]] = {
    "alma": {"l1": (9.973, 1.0088), "l2": (2.666, 1.0008), "linf": (7.086, 1.1195)},
    "soft-walk": {"l1": (1.006, 1.0005), "l2": (1.005, 1.0005), "linf": (1.005, 1.0005)},
    "ead": {"l1": (1.736, 1.025)},
    "cw": {"l1": (8.67, 1.147), "l2": (1.305, 1.0062), "linf": (6.56, 1.125)},
    "search": {"l1": (1.43, 1.0128), "l2": (1.111, 1.007), "linf": (1.19, 1.0113)},
    "square": {"l1": (4.06, 1.724), "l2": (2.29, 1.46), "linf": (1.43, 1.015)},  # forwards alone, these two
    "hopskipjump": {"l2": (1.11, 1.046), "linf": (1.47, 1.104)},
    "bb": {"l1": (1.029, 1.0007), "l2": (1.135, 1.0005), "linf": (1.183, 1.0027)},
    "strattack": {"l2": (1.42, 1.033)},
    "alm": {"l1": (9.277, 1.6224), "l2": (3.06, 1.1517), "linf": (7.08, 1.2202)},
    "alma-prox": {"linf": (1.202, 1.0038)},
    "dag": {"linf": (6.53, 2.046)},  # these two take the first point they find
    "asma": {"l2": (8.48, 1.729)},
    "deepfool": {"l2": (1.004, 1.0009), "linf": (1.004, 1.0009)},
    "superdeepfool": {"l2": (1.004, 1.0005)},
    "tr": {"l2": (1.004, 1.0008), "linf": (1.004, 1.0009)},
    "fab": {"l1": (1.004, 1.0005), "l2": (1.004, 1.0007), "linf": (1.004, 1.0007)},
    "pdgd": {"l2": (1.135, 1.0011)},
    "pdpgd": {"l1": (1.697, 1.0067), "l2": (1.135, 1.0016), "linf": (1.186, 1.0014)},
    "ddn": {"l2": (1.005, 1.0006)},
    "fmn": {"l1": (1.006, 1.0005), "l2": (1.004, 1.0005), "linf": (1.004, 1.0005)},
}


def claims(name: str) -> list[str]:
    """The distances with exact optima that an attack minimises; none for ensembles of others, nor for attacks at a
    fixed radius unless they are searched with."""
    if name == "search":
        return list(NORM)
    kind = registry.get("attacks", name)
    if (not kind.minimal and name not in TEXTS) or name == "ensemble":
        return []
    if "distance" not in {field.name for field in fields(kind)}:
        return [repr(kind().measure)]
    return [distance for distance in NORM if kind.does is None or distance in kind.does]


def text_of(name: str, distance: str) -> str:
    """The attack for a distance, with 100 steps or what ``TEXTS`` says."""
    if name in TEXTS:
        return TEXTS[name].format(distance=distance)
    names = {field.name for field in fields(registry.get("attacks", name))}
    settings = [f"distance={distance}"] if "distance" in names else []
    return f"{name}({', '.join([*settings, *(['steps=100'] if 'steps' in names else [])])})"


def table() -> str:
    """The held figures as markdown: worst and median ratio on linear models, median ratio on tiny ReLU networks."""
    from exact.test_exact_optima import WIDER

    lines = [
        "| attack | distance | settings | linear: worst | linear: median | ReLU: median |",
        "| :-- | :-- | :-- | --: | --: | --: |",
    ]
    for name, held in RATIOS.items():
        for distance, (worst, median) in held.items():
            # The test of ALMA itself runs 1000 steps.
            relu = "1.05 (1000 steps)" if name == "alma" else f"{WIDER.get((name, distance), 1.10):.2f}"
            lines.append(f"| {name} | {distance} | `{text_of(name, distance)}` | {worst:g} | {median:g} | {relu} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
