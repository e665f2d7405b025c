"""What a catalogue is written in: files by the pin of their contents, and recipes that make them of what a source
delivers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import convert
from .sources import Source


@dataclass(frozen=True)
class File:
    """A file by name, the sha256 and the size in bytes of its contents."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Make:
    """How a file is made: ``convert(*members)`` of the source's members returns its bytes."""

    members: tuple[str, ...]
    convert: Callable[..., bytes] = convert.as_is


@dataclass(frozen=True)
class Recipe:
    """One source and the files made of what it delivers."""

    source: Source
    makes: dict[str, Make]


@dataclass(frozen=True)
class Collection:
    """Files that are fetched together."""

    name: str
    files: tuple[File, ...]
    recipes: tuple[Recipe, ...]
