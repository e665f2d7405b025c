"""The threat model of a number (goal, grid, budget, precision) as text for labels and headings. No torch here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .spec import RunSpec


@dataclass(frozen=True)
class Threat:
    """The threat model: everything that defines a number besides attack, distance, model and images."""

    goal: str = ""  # the run's rule for ``targets``, or another goal in brackets; empty: untargeted
    bits: int | None = None  # the grid of the attacks; None: any value in [0, 1]
    budget: int | None = None  # largest number of forward and of backward passes per image
    dtype: str = "float32"
    seed: int = 0
    votes: str = ""  # random model: passes per query, and votes that decide a success
    surrogate: str | None = None  # the model that gradients came from
    stop_within: str = ""  # radii at which broken images stop; there are no results for smaller radii


USUAL = Threat()


def threat_of(spec: RunSpec) -> Threat:
    """The threat model of all attacks of a run."""
    goal = spec.targets or ""
    if spec.goal is not None:
        goal = f"[{spec.goal}]{goal}"
    votes = "" if spec.eot is None else f"eot {spec.eot}, {spec.vote_share:.0%} of {spec.votes} fresh passes"
    return Threat(
        goal, spec.bits, spec.budget, spec.dtype, spec.seed, votes, spec.surrogate, ", ".join(spec.stop_within)
    )


def named(text: str, spec: RunSpec) -> str:
    """An attack's text with the unusual parts of its threat model, for tables and trackers: ``ddn(steps=30), targeted,
    8-bit``."""
    return text + appended([threat_of(spec)])[0]


def goal_name(goal: str) -> str:
    """A goal as words: ``untargeted``, ``targeted (random)``, ``top-k(k=5)``, ``top-k(k=5), targeted (random)``."""
    if goal.startswith("["):
        text, _, targets = goal[1:].rpartition("]")
        return f"{text}, targeted ({targets})" if targets else text
    return f"targeted ({goal})" if goal else "untargeted"


def resisted(name: str) -> str:
    """The heading of the share of images that resist, for a goal with this ``goal_name``."""
    if name == "untargeted":
        return "robust accuracy"
    return "targets not reached" if name.startswith("targeted") else "goal not reached"


def resisted_by(goals: Collection[str]) -> str:
    """The same heading for attacks with several ``goals``."""
    names = {resisted(goal_name(goal)) for goal in goals}
    return names.pop() if len(names) == 1 else "robust accuracy"


def sentence(threat: Threat) -> str:
    """The full threat model, for a heading."""
    words = [goal_name(threat.goal), "any value in [0, 1]" if threat.bits is None else f"on the {threat.bits}-bit grid"]
    if threat.budget is not None:
        words.append(f"at most {threat.budget} passes each way")
    words += [threat.dtype, f"seed {threat.seed}", *filter(None, [threat.votes])]
    if threat.surrogate is not None:
        words.append(f"gradients of {threat.surrogate}")
    if threat.stop_within:
        words.append(f"stopped within {threat.stop_within} (says nothing of smaller radii)")
    return ", ".join(words)


def appended(threats: Sequence[Threat]) -> list[str]:
    """The text that is appended to the label of each row of a table: unusual settings, and settings in which the rows
    differ."""
    many_goals = len({threat.goal for threat in threats if threat.goal}) > 1
    differ = {name for name in ("dtype", "seed", "votes") if len({getattr(threat, name) for threat in threats}) > 1}
    found = []
    for threat in threats:
        words = {
            "goal": goal_name(threat.goal) if many_goals or threat.goal.startswith("[") else "targeted",
            "bits": f"{threat.bits}-bit",
            "budget": f"budget {threat.budget}",
            "surrogate": f"gradients of {threat.surrogate}",
            "stop_within": f"stopped within {threat.stop_within}",
            "dtype": threat.dtype,
            "seed": f"seed {threat.seed}",
            "votes": threat.votes or "one pass",
        }
        unusual = {name for name in words if getattr(threat, name) != getattr(USUAL, name)}
        found.append("".join(f", {words[name]}" for name in words if name in unusual | differ))
    return found
