"""Trains the k-WTA network of the quality benchmark (a few minutes) and keeps it beside the results.

python -m benchmarks quality kwta
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from almakit import data, models
from benchmarks import subjects


def train(out: Path, epochs: int = 3) -> None:
    """Trains the k-WTA network and keeps it beside the results."""
    torch.manual_seed(0)
    net = subjects.with_activation(models.load("mnist/smallcnn-tiny"), subjects.Winners)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.reset_parameters()
    net.requires_grad_(True)
    x, labels = data.load("mnist", split="train").tensors()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    steps = epochs * (len(x) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for epoch in range(epochs):
        order = torch.randperm(len(x))
        for rows in order[: len(x) // 128 * 128].split(128):
            loss = nn.functional.cross_entropy(net(x[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss {float(loss):.4f}", flush=True)
    net.eval()
    tests, answers = data.load("mnist").tensors()
    with torch.no_grad():
        right = sum(
            int((net(a).argmax(1) == b).sum()) for a, b in zip(tests.split(500), answers.split(500), strict=True)
        )
    print(f"{right} of {len(tests)} test images right")
    save_file({name: value.contiguous() for name, value in net.state_dict().items()}, out)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=subjects.KWTA)


def main(args: argparse.Namespace) -> None:
    train(args.out)
