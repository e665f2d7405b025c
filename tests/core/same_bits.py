"""What the attacks find on three shipped networks, down to the last bit; ``python tests/core/same_bits.py`` writes it
down anew.

Another processor, or another build of torch, rounds differently, and within thirty iterations of float32 that grows
beyond any useful bound. So each network has a mark: the hash of its clean logits and gradients. Where the mark is the
stored one, rounding is the same and every bit must be. Elsewhere, and on the first network everywhere, the attacks run
in float64, where differences of rounding stay small, and their distances must agree to 1e-4.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from torch import Tensor

from almakit import attacks, data, models
from almakit.core import Result

STORED = Path(__file__).with_name("same_bits.json")
NETWORKS = ("mnist/mlp-2x100", "mnist/smallcnn-tiny", "mnist/smallcnn-tiny-ddn")
STEPS = 30
TEXTS = (
    "alma(distance=l1, steps={})",
    "alma(distance=l2, steps={})",
    "alma(distance=linf, steps={})",
    "ddn(steps={})",
    "fmn(distance=l0, steps={})",
    "fmn(distance=l1, steps={})",
    "fmn(distance=l2, steps={})",
    "fmn(distance=linf, steps={})",
    "fab(distance=l1, steps={})",
    "fab(distance=l2, steps={})",
    "fab(distance=linf, steps={})",
    "pdpgd(distance=l0, steps={})",
    "pdpgd(distance=l1, steps={})",
    "pdpgd(distance=l2, steps={})",
    "pdpgd(distance=linf, steps={})",
    "bb(distance=l1, steps={})",
    "bb(distance=l2, steps={})",
    "bb(distance=linf, steps={})",
    "sigma-zero(steps={})",
)
ATTACKS = tuple(text.format(STEPS) for text in TEXTS)


def setting(network: str, dtype: torch.dtype) -> tuple[torch.nn.Module, Tensor, Tensor, Tensor]:
    """The network, four digits (4, 1, 28, 28) in ``dtype``, their labels (4,) and targets (4,)."""
    model = models.load(network).to(dtype)
    chunk = data.load("mnist-demo", limit=4).chunk(range(4))
    labels = chunk.labels
    return model, chunk.x.to(dtype), labels, (labels + 3) % 10


def mark(network: str) -> str:
    """The hash of the network's clean logits and gradients in float32."""
    model, x, _, _ = setting(network, torch.float32)
    leaf = x.clone().requires_grad_(True)
    logits = model(leaf)
    return digest(logits.detach(), torch.autograd.grad(logits.square().sum(), leaf)[0])


def run(network: str, text: str, targeted: bool, dtype: torch.dtype) -> Result:
    model, x, labels, targets = setting(network, dtype)
    return attacks.get(text)(model, x, labels, targets if targeted else None)


def bits(result: Result) -> str:
    return digest(result.adversarials, result.distances, result.forwards, result.backwards, result.status)


def digest(*tensors: Tensor) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    torch.set_num_threads(1)
    stored: dict[str, object] = {}
    for network in NETWORKS:
        rows = {}
        for text in ATTACKS:
            for targeted in (False, True):
                exact = run(network, text, targeted, torch.float64).distances.tolist()
                name = f"{text}{', targeted' if targeted else ''}"
                rows[name] = {
                    "bits": bits(run(network, text, targeted, torch.float32)),
                    "distances": [round(value, 7) for value in exact],
                }
        stored[network] = {"mark": mark(network), "attacks": rows}
    STORED.write_text(json.dumps(stored, indent=1).replace("Infinity", '"inf"') + "\n")
