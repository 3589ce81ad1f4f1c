"""The codec of timelines: columns of whole numbers, delta-coded and compressed, with nothing but the standard library.

A block is `<BBHIII>` (version, zero, number of columns, number of points, unit of time in ns, size of the
body) and a zlib stream of the body: one byte of kind per column (the times are column 0), then each column in turn.
A column holds its first value and its deltas in the smallest signed type that fits, byte-shuffled, either all of
them (dense) or only those that are not zero with their positions (sparse). What does not fit (a value
beyond 64 bits, a delta beyond 63) is kept as text, so that no value is ever changed.

A block from a hostile database cannot make `decode` use more than a few times `max_bytes`.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Collection, Sequence
from itertools import accumulate, chain, compress, count, repeat
from math import gcd
from operator import mul, sub

VERSION = 1
MAX_COLUMNS = 256
MAX_POINTS = 1 << 22

Column = Sequence["int | None"]

_HEADER = struct.Struct("<BBHIII")
_FIRST = struct.Struct("<Q")
_STEP = struct.Struct("<q")
_LENGTH = struct.Struct("<I")
_NULL, _CONSTANT, _LINEAR, _DENSE, _SPARSE, _TEXT = range(6)  # the low three bits of a kind
_WIDTH_SHIFT = 3  # two bits: log2 of the bytes of a delta
_SCALED = 0x20  # the deltas are multiples of a unit
_HAS_NONE = 0x80
_DELTA_TYPES = "bhiq"
_POSITION_TYPES = "BHI"
_MAX_UNSIGNED = (1 << 64) - 1
_SMALL_BYTES = 8192
_EXPONENTS = [0] * 8 + [1] * 8 + [2] * 16 + [3] * 32  # by the bits of the largest delta, its sign not counted
_DIGITS = b"01" + bytes(254)
_SWAP = sys.byteorder == "big"


class BlockError(ValueError):
    """Bytes that are no block, or a block that claims more than it may hold."""


def encode(times_ns: Sequence[int], columns: Sequence[Column], *, time_unit_ns: int = 1, compression: int = 6) -> bytes:
    """Return the block of these points; each column is as long as `times_ns`.

    Times are rounded to `time_unit_ns`; values are kept exactly. Raises ValueError on unequal lengths or too many.
    """
    points = len(times_ns)
    if points > MAX_POINTS or len(columns) > MAX_COLUMNS:
        raise ValueError(f"{points} points in {len(columns)} columns are too many for one block")
    if any(len(column) != points for column in columns):
        raise ValueError("columns of unequal length")
    half = time_unit_ns // 2
    times = times_ns if time_unit_ns == 1 else [(time + half) // time_unit_ns for time in times_ns]
    kinds = bytearray()
    parts: list[bytes] = []
    for column in (times, *columns):
        kinds.append(_encode_column(column, parts))
    body = bytes(kinds) + b"".join(parts)
    header = _HEADER.pack(VERSION, 0, len(columns), points, time_unit_ns, len(body))
    small = len(body) <= _SMALL_BYTES  # most of the time of a small body would go into setting up a large window
    deflater = zlib.compressobj(compression, zlib.DEFLATED, 12 if small else 15, 5 if small else 8, zlib.Z_FILTERED)
    return b"".join((header, deflater.compress(body), deflater.flush()))


def decode(
    block: bytes, max_bytes: int, wanted: Collection[int] | None = None
) -> tuple[list[int], list[list[int | None] | None]]:
    """Return the times in ns and the columns of a block; those not `wanted` (by index) are None.

    `max_bytes` bounds what the points may take at 8 bytes a value. Raises BlockError.
    """
    try:
        version, _, width, points, unit, size = _HEADER.unpack_from(block)
    except (struct.error, TypeError) as error:
        raise BlockError("too short to be a block") from error
    if version != VERSION:
        raise BlockError(f"block format {version} is not known")
    if (
        width > MAX_COLUMNS
        or points > MAX_POINTS
        or points * (width + 1) * 8 > max_bytes
        or size > 4 * max_bytes + 4096
    ):
        raise BlockError(f"a block that claims {points} points in {width} columns and {size} bytes")
    reader = _Body(_inflate(block, size), points, width + 1)
    try:
        times = reader.times(unit)
        if wanted is None:
            return times, [reader.column() for _ in range(width)]
        columns: list[list[int | None] | None] = [None] * width
        for index in range(max(wanted, default=-1) + 1):
            if index in wanted:
                columns[index] = reader.column()
            else:
                reader.skip()
    except (struct.error, StopIteration, IndexError, ValueError, OverflowError) as error:
        raise BlockError(f"a damaged block: {error}") from error
    return times, columns


def _inflate(block: bytes, size: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(memoryview(block)[_HEADER.size :], size + 1)
    except zlib.error as error:
        raise BlockError(f"a damaged block: {error}") from error
    if len(body) != size or not inflater.eof:
        raise BlockError("a block that is not as long as it claims")
    return body


def _encode_column(column: Column, parts: list[bytes]) -> int:
    flag = 0
    if isinstance(column, array) or None not in column:
        full: Sequence[int] = column  # type: ignore[assignment] # no None in it: just checked
    else:
        present = bytearray(value is not None for value in column)
        if not any(present):
            return _NULL
        flag = _HAS_NONE
        parts.append(_bitmap(present))
        full = _filled(column)
    if not full:
        return _NULL
    deltas = _deltas(full)
    if deltas is None:
        text = ",".join(map(str, full)).encode()
        parts += (_LENGTH.pack(len(text)), text)
        return _TEXT | flag
    parts.append(_FIRST.pack(full[0]))
    busy = len(deltas) - deltas.count(0)
    if not busy:
        return _CONSTANT | flag
    if busy == len(deltas) == deltas.count(deltas[0]):
        parts.append(_STEP.pack(deltas[0]))
        return _LINEAR | flag
    return _encode_deltas(deltas, busy, parts) | flag


def _deltas(full: Sequence[int]) -> array[int] | None:
    if not 0 <= full[0] <= _MAX_UNSIGNED:
        return None
    try:
        return array("q", map(sub, full[1:], full))
    except OverflowError:
        return None


def _encode_deltas(deltas: array[int], busy: int, parts: list[bytes]) -> int:
    kind = 0
    unit = gcd(*deltas)
    if unit > 1:  # sectors come by 8, bytes by 4096
        parts.append(_FIRST.pack(unit))
        kind = _SCALED
        deltas = array("q", [delta // unit for delta in deltas])
    low, high = min(deltas), max(deltas)
    exponent = _EXPONENTS[max(~low, high).bit_length()]
    code = _DELTA_TYPES[exponent]
    kind |= exponent << _WIDTH_SHIFT
    if busy * 4 > len(deltas):
        parts.append(_shuffled(array(code, deltas)))
        return _DENSE | kind
    positions = list(compress(count(), deltas))
    steps = array(_position_type(len(deltas)), map(sub, positions, chain((0,), positions)))
    parts += (_LENGTH.pack(busy), _shuffled(steps), _shuffled(array(code, compress(deltas, deltas))))
    return _SPARSE | kind


def _position_type(deltas: int) -> str:
    return _POSITION_TYPES[(deltas > 0x100) + (deltas > 0x10000)]


def _filled(column: Column) -> list[int]:
    """Return the column with every None replaced by the value before it (the first known one at the start)."""
    last = next(value for value in column if value is not None)
    full = []
    for value in column:
        if value is not None:
            last = value
        full.append(last)
    return full


def _bitmap(present: bytearray) -> bytes:
    digits = present.translate(_DIGITS).decode("ascii")
    return int(digits[::-1], 2).to_bytes((len(digits) + 7) // 8, "little")


def _shuffled(values: array[int]) -> bytes:
    if _SWAP:  # pragma: no cover # no such machine has a GPU
        values.byteswap()
    raw = values.tobytes()
    width = values.itemsize
    return raw if width == 1 else b"".join(raw[offset::width] for offset in range(width))


class _Body:
    """Reads the columns of an inflated body one after the other; raises struct.error, ValueError or BlockError."""

    def __init__(self, body: bytes, points: int, columns: int) -> None:
        if len(body) < columns:
            raise BlockError("a block that is not as long as it claims")
        self._body = body
        self._points = points
        self._kinds = iter(body[:columns])
        self._at = columns

    def times(self, unit: int) -> list[int]:
        kind = next(self._kinds)
        if kind & 7 == _NULL and not self._points:
            return []
        if kind & 7 == _NULL or kind & _HAS_NONE:
            raise BlockError("a block without times")
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
            raise BlockError("a column of another length")
        return values

    def _dense(self, exponent: int) -> array[int]:
        return self._array(_DELTA_TYPES[exponent], self._points - 1)

    def _sparse(self, exponent: int, kind: int) -> list[int]:
        if kind != _SPARSE:
            raise BlockError(f"column format {kind} is not known")
        busy = _LENGTH.unpack(self._take(4))[0]
        length = self._points - 1
        if not 0 <= busy <= length:
            raise BlockError("more changes than points")
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
            raise BlockError("a block that ends early")
        self._at += size
        return taken
