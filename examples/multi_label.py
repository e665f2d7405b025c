"""Multi-label classification: the smallest change that makes *any* of an image's labels wrong, or *all* of them."""

from __future__ import annotations

import torch
from torch import nn

import almakit

x, digits = almakit.data.load("mnist-demo").tensors()
# Three labels of a digit: it is even, it is at least five, it has a closed loop.
truth = torch.stack([digits % 2 == 0, digits >= 5, torch.isin(digits, torch.tensor([0, 6, 8, 9]))], 1)

torch.manual_seed(0)
network = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 3))
optimiser = torch.optim.Adam(network.parameters(), 3e-3)
for _ in range(60):
    loss = nn.functional.binary_cross_entropy_with_logits(network(x), truth.float())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

for need in ("any", "all"):
    goal = almakit.goals.multilabel(present=truth[:16], need=need)
    result = almakit.attack(network, x[:16], goal=goal, distance="l2", steps=50)
    print(f"{need} of the labels wrong: {result.success_rate:.0%} of the images, median l2 {result.median:.3f}")
