"""The pool's architectures: plain networks of any size, an MLP mixer, residual networks and depthwise convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn

from almakit.errors import BadInput


def plain(
    shape: tuple[int, int, int],
    features: str = "",
    hidden: Sequence[int] = (),
    activation: Callable[[], nn.Module] = nn.ReLU,
    classes: int = 10,
) -> nn.Sequential:
    """Convolutions, then linear layers, an activation after each but the last. Images (B, *shape) -> logits (B,
    classes).

    ``features`` lists the layers before flattening: ``16`` is a 3 x 3 convolution with padding to 16 channels, ``16/2``
    one with stride 2, ``pool`` the largest of 2 x 2 pixels. ``hidden`` are the widths of the hidden linear layers.
    """
    layers: list[nn.Module] = []
    channels, height, width = shape
    for word in features.split():
        outputs, _, stride = word.partition("/")
        if word == "pool":
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
        elif outputs.isdecimal() and int(outputs) and stride in ("", "1", "2"):
            step = int(stride or 1)
            layers += [nn.Conv2d(channels, int(outputs), 3, stride=step, padding=1), activation()]
            channels, height, width = int(outputs), (height - 1) // step + 1, (width - 1) // step + 1
        else:
            raise BadInput(
                f"features: {word!r} is no layer; write the number of channels (16), with a stride (16/2), or pool."
            )
    layers.append(nn.Flatten())
    inputs = channels * height * width
    for outputs_ in hidden:
        layers += [nn.Linear(inputs, outputs_), activation()]
        inputs = outputs_
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


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


def deep_residual(
    shape: tuple[int, int, int],
    widths: Sequence[int],
    blocks: Sequence[int],
    norm: Callable[[int], nn.Module] = nn.BatchNorm2d,
    activation: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """A strided convolution, stages of ``blocks`` residual blocks of two convolutions, of half the size each, and
    average pooling. Images (B, *shape) -> logits (B, 10)."""
    layers: list[nn.Module] = [nn.Conv2d(shape[0], widths[0], 3, stride=2, padding=1, bias=False)]
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
        if stage:
            layers.append(nn.Conv2d(widths[stage - 1], width, 2, stride=2))
        for _ in range(count):
            first, second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
            layers.append(Added(norm(width), activation(), first, norm(width), activation(), second))
    return nn.Sequential(
        *layers, norm(widths[-1]), activation(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10)
    )


def depthwise(shape: tuple[int, int, int], widths: Sequence[int], hidden: int) -> nn.Sequential:
    """A strided convolution, then strided 3 x 3 convolutions of each channel alone with 1 x 1 convolutions between
    channels, ReLU, one hidden layer. Images (B, *shape) -> logits (B, 10)."""
    layers: list[nn.Module] = [nn.Conv2d(shape[0], widths[0], 3, stride=2, padding=1), nn.ReLU()]
    side = (shape[1] + 1) // 2
    for inputs, outputs in pairwise(widths):
        side = (side + 1) // 2
        layers += [nn.Conv2d(inputs, inputs, 3, stride=2, padding=1, groups=inputs), nn.ReLU()]
        layers += [nn.Conv2d(inputs, outputs, 1), nn.ReLU()]
    width = widths[-1] * side * side
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 10))
