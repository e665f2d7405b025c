"""The networks known by name: one table from name to architecture, normalisation, facts and weights.

Weights lie in the package (``shipped``), come from ``almakit.data.hub`` by the name given in ``file`` (where its sources and sha256 stand),
or are the user's own file: ``cifar10/wrn-28-10-carmon@checkpoint.pt``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ZOO", "Entry", "build"]

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
_MNIST_SHAPE, _CIFAR_SHAPE, _IMAGENET_SHAPE = (1, 28, 28), (3, 32, 32), (3, 224, 224)


@dataclass(frozen=True)
class Entry:
    """One network. ``accuracy`` is the clean accuracy in percent that its authors (or README) give, on the images ``measured_on``."""

    name: str
    architecture: str
    about: str
    dataset: str
    shape: tuple[int, int, int]
    accuracy: float | None = None
    measured_on: str = "the test set"
    file: str | None = None
    shipped: str | None = None
    sha256: str | None = None
    normalisation: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    classes: int = 10
    whence: str | None = None

    @property
    def at_hand(self) -> bool:
        """Whether almakit knows where to get the weights; otherwise the user names a file."""
        return self.file is not None or self.shipped is not None


_TABLE = (
    Entry(
        "mnist/smallcnn-tiny",
        "small:small_cnn_tiny",
        "the network inside the package: a narrow SmallCNN, regular training, made by almakit.train.regular",
        "mnist",
        _MNIST_SHAPE,
        99.40,
        shipped="mnist-smallcnn-tiny.safetensors",
        sha256="25c028ab9eb8f7d10ba918f6caf8c1a2d3c54c9e3e2b1265c40bf777b6ffea1b",
    ),
    Entry(
        "mnist/smallcnn",
        "small:SmallCNN",
        "the paper's network, regular training",
        "mnist",
        _MNIST_SHAPE,
        99.44,
        file="weights/mnist-smallcnn.safetensors",
    ),
    Entry(
        "mnist/smallcnn-ddn",
        "small:SmallCNN",
        "the paper's network, l2-adversarial training with DDN (Rony et al. 2019)",
        "mnist",
        _MNIST_SHAPE,
        99.02,
        file="weights/mnist-smallcnn-ddn.safetensors",
    ),
    Entry(
        "mnist/smallcnn-trades",
        "small:SmallCNN",
        "the paper's network, linf-adversarial training with TRADES (Zhang et al. 2019)",
        "mnist",
        _MNIST_SHAPE,
        99.48,
        file="weights/mnist-smallcnn-trades.safetensors",
    ),
    Entry(
        "mnist/crown-ibp-large",
        "small:crown_ibp_large",
        "the paper's network, trained with CROWN-IBP (Zhang et al. 2020)",
        "mnist",
        _MNIST_SHAPE,
        whence="the CROWN-IBP project's MNIST checkpoint",
    ),
    Entry(
        "cifar10/resnet20",
        "residual:ResNet20",
        "ResNet-20, regular training",
        "cifar10",
        _CIFAR_SHAPE,
        91.73,
        file="weights/cifar10-resnet20.safetensors",
        normalisation=_IMAGENET,
    ),
    Entry(
        "cifar10/resnet4b-adv",
        "residual:ResNet4b",
        "a small residual network without batch norm, adversarial training",
        "cifar10",
        _CIFAR_SHAPE,
        77.1,
        "the first 1000 test images",
        file="weights/cifar10-resnet4b-adv.safetensors",
        normalisation=_CIFAR,
    ),
    Entry(
        "cifar10/cnn-a-adv",
        "small:cnn_a",
        "two convolutions, adversarial training",
        "cifar10",
        _CIFAR_SHAPE,
        70.3,
        "the first 1000 test images",
        file="weights/cifar10-cnn-a-adv.safetensors",
        normalisation=((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ),
    Entry(
        "cifar10/wrn-28-10",
        "residual:WideResNet",
        "the paper's WideResNet-28-10, regular training",
        "cifar10",
        _CIFAR_SHAPE,
        94.78,
        whence="RobustBench's Standard",
    ),
    Entry(
        "cifar10/wrn-28-10-carmon",
        "residual:WideResNet",
        "the paper's WideResNet-28-10 of Carmon et al. (2019), linf-adversarial training with unlabelled data",
        "cifar10",
        _CIFAR_SHAPE,
        89.69,
        whence="RobustBench's Carmon2019Unlabeled",
    ),
    Entry(
        "cifar10/resnet50-augustin",
        "residual:CifarResNet50",
        "the paper's ResNet-50 of Augustin et al. (2020), l2-adversarial training",
        "cifar10",
        _CIFAR_SHAPE,
        91.08,
        normalisation=_CIFAR,
        whence="RobustBench's Augustin2020Adversarial (L2)",
    ),
    Entry(
        "imagenet/resnet50",
        "residual:ResNet50",
        "the paper's ResNet-50, regular training",
        "imagenet",
        _IMAGENET_SHAPE,
        76.13,
        "the validation set",
        normalisation=_IMAGENET,
        classes=1000,
        whence="torchvision's ResNet50_Weights.IMAGENET1K_V1 (or use torchvision:resnet50)",
    ),
    Entry(
        "imagenet/resnet50-l2",
        "residual:ResNet50",
        "the paper's l2-adversarially trained ResNet-50 (Engstrom et al., robustness, radius 3)",
        "imagenet",
        _IMAGENET_SHAPE,
        57.90,
        "the validation set",
        normalisation=_IMAGENET,
        classes=1000,
        whence="the robustness library's imagenet_l2_3_0.pt",
    ),
    Entry(
        "imagenet/resnet50-linf",
        "residual:ResNet50",
        "the paper's linf-adversarially trained ResNet-50 (Engstrom et al., robustness, radius 4/255)",
        "imagenet",
        _IMAGENET_SHAPE,
        62.42,
        "the validation set",
        normalisation=_IMAGENET,
        classes=1000,
        whence="the robustness library's imagenet_linf_4.pt",
    ),
)

ZOO: dict[str, Entry] = {entry.name: entry for entry in _TABLE}


def build(entry: Entry) -> nn.Module:
    """The entry's architecture with fresh weights."""
    module, attribute = entry.architecture.split(":")
    network: nn.Module = getattr(import_module(f".{module}", __name__), attribute)()
    return network
