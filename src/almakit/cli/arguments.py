"""The arguments of the verbs as data, and the parsers made from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import AlmakitError, BadInput

DONE, ERROR, USAGE, REFUSED, FAILED_IMAGES, WORSE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
EXIT_CODES = """exit codes:
  0 done    1 error    2 wrong usage    3 refused by preflight    4 done, but some images failed
  5 worse than allowed (compare)    130 interrupted, resumable"""

Row = tuple[Any, ...]
"""An argument: its name, what its values are, its help and perhaps its default.

The name is that of a flag with what stands for its value, ``--seconds S``, or of a position, ``folder``, with ``+``,
``*`` or ``?`` behind it for several, any number, or none. Its values are of a type or what a function makes of the
text, one of a tuple of choices, or False for a flag without a value; a list of one of these may be repeated.
"""

FOLDER: Row = ("folder", Path, "a run folder")
FOLDERS: Row = ("folders+ RUN", Path, "a run folder")
JUDGED: Row = ("--model MODEL", str, "the model (default: the run's own, unless that is Python code)")
DEVICE: Row = ("--device DEVICE", str, "cpu, cuda, ...", "auto")
TRUST: Row = (
    "--trust",
    False,
    "allow a model file to be unpickled, which can run code in it (a setting in a run folder is ignored)",
)
JSON: Row = ("--json", False, "print JSON instead of the table")
VERBOSE: Row = ("--verbose", False, "print all columns of the table, and what they mean")
QUIET: Row = ("--quiet", False, "no progress, no notes")
NO_FIGURES: Row = ("--no-figures", False, "leave out the figures made with matplotlib")


class Usage(AlmakitError):
    """The command line itself is wrong."""


@contextmanager
def usage() -> Iterator[None]:
    """Report invalid settings as usage errors."""
    try:
        yield
    except BadInput as error:
        raise Usage(str(error)) from error


def within(kind: type, low: float, high: float = float("inf")) -> Callable[[str], Any]:
    """Numbers from ``low`` to ``high``."""

    def number(text: str) -> Any:
        if not low <= (value := kind(text)) <= high:
            bounds = f"from {low:g} to {high:g}" if high < float("inf") else f"of at least {low:g}"
            raise argparse.ArgumentTypeError(f"{text}: give a number {bounds}")
        return value

    number.__name__ = kind.__name__  # argparse's word for a text that is not a number
    return number


def checked(rule: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser of values that applies ``rule``; its BadInput becomes a usage error that names the flag."""

    def value(text: str) -> Any:
        try:
            return rule(text)
        except BadInput as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return value


def add(parser: argparse.ArgumentParser, rows: tuple[Row, ...]) -> None:
    """Adds the arguments to a parser."""
    for names, kind, text, *default in rows:
        words = names.split()
        flags = [word for word in words if word.startswith("-")]
        options: dict[str, Any] = {"help": text.replace("%", "%%")}
        if default:
            options["default"] = default[0]
            options["help"] += f" (default {default[0]})"
        if isinstance(kind, list):
            (kind,), options["action"] = kind, "append"
            options.setdefault("default", [])
        if kind is False:
            options["action"] = "store_true"
        else:
            options["choices" if isinstance(kind, tuple) else "type"] = kind
        if len(words) > max(len(flags), 1):
            options["metavar"] = words[-1]
        if not flags and words[0][-1] in "+*?":
            options["nargs"] = words[0][-1]
        parser.add_argument(*(flags or [words[0].rstrip("+*?")]), **options)


def parser_of(verb: str, **options: Any) -> argparse.ArgumentParser:
    """The parser of a verb, with the description and examples of its module."""
    module = import_module(f".{verb}", __package__)
    parser = argparse.ArgumentParser(
        prog=f"almakit {verb}",
        description=(module.__doc__ or "").strip(),
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        **options,
    )
    add(parser, module.ARGUMENTS)
    return parser
