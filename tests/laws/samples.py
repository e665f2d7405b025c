"""Texts of every registered attack to hold the laws against; a new name is picked up by itself where its settings have
defaults."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields

import pytest
import torch
from laws.models import RowWise
from torch import Tensor

from almakit import attacks, registry
from almakit.core import Attack

# Settings a law test needs where the fallback's are not enough: names with required settings, or slow with their
# defaults.
TEXTS: dict[str, list[str]] = {
    "ead": [
        "ead(steps=20, searches=5, weight=0.1)",
        "ead(steps=20, searches=4, weight=0.1, accelerated=false)",
        "ead(steps=20, searches=4, weight=0.1, rule=en)",
    ],
    "cw": [
        "cw(steps=25, searches=4, rate=0.05, weight=0.1)",
        "cw(distance=l1, steps=25, searches=4, rate=0.05, weight=1)",
    ],
    "apgd": [
        "apgd(distance=l2, epsilon=1.5, steps=20)",
        "apgd(distance=l1, epsilon=8, steps=20, loss=ce)",
        "apgd(distance=linf, epsilon=0.3, steps=20, restarts=2)",
        "apgd(distance=l2, epsilon=0.6, steps=15, loss=targeted-dlr)",
    ],
    "pgd": [
        "pgd(distance=linf, epsilon=0.2, steps=15)",
        "pgd(distance=l2, epsilon=1.5, steps=15)",
        "pgd(distance=l1, epsilon=10, steps=15, restarts=2)",
    ],
    "search": [
        "search(attack=apgd(distance=l2, steps=10), halvings=6)",
        "search(attack=pgd(distance=linf, steps=10), halvings=6, largest=0.3)",
        "search(attack=apgd(distance=l1, steps=15, loss=targeted-dlr, rivals=2), halvings=5)",
        "search(attack=square(distance=l2, steps=15), halvings=5)",
    ],
    "lpa": [
        "lpa(distance=l2, epsilon=1.5, steps=10, searches=3)",
        "lpa(distance=ssim, epsilon=0.1, steps=10, searches=3)",
    ],
    "square": [
        "square(distance=linf, epsilon=0.3, steps=40)",
        "square(distance=l2, epsilon=2, steps=40, restarts=2)",
        "square(distance=l1, epsilon=12, steps=60, trial=20)",
    ],
    "hopskipjump": [
        "hopskipjump(distance=l2, steps=90, evaluations=10)",
        "hopskipjump(distance=linf, steps=90, evaluations=10)",
    ],
    "bb": [f"bb(distance={distance}, steps=6)" for distance in ("l1", "l2", "linf")],
    "strattack": ["strattack(steps=20, searches=3, refine=10)"],
    "alm": ["alm(distance=l2, outer=3, inner=15)", "alm(distance=l1, outer=3, inner=15)"],
    "alma-prox": ["alma-prox(steps=40, rate=0.01)"],
    "dag": ["dag(steps=40, rate=0.02)"],
    "asma": ["asma(steps=40, tau=0.01, beta=0.01)"],
    "sea": [
        "sea(distance=linf, epsilon=0.3, steps=10)",
        "sea(distance=l2, epsilon=1.5, steps=10, losses=[js, balanced-ce])",
    ],
    "ensemble": [
        "ensemble(attacks=[alma(distance=l2, steps=15), pgd(distance=l2, epsilon=1, steps=5), bb(distance=l2, "
        "steps=4)])"
    ],
}
# Distances that are defined on colour images of a certain size only.
COLOUR = {"ciede2000", "ciede2000-paper", "ssim", "lpips", "lpips-learned"}


@dataclass(frozen=True)
class Sample:
    """An attack as text and the shape of the images it is tried on."""

    text: str
    shape: tuple[int, ...] = (3, 5, 5)

    @property
    def attack(self) -> Attack:
        return attacks.get(self.text)

    def problem(self, batch: int = 6, seed: int = 0, bits: int | None = None) -> tuple[RowWise, Tensor, Tensor]:
        """A model, images (B, ...) and labels (B,), all of them the model's own."""
        model = RowWise(self.shape)
        generator = torch.Generator().manual_seed(100 + seed)
        x = torch.rand(batch, *self.shape, generator=generator)
        x = x if bits is None else (x * (2**bits - 1)).round() / (2**bits - 1)
        with torch.no_grad():
            return model, x, model.eval()(x).argmax(1)


def fallback(name: str) -> list[str]:
    """One text for each distance the attack claims (l2 and l1 where it takes any), with 20 steps where it has steps."""
    kind = registry.get("attacks", name)
    settings = {field.name: field for field in fields(kind)}
    needed = [f.name for f in settings.values() if f.default is MISSING and f.default_factory is MISSING]
    if needed:
        raise AssertionError(f"the attack {name} needs {', '.join(needed)}: give it a text in tests/laws/samples.py")
    steps = "steps=20" if "steps" in settings else ""
    if "distance" not in settings:
        return [f"{name}({steps})"]
    return [
        f"{name}({', '.join(filter(None, [f'distance={distance}', steps]))})" for distance in kind.does or ("l2", "l1")
    ]


def samples(name: str) -> list[Sample]:
    """The samples of a registered attack; one that cannot be built stays a bare name, and fails in each law by
    itself."""
    try:
        texts = TEXTS.get(name) or fallback(name)
        colour = [repr(attacks.get(text).measure) in COLOUR for text in texts]
    except Exception:
        return [Sample(name)]
    return [Sample(text, (3, 32, 32) if large else (3, 5, 5)) for text, large in zip(texts, colour, strict=True)]


BY_NAME = {name: samples(name) for name in registry.names("attacks")}
SAMPLES = [sample for each in BY_NAME.values() for sample in each]
each_attack = pytest.mark.parametrize(
    "sample",
    [
        pytest.param(sample, id=sample.text, marks=[pytest.mark.slow] if place else [])
        for each in BY_NAME.values()
        for place, sample in enumerate(each)
    ],
)
"""One text of every attack; the other texts are left to ``make nightly``."""
