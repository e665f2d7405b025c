"""What the quality benchmark attacks: networks of the zoo, networks that mask their gradients, photos, and distances no
attack knows anything about.

Masked networks share the shipped ``mnist/smallcnn-tiny``'s architecture: logits a hundred times larger, so that losses
on probabilities saturate; activations rounded to eight levels with straight-through gradients; only the largest tenth
of each layer's activations kept (k-WTA), trained so by ``python -m benchmarks quality kwta`` (a few minutes); and the
interval-trained one of the zoo.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from almakit import data, models
from benchmarks import RESULTS

KWTA = RESULTS / "mnist-kwta.safetensors"
ZOO = (
    "mnist/smallcnn",
    "mnist/smallcnn-ddn",
    "mnist/smallcnn-trades",
    "cifar10/resnet20",
    "cifar10/resnet4b-adv",
    "cifar10/cnn-a-adv",
)
MASKED = ("masked/ibp", "masked/times-100", "masked/quantised", "masked/kwta")
PHOTOS = ("photos/efficientnet-lite0",)
REPORTED = {"mnist": 100, "masked": 100, "cifar10": 32, "photos": 32}
DISTANCES = {
    "mnist": ("l2", "l1", "linf", "l0"),
    "masked": ("l2", "l1"),
    "cifar10": ("l2", "l1", "linf", "lpips", "ssim", "ciede2000"),
    "photos": ("l2", "l1"),
}


class Quantised(nn.Module):
    """ReLU followed by rounding to ``levels`` values up to ``top``; the gradient passes as if nothing was rounded."""

    def __init__(self, levels: int = 8, top: float = 4.0):
        super().__init__()
        self.levels, self.unit, self.top = levels, top / (levels - 1), top

    def extra_repr(self) -> str:
        return f"levels={self.levels}, top={self.top}"

    def forward(self, x: Tensor) -> Tensor:
        kept = x.clamp(0, self.top)
        return kept + ((kept / self.unit).round() * self.unit - kept).detach()


class Winners(nn.Module):
    """k-winners-take-all (Xiao, Zhong, Zheng 2020): the largest ``share`` of an image's activations stay, all others
    become zero."""

    def __init__(self, share: float = 0.1):
        super().__init__()
        self.share = share

    def extra_repr(self) -> str:
        return f"share={self.share}"

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        least = flat.topk(max(1, round(self.share * flat.shape[1])), dim=1).values[:, -1:]
        return (flat * (flat >= least)).view_as(x)


class Louder(nn.Module):
    """A network whose logits are ``factor`` times as large."""

    def __init__(self, network: nn.Module, factor: float = 100.0):
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.network(x)


def with_activation(network: nn.Module, activation: Callable[[], nn.Module]) -> nn.Module:
    """``network`` with each ReLU replaced."""
    for name, child in network.named_children():
        if isinstance(child, nn.ReLU):
            setattr(network, name, activation())
        else:
            with_activation(child, activation)
    return network


@cache
def network(name: str) -> nn.Module:
    """A subject by name, in evaluation mode: images in [0, 1] to logits."""
    if name == "masked/ibp":
        return models.load("mnist/smallcnn-tiny-ibp")
    if name == "masked/times-100":
        return Louder(models.load("mnist/smallcnn-tiny")).eval()
    if name == "masked/quantised":
        return with_activation(models.load("mnist/smallcnn-tiny"), Quantised).eval()
    if name == "masked/kwta":
        from safetensors.torch import load_file

        if not KWTA.is_file():
            raise SystemExit(f"{KWTA} is not there: python -m benchmarks quality kwta trains it.")
        found = with_activation(models.load("mnist/smallcnn-tiny"), Winners).eval()
        found.load_state_dict(load_file(KWTA))
        return found
    if name in PHOTOS:
        from benchmarks.quality.photos import model

        return model()
    return models.load(name)


def photos() -> str:
    """The folder of photos as data."""
    for folder in data.hub.folders():
        if (folder / "imagenet").is_dir():
            return f"folder:{folder / 'imagenet'}"
    raise SystemExit("There are no photos: put a folder imagenet/ with images.csv into a folder of ALMAKIT_DATA.")


@cache
def images(name: str, count: int) -> tuple[Tensor, Tensor]:
    """The first ``count`` images of the subject's data set, and their labels."""
    kind = name.split("/")[0]
    if kind == "photos":
        return data.load(photos(), size=224, limit=count).tensors()
    return data.load("mnist" if kind == "masked" else kind, limit=count).tensors()


def l4(x: Tensor, y: Tensor) -> Tensor:
    return (y - x).flatten(1).pow(4).sum(1).clamp_min(1e-30).pow(0.25)


def _weighted(x: Tensor, y: Tensor) -> Tensor:
    """Changes (B, N), up to five times as large towards the middle of the image."""
    side = torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype, device=x.device)
    weight = 1 + 4 * torch.exp(-2 * (side[:, None] ** 2 + side[None] ** 2))
    return ((y - x) * weight).flatten(1)


def weighted_l2(x: Tensor, y: Tensor) -> Tensor:
    return _weighted(x, y).square().sum(1).clamp_min(1e-30).sqrt()


def weighted_l1(x: Tensor, y: Tensor) -> Tensor:
    """With a kink wherever a value is unchanged."""
    return _weighted(x, y).abs().sum(1)


def structure_and_texture(x: Tensor, y: Tensor) -> Tensor:
    """After DISTS (Ding, Ma, Wang, Simoncelli 2020): one minus the mean similarity of means and covariances of fixed
    random features."""
    generator = torch.Generator().manual_seed(0)
    a, b, total, count = x, y, x.new_zeros(len(x)), 0
    for inputs, outputs in ((x.shape[1], 16), (16, 32), (32, 32)):
        weight = torch.randn(outputs, inputs, 3, 3, generator=generator).to(x) / (9 * inputs) ** 0.5
        a, b = (
            torch.nn.functional.softplus(torch.nn.functional.conv2d(part, weight, padding=1), beta=5) for part in (a, b)
        )
        mean_a, mean_b = a.flatten(2).mean(2), b.flatten(2).mean(2)
        off_a, off_b = a.flatten(2) - mean_a.unsqueeze(2), b.flatten(2) - mean_b.unsqueeze(2)
        var_a, var_b = off_a.square().mean(2), off_b.square().mean(2)
        # One minus each similarity, without the cancellation: (p - q)**2 over p**2 + q**2, and the variance of the
        # difference.
        total = total + ((mean_a - mean_b).square() / (mean_a.square() + mean_b.square() + 1e-6)).sum(1)
        total = total + ((off_a - off_b).square().mean(2) / (var_a + var_b + 1e-6)).sum(1)
        count += 2 * outputs
    return total / count


UNKNOWN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "l4": l4,
    "weighted-l2": weighted_l2,
    "weighted-l1": weighted_l1,
    "dists-like": structure_and_texture,
}


def distance(name: str) -> Any:
    """A registered name as it is, or the function of an unknown one."""
    return UNKNOWN.get(name, name)
