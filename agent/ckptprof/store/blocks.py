"""The codec of timelines: columns of whole numbers, delta-coded and compressed, with nothing but the standard library.

A block is `<BBHIII>` (version, zero, number of columns, number of points, unit of time in ns, size of the body) and a
zlib stream of the body. The body is one byte of kind per column (the times are column 0), a byte that says which planes
there are, of each column which of its values were seen, if not all were, and its first value, with its step if all its
steps are even, or its text, then planes.

The deltas of all other columns stand one after the other, 64 bits each (0 for the first point of a column), and are
split by byte: plane 0 has the lowest byte of each. The lower planes of a delta under 0 are inverted, so that a small
step down has as many zeros as one up. A plane is which of its bytes are not zero, a bit each, and then these. In a
large block each of the two is compressed with statistics of its own. All of it is done to whole arrays at once, as
bytes or as one large number; a loop over values would take ten times as long. What is beyond 63 bits or below 0 is
text, so that no value is ever changed.

A block from a hostile database cannot make `decode` use more than a few times `max_bytes`.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from ckptprof.store import format1

VERSION = 2
MAX_COLUMNS = 256
MAX_POINTS = 1 << 22

Column = Sequence["int | None"]

_HEADER = struct.Struct("<BBHIII")
_FIRST = struct.Struct("<q")
_LINE = struct.Struct("<qq")
_LENGTH = struct.Struct("<I")
_NULL, _PLAIN, _LINEAR, _TEXT = range(4)  # the low bits of a kind
_HAS_NONE = 0x80
_DELTA_BYTES = 8
_TOP = _DELTA_BYTES - 1  # the plane with the signs
_SMALL_BYTES = 8192
_AT_ONCE = 8192  # deltas: of more those of each column by itself stay in the caches of a core
_DIGITS = b"0" + b"1" * 255
_FROM_DIGITS = bytes(byte == ord("1") for byte in range(256))
_SIGNS = bytes(128) + b"\xff" * 128
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
    heads: list[bytes] = []
    plain: list[bytes] = []
    for column in (times, *columns):
        kinds.append(_encode_column(column, heads, plain))
    planes = [(number, plane) for number, plane in enumerate(_split(plain)) if plane.count(0) < len(plane)]
    kinds.append(sum(1 << number for number, _ in planes))
    streams = [bytes(kinds) + b"".join(heads), *chain.from_iterable(_halves(plane) for _, plane in planes)]
    size = sum(map(len, streams))
    header = _HEADER.pack(VERSION, 0, len(columns), points, time_unit_ns, size)
    if size <= _SMALL_BYTES:  # most of its time would go into setting up a large window
        deflater = zlib.compressobj(compression, zlib.DEFLATED, 12, 5, zlib.Z_FILTERED)
        return b"".join((header, deflater.compress(b"".join(streams)), deflater.flush()))
    deflater = zlib.compressobj(compression, zlib.DEFLATED, 15, 9, zlib.Z_FILTERED)
    parts = [header]
    for stream in streams:
        parts += (deflater.compress(stream), deflater.flush(zlib.Z_BLOCK))
    parts.append(deflater.flush())
    return b"".join(parts)


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
    if version not in (format1.VERSION, VERSION):
        raise BlockError(f"block format {version} is not known")
    if (
        width > MAX_COLUMNS
        or points > MAX_POINTS
        or points * (width + 1) * 8 > max_bytes
        or size > 4 * max_bytes + 4096
    ):
        raise BlockError(f"a block that claims {points} points in {width} columns and {size} bytes")
    body = _inflate(block, size)
    try:
        if version == format1.VERSION:
            return format1.decode(body, points, width, unit, wanted)
        return _decode(body, points, width, unit, wanted)
    except (struct.error, StopIteration, IndexError, ValueError, OverflowError) as error:
        raise BlockError(f"a damaged block: {error}") from error


def unit_of(block: bytes) -> int:
    """Return the unit of time of a block, in ns, which its checksum does not cover; raises struct.error."""
    unit: int = _HEADER.unpack_from(block)[4]
    return unit


def _inflate(block: bytes, size: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(memoryview(block)[_HEADER.size :], size + 1)
    except zlib.error as error:
        raise BlockError(f"a damaged block: {error}") from error
    if len(body) != size or not inflater.eof:
        raise BlockError("a block that is not as long as it claims")
    return body


def _encode_column(column: Column, heads: list[bytes], plain: list[bytes]) -> int:
    """Add what a column needs before the planes, and its values, 8 bytes each; return its kind."""
    flag = 0
    if isinstance(column, array) or None not in column:
        full: Sequence[int] = column  # type: ignore[assignment] # no None in it: just checked
    else:
        present = bytearray(value is not None for value in column)
        if not any(present):
            return _NULL
        flag = _HAS_NONE
        heads.append(_bits(present))
        full = _filled(column)
    if not full:
        return _NULL
    try:
        values = full if isinstance(full, array) and full.itemsize == _DELTA_BYTES else array("Q", full)
    except OverflowError:
        values = array("q", (-1,))  # as what is beyond 63 bits
    if _SWAP:  # pragma: no cover # no such machine has a GPU
        values = values[:]
        values.byteswap()
    raw = values.tobytes()
    if not raw[_TOP::_DELTA_BYTES].isascii():
        text = ",".join(map(str, full)).encode()
        heads += (_LENGTH.pack(len(text)), text)
        return _TEXT | flag
    step = _step(full, raw)
    if step is not None:
        heads.append(_LINE.pack(full[0], step))
        return _LINEAR | flag
    heads.append(raw[:_DELTA_BYTES])
    plain.append(raw)
    return _PLAIN | flag


def _step(full: Sequence[int], raw: bytes) -> int | None:
    """Return the difference of each two values that follow one another; None if it is not always the same."""
    first, last = full[0], full[-1]
    if first == last:
        return 0 if raw == raw[:_DELTA_BYTES] * len(full) else None
    step = full[1] - first
    if step * (len(full) - 1) != last - first:
        return None
    return step if list(full) == list(range(first, last + (step > 0) - (step < 0), step)) else None


def _filled(column: Column) -> list[int]:
    """Return the column with every None replaced by the value before it (the first known one at the start)."""
    last = next(value for value in column if value is not None)
    full = []
    for value in column:
        if value is not None:
            last = value
        full.append(last)
    return full


def _split(plain: Sequence[bytes]) -> list[bytes]:
    """Return the planes of the deltas of columns of values under 2**63."""
    values = b"".join(plain)
    before = b"".join([raw[:_DELTA_BYTES] + raw[:-_DELTA_BYTES] for raw in plain])
    guards = int.from_bytes((bytes(_TOP) + b"\x80") * (len(values) // _DELTA_BYTES), "little")
    # The top bit of each value is 0: set, it keeps what is subtracted from a value from borrowing of the next one
    deltas = ((int.from_bytes(values, "little") | guards) - int.from_bytes(before, "little")) ^ guards
    raw = deltas.to_bytes(len(values), "little")
    return _inverted([raw[number::_DELTA_BYTES] for number in range(_DELTA_BYTES)])


def _inverted(planes: list[bytes]) -> list[bytes]:
    """Return planes with the lower bytes of what is under 0 inverted; done twice it changes nothing."""
    top = planes[_TOP]
    if top.isascii():
        return planes
    signs = int.from_bytes(top.translate(_SIGNS), "little")
    lower = ((int.from_bytes(plane, "little") ^ signs).to_bytes(len(plane), "little") for plane in planes[:_TOP])
    return [*lower, top]


def _halves(plane: bytes) -> tuple[bytes, bytes]:
    """Return which bytes of a plane are not zero, a bit each, and these bytes."""
    return _bits(plane), plane.translate(None, b"\0")


def _bits(plane: bytes | bytearray) -> bytes:
    return int(plane.translate(_DIGITS), 2).to_bytes((len(plane) + 7) // 8, "big")


def _mask(bits: int, length: int) -> bytes:
    """Return a byte of 0 or 1 for each of so many bits."""
    return f"{bits:0{length}b}".encode().translate(_FROM_DIGITS)


class _Plane(NamedTuple):
    """One byte of each delta."""

    number: int
    length: int
    bits: int  # 1 where it is not zero, of the first delta the highest
    busy: bytes  # those that are not zero

    def bytes_of(self, start: int, end: int) -> bytes:
        """Return its bytes of the deltas [start, end)."""
        length = end - start
        bits = self.bits >> (self.length - end) & ((1 << length) - 1)
        if not bits:
            return bytes(length)
        first = (self.bits >> (self.length - start)).bit_count()
        busy = self.busy[first : first + bits.bit_count()]
        # Zeros with places for the others: no loop and no index fills places as fast as formatting does
        return busy if len(busy) == length else _mask(bits, length).replace(b"\1", b"%c") % tuple(busy)


class _Body:
    """Takes an inflated body apart."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes; raises ValueError if there are fewer."""
        taken = self._body[self._at : self._at + size]
        if len(taken) != size:
            raise ValueError("it ends early")
        self._at += size
        return taken

    def bits(self, length: int) -> int:
        """Return so many bits as a number; raises ValueError if there are fewer or more."""
        bits = int.from_bytes(self.take((length + 7) // 8), "big")
        if bits.bit_length() > length:
            raise ValueError("more bits than values")
        return bits

    def planes(self, which: int, length: int) -> Iterator[_Plane]:
        """Yield the planes that there are."""
        for number in range(_DELTA_BYTES):
            if which >> number & 1:
                bits = self.bits(length)
                yield _Plane(number, length, bits, self.take(bits.bit_count()))


class _Head(NamedTuple):
    """What stands of a column before the planes."""

    kind: int
    seen: bytes | None  # 1 where a value was seen; None: all were
    first: int
    step: int
    text: bytes


def _head(kind: int, points: int, body: _Body) -> _Head:
    seen = _mask(body.bits(points), points) if kind & _HAS_NONE else None
    form = kind & ~_HAS_NONE
    if form == _PLAIN:
        return _Head(form, seen, _FIRST.unpack(body.take(_FIRST.size))[0], 0, b"")
    if form == _LINEAR:
        first, step = _LINE.unpack(body.take(_LINE.size))
        return _Head(form, seen, first, step, b"")
    if form == _TEXT:
        return _Head(form, seen, 0, 0, body.take(_LENGTH.unpack(body.take(_LENGTH.size))[0]))
    if form != _NULL:
        raise ValueError(f"column format {form} is not known")
    return _Head(form, None, 0, 0, b"")


def _decode(
    block: bytes, points: int, width: int, unit: int, wanted: Collection[int] | None
) -> tuple[list[int], list[list[int | None] | None]]:
    body = _Body(block)
    kinds = body.take(width + 1)
    which = body.take(1)[0]
    heads = [_head(kind, points, body) for kind in kinds]
    if points and (heads[0].kind == _NULL or heads[0].seen is not None):
        raise ValueError("no times")
    length = points * sum(head.kind == _PLAIN for head in heads)
    planes = list(body.planes(which, length))
    known = _deltas(planes, 0, length) if wanted is None and length <= _AT_ONCE else None
    columns: list[list[int | None] | None] = [None] * (width + 1)
    start = 0
    for number, head in enumerate(heads):
        end = start + points * (head.kind == _PLAIN)
        if wanted is None or number == 0 or number - 1 in wanted:
            deltas = _deltas(planes, start, end) if known is None else known[start:end]
            columns[number] = _column(head, points, deltas, unit if number == 0 else 1)
        start = end
    return columns.pop(0) or [], columns  # type: ignore[return-value] # just checked: no None in the times


def _deltas(planes: Iterable[_Plane], start: int, end: int) -> array[int]:
    """Return the deltas [start, end) of all columns."""
    parts = {plane.number: plane.bytes_of(start, end) for plane in planes}
    if _TOP in parts:
        zeros = bytes(end - start)
        parts = dict(enumerate(_inverted([parts.get(number, zeros) for number in range(_DELTA_BYTES)])))
    raw = bytearray((end - start) * _DELTA_BYTES)
    for number, part in parts.items():
        raw[number::_DELTA_BYTES] = part
    deltas = array("q")
    deltas.frombytes(raw)
    if _SWAP:  # pragma: no cover # no such machine has a GPU
        deltas.byteswap()
    return deltas


def _column(head: _Head, points: int, deltas: array[int], unit: int) -> list[int | None]:
    """Return the values of a column, times a unit."""
    if head.kind == _NULL:
        return [None] * points
    if head.kind == _LINEAR:
        first, step = head.first * unit, head.step * unit
        values = list(range(first, first + step * points, step)) if step else [first] * points
    else:
        if head.kind == _TEXT:
            if head.text.count(b",") != points - 1:
                raise ValueError("a column of another length")
            values = [int(word) for word in head.text.split(b",")]
        else:
            deltas[0] = head.first
            values = list(accumulate(deltas))
        if unit != 1:
            values = [value * unit for value in values]
    if len(values) != points:
        raise ValueError("a column of another length")
    if head.seen is None:
        return values  # type: ignore[return-value] # list is invariant; nobody else holds this one
    return [value if seen else None for value, seen in zip(values, head.seen, strict=True)]
