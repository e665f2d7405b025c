"""Writes ``__init__.pyi``, the public names for type checkers: ``python tests/packaging/package_stubs.py``."""

from __future__ import annotations

from pathlib import Path

from almakit import registry

STUB = Path(__file__).resolve().parents[2] / "src" / "almakit" / "__init__.pyi"


def text() -> str:
    """The stub of the package, from the registry."""
    names = {name: place.partition(":")[0] for name, place in registry.public_names().items()}
    lines = [
        "# Generated from almakit.registry by: python tests/packaging/package_stubs.py",
        "from pathlib import Path",
        "",
        *(f"from . import {name} as {name}" for name in registry.SUBPACKAGES),
        *sorted(f"from {module.removeprefix('almakit')} import {name} as {name}" for name, module in names.items()),
        "",
        "__version__: str",
        *(f"{old} = {new}" for old, new in registry.DEPRECATED.items()),
        "",
        "def open(folder: str | Path) -> Run: ...",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(text())
