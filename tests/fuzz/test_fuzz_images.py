"""Image files of every format and mode at hand: each is read as the numbers that were written, or refused with a
sentence; never as anything else."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzz import picture_files as made
from fuzz.amount import TIMES, amount, outcome
from PIL import Image

from almakit import data
from almakit.errors import AlmakitError

HIGH, WIDE = 6, 9
ROWS, COLUMNS = np.mgrid[0:HIGH, 0:WIDE]
GREY = (20 * ROWS + 11 * COLUMNS + 5).astype(np.uint8)
COLOUR = np.stack([GREY, 255 - GREY, 20 + 18 * COLUMNS + ROWS], -1).astype(np.uint8)
DEEP = (GREY.astype(np.uint16) * 256 + 77).astype(np.uint16)
BITS = ((ROWS + COLUMNS) % 3 == 0).astype(np.uint8)
FLOATS = (DEEP / 65535).astype(np.float32)
INDEX = (ROWS * 2 + COLUMNS) % 16
PALETTE = np.array([[17 * i, 255 - 13 * i, (29 * i) % 256] for i in range(16)], np.uint8)
CYAN = np.stack([GREY, 255 - GREY, GREY // 2, GREY // 3], -1).astype(np.uint8)
OPAQUE, GLASS = np.full_like(GREY, 255), np.where(COLUMNS > 4, 255, 128).astype(np.uint8)
LOSSY = 5 / 255


@dataclass(frozen=True)
class Case:
    """A file and what it shows: values (H, W) or (H, W, 3) in [0, 1], or words of the sentence that refuses it."""

    name: str
    content: bytes
    shows: Any
    within: float = 1e-7


def pillow(mode: str, array: Any, form: str, **options: Any) -> bytes:
    """Written by Pillow, where a format is its own business."""
    image = Image.fromarray(np.ascontiguousarray(array)) if mode in ("L", "RGB", "RGBA", "LA", "F", "I") else None
    if image is None:
        image = Image.frombytes(mode, (WIDE, HIGH), np.ascontiguousarray(array).tobytes())
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def palette(form: str, **options: Any) -> bytes:
    image = Image.frombytes("P", (WIDE, HIGH), INDEX.astype(np.uint8).tobytes())
    image.putpalette(PALETTE.tobytes())
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def several(form: str) -> bytes:
    first, second = Image.fromarray(COLOUR), Image.fromarray(COLOUR[::-1].copy())
    out = io.BytesIO()
    first.save(out, form, save_all=True, append_images=[second])
    return out.getvalue()


def turned(orientation: int, values: Any) -> Any:
    """What a viewer shows of stored values (H, W, ...) under an EXIF orientation, from its definition."""
    swap = np.swapaxes(values, 0, 1)
    return {
        1: values,
        2: values[:, ::-1],
        3: values[::-1, ::-1],
        4: values[::-1],
        5: swap,
        6: swap[:, ::-1],
        7: swap[::-1, ::-1],
        8: swap[::-1],
    }[orientation]


def from_cmyk(values: Any) -> Any:
    ink = values.astype(np.float64)
    return (255 - ink[..., :3]) * (255 - ink[..., 3:]) / 255**2


def wide(samples: Any) -> Any:
    """Bytes as 16 bits."""
    return samples.astype(np.uint16) * 257


def joined(*parts: Any) -> Any:
    return np.concatenate([part[..., None] if part.ndim == 2 else part for part in parts], -1)


def cases() -> list[Case]:
    """All of them; a format that this Pillow cannot write stops the tests, for it would not be tried."""
    g, c, d, levels = GREY / 255, COLOUR / 255, DEEP / 65535, PALETTE[INDEX] / 255
    see_through, deep_key = "transparent in places", np.uint16(DEEP[2, 3])
    plte, unreadable = (b"PLTE", PALETTE.tobytes()), "cannot be read as an image"
    not_certain = "whose range or colours are not certain"
    grey_opaque, grey_glass = joined(GREY, OPAQUE), joined(GREY, GLASS)
    opaque, glass = joined(COLOUR, OPAQUE), joined(COLOUR, GLASS)
    found = [
        # PNG, byte by byte
        Case("png grey 1 bit", made.png(BITS, 1, 0), BITS),
        Case("png grey 4 bits", made.png(INDEX, 4, 0), INDEX / 15),
        Case("png grey 8 bits", made.png(GREY, 8, 0), g),
        Case("png grey 16 bits", made.png(DEEP, 16, 0), d),
        Case("png grey 16 bits, dark", made.png(DEEP // 300, 16, 0), (DEEP // 300) / 65535),
        Case("png rgb 8 bits", made.png(COLOUR, 8, 2), c),
        Case("png rgb 16 bits", made.png(wide(COLOUR), 16, 2), c),
        *[
            Case(f"png palette {bits} bits", made.png(INDEX % 2**bits, bits, 3, [plte]), PALETTE[INDEX % 2**bits] / 255)
            for bits in (1, 2, 4, 8)
        ],
        Case("png palette, all opaque", made.png(INDEX, 8, 3, [plte, (b"tRNS", b"\xff" * 16)]), levels),
        Case(
            "png palette, one entry transparent", made.png(INDEX, 8, 3, [plte, (b"tRNS", b"\xff\0\xff")]), see_through
        ),
        Case("png grey + alpha, opaque", made.png(grey_opaque, 8, 4), g),
        Case("png grey + alpha, half", made.png(grey_glass, 8, 4), see_through),
        Case("png grey + alpha 16 bits, opaque", made.png(wide(grey_opaque), 16, 4), joined(g, g, g)),
        Case("png rgb + alpha, opaque", made.png(opaque, 8, 6), c),
        Case("png rgb + alpha, half", made.png(glass, 8, 6), see_through),
        Case("png rgb + alpha 16 bits, opaque", made.png(wide(opaque), 16, 6), c),
        Case(
            "png rgb, one colour clear",
            made.png(COLOUR, 8, 2, [(b"tRNS", COLOUR[1, 1].astype(">u2").tobytes())]),
            see_through,
        ),
        Case(
            "png grey 16 bits, one level clear",
            made.png(DEEP, 16, 0, [(b"tRNS", deep_key.byteswap().tobytes())]),
            see_through,
        ),
        Case("png grey 16 bits, absent level clear", made.png(DEEP, 16, 0, [(b"tRNS", b"\0\1")]), d),
        *[
            Case(f"png turned {way}", made.png(COLOUR, 8, 2, [(b"eXIf", made.exif(way))]), turned(way, c))
            for way in range(1, 9)
        ],
        Case("png grey 16 bits turned", made.png(DEEP, 16, 0, [(b"eXIf", made.exif(6))]), turned(6, d)),
        Case("png with broken EXIF", made.png(COLOUR, 8, 2, [(b"eXIf", b"II*\0\xff\xff\xff\xff\0")]), c),
        Case("png with an orientation of 99", made.png(COLOUR, 8, 2, [(b"eXIf", made.exif(99))]), c),
        # TIFF, byte by byte
        Case("tiff grey 8 bits", made.tiff(GREY), g),
        Case("tiff rgb 8 bits", made.tiff(COLOUR, photometric=2), c),
        Case("tiff grey 16 bits", made.tiff(DEEP), d),
        Case("tiff grey 16 bits, big-endian", made.tiff(DEEP, big=True), d),
        Case("tiff grey 16 bits, white is zero", made.tiff(DEEP, photometric=0), not_certain),
        Case(
            "tiff grey 12 bits", made.tiff(DEEP[:, :8] >> 4, bits=12, data=twelve_bits(DEEP[:, :8] >> 4)), not_certain
        ),
        Case("tiff rgb 16 bits", made.tiff(wide(COLOUR), photometric=2), c),
        Case("tiff int16", made.tiff(DEEP.astype(np.int16), sample_format=2), not_certain),
        Case("tiff uint32", made.tiff(DEEP.astype(np.uint32)), not_certain),
        Case("tiff float32 in [0, 1]", made.tiff(FLOATS, sample_format=3), not_certain),
        Case("tiff float32, white is zero", made.tiff(FLOATS, sample_format=3, photometric=0), None),
        Case("tiff float16", made.tiff(FLOATS.astype(np.float16), sample_format=3), None),
        Case("tiff rgb float32", made.tiff(np.float32(c), photometric=2, sample_format=3), None),
        Case("tiff CMYK", made.tiff(CYAN, photometric=5), from_cmyk(CYAN), 1.01 / 255),
        Case("tiff LAB", made.tiff(COLOUR, photometric=8), not_certain),
        Case("tiff rgb + alpha, opaque", made.tiff(opaque, photometric=2, extra={338: (3, [2])}), c),
        Case("tiff rgb + alpha, half", made.tiff(glass, photometric=2, extra={338: (3, [2])}), see_through),
        Case("tiff rgb + a spare channel", made.tiff(glass, photometric=2, extra={338: (3, [0])}), c),
        *[
            Case(f"tiff turned {way}", made.tiff(COLOUR, photometric=2, extra={274: (3, [way])}), turned(way, c))
            for way in (3, 6, 8)
        ],
        Case("tiff grey 16 bits turned", made.tiff(DEEP, extra={274: (3, [6])}), turned(6, d)),
        Case("tiff of two pages", several("TIFF"), "holds 2 pictures"),
        Case("tiff palette", palette("TIFF"), levels),
        *[
            Case(f"tiff rgb, {how}", pillow("RGB", COLOUR, "TIFF", compression=how), c)
            for how in ("tiff_lzw", "tiff_deflate", "packbits")
        ],
        # Netpbm, BMP, TGA, PFM, byte by byte
        Case("pbm", made.netpbm(4, BITS, None), 1 - BITS),
        Case("pgm", made.netpbm(5, GREY, 255), g),
        Case("pgm of 16 levels", made.netpbm(5, INDEX, 15), INDEX / 15, 0.51 / 255),
        Case("pgm 16 bits", made.netpbm(5, DEEP, 65535), d),
        Case("pgm of 1001 levels", made.netpbm(5, DEEP // 66, 1000), (DEEP // 66) / 1000, 0.51 / 65535),
        Case("ppm", made.netpbm(6, COLOUR, 255), c),
        Case("ppm 16 bits", made.netpbm(6, wide(COLOUR), 65535), c, 0.51 / 255),
        Case("pfm", made.pfm(FLOATS), not_certain),
        Case("bmp rgb", made.bmp(COLOUR), c),
        Case("tga rgb", made.tga(COLOUR), c),
        # What only a library writes
        Case("bmp grey", pillow("L", GREY, "BMP"), g),
        Case("bmp 1 bit", pillow("1", np.packbits(BITS, axis=1), "BMP"), BITS),
        Case("gif palette", palette("GIF"), levels),
        Case("gif with a transparent colour", palette("GIF", transparency=3), see_through),
        Case("gif animated", several("GIF"), "holds 2 pictures"),
        Case("webp lossless", pillow("RGB", COLOUR, "WEBP", lossless=True), c),
        Case("webp lossless + alpha, opaque", pillow("RGBA", opaque, "WEBP", lossless=True, exact=True), c),
        Case("jpeg rgb", pillow("RGB", COLOUR, "JPEG", quality=100, subsampling=0), c, LOSSY),
        Case("jpeg CMYK", pillow("CMYK", CYAN, "JPEG", quality=100, subsampling=0), from_cmyk(CYAN), 2 * LOSSY),
        *[
            Case(
                f"jpeg turned {way}",
                pillow("RGB", COLOUR, "JPEG", quality=100, subsampling=0, exif=b"Exif\0\0" + made.exif(way)),
                turned(way, c),
                LOSSY,
            )
            for way in (2, 5)
        ],
        Case("mpo, a photo and its preview", several("MPO"), c, 40 / 255),
        Case("jpeg 2000", pillow("RGB", COLOUR, "JPEG2000", irreversible=False), c),
        Case("jpeg 2000 grey 16 bits", pillow("I;16", DEEP, "JPEG2000", irreversible=False), d),
        Case("avif", pillow("RGB", COLOUR, "AVIF", quality=100, subsampling="4:4:4"), c, LOSSY),
        *[Case(form, pillow("RGB", COLOUR, form), c) for form in ("PCX", "SGI", "QOI", "DDS")],
        # What is no image, or says it is too large
        Case("empty", b"", unreadable),
        Case("png cut off", made.png(COLOUR, 8, 2)[:-40], unreadable),
        Case("tiff cut off", made.tiff(DEEP)[:-20], unreadable),
        Case(
            "png with a wrong sum",
            made.png(COLOUR, 8, 2, [(b"gAMA", b"half")]).replace(b"gAMAhalf", b"gAMAhalt"),
            unreadable,
        ),
        Case("bomb of 10 000 x 10 000", made.announced(10_000, 10_000), "more than the"),
        Case("bomb of 100 000 x 100 000", made.announced(100_000, 100_000), unreadable),
        Case("bomb of 2^31 - 1 pixels a side", made.announced(2**31 - 1, 2**31 - 1), unreadable),
    ]
    assert len({case.name for case in found}) == len(found)
    return found


def twelve_bits(samples: Any) -> bytes:
    """Two samples in three bytes."""
    first, second = samples[:, 0::2].astype(int), samples[:, 1::2].astype(int)
    return np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], -1).astype(np.uint8).tobytes()


CASES = cases()


def read(folder: Path, content: bytes, suffix: str = "png", **options: Any) -> torch.Tensor:
    place = folder / "class"
    place.mkdir(exist_ok=True)
    (place / f"image.{suffix}").write_bytes(content)
    return data.load(f"folder:{folder}", **options).tensors()[0][0]


def compare(case: Case, image: torch.Tensor) -> None:
    expected = np.asarray(case.shows, np.float64)
    expected = expected[None] if expected.ndim == 2 else expected.transpose(2, 0, 1)
    if len(expected) == 1 and len(image) == 3:
        expected = expected.repeat(3, 0)  # a format without a grey of its own
    assert image.shape == expected.shape, (tuple(image.shape), expected.shape)
    assert float(np.abs(image.numpy() - expected).max()) <= case.within


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_image_is_what_was_written_or_a_sentence(case: Case, tmp_path: Path) -> None:
    try:
        image = read(tmp_path, case.content)
    except AlmakitError as error:
        assert case.shows is None or (isinstance(case.shows, str) and case.shows in str(error)), error
        assert str(error).startswith(str(tmp_path)) and str(error).endswith(".")
        outcome("image formats and modes", "sentence")
        return
    assert not isinstance(case.shows, (str, type(None))), (
        f"read as {tuple(image.shape)}, {float(image.min())} to {float(image.max())}"
    )
    compare(case, image)
    assert (
        image.dtype == torch.float32 and image.is_contiguous() and float(image.min()) >= 0 and float(image.max()) <= 1
    )
    outcome("image formats and modes", "result")


@pytest.mark.filterwarnings("ignore")
def test_damaged_image_files(tmp_path: Path) -> None:
    """Bytes changed, cut off and added at random: an image in range or a sentence."""
    chance = random.Random(None if TIMES else 0)
    small = [case for case in CASES if "bomb" not in case.name and case.content]
    for _ in range(amount(150)):
        content = bytearray(chance.choice(small).content)
        for _ in range(chance.randint(1, 6)):
            at, length = chance.randrange(len(content)), chance.randint(1, 9)
            kept, new = chance.choice([(1, 1), (length, 0), (0, length)])  # a byte changed, some taken out, some put in
            content[at : at + kept] = chance.randbytes(new)
            if not content:
                break
        try:
            image = read(tmp_path, bytes(content))
        except AlmakitError as error:
            assert len(str(error)) > 20
            outcome("damaged image files", "sentence")
            continue
        assert image.dtype == torch.float32 and image.ndim == 3 and float(image.min()) >= 0 and float(image.max()) <= 1
        outcome("damaged image files", "result")
