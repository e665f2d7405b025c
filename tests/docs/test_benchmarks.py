"""The benchmarks are listed by ``python -m benchmarks``, each with what it writes, and every command that a page names
exists."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec

from benchmarks import DOCS, RESULTS, ROOT
from benchmarks.__main__ import BENCHMARKS

PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
PARTS = [part for parts in BENCHMARKS.values() for part in parts.values()]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True)


def test_at_most_twelve_are_listed_with_what_they_measure_and_write() -> None:
    listed = run().stdout
    assert len(BENCHMARKS) <= 12
    assert all(name in listed and part.about in listed for name, parts in BENCHMARKS.items() for part in parts.values())
    for part in PARTS:
        assert find_spec(f"benchmarks.{part.module}") and (not part.page or (DOCS / part.page).exists()), part


def test_every_kept_file_belongs_to_a_benchmark() -> None:
    kept = {path.name for part in PARTS if part.kept for path in RESULTS.glob(part.kept)}
    assert kept == {path.name for path in RESULTS.iterdir()}


def test_a_name_leads_to_its_module_and_a_wrong_one_to_a_sentence() -> None:
    shown = run("speed", "guard", "--help")
    assert shown.returncode == 0 and "--rows" in shown.stdout and "benchmarks speed guard" in shown.stdout
    wrong = run("sped")
    assert wrong.returncode == 2 and "did you mean speed" in wrong.stderr


def test_pages_name_benchmarks_and_files_that_exist() -> None:
    texts = [page.read_text() for page in PAGES]
    files = {name for text in texts for name in re.findall(r"benchmarks/[\w/]+\.py", text)}
    assert files and not {name for name in files if not (ROOT / name).is_file()}
    commands = {
        tuple(found) for text in texts for found in re.findall(r"python -m benchmarks (\w+)(?: ([\w-]+))?", text)
    }
    commands -= {("NAME", ""), ("NAME", "PART")}
    assert len(commands) > 10
    for name, part in commands:
        assert name in BENCHMARKS and (not part or part.startswith("-") or part in BENCHMARKS[name]), (name, part)
