"""Schedules of the settings that change during training: radius, weights of losses."""

from __future__ import annotations


def ramp(progress: float, begin: float, end: float, first: float, last: float) -> float:
    """``first`` until ``begin`` of the training, ``last`` from ``end`` on, a straight line between; ``progress`` runs
    from 0 to 1."""
    if progress >= end:
        return last
    if progress <= begin:
        return first
    return first + (last - first) * (progress - begin) / (end - begin)
