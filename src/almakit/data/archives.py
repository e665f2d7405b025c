"""Members of downloaded archives, taken out one by one: only what was asked for, inside the folder, no larger than
allowed."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from ..errors import AlmakitError, Unavailable

_BLOCK = 1 << 20


def unpack(archive: Path, into: Path, wanted: Collection[str], limit: int) -> dict[str, Path]:
    """The files ``wanted`` of a tar or zip archive, written below the folder ``into``: name -> path.

    An archive with any member that would leave the folder (an absolute name, ``..``) is refused whole; a wanted member
    must be a regular file; together the members may have at most ``limit`` bytes, counted while they are written and
    not as the header says.
    """
    try:
        return _unpacked(archive, into, wanted, limit)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        if isinstance(error, AlmakitError):
            raise
        raise Unavailable(
            f"{archive.name} is damaged ({type(error).__name__}: {error}); it was not unpacked."
        ) from error


def _unpacked(archive: Path, into: Path, wanted: Collection[str], limit: int) -> dict[str, Path]:
    found: dict[str, Path] = {}
    room = limit
    with _reading(archive) as members:
        for name, content in members:
            _refuse_escape(archive, name)
            if name.removeprefix("./") not in wanted:
                continue
            if content is None:
                raise Unavailable(f"{archive.name} holds {name!r} as a link or a device, not as a file.")
            target = into / PurePosixPath(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                while block := content.read(_BLOCK):
                    room -= len(block)
                    if room < 0:
                        raise Unavailable(f"{archive.name} unpacks to more than the {limit} bytes expected of it.")
                    out.write(block)
            found[name.removeprefix("./")] = target
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise Unavailable(f"{archive.name} does not hold {', '.join(missing)}.")
    return found


def _refuse_escape(archive: Path, name: str) -> None:
    """A member's name must stay below the folder it is unpacked into, on every operating system."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if ".." in parts or name.startswith(("/", "\\")) or PureWindowsPath(name).drive:
        raise Unavailable(f"{archive.name} has a member {name!r} that points outside the archive; it was not unpacked.")


@contextmanager
def _reading(archive: Path) -> Iterator[Iterator[tuple[str, IO[bytes] | None]]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            yield _zip_members(opened)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as opened:
            yield _tar_members(opened)
    else:
        raise Unavailable(f"{archive.name} is neither a tar nor a zip archive.")


def _zip_members(opened: zipfile.ZipFile) -> Iterator[tuple[str, IO[bytes] | None]]:
    for info in opened.infolist():
        is_link = (info.external_attr >> 16) & 0o170000 == 0o120000
        if is_link or info.is_dir():
            yield info.filename, None
            continue
        with opened.open(info) as content:
            yield info.filename, content


def _tar_members(opened: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes] | None]]:
    for info in opened:
        yield info.name, opened.extractfile(info) if info.isreg() else None
