"""Images on disk: safetensors files that appear whole or not at all, and are checked by hash before they are
believed."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..failures import Corrupt, explained
from .records import AttackInfo

if TYPE_CHECKING:
    from .database import ChunkKey

Array = NDArray[np.generic]


def pack(images: Array) -> Array:
    """``images`` (B, ...) in [0, 1] as uint8 where they lie exactly on the 8-bit grid (then ``unpack`` gives the very
    same floats)."""
    if images.dtype == np.float32 and images.size:
        levels = np.rint(images.astype(np.float32) * np.float32(255))
        if np.array_equal(levels / np.float32(255), images):
            images = levels.astype(np.uint8)
            return images
    return np.ascontiguousarray(images)


def unpack(stored: Array) -> Array:
    """What ``pack`` was given: float32 (or float64) images (B, ...)."""
    return stored.astype(np.float32) / np.float32(255) if stored.dtype == np.uint8 else stored


def inside(folder: Path, file: str) -> Path:
    """The path of a run folder's ``file``, which must lie in it: a database from elsewhere may name anything, and a
    name may be a link to anywhere."""
    parts = PurePosixPath(file).parts
    if (
        not parts
        or ".." in parts
        or PurePosixPath(file).is_absolute()
        or PureWindowsPath(file).drive
        or "\\" in file
        or "\0" in file
    ):
        raise Corrupt(
            f"{folder}: its database names a file {file!r} outside the folder; almakit never writes such a name. Do "
            "not use this folder."
        )
    if not (folder / file).resolve().is_relative_to(folder.resolve()):
        raise Corrupt(
            f"{folder / file} is a link to a place outside the folder; almakit never makes one. Put the file itself "
            "there, or choose another folder."
        )
    return folder / file


def write(path: Path, tensors: dict[str, Array]) -> str:
    """Writes a file atomically (temporary file, fsync, rename, fsync of the folder) and returns its sha256.

    No metadata goes in: its order in the file is not fixed, and equal images must make equal files.
    """
    content = save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    write_bytes(path, content)
    return hashlib.sha256(content).hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    """Puts ``content`` in place of ``path`` whole, or leaves what was there."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def read(path: Path, sha256: str) -> dict[str, Array]:
    """The tensors of a file that has this sha256; ``Corrupt`` with a sentence otherwise."""
    if fault := fault_of(path, sha256):
        raise Corrupt(
            f"{path} {fault}. Run the same `almakit run` command again: it recomputes this chunk and keeps the rest."
        )
    try:
        found = dict(load(path.read_bytes()))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:  # a hash fits what somebody made it fit
        raise Corrupt(f"{path} cannot be read: {error}.") from error
    images = found.get("images")
    if images is None or images.ndim < 2 or images.dtype.kind not in "uf" or not np.isfinite(images).all():
        raise Corrupt(f"{path} does not hold images, which almakit always writes there; do not use this folder.")
    return found


def fault_of(path: Path, sha256: str) -> str | None:
    """Why the file is not what was recorded, or None."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    found = hashlib.sha256(content).hexdigest()
    return (
        None
        if found == sha256
        else f"does not have its recorded contents ({len(content)} bytes, sha256 {found[:12]}..., recorded "
        f"{sha256[:12]}...)"
    )


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _sync_folder(folder: Path) -> None:
    """Makes the rename durable, where folders can be opened (not on Windows)."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # pragma: no cover
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def row_of(folder: Path, maps: Array | None, place: int, rank: int | None = 3) -> Array:
    """One of the maps, or labels, that lie beside the images of a chunk."""
    if maps is None or maps.ndim not in (rank or maps.ndim,) or not (maps.ndim and 0 <= place < len(maps)):
        raise Corrupt(f"{folder} lacks a map, or labels, of an image that its database counts; resume the run.")
    row: Array = maps[place]
    return row


# What lies where, relative to the run folder.


def original_file(chunk: int) -> str:
    """Where a chunk's clean images lie."""
    return f"originals/{chunk:05d}.safetensors"


def attack_folder(info: AttackInfo) -> str:
    """The name of a folder for an attack's images: its number and a slug, whatever its text holds."""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{info.text.partition('(')[0]}-{info.distance}".lower()).strip("-")
    return f"{info.index:02d}-{slug[:80]}"


def adversarial_file(info: AttackInfo, key: ChunkKey) -> str:
    """Where the adversarial images of an attack on a chunk lie."""
    turn = f"-{key.round:03d}" if key.round else ""
    return f"adversarials/{attack_folder(info)}/{key.chunk:05d}{turn}.safetensors"
