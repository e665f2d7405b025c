"""almakit finds the smallest change that makes a model wrong, in any distance, and verifies what it found.

>>> import almakit
>>> result = almakit.attack(model, x, labels, distance="l2", steps=100)   # the default attack
>>> result = almakit.DDN(steps=100)(model, x, labels)                     # every attack is a class of the package
>>> run = almakit.evaluate(model, data, attacks=["ddn"], out="runs/a")    # recorded, verified, resumable
>>> run = almakit.open("runs/a")                                          # reads the run again

The names come from ``almakit.registry`` and are imported when they are first used, so that ``import almakit`` is fast.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import registry
from .errors import suggestion
from .version import VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from .report.run import Run

__version__ = VERSION
_NAMES = registry.public_names()

__all__ = sorted([*_NAMES, *registry.SUBPACKAGES, "__version__"])  # type checkers read __init__.pyi


def open(folder: str | Path) -> Run:
    """The run in ``folder``, finished or not. Not in ``__all__``: it would hide Python's own ``open``."""
    from .report.run import Run

    return Run(folder)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return registry.load(_NAMES[name])
    if name in registry.SUBPACKAGES:
        return import_module(f"almakit.{name}")
    if name in registry.DEPRECATED:
        new = registry.DEPRECATED[name]
        warnings.warn(f"almakit.{name} is called almakit.{new} now.", DeprecationWarning, stacklevel=2)
        return registry.load(_NAMES[new])
    if name.startswith("_"):
        raise AttributeError(f"module 'almakit' has no attribute {name!r}")
    hint = suggestion(name, [], [*_NAMES, *registry.SUBPACKAGES, "open"])
    raise AttributeError(f"there is no almakit.{name}; {hint if hint.startswith('did') else 'see dir(almakit).'}")


def __dir__() -> list[str]:
    return sorted([*__all__, "open"])
