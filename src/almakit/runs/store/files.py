"""Images on disk: safetensors files that appear whole or not at all, and are checked by hash before they are used. No
torch here."""

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
    """``images`` (B, ...) in [0, 1] as uint8 where they lie exactly on the 8-bit grid (then ``unpack`` gives the very
    same floats)."""
    if images.dtype == np.float32 and images.size:
        levels: Array = np.rint(images * np.float32(255)).astype(np.uint8)
        if np.array_equal(unpack(levels), images):
            return levels
    return np.ascontiguousarray(images)


def unpack(stored: Array) -> Array:
    """What ``pack`` was given: float32 (or float64) images (B, ...)."""
    return stored.astype(np.float32) / np.float32(255) if stored.dtype == np.uint8 else stored


def inside(folder: Path, file: str) -> Path:
    """The path of a run folder's ``file``, which must lie in it: a database from elsewhere may name anything, and a
    name may be a link to anywhere."""
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
    """Writes a file of tensors, whole, and returns its sha256.

    No metadata goes in: its order in the file is not fixed, and equal images must make equal files.
    """
    content = save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    write_bytes(path, content)
    return hashlib.sha256(content).hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    """Puts ``content`` in place of ``path`` whole, or leaves what was there and says why."""
    with explained(path):
        write_whole(path, content)


def read(folder: Path, row: ChunkRow) -> dict[str, Array]:
    """The tensors of a chunk's file, which has the recorded sha256; ``Corrupt`` with a sentence otherwise."""
    if fault := fault_of(folder, row):
        again = "Run the same `almakit run` command again: it recomputes this chunk and keeps the rest."
        raise Corrupt(f"{folder / str(row.file)} {fault}. {again}")
    path = inside(folder, str(row.file))
    try:
        found = dict(load(path.read_bytes()))
        images = found["images"]
    except (SafetensorError, KeyError, TypeError, ValueError) as error:  # a hash fits what somebody made it fit
        raise Corrupt(f"{path} cannot be read: {error}.") from error
    fits = images.ndim >= 2 and images.dtype.kind in "uf" and np.isfinite(images).all()
    if not fits or any(found[name].ndim != 3 for name in ("maps", "predictions") if name in found):
        raise Corrupt(f"{path} does not hold images, which almakit always writes there; do not use this folder.")
    return found


def fault_of(folder: Path, row: ChunkRow) -> str | None:
    """Why a chunk's file is not what was recorded; None where it is, or where the chunk has no file."""
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
