"""Image files: safetensors files that are written atomically and checked by their hash before use. No torch here."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ...files import write_whole
from ..failures import Corrupt, explained
from .records import AttackInfo, ChunkKey, ChunkRow

Array = NDArray[np.generic]


def pack(images: Array) -> Array:
    """``images`` (B, ...) in [0, 1], as uint8 if they lie exactly on the 8-bit grid (``unpack`` then returns the same
    floats)."""
    if images.dtype == np.float32 and images.size:
        levels: Array = np.rint(images * np.float32(255)).astype(np.uint8)
        if np.array_equal(unpack(levels), images):
            return levels
    return np.ascontiguousarray(images)


def unpack(stored: Array) -> Array:
    """The inverse of ``pack``: float32 (or float64) images (B, ...)."""
    return stored.astype(np.float32) / np.float32(255) if stored.dtype == np.uint8 else stored


def inside(folder: Path, file: str) -> Path:
    """The path of ``file`` in a run folder. Raises an error if the name or a link leads out of the folder, because the
    database may come from another person."""
    place = PurePosixPath(file)
    if (
        not place.parts
        or ".." in place.parts
        or place.is_absolute()
        or PureWindowsPath(file).drive
        or {*file} & {*"\\\0"}
    ):
        raise Corrupt(f"{folder}: its database names a file {file!r} outside the folder; do not use this folder.")
    if not (folder / file).resolve().is_relative_to(folder.resolve()):
        raise Corrupt(f"{folder / file} is a link to a place outside the folder; put the file itself there.")
    return folder / file


def write(path: Path, tensors: dict[str, Array]) -> str:
    """Write a file of tensors atomically. Returns its sha256.

    The file has no metadata, whose order is not fixed: equal images must give equal files.
    """
    content = save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    write_bytes(path, content)
    return hashlib.sha256(content).hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    """Replace the file ``path`` by ``content`` atomically. On failure the old file stays and an error is raised."""
    with explained(path):
        write_whole(path, content)


def read(folder: Path, row: ChunkRow) -> dict[str, Array]:
    """The tensors of a chunk's file. Raises ``Corrupt`` if its sha256 is not the recorded one."""
    if fault := fault_of(folder, row):
        again = "Run the same `almakit run` command again: it recomputes this chunk and keeps the rest."
        raise Corrupt(f"{folder / str(row.file)} {fault}. {again}")
    path = inside(folder, str(row.file))
    try:
        found = dict(load(path.read_bytes()))
        images = found["images"]
    except (SafetensorError, KeyError, TypeError, ValueError) as error:  # a manipulated file can have a matching hash
        raise Corrupt(f"{path} cannot be read: {error}.") from error
    fits = images.ndim >= 2 and images.dtype.kind in "uf" and np.isfinite(images).all()
    if not fits or ("maps" in found and found["maps"].ndim != 3):
        raise Corrupt(f"{path} does not hold images, which almakit always writes there; do not use this folder.")
    return found


def fault_of(folder: Path, row: ChunkRow) -> str | None:
    """Why a chunk's file does not match its record; None if it does, or if the chunk has no file."""
    if row.file is None:
        return None
    try:
        content = inside(folder, row.file).read_bytes()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    found = hashlib.sha256(content).hexdigest()
    if found == row.sha256:
        return None
    return (
        f"does not have its recorded contents ({len(content)} bytes, sha256 {found[:12]}..., recorded "
        f"{str(row.sha256)[:12]}...)"
    )


# Paths relative to the run folder.


def original_file(chunk: int) -> str:
    """The file of a chunk's clean images."""
    return f"originals/{chunk:05d}.safetensors"


def attack_folder(info: AttackInfo) -> str:
    """The name of the folder of an attack's images: its number and a slug of its text."""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{info.text.partition('(')[0]}-{info.distance}".lower()).strip("-")
    return f"{info.index:02d}-{slug[:80]}"


def adversarial_file(info: AttackInfo, key: ChunkKey) -> str:
    """The file of the adversarial images of an attack on a chunk."""
    turn = f"-{key.round:03d}" if key.round else ""
    return f"adversarials/{attack_folder(info)}/{key.chunk:05d}{turn}.safetensors"
