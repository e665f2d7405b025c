"""More budget is never worse on average: 20, 100 and 300 steps of every registered minimal attack."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from almakit import models, registry
from almakit.data import load

# In steps this few C&W's small rate, and ALM in l1, find nothing on digits, so there is nothing to compare.
LEFT_OUT = ("search", "ensemble", "alma-prox", "perc-al", "cw")
NORMS = {"alm": ("l2",)}
CASES = [
    (
        name,
        next(
            (norm for norm in NORMS.get(name, ("l1", "l2", "linf", "l0")) if kind.does is None or norm in kind.does),
            "l2",
        ),
        False,
    )
    for name in registry.names("attacks")
    if (kind := registry.get("attacks", name)).minimal and name not in LEFT_OUT
] + [("fmn", "l1", True), ("soft-walk", "l1", True), ("soft-walk", "l2", False), ("soft-walk", "linf", False)]


@pytest.mark.parametrize(("name", "distance", "targeted"), CASES)
def test_more_budget_is_not_worse_on_average(name: str, distance: str, targeted: bool) -> None:
    """Judged on images that both budgets succeed on: the average over all found rises where harder ones are found too,
    as FMN's does towards targets."""
    model = models.load("mnist/mlp-2x100")
    x, labels = load("mnist-demo", limit=32).tensors()
    kind = registry.get("attacks", name)
    fields, found = kind.__dataclass_fields__, []
    for budget in (20, 100, 300):
        settings = {"distance": distance} if "distance" in fields else {}
        rounds = fields["searches"].default if "searches" in fields else 1
        settings |= {"steps": max(1, budget // rounds)} if "steps" in fields else {}
        targets = (labels + 1) % 10 if targeted else None
        found.append(kind(**settings)(model, x, labels, targets=targets, budget=budget, check=False).distances)
    for few, many in pairwise(found):
        both = torch.isfinite(few) & torch.isfinite(many) & (few > 0)  # 0: already wrong
        assert int(torch.isfinite(many).sum()) >= int(torch.isfinite(few).sum())
        assert not bool(both.any()) or float((many[both] / few[both]).log().mean().exp()) < 1.02
    assert bool(torch.isfinite(found[-1]).any())
