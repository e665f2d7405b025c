"""Image files written byte by byte, so that what a reader makes of them can be held against the numbers that went
in."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def png(samples: Array, depth: int, colour: int, extra: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """A PNG of ``samples`` (H, W) or (H, W, C) with so many bits each; ``colour`` is 0 grey, 2 RGB, 3 palette, 4 grey +
    alpha, 6 RGB + alpha."""
    rows = samples.reshape(len(samples), -1)
    if depth == 16:
        lines = [row.astype(">u2").tobytes() for row in rows]
    elif depth == 8:
        lines = [row.astype(np.uint8).tobytes() for row in rows]
    else:
        lines = [
            np.packbits(((row[:, None] >> np.arange(depth)[::-1]) & 1).astype(np.uint8).ravel()).tobytes()
            for row in rows
        ]
    header = struct.pack(">IIBBBBB", samples.shape[1], samples.shape[0], depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + line for line in lines))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(*part) for part in [(b"IHDR", header), *extra, (b"IDAT", data), (b"IEND", b"")]
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def exif(orientation: int) -> bytes:
    """An EXIF block that says how to hold the camera, and nothing else."""
    return b"II*\0" + struct.pack("<IHHHII", 8, 1, 274, 3, 1, orientation) + b"\0\0\0\0"


def tiff(
    samples: Array,
    *,
    photometric: int = 1,
    sample_format: int = 1,
    bits: int | None = None,
    big: bool = False,
    data: bytes | None = None,
    extra: dict[int, tuple[int, list[int]]] | None = None,
) -> bytes:
    """An uncompressed TIFF of ``samples`` (H, W) or (H, W, C) in their own type; ``data`` stands for the bytes where
    they are packed otherwise."""
    order = ">" if big else "<"
    high, wide, *rest = samples.shape
    channels = rest[0] if rest else 1
    content = samples.astype(samples.dtype.newbyteorder(order)).tobytes() if data is None else data
    depth = bits or samples.dtype.itemsize * 8
    tags: dict[int, tuple[int, list[int]]] = {
        256: (4, [wide]),
        257: (4, [high]),
        258: (3, [depth] * channels),
        259: (3, [1]),
        262: (3, [photometric]),
        273: (4, [0]),
        277: (3, [channels]),
        278: (4, [high]),
        279: (4, [len(content)]),
        339: (3, [sample_format] * channels),
        **(extra or {}),
    }
    at = 8 + 2 + 12 * len(tags) + 4
    entries, more = b"", b""
    for tag, (kind, values) in sorted(tags.items()):
        size = {3: "H", 4: "I"}[kind]
        packed = struct.pack(f"{order}{len(values)}{size}", *values)
        if len(packed) > 4:
            packed, more = struct.pack(f"{order}I", at + len(more)), more + packed
        entries += struct.pack(f"{order}HHI", tag, kind, len(values)) + packed.ljust(4, b"\0")
    strips = struct.pack(f"{order}HHI", 273, 4, 1) + struct.pack(f"{order}I", at + len(more))
    entries = entries.replace(struct.pack(f"{order}HHI", 273, 4, 1) + b"\0\0\0\0", strips)
    head = (b"MM\0*" if big else b"II*\0") + struct.pack(f"{order}I", 8) + struct.pack(f"{order}H", len(tags))
    return head + entries + b"\0\0\0\0" + more + content


def netpbm(kind: int, samples: Array, most: int | None) -> bytes:
    """P1 to P6: text or bytes, of bits, grey levels or colours up to ``most``."""
    head = f"P{kind}\n{samples.shape[1]} {samples.shape[0]}\n" + (f"{most}\n" if most else "")
    if kind <= 3:
        return (head + "\n".join(" ".join(map(str, row.ravel().tolist())) for row in samples) + "\n").encode()
    if kind == 4:
        return head.encode() + np.packbits(samples.astype(np.uint8), axis=1).tobytes()
    return head.encode() + samples.astype(np.uint8 if (most or 0) < 256 else ">u2").tobytes()


def pfm(samples: Array) -> bytes:
    """Grey floats, from the bottom up."""
    return f"Pf\n{samples.shape[1]} {samples.shape[0]}\n-1.0\n".encode() + samples[::-1].astype("<f4").tobytes()


def bmp(samples: Array) -> bytes:
    """24 bits of colour, blue first, from the bottom up, rows of a multiple of 4 bytes."""
    lines = [row[:, ::-1].astype(np.uint8).tobytes() for row in samples[::-1]]
    content = b"".join(line + b"\0" * (-len(line) % 4) for line in lines)
    return (
        b"BM"
        + struct.pack("<IHHI", 54 + len(content), 0, 0, 54)
        + struct.pack("<IiiHHIIiiII", 40, samples.shape[1], samples.shape[0], 1, 24, 0, len(content), 0, 0, 0, 0)
        + content
    )


def tga(samples: Array) -> bytes:
    """Uncompressed colours, blue first, from the top down."""
    high, wide = samples.shape[:2]
    return (
        struct.pack("<BBBHHBHHHHBB", 0, 0, 2, 0, 0, 0, 0, 0, wide, high, 24, 0x20)
        + samples[..., ::-1].astype(np.uint8).tobytes()
    )


def announced(wide: int, high: int) -> bytes:
    """A PNG that says it is so large and holds next to nothing: a decompression bomb."""
    header = struct.pack(">IIBBBBB", wide, high, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(*part) for part in [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b"")]
    )
