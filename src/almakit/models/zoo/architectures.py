"""The zoo's architectures, with the parameter names of the checkpoints they load.

Small networks for MNIST and CIFAR-10, residual networks for CIFAR-10 and ImageNet, and a U-Net for segmentation.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Four 3 x 3 convolutions without padding, two poolings and three linear layers (Carlini & Wagner 2017; Zhang et
    al., TRADES, 2019).

    ``channels`` are those of the two pairs of convolutions, ``hidden`` the two hidden layers. Images (B, 1, 28, 28) ->
    logits (B, 10).
    """

    def __init__(
        self, channels: tuple[int, int] = (32, 64), hidden: int = 200, dropout: float = 0.5, classes: int = 10
    ):
        super().__init__()
        first, second = channels
        self.feature_extractor = nn.Sequential(
            OrderedDict[str, nn.Module](
                conv1=nn.Conv2d(1, first, 3),
                relu1=nn.ReLU(),
                conv2=nn.Conv2d(first, first, 3),
                relu2=nn.ReLU(),
                maxpool1=nn.MaxPool2d(2),
                conv3=nn.Conv2d(first, second, 3),
                relu3=nn.ReLU(),
                conv4=nn.Conv2d(second, second, 3),
                relu4=nn.ReLU(),
                maxpool2=nn.MaxPool2d(2),
            )
        )
        self.classifier = nn.Sequential(
            OrderedDict[str, nn.Module](
                fc1=nn.Linear(second * 4 * 4, hidden),
                relu1=nn.ReLU(),
                drop=nn.Dropout(dropout),
                fc2=nn.Linear(hidden, hidden),
                relu2=nn.ReLU(),
                fc3=nn.Linear(hidden, classes),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.classifier(self.feature_extractor(x).flatten(1))
        return x


def small_cnn_tiny() -> SmallCNN:
    """The shape of SmallCNN with half the channels and a third of the hidden units: 54 000 weights."""
    return SmallCNN(channels=(16, 32), hidden=64)


def mlp_2x100() -> nn.Sequential:
    """Two hidden layers of 100 units: small enough that its smallest adversarial distances can be solved exactly.
    Images (B, 1, 28, 28) -> logits (B, 10)."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)
    )


def crown_ibp_large() -> nn.Sequential:
    """The large MNIST network of IBP and CROWN-IBP (Gowal et al. 2018; Zhang et al. 2020). Images (B, 1, 28, 28) ->
    logits (B, 10)."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((1, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 128, 1)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 14 * 14, 512), nn.ReLU(), nn.Linear(512, 10))


def cnn_a() -> nn.Sequential:
    """Two strided 4 x 4 convolutions and two linear layers (Dathathri et al. 2020). Images (B, 3, 32, 32) -> logits (B,
    10)."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2048, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )


def _conv3(inputs: int, outputs: int, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=bias)


class _PaddedShortcut(nn.Module):
    """Option A of He et al. (2016): every second pixel, the new channels filled with zeros on both sides; no
    weights."""

    def __init__(self, extra: int):
        super().__init__()
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2))


class _BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with batch norm and a shortcut without weights."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = _conv3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = _conv3(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if inputs == outputs and stride == 1 else _PaddedShortcut(outputs - inputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


class ResNet20(nn.Module):
    """The CIFAR ResNet with 6 n + 2 layers, n = ``blocks`` = 3 (He et al. 2016, section 4.2). Images (B, 3, 32, 32) ->
    logits (B, 10)."""

    def __init__(self, blocks: int = 3, classes: int = 10):
        super().__init__()
        self.conv1, self.bn1 = _conv3(3, 16), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(_BasicBlock(16, 16, 1) for _ in range(blocks)))
        self.layer2 = nn.Sequential(_BasicBlock(16, 32, 2), *(_BasicBlock(32, 32, 1) for _ in range(blocks - 1)))
        self.layer3 = nn.Sequential(_BasicBlock(32, 64, 2), *(_BasicBlock(64, 64, 1) for _ in range(blocks - 1)))
        self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        x = self.linear(x.mean((2, 3)))
        return x


class _PlainBlock(nn.Module):
    """Two 3 x 3 convolutions with bias and no batch norm; a 1 x 1 convolution as the shortcut where the stride is 2."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1, self.conv2 = _conv3(inputs, outputs, stride, bias=True), _conv3(outputs, outputs, bias=True)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride))
            if stride != 1 or inputs != outputs
            else nn.Sequential()
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.shortcut(x))


class ResNet4b(nn.Module):
    """The resnet4b of the verification literature (Wang et al., beta-CROWN, 2021). Images (B, 3, 32, 32) -> logits (B,
    10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = _conv3(3, 16, 2, bias=True)
        self.layer1 = nn.Sequential(_PlainBlock(16, 32, 2), _PlainBlock(32, 32, 1))
        self.layer2 = nn.Sequential(_PlainBlock(32, 32, 2), _PlainBlock(32, 32, 1))
        self.linear1, self.linear2 = nn.Linear(512, 100), nn.Linear(100, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(F.relu(self.conv1(x))))
        x = self.linear2(F.relu(self.linear1(x.flatten(1))))
        return x


class _WideBlock(nn.Module):
    """Pre-activation block; where the width changes, the shortcut starts from the activated input."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), _conv3(inputs, outputs, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), _conv3(outputs, outputs)
        self.convShortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x))
        shortcut = x if self.convShortcut is None else self.convShortcut(active)
        x = shortcut + self.conv2(F.relu(self.bn2(self.conv1(active))))
        return x


class _WideStage(nn.Module):
    def __init__(self, count: int, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.layer = nn.Sequential(
            _WideBlock(inputs, outputs, stride), *(_WideBlock(outputs, outputs, 1) for _ in range(count - 1))
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        return x


class WideResNet(nn.Module):
    """WideResNet-depth-widen (Zagoruyko & Komodakis 2016), keys as in TRADES and RobustBench. Images (B, 3, 32, 32) ->
    logits (B, 10)."""

    def __init__(self, depth: int = 28, widen: int = 10, classes: int = 10):
        super().__init__()
        count, last = (depth - 4) // 6, 64 * widen
        self.conv1 = _conv3(3, 16)
        self.block1 = _WideStage(count, 16, 16 * widen, 1)
        self.block2 = _WideStage(count, 16 * widen, 32 * widen, 2)
        self.block3 = _WideStage(count, 32 * widen, last, 2)
        self.bn1, self.fc = nn.BatchNorm2d(last), nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.block3(self.block2(self.block1(self.conv1(x))))))
        x = self.fc(x.mean((2, 3)))
        return x


class _Bottleneck(nn.Module):
    """1 x 1, 3 x 3 (with the stride), 1 x 1; ``shortcut`` is the name the projection's weights go by."""

    def __init__(self, inputs: int, width: int, stride: int, shortcut: str):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv3(width, width, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        project = (
            nn.Sequential()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))
        )
        self.add_module(shortcut, project)
        self.project_name = shortcut

    def forward(self, x: Tensor) -> Tensor:
        branch = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(branch)) + self.get_submodule(self.project_name)(x))


def _bottleneck_stages(counts: tuple[int, ...], shortcut: str) -> list[nn.Sequential]:
    stages, inputs = [], 64
    for number, count in enumerate(counts):
        width, blocks = 64 * 2**number, []
        for index in range(count):
            blocks.append(_Bottleneck(inputs, width, 2 if index == 0 and number > 0 else 1, shortcut))
            inputs = 4 * width
        stages.append(nn.Sequential(*blocks))
    return stages


class ResNet50(nn.Module):
    """ResNet-50 (He et al. 2016) with torchvision's keys. Images (B, 3, H, W), usually 224 x 224 -> logits (B,
    1000)."""

    def __init__(self, counts: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64)
        self.layer1, self.layer2, self.layer3, self.layer4 = _bottleneck_stages(counts, "downsample")
        self.fc = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = self.fc(x.mean((2, 3)))
        return x


class CifarResNet50(nn.Module):
    """ResNet-50 for small images: a 3 x 3 first convolution, no first pooling; keys as in RobustBench. (B, 3, 32, 32)
    -> (B, 10)."""

    def __init__(self, counts: tuple[int, ...] = (3, 4, 6, 3), classes: int = 10):
        super().__init__()
        self.conv1, self.bn1 = _conv3(3, 64), nn.BatchNorm2d(64)
        self.layer1, self.layer2, self.layer3, self.layer4 = _bottleneck_stages(counts, "shortcut")
        self.linear = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x)))))))
        x = self.linear(x.mean((2, 3)))
        return x


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
        skips = [self.first(x)]
        for down in self.down:
            skips.append(down(self.pool(skips[-1])))
        y = skips.pop()
        for narrow, up in zip(self.narrow, self.up, strict=True):
            y = up(self.grow(narrow(y)) + skips.pop())
        logits: Tensor = self.head(y)
        return logits


def _layer(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
