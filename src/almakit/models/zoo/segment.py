"""A small fully convolutional network that gives every pixel a class."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SmallUNet(nn.Module):
    """Three levels of two 3 x 3 convolutions each way, joined by skips (Ronneberger et al., *U-Net*, MICCAI 2015),
    batch norm after each.

    ``channels`` are those of the three levels. Images (B, 3, H, W), H and W multiples of four -> logits (B, classes, H,
    W).
    """

    def __init__(self, channels: tuple[int, int, int] = (16, 32, 64), classes: int = 13):
        super().__init__()
        first, second, third = channels
        self.down1, self.down2, self.bottom = _pair(3, first), _pair(first, second), _pair(second, third)
        self.up2, self.up1 = _pair(third + second, second), _pair(second + first, first)
        self.pool, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.head = nn.Conv2d(first, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.down1(x)
        middle = self.down2(self.pool(fine))
        coarse = self.bottom(self.pool(middle))
        middle = self.up2(torch.cat([self.grow(coarse), middle], 1))
        logits: Tensor = self.head(self.up1(torch.cat([self.grow(middle), fine], 1)))
        return logits


def _pair(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for wide in (inputs, outputs):
        layers += [nn.Conv2d(wide, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)
