"""Other libraries, imported when they are named; one that cannot be is a sentence that says what to install."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..errors import Unavailable, UnknownName


def library(module: str, install: str) -> Any:
    """The module, or an ``Unavailable`` with the line that installs it.

    Any exception counts: a torchvision that was not built for this torch raises RuntimeError, and takes down whoever
    imports it.
    """
    try:
        return import_module(module)
    except Exception as error:
        root = module.split(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == root:
            raise Unavailable(f"{root} is not installed: {install}.") from error
        if "torchvision" in str(error):
            import torch

            raise Unavailable(
                f"{root} cannot be imported because the torchvision installed here does not fit torch "
                f"{torch.__version__} ({error}). Install the "
                "torchvision that belongs to your torch (https://pytorch.org/get-started has the line); almakit "
                "itself does not need it."
            ) from error
        missing = f"pip install {error.name}" if isinstance(error, ModuleNotFoundError) else install
        raise Unavailable(
            f"{root} is installed and cannot be imported ({type(error).__name__}: {error}): {missing}."
        ) from error


def distribution(name: str) -> str:
    """``foolbox 3.3.4``: what is written down with an attack's results."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} of unknown version"


def unknown(library_name: str, name: str, known: Iterable[str]) -> UnknownName:
    """The error for a name a library does not have, with the nearest ones it has."""
    names = sorted(known)
    lower = {each.lower(): each for each in names}
    near = [lower[each] for each in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names)}."
    return UnknownName(f"{library_name} has no attack {name!r}; {hint}")
