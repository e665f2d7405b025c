"""A table: rows of features, some of which nobody can change. The smallest change of the others that turns a
decision."""

from __future__ import annotations

import torch
from torch import nn

import almakit

FEATURES = ("age", "income", "debt", "years employed")
MAY_CHANGE = torch.tensor([False, True, True, False])

# Made-up applicants, every feature scaled to [0, 1]; granted where income and employment outweigh debt.
generator = torch.Generator().manual_seed(0)
x = torch.rand(400, 4, generator=generator)
granted = (1.5 * x[:, 1] + 0.5 * x[:, 3] + 0.2 * x[:, 0] - 1.2 * x[:, 2] > 0.5).long()

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
optimiser = torch.optim.Adam(network.parameters(), 2e-2)
for _ in range(150):
    loss = nn.functional.cross_entropy(network(x), granted)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

refused = x[granted == 0][:12]
result = almakit.attack(
    network,
    refused,
    targets=1,
    labels=torch.zeros(12, dtype=torch.long),
    distance="l1",
    steps=50,
    box=almakit.Box(mask=MAY_CHANGE),
)
print(f"{result.success_rate:.0%} of the refused can be granted, median l1 {result.median:.3f}")
change = result.adversarials - refused
assert bool((change[:, ~MAY_CHANGE] == 0).all())
for row in range(3):
    parts = [
        f"{name} {float(value):+.3f}"
        for name, value in zip(FEATURES, change[row], strict=True)
        if abs(float(value)) > 1e-4
    ]
    print(f"applicant {row}: {', '.join(parts) or 'no change needed'}")
