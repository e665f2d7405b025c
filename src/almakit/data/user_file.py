"""A function out of a user's own file, named ``file.py:function``."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from ..errors import AlmakitError, BadInput, Unavailable

_FORM = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)\Z", re.DOTALL)


def is_user_file(uri: str) -> bool:
    """Whether a URI has the form ``file.py:function``."""
    return _FORM.match(uri) is not None


def call(uri: str) -> Any:
    """What the function returns, called without arguments; while it runs, its folder can be imported from."""
    match = _FORM.match(uri)
    if match is None:
        raise BadInput(f"{uri!r} is not of the form file.py:function.")
    file, name = Path(match["file"]).expanduser().resolve(), match["function"]
    if not file.is_file():
        raise Unavailable(f"there is no file {match['file']}; a model or data set of your own is named path/to/file.py:function.")
    sys.path.insert(0, str(file.parent))
    try:
        module = _module(file)
        function = getattr(module, name, None)
        if not callable(function):
            raise BadInput(f"{match['file']} has no function called {name!r}.")
        return function()
    except AlmakitError:
        raise
    except Exception as error:
        raise BadInput(f"{uri} failed with {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))


def _module(file: Path) -> Any:
    """The file as a module, run afresh; its name depends on the whole path, so two files called model.py do not meet."""
    name = f"almakit_user_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise BadInput(f"{file} cannot be imported as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
