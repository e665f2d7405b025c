"""The goal of a run on segmentation data: so many of the labelled pixels wrong. What the engine needs to know of it."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ..compose.expression import parse
from ..core.goals import check_share
from ..errors import BadInput
from .chunkfiles import Array

SHARE = 0.99


def share_of(goal: str | None) -> float:
    """The share of the labelled pixels that must be wrong: that of ``pixels(share=0.9)``, 0.99 where nothing is
    said."""
    if goal is None:
        return SHARE
    call = parse(goal)
    share = call.arguments.get("share", SHARE)
    if call.name != "pixels" or set(call.arguments) - {"share"} or not isinstance(share, (int, float)):
        raise BadInput(
            f"goal={goal!r}: data with label maps are attacked with the goal pixels(share=0.99), the share between 0 "
            "and 1."
        )
    check_share(share)
    return float(share)


def stored_maps(maps: Tensor) -> Array:
    """Label maps or predictions (B, H, W) as files hold them: whole numbers of 16 bits."""
    return maps.numpy().astype(np.int16)
