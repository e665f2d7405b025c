"""Regression: the smallest change that moves a network's output by more than a given amount."""

from __future__ import annotations

import torch
from torch import nn

import almakit

x, _ = almakit.data.load("mnist-demo").tensors()
# The network estimates the horizontal centre of a digit, in pixels from the middle of the image.
columns = torch.arange(28.0) - 13.5
truth = (x * columns).sum((1, 2, 3)) / x.sum((1, 2, 3))

torch.manual_seed(0)
network = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 1))
optimiser = torch.optim.Adam(network.parameters(), 3e-3)
for _ in range(100):
    loss = (network(x).squeeze(1) - truth).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"root mean square error {float(loss.detach()) ** 0.5:.2f} pixels")

for side in ("either", "up"):
    goal = almakit.goals.regression(truth=truth[:16], by=3.0, side=side)
    result = almakit.attack(network, x[:16], goal=goal, distance="linf", steps=50)
    print(f"off by 3 pixels ({side}): {result.success_rate:.0%} of the images, median linf {result.median:.4f}")

# Any function of the outputs is a goal: here "estimate above 3", with a margin that is negative if it is reached.
result = almakit.attack(network, x[:16], goal=lambda outputs: 3 - outputs[:, 0], distance="linf", steps=50)
print(f"right of 3 by a function of one's own: median linf {result.median:.4f}")
