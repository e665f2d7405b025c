"""The benchmarks are listed by ``python -m benchmarks``, each with what it writes, and every command that a page names
exists."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import DOCS, RESULTS, ROOT
from benchmarks.__main__ import NAMES, PARTS, Part, main, parsed
from benchmarks.common import Results

PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
KNOWN = {part.name for part in PARTS}


def test_they_are_listed_with_what_they_measure_and_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"{part.name} " in listed and part.about in listed for part in PARTS)
    for part in PARTS:
        assert find_spec(part.module) and (not part.page or (DOCS / part.page).exists()), part


def test_a_name_leads_to_its_module_and_a_wrong_one_to_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["speed", "guard", "--help"])
    shown = capsys.readouterr().out
    assert "--rows" in shown and "benchmarks speed guard" in shown
    with pytest.raises(SystemExit, match="2"):
        main(["sped"])
    assert "did you mean speed" in capsys.readouterr().err


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_part_tells_its_flags_and_what_it_does_and_writes_nothing(
    part: Part, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = import_module(part.module)
    assert hasattr(module, "measure") != hasattr(module, "main") and len(module.__doc__ or "") > 40
    with pytest.raises(SystemExit, match="0"):
        parsed(part, module, ["--help"])
    shown = capsys.readouterr().out
    assert ("--table" in shown) == hasattr(module, "sections") and ("--out" in shown or not part.kept)
    assert not list(tmp_path.iterdir())


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"none.json is not there: measure it first"):
        main(["walk", "spread", "--table", "--out", str(tmp_path / "none.json")])


@pytest.mark.parametrize("name", ["walk spread", "speed rows", "faults fuzz", "faults injected", "scale engine"])
def test_a_page_is_what_its_kept_results_give(name: str) -> None:
    part = next(part for part in PARTS if part.name == name)
    module = import_module(part.module)
    found = module.sections(Results(RESULTS / part.kept, must_exist=True), argparse.Namespace())
    assert found and all(text in (DOCS / part.page).read_text() for text in found.values())


def test_pages_name_benchmarks_and_files_that_exist() -> None:
    texts = [page.read_text() for page in PAGES]
    files = {name for text in texts for name in re.findall(r"benchmarks/[\w/]+\.py", text)}
    assert files and not {name for name in files if not (ROOT / name).is_file()}
    commands = {
        tuple(found) for text in texts for found in re.findall(r"python -m benchmarks (\w+)(?: ([\w-]+))?", text)
    }
    commands -= {("NAME", ""), ("NAME", "PART")}
    for name, part in commands:
        assert name in NAMES and (not part or part.startswith("-") or f"{name} {part}" in KNOWN), (name, part)
