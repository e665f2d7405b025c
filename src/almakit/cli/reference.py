"""The page of all verbs and their flags, made from the parsers themselves: ``python -m almakit.cli.reference >
docs/cli.md``."""

from __future__ import annotations

import argparse
from importlib import import_module

from .completion import actions
from .main import EXIT_CODES, VERBS

HEAD = """# The command line

Made by `python -m almakit.cli.reference > docs/cli.md`; a test holds it to the program. `almakit VERB --help`
says the same.
"""


def page() -> str:
    """The page, in Markdown."""
    codes = "\n".join(line.strip() for line in EXIT_CODES.splitlines()[1:])
    listed = "\n".join(f"| [`{verb}`](#{verb}) | {text} |" for verb, text in VERBS.items())
    parts = [HEAD, f"| verb | does |\n| :-- | :-- |\n{listed}\n", f"Exit codes:\n\n```text\n{codes}\n```\n"]
    return "\n".join([*parts, *(_verb(verb) for verb in VERBS)])


def _verb(verb: str) -> str:
    told = (import_module(f".{verb}", __package__).__doc__ or "").strip().splitlines()
    prose = [line for line in told if not line.startswith("  ")]
    examples = [line.strip() for line in told if line.startswith("  ")]
    lines = [f"## {verb}\n", "\n".join(prose).strip() + "\n"]
    if examples:
        lines.append("```text\n" + "\n".join(examples) + "\n```\n")
    if found := actions(verb):
        rows = "\n".join(f"| `{_call(action)}` | {_meaning(action)} |" for action in found)
        lines.append(f"| argument | meaning |\n| :-- | :-- |\n{rows}\n")
    return "\n".join(lines)


def _call(action: argparse.Action) -> str:
    """How it is written: the flag with what follows it, or the argument's place."""
    value = str(action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper()))
    value = value.replace("|", "\\|")
    if not action.option_strings:
        return f"[{value}]" if action.nargs in ("?", "*") else value
    flags = ", ".join(action.option_strings)
    return flags if action.nargs == 0 else f"{flags} {value}"


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "").replace("%%", "%").replace("|", "\\|").replace("<", "&lt;")
    again = (
        " May be repeated."
        if type(action).__name__ == "_AppendAction" and "repeated" not in text and "several times" not in text
        else ""
    )
    return text + again


if __name__ == "__main__":
    print(page(), end="")
