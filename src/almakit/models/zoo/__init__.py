"""The networks known by name: one table from name to architecture, normalisation, facts and weights.

Weights lie in the package (``shipped``), come from ``almakit.data.hub`` by the name given in ``file`` (where its
sources and sha256 stand), or are the user's own file: ``cifar10/wrn-28-10-carmon@checkpoint.pt``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ZOO", "Entry", "build"]

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
_AUGUSTIN = (
    (0.4913997551666284, 0.48215855929893703, 0.4465309133731618),
    (0.24703225141799082, 0.24348516474564, 0.26158783926049628),
)
_MNIST_SHAPE, _CIFAR_SHAPE, _IMAGENET_SHAPE = (1, 28, 28), (3, 32, 32), (3, 224, 224)


@dataclass(frozen=True)
class Entry:
    """One network. ``accuracy`` is the clean accuracy in percent on the images ``measured_on``, as ``stated_by`` says
    (None: our own log).

    ``architecture`` is ``module:function`` of this package, or a function without arguments that returns the network
    with fresh weights. ``whence`` tells a user where weights lie that almakit cannot pin, ``via`` names the URI of
    another library that downloads them.
    """

    name: str
    architecture: str | Callable[[], nn.Module]
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
    via: str | None = None
    stated_by: str | None = None

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
        "mnist/smallcnn-tiny-ddn",
        "small:small_cnn_tiny",
        "a network inside the package: narrow SmallCNN, l2-adversarial training with DDN, made by almakit.train.ddn",
        "mnist",
        _MNIST_SHAPE,
        98.74,
        shipped="mnist-smallcnn-tiny-ddn.safetensors",
        sha256="26ed5c90a9fb1fa4aa49d17df1d018a87aa321af4ef603cc422021436aad2998",
    ),
    Entry(
        "mnist/smallcnn-tiny-trades",
        "small:small_cnn_tiny",
        "a network inside the package: narrow SmallCNN, linf-adversarial training with TRADES, made by "
        "almakit.train.trades",
        "mnist",
        _MNIST_SHAPE,
        98.59,
        shipped="mnist-smallcnn-tiny-trades.safetensors",
        sha256="659dd8dfafe30e933dc1f736b92b2e59736c96908ff118a0f731224cae79ab6a",
    ),
    Entry(
        "mnist/smallcnn-tiny-ibp",
        "small:small_cnn_tiny",
        "a network inside the package: narrow SmallCNN, certified training with interval bounds, made by "
        "almakit.train.ibp",
        "mnist",
        _MNIST_SHAPE,
        96.16,
        shipped="mnist-smallcnn-tiny-ibp.safetensors",
        sha256="c0d45a09683edefb3452bedb74945294666c72dcdd150a0b657f9778b2795bc7",
    ),
    Entry(
        "mnist/mlp-2x100",
        "small:mlp_2x100",
        "a network inside the package: two hidden layers of 100 units, certified training with interval bounds, for "
        "exact distances",
        "mnist",
        _MNIST_SHAPE,
        96.57,
        shipped="mnist-mlp-2x100.safetensors",
        sha256="3b81f0cda9e1beb0070c11a992e500f8c1d71ece5512ba9b32dd0a9ad26d01eb",
    ),
    Entry(
        "scenes/unet-small",
        "segment:SmallUNet",
        "the segmentation network inside the package: four levels of a narrow U-Net, made by almakit.train.regular",
        "scenes",
        (3, 32, 32),
        98.27,
        "the pixels of the first 512 test scenes",
        shipped="scenes-unet-small.safetensors",
        sha256="6eb0df24134ddf9354d1f59ecff0aa43e9c3dda47d97450ec7c3e236d06cfbe9",
        classes=13,
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
        "the paper's network, trained with CROWN-IBP at radius 0.4 (Zhang et al. 2020)",
        "mnist",
        _MNIST_SHAPE,
        whence="model subset 4 of the folder mnist_0.4_mnist_crown_large in models_crown-ibp.tar.gz of the CROWN-IBP "
        "project "
        "(download.huan-zhang.com/models/crown-ibp/)",
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
        via="robustbench:cifar10/Linf/Standard",
        stated_by="RobustBench's model zoo",
    ),
    Entry(
        "cifar10/wrn-28-10-carmon",
        "residual:WideResNet",
        "the paper's WideResNet-28-10 of Carmon et al. (2019), linf-adversarial training with unlabelled data",
        "cifar10",
        _CIFAR_SHAPE,
        89.69,
        whence="RobustBench's Carmon2019Unlabeled",
        via="robustbench:cifar10/Linf/Carmon2019Unlabeled",
        stated_by="RobustBench's model zoo",
    ),
    Entry(
        "cifar10/resnet50-augustin",
        "residual:CifarResNet50",
        "the paper's ResNet-50 of Augustin et al. (2020), l2-adversarial training",
        "cifar10",
        _CIFAR_SHAPE,
        91.08,
        normalisation=_AUGUSTIN,
        whence="RobustBench's Augustin2020Adversarial (L2)",
        via="robustbench:cifar10/L2/Augustin2020Adversarial",
        stated_by="RobustBench's model zoo",
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
        whence="torchvision's ResNet50_Weights.IMAGENET1K_V1 (resnet50-0676ba61.pth, whose sha256 begins with "
        "0676ba61)",
        via="torchvision:resnet50/IMAGENET1K_V1",
        stated_by="torchvision",
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
        whence="imagenet_l2_3_0.pt from the robustness library's list of pretrained models",
        stated_by="the robustness library's README",
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
        whence="imagenet_linf_4.pt from the robustness library's list of pretrained models",
        stated_by="the robustness library's README",
    ),
)

ZOO: dict[str, Entry] = {entry.name: entry for entry in _TABLE}


def build(entry: Entry) -> nn.Module:
    """The entry's architecture with fresh weights."""
    if not isinstance(entry.architecture, str):
        return entry.architecture()
    module, attribute = entry.architecture.split(":")
    network: nn.Module = getattr(import_module(f".{module}", __name__), attribute)()
    return network
