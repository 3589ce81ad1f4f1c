"""The part of the Protocol Buffers wire format that a Perfetto trace needs: https://protobuf.dev/programming-guides/encoding/."""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def varint(number: int) -> bytes:
    """Encode a number in groups of seven bits; negative ones as 64 bits."""
    left = number & 0xFFFF_FFFF_FFFF_FFFF
    parts = bytearray()
    while left > 0x7F:
        parts.append(left & 0x7F | 0x80)
        left >>= 7
    parts.append(left)
    return bytes(parts)


def whole(field: int, number: int) -> bytes:
    """Encode a field of type int, uint, enum or bool."""
    return varint(field << 3 | _VARINT) + varint(number)


def fixed64(field: int, number: int) -> bytes:
    """Encode a field of type fixed64."""
    return varint(field << 3 | _FIXED64) + struct.pack("<Q", number)


def double(field: int, number: float) -> bytes:
    """Encode a field of type double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", number)


def part(field: int, content: bytes) -> bytes:
    """Encode a field of type message or bytes."""
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """Encode a field of type string; lone surrogates become escapes."""
    return part(field, content.encode("utf-8", "backslashreplace"))
