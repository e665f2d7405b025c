"""The stub that type checkers read holds the public names of the registry."""

from __future__ import annotations

from package_stubs import STUB, text


def test_the_stub_is_the_registry() -> None:
    assert STUB.read_text() == text(), "write it again: python tests/packaging/package_stubs.py"
