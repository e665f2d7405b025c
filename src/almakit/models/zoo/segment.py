"""A small fully convolutional network that gives every pixel a class."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn


class SmallUNet(nn.Module):
    """Levels of two 3 x 3 convolutions down and one up, batch norm after each, joined by skips (Ronneberger et al.,
    *U-Net*, MICCAI 2015) that are added (as in Lin et al.'s feature pyramids, CVPR 2017), not stacked.

    ``channels`` are those of the levels, each of half the side of the one before. Images (B, 3, H, W), H and W
    multiples of 2^(levels - 1) -> logits (B, classes, H, W).
    """

    def __init__(self, channels: tuple[int, ...] = (16, 32, 64, 96), classes: int = 13):
        super().__init__()
        pairs = list(pairwise(channels))
        self.first = nn.Sequential(_layer(3, channels[0]), _layer(channels[0], channels[0]))
        self.down = nn.ModuleList(nn.Sequential(_layer(fine, coarse), _layer(coarse, coarse)) for fine, coarse in pairs)
        self.narrow = nn.ModuleList(nn.Conv2d(coarse, fine, 1) for fine, coarse in reversed(pairs))
        self.up = nn.ModuleList(_layer(fine, fine) for fine, _ in reversed(pairs))
        self.pool, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.head = nn.Conv2d(channels[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = [self.first(x)]
        for down in self.down:
            seen.append(down(self.pool(seen[-1])))
        found = seen.pop()
        for narrow, up in zip(self.narrow, self.up, strict=True):
            found = up(self.grow(narrow(found)) + seen.pop())
        logits: Tensor = self.head(found)
        return logits


def _layer(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
