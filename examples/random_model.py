"""A random model: attacks use the mean of several passes, and additional passes vote on every point found."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import almakit

NOISE, EOT = 0.15, almakit.EOT(4, votes=50)
x, labels = almakit.data.load("mnist-demo", limit=8).tensors()


class Noisy(nn.Module):
    """Adds noise to its input, so that its answers are random."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = almakit.models.load("mnist/smallcnn-tiny")

    def forward(self, images: Tensor) -> Tensor:
        answer: Tensor = self.plain((images + NOISE * torch.randn_like(images)).clamp(0, 1))
        return answer


result = almakit.attack(Noisy(), x, labels, distance="l2", steps=20, eot=EOT)
assert result.shares is not None
print(f"{result.success_rate:.0%} found, median l2 {result.median:.3f}, {int(result.forwards[0])} forwards each")
print(f"wrong in {float(result.shares[result.success].mean()):.0%} of {EOT.votes} fresh passes in the mean")

# The same as a run: verified with other random numbers, and stored with the vote shares.
run = almakit.evaluate(Noisy(), (x, labels), "ddn(steps=15)", eot=EOT)
for record in run.records_of(0)[:3]:
    print(f"image {record.image}: l2 {record.verified:.3f}, wrong in {record.vote:.0%} of the verdict's passes")
