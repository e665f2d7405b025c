"""Writes three commented files to start from: run.toml, my_model.py and my_attack.py.

They work without changes, on a network and digits of the package. Replace these with your own. Existing files are
never overwritten.

  almakit init
  almakit run --config run.toml
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

from ..runs.spec import FORMAT, RunSpec, toml_value
from .arguments import DONE, Usage

START = {
    "model": "my_model.py:build",
    "data": "mnist-demo",
    "attacks": ["soft-walk(distance=l2, steps=100)", "my_attack.py:mine(steps=40)"],
    "limit": 32,
}
"""The settings that are not left at their defaults."""

ARGUMENTS = (("folder?", Path, "where to write (default: here)"),)


def main(args: argparse.Namespace) -> int:
    folder, start = args.folder or Path(), files("almakit.cli") / "start"
    contents = {"run.toml": config()} | {
        name: (start / f"{name}.txt").read_text(encoding="utf-8") for name in ("my_model.py", "my_attack.py")
    }
    there = [name for name in contents if (folder / name).exists()]
    if there:
        raise Usage(
            f"{folder / there[0]} is there already and is not overwritten; name another folder, almakit init <folder>."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        (folder / name).write_text(text, encoding="utf-8")
    where = "" if folder == Path() else f"cd {folder}; "
    print(f"{', '.join(str(folder / name) for name in contents)}. Now: {where}almakit run --config run.toml")
    return DONE


def config() -> str:
    """A run.toml with every setting: those of ``START`` as they are, the others as comments with their defaults."""
    lines = [
        "# An almakit run: almakit run --config run.toml. Flags given beside it win; lines that begin with # are the "
        "defaults.",
        f"format = {FORMAT}",
        "",
    ]
    for f in fields(RunSpec):
        given = f.name in START
        value = START[f.name] if given else f.default
        shown = f"{f.name} = {toml_value(value)}" if value not in (None, ()) else f"{f.name} ="
        lines += [f"# {f.metadata['help']}", shown if given else f"#{shown}", ""]
    return "\n".join(lines)
