"""Functions from a user's file, named ``file.py:function``, and the files that it imports from its folder."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from ..errors import AlmakitError, BadInput, Unavailable, suggestion

_FORM = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)\Z", re.DOTALL)


def is_user_file(uri: str) -> bool:
    """Whether a URI has the form ``file.py:function``."""
    return _FORM.match(uri) is not None


def split(uri: str) -> tuple[str, str]:
    """The file and the function's name."""
    match = _FORM.match(uri)
    if match is None:
        raise BadInput(f"{uri!r} is not of the form file.py:function.")
    return match["file"], match["function"]


@contextmanager
def importable(uri: str) -> Iterator[None]:
    """While the block runs, the file's folder can be imported from."""
    folder = str(Path(split(uri)[0]).expanduser().resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def function(uri: str) -> Callable[..., Any]:
    """The function itself; the file is executed again at every call."""
    named, name = split(uri)
    file = Path(named).expanduser().resolve()
    if not file.is_file():
        raise Unavailable(
            f"there is no file {named}; a model, data set or attack of your own is named path/to/file.py:function."
        )
    with _explained(uri), importable(uri):
        module = _module(file)
        found = getattr(module, name, None)
        if not callable(found):
            own = [
                key
                for key, value in vars(module).items()
                if callable(value) and getattr(value, "__module__", None) == module.__name__
            ]
            raise BadInput(f"{named} has no function called {name!r}; {suggestion(name, own)}")
        return cast("Callable[..., Any]", found)


def call(uri: str) -> Any:
    """What the function returns, called without arguments; while it runs, its folder can be imported from."""
    found = function(uri)
    with _explained(uri), importable(uri):
        return found()


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    try:
        yield
    except AlmakitError:
        raise
    except Exception as error:
        raise BadInput(f"{uri} failed with {type(error).__name__}: {error}") from error


def _module(file: Path) -> Any:
    """The file as a module, executed again. The module's name depends on the full path, so that two files called
    model.py are different modules."""
    name = f"almakit_user_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise BadInput(f"{file} cannot be imported as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def own_imports(file: Path) -> list[Path]:
    """The files that ``file`` imports from its own folder, and those that they import from there; read from the source,
    nothing is run.

    Imports inside functions are included. Imports with a computed name are not found.
    """
    root = file.resolve().parent
    found: set[Path] = set()
    pending = [file.resolve()]
    while pending:
        current = pending.pop()
        try:
            tree = ast.parse(current.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        new = {path for node in ast.walk(tree) for path in _imported(node, current, root)} - found - {file.resolve()}
        found |= new
        pending += new
    return sorted(found)


def imports_sha256(file: Path) -> str | None:
    """The sha256 of the names and contents of the files that ``own_imports`` finds; None if it finds none."""
    root, files = file.resolve().parent, own_imports(file)
    listed = "".join(
        f"{path.relative_to(root).as_posix()}\t{hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files
    )
    return hashlib.sha256(listed.encode()).hexdigest() if files else None


def _imported(node: ast.AST, current: Path, root: Path) -> Iterator[Path]:
    """The files inside ``root`` that an import in the file ``current`` may run."""
    base, names = root, []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = (
            (current.parent, *current.parents[1:])[node.level - 1]
            if node.level and node.level <= len(current.parents)
            else root
        )
        names = [".".join(filter(None, (node.module, alias.name))) for alias in node.names]
    for name in names:
        place = base
        for part in name.split("."):
            place = place / part
            for file in (place.with_name(f"{part}.py"), place / "__init__.py"):
                if file.is_relative_to(root) and file.is_file():
                    yield file
