"""Changes of the core leave what the attacks find as it was: see same_bits.py for what is compared, and where."""

from __future__ import annotations

import json

import pytest
import torch
from core.same_bits import ATTACKS, NETWORKS, STORED, bits, mark, run

KNOWN = json.loads(STORED.read_text())
SAME_ROUNDING = {network: mark(network) == KNOWN[network]["mark"] for network in NETWORKS}


@pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])
@pytest.mark.parametrize("text", ATTACKS)
@pytest.mark.parametrize(
    "network", [NETWORKS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS[1:])]
)
def test_the_same_as_before(network: str, text: str, targeted: bool) -> None:
    known = KNOWN[network]["attacks"][f"{text}{', targeted' if targeted else ''}"]
    if SAME_ROUNDING[network]:
        assert bits(run(network, text, targeted, torch.float32)) == known["bits"]
    if SAME_ROUNDING[network] and network != NETWORKS[0]:
        return
    exact = run(network, text, targeted, torch.float64).distances.tolist()
    assert exact == pytest.approx([float(value) for value in known["distances"]], rel=1e-4)
