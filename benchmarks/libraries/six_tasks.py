"""The same six tasks in almakit, foolbox, AutoAttack and adv-lib: lines of code and what one gets, each run in a folder
of its own.

    python -m benchmarks libraries six-tasks   runs every snippet, keeps benchmarks/results/six_tasks.json
    python -m benchmarks libraries six-tasks --only foolbox   one library's, the others as they were kept
    python -m benchmarks libraries six-tasks --docs   writes docs/figures/six-tasks.md from what is kept; nothing is run

The other libraries are installed by hand, in an environment of their own:

    echo 'setuptools<81' > constraint.txt
    PIP_CONSTRAINT=constraint.txt pip install foolbox==3.3.4 pyautoattack==0.2.0 adv-lib==0.2.8

A snippet finds ``model``, ``x`` (16 digits in [0, 1]) and ``labels`` made; lines that only continue a statement count
too, blank ones do not. What a library has no call for is said in words and not written around.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from benchmarks import DOCS, RESULTS, surroundings
from benchmarks.libraries.snippets import NOT_OFFERED, PEERS, PRELUDE, SNIPPETS, TASKS

KEPT = RESULTS / "six_tasks.json"
PAGE = DOCS / "figures" / "six-tasks.md"
LIBRARIES = {"almakit": "almakit", "foolbox": "foolbox", "AutoAttack": "pyautoattack", "adv-lib": "adv-lib"}


def run(code: str) -> str:
    """What a snippet prints, run as a script of its own in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "task.py"
        script.write_text(f"{PEERS}\n{PRELUDE}\n{code}")
        env = surroundings() | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(script)], cwd=folder, env=env, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"{code}\n{done.stderr[-3000:]}")
        return done.stdout.strip()


def lines(code: str) -> int:
    return sum(bool(line.strip()) for line in code.strip().splitlines())


def measure(only: str | None) -> None:
    found = json.loads(KEPT.read_text()) if KEPT.is_file() else {"versions": {}, "tasks": {}}
    for library, distribution in LIBRARIES.items():
        if only and only != library:
            continue
        found["versions"][library] = version(distribution)
        for task in TASKS:
            if code := SNIPPETS[task].get(library):
                printed = run(code)
                found["tasks"].setdefault(task, {})[library] = {"lines": lines(code), "prints": printed}
                print(f"{task:20} {library:10} {lines(code):3} lines   {printed.splitlines()[-1][:120]}", flush=True)
        KEPT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def page() -> str:
    """The table and, below it, every snippet with what it printed."""
    kept = json.loads(KEPT.read_text())
    versions = ", ".join(f"{library} {kept['versions'][library]}" for library in LIBRARIES)
    parts = [
        "# Six tasks in four libraries: figures",
        f"Written by `python -m benchmarks libraries six-tasks --docs` from runs of every snippet ({versions}); what "
        "is compared, and what is not, is told in [six tasks](../libraries.md). "
        "Lines of code, imports included; `model`, `x` and `labels` are there.",
        f"| task | {' | '.join(LIBRARIES)} |\n| :-- |{' --: |' * len(LIBRARIES)}\n"
        + "\n".join(
            f"| {title} | " + " | ".join(_cell(kept, task, library) for library in LIBRARIES) + " |"
            for task, title in TASKS.items()
        ),
    ]
    for task, title in TASKS.items():
        parts.append(f"## {title[0].upper()}{title[1:]}")
        for library in LIBRARIES:
            if code := SNIPPETS[task].get(library):
                parts.append(
                    f"**{library}**\n\n```python\n{code.strip()}\n```\n\n```text\n{kept['tasks'][task][library]['prints']}\n```"
                )
            else:
                parts.append(f"**{library}**: {NOT_OFFERED[task, library]}")
    return "\n\n".join(parts) + "\n"


def _cell(kept: dict, task: str, library: str) -> str:
    return str(kept["tasks"][task][library]["lines"]) if SNIPPETS[task].get(library) else "not offered"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=LIBRARIES, help="one library's snippets alone")
    parser.add_argument("--docs", action="store_true", help="write the page from what is kept")
    args = parser.parse_args()
    if not args.docs:
        measure(args.only)
    if json.loads(KEPT.read_text())["versions"].keys() >= LIBRARIES.keys():
        PAGE.write_text(page())
    return 0
