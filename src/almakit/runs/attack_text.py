"""The canonical text of an attack: equal attacks have equal texts, and the text builds the attack again."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from .. import registry
from ..attacks import get
from ..attacks.fixed_epsilon import FixedEpsilon
from ..core import Attack
from ..distances.base import Distance, FunctionDistance
from ..errors import AlmakitError, BadInput
from ..expression import parse_number
from .python_code import fingerprint
from .store.records import AttackInfo

_WORD = re.compile(r"[A-Za-z0-9_.+/~-][A-Za-z0-9_.+/:~-]*\Z")
_RESERVED = ("true", "false", "none")


def text_of(attack: Attack) -> str:
    """``name(setting=value, ...)`` with the settings that differ from their defaults, in the order of the fields.

    ``steps``, and the distance of an attack that has a choice, are always included. An attack may have an attribute
    ``written``, its name and settings, instead.
    """
    if (written := getattr(attack, "written", None)) is not None:
        name, settings = _value(written[0]), written[1]
    else:
        always = ("steps",) if len(attack.does or ()) == 1 else ("distance", "steps")
        values = [(f, getattr(attack, f.name)) for f in fields(attack)]
        name = _name(type(attack))
        settings = {f.name: v for f, v in values if f.name in always or _value(v) != _value(default_of(f))}
    inside = ", ".join(f"{key}={_value(value)}" for key, value in settings.items())
    return f"{name}({inside})" if inside else name


def default_of(f: Field[Any]) -> Any:
    """The default of a dataclass field, ``MISSING`` if it has none."""
    return f.default_factory() if f.default_factory is not MISSING else f.default


def as_written_now(text: str) -> str | None:
    """An attack's text, perhaps of an older version, as this version writes it; None if it is unknown.

    A colon means code outside almakit, which must not run because a folder names it.
    """
    try:
        return None if ":" in text else text_of(get(text))
    except AlmakitError:
        return None


def describe(attack: Attack, index: int, targeted: bool) -> AttackInfo:
    """The facts that are stored with an attack's results."""
    settings = {name: _plain(value) for name, value in attack.describe().items()}
    return AttackInfo(
        index,
        text_of(attack),
        attack.title or type(attack).__name__,
        repr(attack.measure),
        attack.minimal,
        targeted,
        attack.paper,
        attack.cost,
        settings,
    )


def build_all(attacks: str | Attack | Sequence[str | Attack]) -> list[Attack]:
    """Builds attacks; an attack given twice, or one at a fixed radius without its radius, is an error."""
    given = [attacks] if isinstance(attacks, (str, Attack)) else list(attacks)
    built = [get(attack) for attack in given]
    for attack in built:
        if isinstance(attack, FixedEpsilon):
            attack.radius()
    texts = [text_of(attack) for attack in built]
    for text in texts:
        if texts.count(text) > 1:
            raise BadInput(f"the attack {text} is given twice; once is enough, results do not depend on chance.")
    return built


def _name(kind: type[Attack]) -> str:
    home = f"{kind.__module__}:{kind.__qualname__}"
    for name, target in registry.BUILT_IN["attacks"].items():
        if target == home:
            return name
    for name in registry.names("attacks"):
        if registry.get("attacks", name) is kind:
            return name
    return f"python:{kind.__qualname__}"


def _value(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Attack):
        return text_of(value)
    if isinstance(value, FunctionDistance):
        return f"<{fingerprint(value.function)}>"
    if isinstance(value, Distance):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, str):
        plain = _WORD.match(value) and value.lower() not in _RESERVED and not _number(value)
        return value if plain else json.dumps(value) if '"' not in value else f"'{value}'"
    if callable(value):
        return f"<{fingerprint(value)}>"
    return f"<{value!r}>"


def _number(text: str) -> bool:
    try:
        parse_number(text)
    except ValueError:
        return False
    return True


def _plain(value: object) -> Any:
    """The value as JSON can hold it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else repr(value)
    if isinstance(value, Attack):
        # The text leaves defaults out, and a later version may have others.
        return {"attack": text_of(value), **{name: _plain(inside) for name, inside in value.describe().items()}}
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else _value(value)
