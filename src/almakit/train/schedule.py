"""Schedules of the settings that change during training: learning rate, radius, weights of losses."""

from __future__ import annotations

import math


def ramp(progress: float, begin: float, end: float, first: float, last: float) -> float:
    """``first`` until ``begin`` of the training, ``last`` from ``end`` on, a straight line between; ``progress`` runs
    from 0 to 1."""
    if progress >= end:
        return last
    if progress <= begin:
        return first
    return first + (last - first) * (progress - begin) / (end - begin)


def learning_rate(progress: float, warm_up: float) -> float:
    """The share of the largest learning rate: up along a line over ``warm_up`` of the training, then half a cosine to
    zero."""
    if progress < warm_up:
        return (progress + 1e-3) / (warm_up + 1e-3)
    return 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))
