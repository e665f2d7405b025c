"""Attacks by name; each file implements one paper. ``get("alma(distance=l2, steps=100)")`` builds an attack from
text."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from .. import registry
from ..core import Attack
from ..errors import BadInput, wrong_setting
from ..expression import Call, Value, parse

__all__ = ["get", "names"]


def names() -> list[str]:
    """The names ``get`` knows."""
    return registry.names("attacks")


def get(attack: str | Attack, **settings: Any) -> Attack:
    """Build an attack from text, such as ``"ddn(steps=100)"`` or ``"search(attack=apgd(distance=l2, steps=50))"``.

    Args:
        attack: name or text of an attack, or an attack object. ``preset=name`` in the text selects the settings of a
            preset (``almakit ls attacks`` lists them), which other settings override. ``"library:attack(...)"`` is an
            attack of another library, ``"file.py:function(...)"`` one of your own.
        settings: settings that are added to those of the text and override them, such as ``epsilon=8/255``.

    Returns:
        The attack.

    Examples:
        >>> import almakit
        >>> almakit.attacks.get("pgd", epsilon=8/255).steps == almakit.attacks.get("pgd(epsilon=8/255)").steps
        True

    See also:
        ``almakit.DDN(steps=100)``: every attack is also a class of the package.
    """
    if isinstance(attack, Attack):
        return replace(attack, **settings) if settings else attack
    if not isinstance(attack, str):
        raise BadInput(
            f'{attack!r} is no attack; give a text such as "alma(distance=l2, steps=100)", an attack object, or for a '
            "function of "
            "(model, x, y) of your own almakit.bridges.user_file.UserAttack.of(function)."
        )
    return _build(parse(attack), settings)


def _build(call: Call, further: dict[str, Any] | None = None) -> Attack:
    if ":" in call.name:
        return _build_foreign(call, further or {})
    kind = registry.get("attacks", call.name)
    known = [name for name in inspect.signature(kind).parameters]
    settings = {
        name: _value(_called(value) if name in ("attack", "attacks") else value)
        for name, value in call.arguments.items()
    } | (further or {})
    if "preset" not in known and "preset" in settings:
        settings = {**_preset(call.name, kind.presets, settings.pop("preset")), **settings}
    for name in settings:
        if name not in known:
            raise wrong_setting(registry.canonical("attacks", call.name), name, known)
    attack = kind(**settings)
    assert isinstance(attack, Attack)
    return attack


def _preset(attack: str, presets: dict[str, dict[str, object]], name: object) -> dict[str, object]:
    """The settings of a preset."""
    if name not in presets:
        raise BadInput(
            f"{attack} has no preset {name!r}; "
            + (f"it has {', '.join(presets)}." if presets else "it has none: its defaults are its paper's.")
        )
    return presets[str(name)]


def _build_foreign(call: Call, further: dict[str, Any]) -> Attack:
    """Build an attack such as ``foolbox:LinfFMNAttack(steps=100)`` with the library's module in ``bridges``."""
    library = call.name.rpartition(":")[0]
    if library == "python":
        raise BadInput(f"the attack {call.name} was given from Python; pass it to almakit.evaluate(...) again.")
    kind = registry.get("bridges", "file" if library.endswith(".py") else library)
    attack = kind.build(call.name, {name: _value(value) for name, value in call.arguments.items()} | further)
    assert isinstance(attack, Attack)
    return attack


def _called(value: Value) -> Value:
    """A name without settings in place of an attack is that attack with its defaults."""
    if isinstance(value, tuple):
        return tuple(_called(item) for item in value)
    return parse(value) if isinstance(value, str) else value


def _value(value: Value) -> object:
    if isinstance(value, Call):
        return _build(value)
    if isinstance(value, tuple):
        return tuple(_value(item) for item in value)
    return value
