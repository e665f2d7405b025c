"""What the pool has beside plain networks: an MLP mixer and residual networks."""

from __future__ import annotations

from torch import Tensor, nn


class Added(nn.Sequential):
    """The input plus what the layers make of it."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + super().forward(x)
        return out


class Turned(nn.Module):
    """(B, places, features) with the last two axes exchanged."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


def mixer(side: int = 4, width: int = 32, blocks: int = 2) -> nn.Sequential:
    """An MLP mixer (Tolstikhin et al. 2021) over the patches of an MNIST image: layer norms, GELU. Images (B, 1, 28,
    28) -> logits (B, 10)."""
    places = (28 // side) ** 2
    layers: list[nn.Module] = [nn.Conv2d(1, width, side, stride=side), nn.Flatten(2), Turned()]
    for _ in range(blocks):
        between = (Turned(), nn.Linear(places, 48), nn.GELU(), nn.Linear(48, places), Turned())
        within = (nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        layers += [Added(nn.LayerNorm(width), *between), Added(nn.LayerNorm(width), *within)]
    return nn.Sequential(*layers, nn.LayerNorm(width), nn.Flatten(), nn.Linear(places * width, 10))


def residual(shape: tuple[int, int, int], width: int, blocks: int, norm: bool) -> nn.Sequential:
    """A strided convolution, residual blocks with or without batch norm, average pooling. Images (B, *shape) -> logits
    (B, 10)."""
    layers: list[nn.Module] = [nn.Conv2d(shape[0], width, 4, stride=2, padding=1)]
    for _ in range(blocks):
        first, second = (nn.Conv2d(width, width, 3, padding=1, bias=not norm) for _ in range(2))
        norms = [nn.BatchNorm2d(width) for _ in range(2)] if norm else [nn.Identity(), nn.Identity()]
        layers += [Added(norms[0], nn.ReLU(), first, norms[1], nn.ReLU(), second)]
    side = shape[1] // 4
    return nn.Sequential(*layers, nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(width * side * side, 10))
