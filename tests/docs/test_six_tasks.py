"""The table of six tasks in four libraries is what the benchmark kept, and almakit's own snippets still run."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
from docs.prose import DOCS, ROOT


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in ("six_tasks", "six_tasks_snippets"):
        sys.modules.pop(name, None)
    return importlib.import_module("six_tasks")


def test_the_page_is_what_was_kept(benchmark: ModuleType) -> None:
    figures = (DOCS / "figures" / "six-tasks.md").read_text()
    assert figures == benchmark.page(), "python benchmarks/six_tasks.py --docs writes it anew"
    rows = [
        line for line in figures.splitlines() if line.startswith("| ") and "task |" not in line and ":--" not in line
    ]
    assert len(rows) == 6 and all(row in (DOCS / "libraries.md").read_text() for row in rows)


def test_lines_are_counted_and_every_gap_has_its_reason(benchmark: ModuleType) -> None:
    assert benchmark.lines("\na\n\n  b\n") == 2
    for task, snippets in benchmark.SNIPPETS.items():
        for library in benchmark.LIBRARIES:
            assert (library in snippets) != ((task, library) in benchmark.NOT_OFFERED)


def test_almakits_snippets_run(benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(benchmark.PRELUDE.replace("limit=16", "limit=2"), names)
    for snippets in benchmark.SNIPPETS.values():
        exec(snippets["almakit"].replace("steps=100", "steps=10"), names)
