"""The same six tasks in almakit, foolbox, AutoAttack and adv-lib: lines of code and what one gets, each run in a folder
of its own.

    python -m benchmarks libraries six-tasks   runs every snippet, keeps benchmarks/results/six_tasks.json
    python -m benchmarks libraries six-tasks --only foolbox   one library's, the others as they were kept
    python -m benchmarks libraries six-tasks --table --docs   writes docs/figures/six-tasks.md from what is kept

The other libraries are installed by hand, in an environment of their own:

    echo 'setuptools<81' > constraint.txt
    PIP_CONSTRAINT=constraint.txt pip install foolbox==3.3.4 pyautoattack==0.2.0 adv-lib==0.2.8

A snippet finds ``model``, ``x`` (16 digits in [0, 1]) and ``labels`` made; lines that only continue a statement count
too, blank ones do not. What a library has no call for is said in words and not written around.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import surroundings
from benchmarks.common import WHOLE_PAGE, Results, markdown
from benchmarks.libraries.snippets import NOT_OFFERED, PEERS, PRELUDE, SNIPPETS, TASKS

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


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=LIBRARIES, help="one library's snippets alone")


def measure(results: Results, args: argparse.Namespace) -> None:
    versions, tasks = (results.cells.get(name, {}) for name in ("versions", "tasks"))
    for library, distribution in LIBRARIES.items():
        if args.only not in (None, library):
            continue
        versions[library] = version(distribution)
        for task in TASKS:
            if code := SNIPPETS[task].get(library):
                printed = run(code)
                tasks.setdefault(task, {})[library] = {"lines": lines(code), "prints": printed}
                print(f"{task:20} {library:10} {lines(code):3} lines   {printed.splitlines()[-1][:120]}", flush=True)
        results.update({"versions": versions, "tasks": tasks})


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    """The table and, below it, every snippet with what it printed."""
    kept = results.cells
    if missing := [library for library in LIBRARIES if library not in kept["versions"]]:
        raise SystemExit(f"{results.path} lacks {', '.join(missing)}: measure them without --only.")
    rows = [[title, *(_cell(kept, task, library) for library in LIBRARIES)] for task, title in TASKS.items()]
    versions = ", ".join(f"{library} {kept['versions'][library]}" for library in LIBRARIES)
    parts = [
        "# Six tasks in four libraries: figures",
        "Written by `python -m benchmarks libraries six-tasks --table --docs` from runs of every snippet "
        f"({versions}). [Coming from other libraries](../coming-from.md#your-call-in-almakit) describes them. "
        "Lines of code include imports; `model`, `x` and `labels` are defined before.",
        markdown(["task ", *LIBRARIES], rows),
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
    return {WHOLE_PAGE: "\n\n".join(parts) + "\n"}


def _cell(kept: dict[str, Any], task: str, library: str) -> str:
    return str(kept["tasks"][task][library]["lines"]) if SNIPPETS[task].get(library) else "not offered"
