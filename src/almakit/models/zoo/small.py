"""Small convolutional networks: the paper's MNIST networks, a narrow one of the same shape, cnn-a for CIFAR-10, and
plain ones of any size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from ...errors import BadInput


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
