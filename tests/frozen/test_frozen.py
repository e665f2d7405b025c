"""Public names, flags and the numbers of the reference runs are what the stored files say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from frozen import reference


def stored(name: str) -> Any:
    return json.loads((reference.PLACE / f"{name}.json").read_text())


def test_public_names() -> None:
    assert reference.public_names() == stored("public_names")


def test_flags() -> None:
    assert reference.flags() == stored("flags")


def numbers(value: Any, path: str = "") -> dict[str, Any]:
    """The leaves of nested dicts and lists by their paths."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if pairs is None:
        return {path: value}
    return {key: leaf for name, inner in pairs for key, leaf in numbers(inner, f"{path}/{name}").items()}


def test_reference_summaries(tmp_path: Path) -> None:
    # Float32 rounding differs between processors: distances agree to 1 %, counts and shares of 12 images exactly.
    found, known = numbers(reference.summaries(tmp_path)), numbers(stored("summaries"))
    assert found.keys() == known.keys()
    for path, value in known.items():
        assert found[path] == (pytest.approx(value, rel=0.01) if isinstance(value, float) else value), path
