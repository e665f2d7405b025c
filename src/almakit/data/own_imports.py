"""Which files a Python file of the user's own imports from its folder: they decide what it does as much as it does
itself."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path


def own_imports(file: Path) -> list[Path]:
    """The files that ``file`` imports from its own folder, and those that they import from there; read from the source,
    nothing is run.

    Imports inside functions count. What is imported under a computed name is not seen.
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
        new = {path for node in ast.walk(tree) for path in _files(node, current, root)} - found - {file.resolve()}
        found |= new
        pending += new
    return sorted(found)


def imports_sha256(file: Path) -> str | None:
    """The sha256 over those files, names and contents; None where there are none."""
    root, files = file.resolve().parent, own_imports(file)
    listed = "".join(
        f"{path.relative_to(root).as_posix()}\t{hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files
    )
    return hashlib.sha256(listed.encode()).hexdigest() if files else None


def _files(node: ast.AST, current: Path, root: Path) -> Iterator[Path]:
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
