"""TensorBoard: event files written without TensorBoard, which only reads them (``tensorboard --logdir <folder>``)."""

from __future__ import annotations

import os
import socket
import struct
import time
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import BadInput, Unavailable
from .base import Numbers, Tracker


class TensorBoard(Tracker):
    """Writes ``<folder>/events.out.tfevents.*``, one scalar per name: records of length, checksum, a protobuf ``Event``, checksum.

    The format is that of TensorFlow's TFRecord files; checksums are CRC-32C, rotated and shifted as there. Every event is flushed at once.
    """

    def __init__(self, folder: str):
        if not folder:
            raise BadInput("say where TensorBoard's files go: tensorboard:<folder>.")
        self.folder = Path(folder).expanduser()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = (self.folder / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}").open("wb")
        except OSError as error:
            raise Unavailable(f"cannot write to {self.folder}: {error.strerror}; choose another folder for TensorBoard.") from error
        self._record(_double(1, time.time()) + _bytes(3, b"brain.Event:2"))

    def settings(self, values: dict[str, Any]) -> None:
        """As text in the tab TEXT."""
        listed = "\n".join(f"    {name} = {value!r}" for name, value in values.items())
        # Summary.Value: tag 1, tensor 8 (dtype string 7, string_val 8), metadata 9 (plugin_data 1: plugin_name 1).
        tensor = _varint(1, 7) + _bytes(8, listed.encode())
        metadata = _bytes(1, _bytes(1, b"text"))
        self._summary([_bytes(1, b"settings") + _bytes(8, tensor) + _bytes(9, metadata)], 0)

    def numbers(self, values: Numbers, step: int) -> None:
        self._summary([_bytes(1, name.encode()) + struct.pack("<Bf", 2 << 3 | 5, value) for name, value in values.items()], step)

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()

    def _summary(self, values: list[bytes], step: int) -> None:
        """An ``Event``: wall_time 1, step 2, summary 5 (value 1, repeated)."""
        self._record(_double(1, time.time()) + _varint(2, step) + _bytes(5, b"".join(_bytes(1, value) for value in values)))

    def _record(self, data: bytes) -> None:
        if self._file.closed:
            self._file = Path(self._file.name).open("ab")  # noqa: SIM115 (a second run with the same tracker)
        length = struct.pack("<Q", len(data))
        self._file.write(length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data)))
        self._file.flush()


def _varint(field: int, value: int) -> bytes:
    return _plain_varint(field << 3) + _plain_varint(value & (2**64 - 1))


def _plain_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _double(field: int, value: float) -> bytes:
    return struct.pack("<Bd", field << 3 | 1, value)


def _bytes(field: int, value: bytes) -> bytes:
    return _plain_varint(field << 3 | 2) + _plain_varint(len(value)) + value


@cache
def _table() -> tuple[int, ...]:
    """CRC-32C (Castagnoli), reflected."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


def crc32c(data: bytes) -> int:
    """The checksum of ``data``; of b"123456789" it is 0xE3069283."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """TFRecord's: rotated right by 15 bits and shifted, so that a checksum of data that hold checksums is not weak."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
