"""Files by name: from the folders of ALMAKIT_DATA, else from the cache, else from pinned sources, checked before they
are used.

The cache is the folder ALMAKIT_HOME (default ``~/.cache/almakit``). ALMAKIT_OFFLINE=1 forbids every download.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

from ..errors import Unavailable, UnknownName, suggestion
from .catalogue import COLLECTIONS
from .recipes import Collection, File, Recipe
from .sources import Progress

__all__ = ["collections", "fetch", "folders", "home", "local", "path"]

_BLOCK = 1 << 20
_checked: set[tuple[str, int, int, str]] = set()


def folders() -> list[Path]:
    """The folders of ALMAKIT_DATA, in their order."""
    return [Path(entry).expanduser() for entry in os.environ.get("ALMAKIT_DATA", "").split(os.pathsep) if entry]


def home() -> Path:
    """The cache: ALMAKIT_HOME, or ``~/.cache/almakit``."""
    return Path(os.environ.get("ALMAKIT_HOME") or "~/.cache/almakit").expanduser()


def collections() -> list[str]:
    """What ``fetch`` knows."""
    return list(COLLECTIONS)


def local(name: str) -> Path | None:
    """The file if it lies, whole and unaltered, in a folder of ALMAKIT_DATA or in the cache; nothing is downloaded."""
    return _look(_entry(name)[1], [])


def path(name: str, progress: Progress | None = None) -> Path:
    """The file of that name, e.g. ``mnist/t10k-images-idx3-ubyte.gz``; fetched, checked and kept if it is not at
    hand."""
    collection, file = _entry(name)
    tried: list[str] = []
    return _look(file, tried) or _obtain(collection, file, progress, tried)


def fetch(collection: str, progress: Progress | None = None) -> list[Path]:
    """All files of a collection, ready for use offline."""
    if collection not in COLLECTIONS:
        raise UnknownName(f"there is nothing to fetch called {collection!r}; {suggestion(collection, COLLECTIONS)}")
    return [path(file.name, progress) for file in COLLECTIONS[collection].files]


def _entry(name: str) -> tuple[Collection, File]:
    files = {file.name: (collection, file) for collection in COLLECTIONS.values() for file in collection.files}
    if name not in files:
        raise UnknownName(f"the catalogue has no file called {name!r}; {suggestion(name, files)}")
    return files[name]


def _look(file: File, tried: list[str]) -> Path | None:
    for folder, what in [*((folder, "ALMAKIT_DATA") for folder in folders()), (home(), "the cache")]:
        candidate = folder / file.name
        if not candidate.is_file():
            tried.append(f"{what} ({folder}): no such file")
        elif reason := _fault(candidate, file):
            tried.append(f"{what} ({folder}): {reason}")
        else:
            return candidate
    return None


def _obtain(collection: Collection, file: File, progress: Progress | None, tried: list[str]) -> Path:
    for recipe in collection.recipes:
        if file.name not in recipe.makes:
            continue
        if os.environ.get("ALMAKIT_OFFLINE", "0") not in ("", "0"):
            tried.append(f"{recipe.source}: not asked, ALMAKIT_OFFLINE is set")
            continue
        try:
            _follow(recipe, collection, file, progress)
            return home() / file.name
        except Exception as error:
            # Whatever a broken or altered download does to its reader, the next source may still be good.
            reason = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"
            tried.append(f"{recipe.source}: {reason}")
    listed = "".join(f"\n  - {line}" for line in tried)
    raise Unavailable(
        f"{file.name} could not be found. Tried in turn:{listed}\nPut the file into a folder named in the environment "
        f"variable ALMAKIT_DATA (as {file.name}), or run `almakit fetch {collection.name}` where one of these sources "
        "can be reached."
    )


def _follow(recipe: Recipe, collection: Collection, asked: File, progress: Progress | None) -> None:
    """Runs a recipe and keeps all its files that the cache lacks; the file asked for must come out right."""
    missing = [
        file
        for file in collection.files
        if file.name in recipe.makes and (file == asked or not (home() / file.name).is_file())
    ]
    with tempfile.TemporaryDirectory(prefix="almakit-", dir=_made(home())) as scratch:
        wanted = {member for file in missing for member in recipe.makes[file.name].members}
        members = recipe.source.files(wanted, Path(scratch), progress)
        for file in missing:
            make = recipe.makes[file.name]
            made = Path(scratch) / f"made{Path(file.name).suffix}"
            made.write_bytes(make.convert(*(members[name] for name in make.members)))
            if reason := _fault(made, file):
                raise Unavailable(reason)
            os.replace(made, _made((home() / file.name).parent) / Path(file.name).name)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"the cache folder {folder} cannot be made ({error}); point ALMAKIT_HOME to a folder you may write."
        ) from error
    return folder


def _fault(candidate: Path, file: File) -> str | None:
    """Why the candidate is not the file, or None. A file is read once per process as long as its size and time stay the
    same."""
    state = candidate.stat()
    key = (str(candidate), state.st_size, state.st_mtime_ns, file.sha256)
    if key in _checked:
        return None
    try:
        found = _contents_sha256(candidate, file.size)
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        return f"cannot be read ({error})"
    if found != file.sha256:
        return f"its contents have sha256 {found}, not {file.sha256}"
    _checked.add(key)
    return None


def _contents_sha256(candidate: Path, limit: int) -> str:
    digest = hashlib.sha256()
    if candidate.suffix == ".npz":
        with zipfile.ZipFile(candidate) as archive:
            for name in sorted(archive.namelist()):
                digest.update(name.encode() + b"\0")
                with archive.open(name) as member:
                    limit -= _feed(digest, member, limit)
    else:
        with gzip.open(candidate) if candidate.suffix == ".gz" else candidate.open("rb") as opened:
            _feed(digest, opened, limit)
    return digest.hexdigest()


def _feed(digest: hashlib._Hash, opened: IO[bytes] | gzip.GzipFile, limit: int) -> int:
    """Hashes a stream of at most ``limit`` bytes: a compressed file must not unfold into more than it should hold."""
    done = 0
    while block := opened.read(_BLOCK):
        done += len(block)
        if done > limit:
            raise ValueError(f"it holds more than {limit} bytes")
        digest.update(block)
    return done
