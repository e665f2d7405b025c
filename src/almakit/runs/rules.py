"""What the settings of a run may be: a rule takes a setting's name and value, and returns the value as it is kept or
raises a sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from ..errors import BadInput, require_text
from ..expression import parse_number
from .radii import parse, texts_of

Rule = Callable[[str, Any], Any]
TARGETS = ("random", "least-likely", "next", "all", "data")


def optional(rule: Rule) -> Rule:
    """The rule, or None."""
    return lambda name, value: None if value is None else rule(name, value)


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{name}={value!r}: give a text.")
    return require_text(value, f"{name} of a run")


def texts(name: str, value: Any) -> tuple[str, ...]:
    """One text or several."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, (tuple, list)) or not all(isinstance(item, str) for item in listed):
        raise BadInput(f"{name}={value!r}: give a list of texts.")
    return tuple(require_text(item, f"one of {name}") for item in listed)


def radii(name: str, value: Any) -> tuple[str, ...]:
    return texts_of(value)


def stop_radii(name: str, value: Any) -> tuple[str, ...]:
    """One radius for each distance."""
    found = texts_of(value, name)
    for distance, values in parse(found, name).items():
        if len(values) > 1:
            where = f" for {distance}" if distance else ""
            raise BadInput(f"{name} gives {len(values)} radii{where}; images stop at one, such as linf=8/255.")
    return found


def numbers(name: str, value: Any) -> tuple[float, ...]:
    try:
        found = tuple(parse_number(each) if isinstance(each, str) else float(each) for each in value)
    except (TypeError, ValueError, OverflowError):
        found = (math.nan,)
    if not all(map(math.isfinite, found)):
        raise BadInput(f"{name}={value!r}: give one number per channel.")
    return found


def truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{name}={value!r}: give true or false.")
    return value


def whole(at_least: int | None = None, words: tuple[str, ...] = (), hint: str = "", at_most: int | None = None) -> Rule:
    """A whole number within bounds, or one of a few words."""
    bounds = ("", f", at least {at_least}")[at_least is not None] + ("", f" and at most {at_most}")[at_most is not None]

    def rule(name: str, value: Any) -> Any:
        if isinstance(value, str) and value in words:
            return value
        number = isinstance(value, int) and not isinstance(value, bool)
        if not number or not (at_least is None or value >= at_least) or not (at_most is None or value <= at_most):
            raise BadInput(f"{name}={value!r}: give a whole number{bounds}{hint}.")
        return value

    return rule


def share(name: str, value: Any) -> float:
    try:
        found = parse_number(value) if isinstance(value, str) else value
    except ValueError:
        found = math.nan
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found <= 1:
        raise BadInput(f"{name}={value!r}: give a share above 0 and at most 1.")
    return float(found)


def one_of(*choices: str) -> Rule:
    listed = " or ".join(choices) if len(choices) == 2 else ", ".join(choices)

    def rule(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise BadInput(f"{name}={value!r}: choose {listed}.")
        return value

    return rule


def targets(name: str, value: Any) -> str:
    given = text(name, value)
    if given in TARGETS or given.startswith("python:") or given.endswith(".csv") or re.fullmatch("[0-9]+", given):
        return given
    raise BadInput(
        f"{name}={value!r}: choose {', '.join(TARGETS)}, a class such as 3, or name a csv file with the columns id "
        "and target."
    )


def parse_shard(text: str | None) -> tuple[int, int] | None:
    """``"i/n"`` -> (i, n) with 0 <= i < n."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None or not int(match[1]) < int(match[2]):
        raise BadInput(f"shard {text!r}: write i/n with i from 0 to n - 1, for example 0/4 to 3/4.")
    return int(match[1]), int(match[2])
