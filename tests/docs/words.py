"""Words that almakit no longer uses in docs, docstrings, comments and messages, and what to write instead.

``python tests/docs/words.py`` (part of ``make lint``) lists every line that has one and exits with 1. Code in the docs
and names in the source are not searched. A line that needs a word stands in ``words-allowed.txt``, after its file.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(__file__).with_name("words-allowed.txt")
WORDS = {
    r"onwards?": "from there, continue",
    r"afresh|anew": "again, newly",
    r"lend(er|s)?|lent": "surrogate, pass",
    r"at hand": "available, present",
    r"house": "architecture, project",
    r"room": "space, bounds",
    r"laws?": "invariant, rule",
    r"hands": "methods, parts",
    r"one's own": "your own",
    r"wholly|the whole of|as a whole": "completely, all of",
    r"asked for": "requested, required",
    r"was tried|were tried": "measured",
    r"nothing to object": "no problems found",
    r"go(es)? on where|went on where": "resume",
    r"goes on": "continues",
    r"made good|makes good": "repair, complete",
    r"is told|are told|told of": "receives, is notified",
    r"leaves? as it came|as they came": "unchanged",
    r"looked at": "examined, checked",
    r"looks at": "examines, checks",
    r"held to": "compared with, checked against",
    r"in hand": "pending, available",
    r"lies? there": "exists",
    r"beside ours": "next to almakit's",
    r"a sentence": "a message",
    r"in sentences?": "in a message",
    r"whom": "which",
    r"naught|nought": "zero, none",
    r"so many images": "share of images",
    r"what happened so far|done so far": "until now",
    r"a walk-through|walk through": "guide",
}
FORBIDDEN = re.compile(r"(?<![\w/.-])(" + "|".join(WORDS) + r")(?![\w/.-]*[\w/])", re.IGNORECASE)


def searched() -> list[Path]:
    """The files that are searched: pages, notebooks, source. Figures are written by benchmarks."""
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")]
    pages += [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "notebooks").glob("*.ipynb")]
    source = [path for path in (ROOT / "src").rglob("*.py")]
    return sorted(pages) + sorted(source)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of text: those of a page outside code, the docstrings, comments and strings of a module."""
    text = path.read_text()
    if path.suffix == ".py":
        yield from _of_python(text)
        return
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, re.sub(r"``[^`]*``", "", line)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"``[^`]*``", "", token.string)


def exceptions() -> set[tuple[str, str]]:
    """Pairs of a file and a line of it that may have a word of the list."""
    lines = [line for line in ALLOWED.read_text().splitlines() if line and not line.startswith("#")]
    return {(line.partition(": ")[0], line.partition(": ")[2].strip()) for line in lines}


def findings() -> list[str]:
    """One line for each use of a word."""
    allowed, found = exceptions(), []
    for path in searched():
        name = path.relative_to(ROOT).as_posix()
        for number, line in prose(path):
            for match in FORBIDDEN.finditer(line):
                if not any(name == file and part in line for file, part in allowed):
                    found.append(f"{name}:{number}: {match[0]!r} in: {line.strip()[:110]}")
    return found


if __name__ == "__main__":
    listed = findings()
    print("\n".join(listed))
    print(f"{len(listed)} uses of words that almakit no longer uses; tests/docs/words.py says what to write instead.")
    sys.exit(bool(listed))
