"""Tabular data: features in their own units, some of them integers or fixed. The smallest change of the other features
that changes a decision."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import torch
from torch import nn

import almakit

# Synthetic applicants; a credit is granted if income and employment outweigh debt.
generator = torch.Generator().manual_seed(0)
low, high = torch.tensor([18.0, 10.0, 0.0, 0.0]), torch.tensor([80.0, 90.0, 40.0, 30.0])
people = (low + (high - low) * torch.rand(300, 4, generator=generator)).round(decimals=1)
people[:, [0, 3]] = people[:, [0, 3]].round()
granted = (people[:, 1] + 0.5 * people[:, 3] + 0.1 * people[:, 0] - 1.2 * people[:, 2] > 38).long()

file = Path(tempfile.mkdtemp()) / "applicants.csv"
with file.open("w", newline="") as out:
    writer = csv.writer(out)
    writer.writerow(["age", "income", "debt", "years employed", "granted"])
    writer.writerows([*row, int(y)] for row, y in zip(people.tolist(), granted, strict=True))

# The network receives the table's own units and normalises them itself.
torch.manual_seed(0)
network = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
optimiser = torch.optim.Adam(network.parameters(), 2e-2)
for _ in range(150):
    loss = nn.functional.cross_entropy(network(people), granted)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

data = f"table:{file}?label=granted&fixed=age&integer=age,years employed"
run = almakit.evaluate(network, data, "soft-walk(distance=l1, steps=50)", limit=12)
features, records = run.features, run.records_of(0)
assert features is not None
before, after = features.own(run.originals()), features.own(run.adversarials(records))
assert (before[:, 0] == after[:, 0]).all() and (after[:, 3] % 1 == 0).all()
found = sum(record.fooled for record in records)
print(f"{found} of {len(records)} decisions can be turned without another age")
for row in range(3):
    parts = [
        f"{name} {old:g} to {new:.4g}"
        for name, old, new in zip(features.names or (), before[row], after[row], strict=True)
        if old != new
    ]
    print(f"applicant {row}: {', '.join(parts) or 'no change found or needed'}")
