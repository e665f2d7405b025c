"""What an attack wants of the outputs: one margin per image, negative exactly when the goal is reached."""

from .base import SAFETY, SHARED, TINY, Goal, kept_safe
from .classes import ClassGoal
from .given import FunctionGoal, GoalLike, as_goal, first_margin, goal_of
from .pixels import PixelGoal, check_share

__all__ = [
    "SAFETY",
    "SHARED",
    "TINY",
    "ClassGoal",
    "FunctionGoal",
    "Goal",
    "GoalLike",
    "PixelGoal",
    "as_goal",
    "check_share",
    "first_margin",
    "goal_of",
    "kept_safe",
]
