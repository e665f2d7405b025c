"""Finds words of ``words.txt`` in pages, docstrings, comments, messages and names; part of ``make lint``.

Code in the pages is not searched. A line that needs a word is listed under ``[allowed]`` in ``words.txt``.
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


def sections() -> dict[str, list[str]]:
    """The lines of each section of ``words.txt``."""
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("words.txt").read_text().splitlines():
        if line.startswith("["):
            lines = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return found


def pattern(lines: list[str]) -> re.Pattern[str]:
    """Matches any word of ``lines`` (``expression = advice``) that is not part of a path or a longer word."""
    words = "|".join(line.partition(" = ")[0] for line in lines)
    return re.compile(rf"(?<![\w/.-])(?:{words})(?![\w/-]|\.\w)", re.IGNORECASE)


def of_page(path: Path, keep_code: bool = False) -> Iterator[tuple[int, str]]:
    """Numbered lines of a Markdown page, or of a notebook's Markdown cells, without blocks of code and inline code."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced:
            yield number, line if keep_code else re.sub(r"`[^`]*`", "", line)


def of_module(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Numbered lines of a module's comments, docstrings and messages, and its names (True)."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, re.sub(r"``[^`]*``", "", line), False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.NAME):
            yield token.start[0], re.sub(r"``[^`]*``", "", token.string), token.type == tokenize.NAME


def findings() -> Iterator[str]:
    """One line for each use of a word."""
    listed = sections()
    text, page, names = (
        pattern(lines) for lines in (listed["text"], listed["text"] + listed["pages"], listed["names"])
    )
    allowed = [tuple(line.split(": ", 1)) for line in listed.get("allowed", [])]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("notebooks/*.ipynb")]
    lines = [(path, *line, False) for path in sorted(pages) for line in of_page(path)]
    lines += [(path, *line) for path in sorted((ROOT / "src").rglob("*.py")) for line in of_module(path)]
    for path, number, line, is_name in lines:
        file = path.relative_to(ROOT).as_posix()
        match = names.fullmatch(line) if is_name else (text if path.suffix == ".py" else page).search(line)
        if match and not any(file == name and part in line for name, part in allowed):
            yield f"{file}:{number}: {match[0]!r} in: {line.strip()[:110]}"


if __name__ == "__main__":
    print("\n".join(found := list(findings())), f"{len(found)} words of tests/docs/words.txt found.", sep="\n")
    sys.exit(bool(found))
