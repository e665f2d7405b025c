"""The small language of attacks and goals as text: ``name(setting=value, ...)`` with numbers, words, lists in brackets
and nested calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from .errors import BadInput

FRACTION = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*/\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*\Z"
)


def parse_number(text: str) -> float:
    """The number that ``"0.3"`` or a fraction such as ``"8/255"`` stands for; ValueError for anything else."""
    if (parts := FRACTION.match(text)) is None:
        return float(text)
    if not float(parts[2]):
        raise ValueError(f"{text!r} divides by zero")
    return float(parts[1]) / float(parts[2])


@dataclass(frozen=True)
class Call:
    """A name with its settings, before anything is looked up."""

    name: str
    arguments: dict[str, Value] = field(default_factory=dict)


Value = str | int | float | bool | None | tuple["Value", ...] | Call

# A fraction is one number, 8/255 or 8 / 255; with more behind it, as in 1/2/photos, it is a word.
TOKEN = re.compile(
    r"""\s*(?:(?P<text>"[^"]*"|'[^']*')|(?P<fraction>[+-]?[0-9.]+\s*/\s*[0-9.]+(?=\s*(?:[,)\]]|\Z)))
    |(?P<word>[A-Za-z0-9_.+/~-][A-Za-z0-9_.+/:~-]*)|(?P<mark>[()\[\],=]))""",
    re.VERBOSE,
)
DEEPEST = 20
WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None}


def parse(text: str, what: str = "attack", example: str = "alma(distance=l2, steps=100)") -> Call:
    """Parse a text as a call; a name alone is a call without settings. ``what`` and ``example`` are used in errors."""
    parser = _Parser(text, what, example)
    value = parser.value()
    if parser.peek() is not None:
        parser.fail(f"nothing may follow, but {parser.peek()!r} does")
    if isinstance(value, str):
        return Call(value)
    if not isinstance(value, Call):
        parser.fail(f"it must start with the name of {'an attack' if what == 'attack' else f'a {what}'}")
    return value


class _Parser:
    def __init__(self, text: str, what: str, example: str):
        self.what, self.example = what, example
        self.source, self.tokens, self.at, self.depth = text, [], 0, 0  # type: str, list[tuple[str, str]], int, int
        position, stripped = 0, text.rstrip()
        while position < len(stripped):
            match = TOKEN.match(stripped, position)
            if match is None:
                self.fail(f"{stripped[position:].strip()[:1]!r} has no meaning here")
            self.tokens.append((match.lastgroup or "", match.group(match.lastgroup or 0)))
            position = match.end()

    def fail(self, why: str) -> NoReturn:
        shown = self.source if len(self.source) <= 200 else f"{self.source[:197]}..."
        raise BadInput(f"cannot read the {self.what} {shown!r}: {why}. Write it like {self.example}.")

    def peek(self) -> str | None:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else None

    def take(self, mark: str) -> bool:
        if self.peek() == mark and self.tokens[self.at][0] == "mark":
            self.at += 1
            return True
        return False

    def need(self, mark: str) -> None:
        if not self.take(mark):
            self.fail(f"{mark!r} is missing" + (f" before {self.peek()!r}" if self.peek() else " at the end"))

    def value(self) -> Value:
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail(f"it is nested more than {DEEPEST} deep")
        found = self._value()
        self.depth -= 1
        return found

    def _value(self) -> Value:
        if self.take("["):
            items: list[Value] = []
            while not self.take("]"):
                items.append(self.value())
                if not self.take(","):
                    self.need("]")
                    break
            return tuple(items)
        if self.peek() is None:
            self.fail("it ends too early")
        kind, token = self.tokens[self.at]
        self.at += 1
        if kind == "text":
            return Call(token[1:-1], self.arguments()) if self.take("(") else token[1:-1]
        if kind == "mark":
            self.fail(f"{token!r} is out of place")
        if self.take("("):
            return Call(token, self.arguments())
        return _plain(token)

    def arguments(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        while not self.take(")"):
            name = self.peek() or ""
            self.at += 1
            self.need("=")
            if name in found:
                self.fail(f"{name!r} is given twice")
            found[name] = self.value()
            if not self.take(","):
                self.need(")")
                break
        return found


def _plain(token: str) -> Value:
    if token.lower() in WORDS:
        return WORDS[token.lower()]
    for kind in (int, parse_number):
        try:
            return kind(token)
        except ValueError:
            continue
    return token
