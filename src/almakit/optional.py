"""Libraries that need not be there: imported when they are wanted; one that cannot be is a sentence that says what to
install."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from .errors import Unavailable


def optional(module: str, missing: str, install: str = "") -> Any:
    """The module; the sentence ``missing`` where it is not installed, and why it fails, with what to ``install``, where
    it is.

    Any exception counts: a torchvision that was not built for this torch raises RuntimeError, and takes down whoever
    imports it.
    """
    try:
        return import_module(module)
    except Exception as error:
        root = module.split(".")[0]
        absent = str(error.name).split(".")[0] if isinstance(error, ModuleNotFoundError) and error.name else None
        if absent == root:
            raise Unavailable(missing) from error
        if absent is not None:
            raise Unavailable(f"{root} is installed but lacks {absent}: pip install {absent}.") from error
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if "torchvision" in str(error):
            torch = getattr(sys.modules.get("torch"), "__version__", "")
            raise Unavailable(
                f"{root} is installed but does not go with torch {torch} ({why}): install the torchvision that was "
                "built for it, from where that torch came (pip install --force-reinstall --no-deps torchvision "
                "--index-url <the same as for torch>); almakit itself does not need it."
            ) from error
        raise Unavailable(
            f"{root} is installed but cannot be imported ({why}): {install or f'pip install -U {root}'}."
        ) from error
