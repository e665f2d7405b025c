"""The benchmarks are listed by ``python -m benchmarks``, and every command that a page names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True)


def test_every_benchmark_is_listed_with_what_it_measures() -> None:
    listed = dict(re.findall(r"^(\w+) {2,}(\S.+)$", run().stdout, flags=re.M))
    scripts = {
        path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py") if '__name__ == "__main__"' in path.read_text()
    }
    assert set(listed) == scripts and all(len(text) > 20 for text in listed.values())


def test_a_name_leads_to_its_script_and_a_wrong_one_to_a_sentence() -> None:
    shown = run("guard", "--help")
    assert shown.returncode == 0 and "--rows" in shown.stdout
    wrong = run("gaurd")
    assert wrong.returncode == 2 and "did you mean guard" in wrong.stderr


def test_pages_name_scripts_that_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"benchmarks/(\w+)\.py", page.read_text())}
    named |= {
        name for page in pages for name in re.findall(r"python -m benchmarks (\w+)", page.read_text()) if name != "NAME"
    }
    assert len(named) > 10
    assert not {name for name in named if not (ROOT / "benchmarks" / f"{name}.py").is_file()}
