"""Draws docstrings of the package and sentences of the docs, for a reader who did not write them.

``python tests/docs/sample.py [SEED]`` prints 40 of each with their places. A text that such a reader has to read twice
is rewritten.
"""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Iterator

from words import ROOT, of_page

COUNT = 40


def docstrings() -> Iterator[tuple[str, str]]:
    """(place, text) of every module, class and function of the package that has a docstring."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                name = getattr(node, "name", "module")
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)} {name}", text


def sentences() -> Iterator[tuple[str, str]]:
    """(page, sentence) of the README and the pages, tables left out."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        lines = (
            line for _, line in of_page(path, keep_code=True) if not line.lstrip().startswith(("|", "#", "<", "!"))
        )
        for paragraph in re.split(r"\n\s*\n|\n\s*[-*] |\n\d+\. ", "\n".join(lines)):
            for sentence in re.split(r"(?<=[.:!?])\s+(?=[A-Z`*])", " ".join(paragraph.split())):
                if len(sentence.split()) > 4:
                    yield path.relative_to(ROOT).as_posix(), sentence


if __name__ == "__main__":
    chance = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    for kind in (docstrings, sentences):
        for number, (place, text) in enumerate(chance.sample(list(kind()), COUNT), 1):
            print(f"[{number}] {place}\n{text}\n")
