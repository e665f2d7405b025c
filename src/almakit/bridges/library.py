"""Other libraries, imported when they are named; one that cannot be is a sentence that says what to install."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..errors import UnknownName, optional, suggestion


def library(module: str, install: str) -> Any:
    """The module, or an ``Unavailable`` with the line that installs it."""
    return optional(module, f"{module.split('.')[0]} is not installed: {install}.", install)


def distribution(name: str) -> str:
    """``foolbox 3.3.4``: what is written down with an attack's results."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} of unknown version"


def unknown(library_name: str, name: str, known: Iterable[str]) -> UnknownName:
    """The error for a name a library does not have, with the nearest ones it has."""
    return UnknownName(f"{library_name} has no attack {name!r}; {suggestion(name, sorted(known))}")


def named(library_name: str, full: str, place: Any, kind: Callable[[Any], bool]) -> Callable[..., Any]:
    """The attack ``full``, such as ``foolbox:PGD``, among what the module ``place`` has of its ``kind``."""
    name = full.partition(":")[2]
    known = {key for key, value in vars(place).items() if kind(value)}
    if name not in known:
        raise unknown(library_name, name, known)
    found: Callable[..., Any] = getattr(place, name)
    return found


def attack_class(library_name: str, full: str, place: Any, base: type) -> Callable[..., Any]:
    """Likewise, among its classes below ``base``."""
    return named(library_name, full, place, lambda value: inspect.isclass(value) and issubclass(value, base))
