"""Reading blocks of format 1, which databases of schema 4 to 7 hold until they expire; nothing writes them.

The body is one byte of kind per column (the times are column 0), then each column in turn: its first value and its
deltas in the smallest signed type that fits, byte-shuffled, either all of them (dense) or only those that are not zero
with their positions (sparse). What did not fit is text.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Collection
from itertools import accumulate, repeat
from operator import mul

VERSION = 1

_FIRST = struct.Struct("<Q")
_STEP = struct.Struct("<q")
_LENGTH = struct.Struct("<I")
_NULL, _CONSTANT, _LINEAR, _DENSE, _SPARSE, _TEXT = range(6)  # the low three bits of a kind
_WIDTH_SHIFT = 3  # two bits: log2 of the bytes of a delta
_SCALED = 0x20  # the deltas are multiples of a unit
_HAS_NONE = 0x80
_DELTA_TYPES = "bhiq"
_POSITION_TYPES = "BHI"
_SWAP = sys.byteorder == "big"


def _position_type(deltas: int) -> str:
    return _POSITION_TYPES[(deltas > 0x100) + (deltas > 0x10000)]


def decode(
    body: bytes, points: int, width: int, unit: int, wanted: Collection[int] | None
) -> tuple[list[int], list[list[int | None] | None]]:
    """Return the times in ns and the columns; raises struct.error, StopIteration or ValueError."""
    reader = _Body(body, points, width + 1)
    times = reader.times(unit)
    columns: list[list[int | None] | None] = [None] * width
    for index in range(width if wanted is None else max(wanted, default=-1) + 1):
        if wanted is None or index in wanted:
            columns[index] = reader.column()
        else:
            reader.skip()
    return times, columns


class _Body:
    """Reads the columns of an inflated body one after the other; raises struct.error, StopIteration or ValueError."""

    def __init__(self, body: bytes, points: int, columns: int) -> None:
        if len(body) < columns:
            raise ValueError("a block that is not as long as it claims")
        self._body = body
        self._points = points
        self._kinds = iter(body[:columns])
        self._at = columns

    def times(self, unit: int) -> list[int]:
        kind = next(self._kinds)
        if kind & 7 == _NULL and not self._points:
            return []
        if kind & 7 == _NULL or kind & _HAS_NONE:
            raise ValueError("a block without times")
        return self._values(kind, unit)

    def column(self) -> list[int | None]:
        kind = next(self._kinds)
        if kind & 7 == _NULL:
            return [None] * self._points
        present = self._take((self._points + 7) // 8) if kind & _HAS_NONE else None
        values = self._values(kind, 1)
        if present is None:
            return values  # type: ignore[return-value] # list is invariant; nobody else holds this one
        digits = f"{int.from_bytes(present, 'little'):0{self._points}b}"[::-1]
        return [value if digit == "1" else None for value, digit in zip(values, digits, strict=False)]

    def skip(self) -> None:
        """Step over a column."""
        kind = next(self._kinds)
        form, width = kind & 7, 1 << (kind >> _WIDTH_SHIFT & 3)
        if kind & _HAS_NONE:
            self._take((self._points + 7) // 8)
        if form == _TEXT:
            self._take(_LENGTH.unpack(self._take(4))[0])
        elif form != _NULL:
            self._take(8 + 8 * (form == _LINEAR or bool(kind & _SCALED)))
        if form == _DENSE:
            self._take(width * (self._points - 1))
        elif form == _SPARSE:
            self._take(_LENGTH.unpack(self._take(4))[0] * (array(_position_type(self._points - 1)).itemsize + width))

    def _values(self, kind: int, factor: int) -> list[int]:
        """Return the values of a column without holes, times a factor."""
        form = kind & 7
        if form == _TEXT:
            text = self._take(_LENGTH.unpack(self._take(4))[0])
            if text.count(b",") != self._points - 1:
                raise ValueError("a column of another length")
            return self._checked([int(word) * factor for word in text.split(b",")])
        first: int = _FIRST.unpack(self._take(8))[0] * factor
        if form == _CONSTANT:
            return [first] * self._points
        if form == _LINEAR:
            step = _STEP.unpack(self._take(8))[0] * factor  # 0 is a ValueError of range
            return list(range(first, first + step * self._points, step))
        unit = factor * (_FIRST.unpack(self._take(8))[0] if kind & _SCALED else 1)
        exponent = kind >> _WIDTH_SHIFT & 3
        deltas = self._dense(exponent) if form == _DENSE else self._sparse(exponent, form)
        scaled = deltas if unit == 1 else map(mul, deltas, repeat(unit))
        return self._checked(list(accumulate(scaled, initial=first)))

    def _checked(self, values: list[int]) -> list[int]:
        if len(values) != self._points:
            raise ValueError("a column of another length")
        return values

    def _dense(self, exponent: int) -> array[int]:
        return self._array(_DELTA_TYPES[exponent], self._points - 1)

    def _sparse(self, exponent: int, kind: int) -> list[int]:
        if kind != _SPARSE:
            raise ValueError(f"column format {kind} is not known")
        busy = _LENGTH.unpack(self._take(4))[0]
        length = self._points - 1
        if not 0 <= busy <= length:
            raise ValueError("more changes than points")
        steps = self._array(_position_type(length), busy)
        deltas = [0] * length
        for position, delta in zip(accumulate(steps), self._array(_DELTA_TYPES[exponent], busy), strict=True):
            deltas[position] = delta
        return deltas

    def _array(self, code: str, length: int) -> array[int]:
        values = array(code)
        width = values.itemsize
        raw = self._take(length * width)
        if width > 1:
            plain = bytearray(len(raw))
            for offset in range(width):
                plain[offset::width] = raw[offset * length : (offset + 1) * length]
            raw = bytes(plain)
        values.frombytes(raw)
        if _SWAP:  # pragma: no cover # no such machine has a GPU
            values.byteswap()
        return values

    def _take(self, size: int) -> bytes:
        taken = self._body[self._at : self._at + size]
        if size < 0 or len(taken) != size:
            raise ValueError("a block that ends early")
        self._at += size
        return taken
