"""Forward and gradient of each perceptual distance, ours against adv-lib's eager code, side by side in one run on one
thread.

    python -m benchmarks speed distances [--rounds 15]

Needs adv-lib beside almakit. The reference image is fixed, as in an attack: ours binds it once; adv-lib's LPIPS keeps
its features, its other distances have no such step. The two take turns; of each the fastest round counts, in processor
time, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from almakit import distances
from almakit.data import hub
from benchmarks import RESULTS, peers
from benchmarks.common import markdown

SHAPES = ((64, 3, 32, 32), (8, 3, 224, 224))
Loss = Callable[[Tensor], Tensor]


class _AlexNet(nn.Module):
    """AlexNet's five ReLU outputs for adv-lib's LPIPS, which would otherwise download them."""

    def __init__(self) -> None:
        super().__init__()
        from safetensors.torch import load_file

        convolutions = [
            (3, 64, 11, 4, 2),
            (64, 192, 5, 1, 2),
            (192, 384, 3, 1, 1),
            (384, 256, 3, 1, 1),
            (256, 256, 3, 1, 1),
        ]
        self.parts = nn.ModuleList([nn.Conv2d(i, o, k, s, p) for i, o, k, s, p in convolutions]).requires_grad_(False)
        weights = load_file(hub.path("lpips/alexnet-features.safetensors"))
        for part, key in zip(self.parts, (0, 3, 6, 8, 10)):
            part.load_state_dict({kind: weights[f"features.{key}.{kind}"] for kind in ("weight", "bias")})

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = (x - x.new_tensor((0.485, 0.456, 0.406)).view(1, 3, 1, 1)) / x.new_tensor((0.229, 0.224, 0.225)).view(
            1, 3, 1, 1
        )
        outputs = []
        for index, part in enumerate(self.parts):
            x = part(nn.functional.max_pool2d(x, 3, 2) if index in (1, 2) else x).relu()
            outputs.append(x)
        return tuple(outputs)


def theirs(name: str, x: Tensor) -> Loss:
    """adv-lib's distance to ``x`` (B, 3, H, W) as its attacks call it."""
    if name == "ciede2000-paper":
        loss = peers.library("adv_lib.distances.color_difference").ciede2000_loss
        return lambda y: loss(y, x, ε=1e-12)
    if name == "lpips":
        return peers.library("adv_lib.distances.lpips").LPIPS(model=_AlexNet(), target=x)
    similarity = peers.library("adv_lib.distances.structural_similarity")
    loss = {"ssim": similarity.ssim_loss, "ms-ssim": similarity.ms_ssim_loss}[name]
    return lambda y: loss(y, x)


def compare(name: str, shape: tuple[int, ...], rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(shape, generator=generator)
    y = (x + 0.02 * torch.randn(shape, generator=generator)).clamp(0, 1)
    bound, loss = distances.get(name).bind(x), theirs(name, x)

    def eager() -> Tensor:
        leaf = y.clone().requires_grad_(True)
        value = loss(leaf)
        torch.autograd.grad(value.sum(), leaf)
        return value.detach()

    gap = float((bound.value_and_grad(y)[0] / eager() - 1).abs().max())
    fastest = {"ours": float("inf"), "theirs": float("inf")}
    for _ in range(rounds):
        for who, run in (("ours", lambda: bound.value_and_grad(y)), ("theirs", eager)):
            started = time.process_time()
            run()
            fastest[who] = min(fastest[who], 1e3 * (time.process_time() - started))
    times = {who: round(value, 2) for who, value in fastest.items()}
    return {
        "distance": name,
        "shape": list(shape),
        **times,
        "ratio": round(fastest["ours"] / fastest["theirs"], 3),
        "gap": float(f"{gap:.2g}"),
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS / "distances.json")


def main(args: argparse.Namespace) -> None:
    cases = [(name, shape) for name in ("ciede2000-paper", "ssim", "ms-ssim", "lpips") for shape in SHAPES]
    rows = [compare(*case, args.rounds) for case in cases if case != ("ms-ssim", SHAPES[0])]  # too small for it
    head = ["distance ", "images ", "ours ms", "adv-lib ms", "ratio", "values differ by"]
    print(markdown(head, [[str(value) for value in row.values()] for row in rows]))
    args.out.write_text(json.dumps(rows, indent=1) + "\n")
