"""What README and pages tell a reader to type, taken out of them block by block.

Python blocks run in order, titled blocks become files, ``sh`` blocks are commands. A comment ``<!-- needs: reason -->``
on the line before a block says that it needs something a test does not have: such Python is compiled, such commands
are parsed, and nothing of them is run.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# docs/figures is written by benchmarks.
PAGES = {"README": ROOT / "README.md"} | {path.stem: path for path in sorted(DOCS.glob("*.md"))}
_BLOCK = re.compile(
    r"^(?:<!-- needs: (?P<needs>[^\n]+?) -->\n)?"
    r"(?P<fence>```+)(?P<kind>[\w-]*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_INLINE = re.compile(r"(?<!`)`((?:almakit|make|pip install|python) [^`]+)`(?!`)")
_OPEN = re.compile(r"\.\.\.|…|<[^>]+>|\bVERB\b|\||[A-Z]{3,}(?:@[A-Z]+)?\b")


def site_pages() -> ModuleType:
    """docs/.site/pages.py, which makes the generated pages of the site."""
    spec = importlib.util.spec_from_file_location("site_pages", DOCS / ".site" / "pages.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Block:
    """A fenced block: its kind (``python``, ``sh`` ...), the file it is, what it needs, its text, its first line."""

    kind: str
    title: str | None
    needs: str | None
    body: str
    line: int

    def commands(self) -> list[str]:
        """The command lines of a shell block: comments gone, continued lines joined."""
        joined = self.body.replace("\\\n", " ")
        lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in joined.splitlines())
        return [line for line in lines if line]


def blocks(text: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(text):
        yield Block(found["kind"], found["title"], found["needs"], found["body"], text[: found.start()].count("\n") + 1)


def inline_commands(text: str) -> Iterator[str]:
    """Commands that stand in a sentence; those with a place left open (``...``, ``<name>``, ``VERB``) are left out."""
    for found in _INLINE.finditer(_BLOCK.sub("", text)):
        if not _OPEN.search(re.sub(r"\"[^\"]*\"|'[^']*'", "", found[1])):
            yield found[1]


def words(command: str) -> list[str]:
    """The words of a command as the shell has them; brackets it would match with file names are refused."""
    if re.search(r"[\[\]]", re.sub(r"\"[^\"]*\"|'[^']*'", "", command)):
        raise AssertionError(f"the shell takes brackets for a pattern of file names; quote them: {command}")
    return [name for word in shlex.split(command) for name in (sorted(glob(word)) if word.endswith("/*") else [word])]
