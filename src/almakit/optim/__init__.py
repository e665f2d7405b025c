"""The subproblems of attacks: shortest ways to a half-space, projections, proximal maps and trust regions of every
norm, exact with the box. Only steps along a linearised boundary ask the model, through the problem."""

from .linearise import leading_plane, pull_back, stride, to_nearest_plane
from .projections import clip, dual_length, fewest, length, onto_ball, proximal, room, to_halfspace
from .quasi_newton import QuasiNewton
from .trust_region import SOLVERS, Subproblem, subproblem

__all__ = [
    "SOLVERS",
    "QuasiNewton",
    "Subproblem",
    "clip",
    "dual_length",
    "fewest",
    "leading_plane",
    "length",
    "onto_ball",
    "proximal",
    "pull_back",
    "room",
    "stride",
    "subproblem",
    "to_halfspace",
    "to_nearest_plane",
]
