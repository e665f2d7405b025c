"""The table of six tasks in four libraries is what the benchmark kept, and almakit's own snippets still run."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from docs.prose import DOCS

from benchmarks import RESULTS
from benchmarks.common import Results
from benchmarks.libraries import six_tasks


def test_the_page_is_what_was_kept() -> None:
    figures = (DOCS / "figures" / "six-tasks.md").read_text()
    (page,) = six_tasks.sections(Results(RESULTS / "six_tasks.json"), argparse.Namespace()).values()
    assert figures == page, "python -m benchmarks libraries six-tasks --table --docs writes it anew"
    rows = [
        line for line in figures.splitlines() if line.startswith("| ") and "task |" not in line and ":--" not in line
    ]
    assert len(rows) == 6 and all(row in (DOCS / "coming-from.md").read_text() for row in rows)


def test_lines_are_counted_and_every_gap_has_its_reason() -> None:
    assert six_tasks.lines("\na\n\n  b\n") == 2
    for task, snippets in six_tasks.SNIPPETS.items():
        for library in six_tasks.LIBRARIES:
            assert (library in snippets) != ((task, library) in six_tasks.NOT_OFFERED)


def test_almakits_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(six_tasks.PRELUDE.replace("limit=16", "limit=2"), names)
    for snippets in six_tasks.SNIPPETS.values():
        exec(snippets["almakit"].replace("steps=100", "steps=10"), names)
