"""Subproblems of attacks: penalties, step rules, projections, trust regions, quasi-Newton steps, linearised boundaries.

Projections, proximal maps and trust regions are exact with the box. Only ``linearise`` queries the model.
"""

from .linearise import deepfool_step, leading_plane, nearest_plane, pull_back
from .projections import bounds, clip, dual_length, l0_distance, length, onto_ball, proximal, to_halfspace, to_levels
from .quasi_newton import QuasiNewton
from .trust_region import SOLVERS, Subproblem, subproblem

__all__ = [
    "SOLVERS",
    "QuasiNewton",
    "Subproblem",
    "bounds",
    "clip",
    "deepfool_step",
    "dual_length",
    "l0_distance",
    "leading_plane",
    "length",
    "nearest_plane",
    "onto_ball",
    "proximal",
    "pull_back",
    "subproblem",
    "to_halfspace",
    "to_levels",
]
