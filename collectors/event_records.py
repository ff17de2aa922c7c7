"""The records of event files, TensorBoard's and MindSpore's: a length and a content, each with its checksum."""

from __future__ import annotations

import functools
import struct


def record(content: bytes) -> bytes:
    """Returns a content as a record: u64 length, its checksum, the content, its checksum; all little-endian."""
    length = struct.pack("<Q", len(content))
    return b"".join((length, _masked_checksum(length), content, _masked_checksum(content)))


def _masked_checksum(content: bytes) -> bytes:
    # A record may hold records: the mask keeps a checksum from covering its own kind.
    checksum = _crc32c(content)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc32c(content: bytes) -> int:
    # Pure Python holds the interpreter's lock at 4 MB/s, so that a large tensor would stall training; the library
    # makes 8 GB/s.
    try:
        import google_crc32c
    except ImportError:
        table, value = _table(), 0xFFFFFFFF
        for byte in content:
            value = table[(value ^ byte) & 0xFF] ^ value >> 8
        return value ^ 0xFFFFFFFF
    return int(google_crc32c.value(content))


@functools.cache
def _table() -> list[int]:
    def remainder(value: int) -> int:
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        return value

    return [remainder(byte) for byte in range(256)]
