"""Several attacks on the same images: the smallest verified distance of each image wins."""

from __future__ import annotations

from dataclasses import dataclass

from ..core import Attack, Problem
from ..distances.base import Distance, FunctionDistance
from ..errors import BadInput
from .fixed_epsilon import FixedEpsilon


@dataclass(frozen=True)
class Ensemble(Attack):
    """min over attacks a of d_a(image): runs ``attacks`` one after the other, each as it would run alone, and keeps the
    best point of each image.

    All must measure the same distance; fixed-radius attacks need an epsilon and add only points inside it. Forwards and
    backwards are the sums. In text: ``ensemble(attacks=[soft-walk, fmn(steps=50)])``. A budget is spent in the order
    given.

    Args:
        attacks: the attacks, such as [soft-walk, fmn(steps=50)].
    """

    title = "ensemble"
    cost = "the sum of the attacks' costs"
    paper = "almakit"

    attacks: tuple[Attack, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        members = (self.attacks,) if isinstance(self.attacks, Attack) else tuple(self.attacks)
        # Settings must be hashable, so a list becomes a tuple.
        object.__setattr__(self, "attacks", members)
        if not members:
            raise BadInput("an ensemble needs attacks: ensemble(attacks=[alma(distance=l2), ddn(steps=100)]).")
        for member in members:
            if not isinstance(member, Attack):
                raise BadInput(f"{member!r} is no attack; write ensemble(attacks=[alma(distance=l2), ddn(steps=100)]).")
            if isinstance(member, FixedEpsilon):
                member.radius()
        for member in members[1:]:
            if not _same(members[0].measure, member.measure):
                raise BadInput(
                    f"the attacks of an ensemble must measure the same distance; {type(members[0]).__name__} has "
                    f"{members[0].measure!r} and "
                    f"{type(member).__name__} has {member.measure!r}: set distance= to the same value in both."
                )

    @property
    def measure(self) -> Distance:
        return self.attacks[0].measure

    @property
    def minimal(self) -> bool:  # type: ignore[override]
        """False if all attacks have a fixed radius: they give no result beyond the largest one."""
        return any(member.minimal for member in self.attacks)

    @property
    def radii(self) -> tuple[float, ...]:
        return tuple(dict.fromkeys(radius for member in self.attacks for radius in member.radii))

    @property
    def can_target(self) -> bool:  # type: ignore[override]
        return all(member.can_target for member in self.attacks)

    def needs_classes(self) -> bool:
        return any(member.needs_classes() for member in self.attacks)

    def needs_gradients(self) -> bool:
        return any(member.needs_gradients() for member in self.attacks)

    def run(self, problem: Problem) -> None:
        for member in self.attacks:
            with problem.round(), problem.isolated():
                member.run(problem)


def _same(one: Distance, other: Distance) -> bool:
    if isinstance(one, FunctionDistance) and isinstance(other, FunctionDistance):
        return one.function is other.function
    return type(one) is type(other) and repr(one) == repr(other)
