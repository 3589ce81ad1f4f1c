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
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain

VERSION = 2
MAX_COLUMNS = 256
MAX_POINTS = 1 << 22

ColumnValues = Sequence["int | None"]

_HEADER = struct.Struct("<BBHIII")
_LINE = struct.Struct("<qq")
_LENGTH = struct.Struct("<I")
_KIND_NULL, _KIND_PLAIN, _KIND_LINEAR, _KIND_TEXT = range(4)  # the low bits of a kind
_HAS_NONE = 0x80
_LINEAR_1, _DENSE, _SPARSE, _TEXT_1 = range(2, 6)  # the low three bits of a kind of format 1, where 1 is constant
_SCALED = 0x20  # there: the deltas are multiples of a unit
_DELTA_BYTES = 8
_TOP_PLANE = _DELTA_BYTES - 1  # the plane with the signs
_SMALL_BYTES = 8192
_DIGITS = b"0" + b"1" * 255
_FROM_DIGITS = bytes(byte == ord("1") for byte in range(256))
_SIGNS = bytes(128) + b"\xff" * 128
_SWAP = sys.byteorder == "big"


class BlockError(ValueError):
    """The bytes are no block, or one that declares more than the limit."""


def encode(
    times_ns: Sequence[int], columns: Sequence[ColumnValues], *, time_unit_ns: int = 1, compression: int = 6
) -> bytes:
    """Encode points; each column is as long as `times_ns`.

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
    planes = [(number, plane) for number, plane in enumerate(_delta_planes(plain)) if plane.count(0) < len(plane)]
    kinds.append(sum(1 << number for number, _ in planes))
    # Of each plane which of its bytes are not zero, a bit each, and then these bytes
    plane_streams = chain.from_iterable((_pack_bits(plane), plane.translate(None, b"\0")) for _, plane in planes)
    streams = [bytes(kinds) + b"".join(heads), *plane_streams]
    size = sum(map(len, streams))
    header = _HEADER.pack(VERSION, 0, len(columns), points, time_unit_ns, size)
    if size <= _SMALL_BYTES:  # most of the time would be spent on setting up a large window
        deflater = zlib.compressobj(compression, zlib.DEFLATED, 12, 5, zlib.Z_FILTERED)
        return b"".join((header, deflater.compress(b"".join(streams)), deflater.flush()))
    deflater = zlib.compressobj(compression, zlib.DEFLATED, 15, 9, zlib.Z_FILTERED)
    parts = [header]
    for stream in streams:
        parts += (deflater.compress(stream), deflater.flush(zlib.Z_BLOCK))
    parts.append(deflater.flush())
    return b"".join(parts)


def decode(block: bytes, max_bytes: int) -> tuple[list[int], list[list[int | None]]]:
    """Decode a block into times (ns) and columns.

    `max_bytes`: limit of the points at 8 bytes a value. Raises BlockError.
    """
    try:
        version, _, width, points, unit, size = _HEADER.unpack_from(block)
    except (struct.error, TypeError) as error:
        raise BlockError("too short to be a block") from error
    if version not in (1, VERSION):
        raise BlockError(f"block format {version} is not known")
    if (
        width > MAX_COLUMNS
        or points > MAX_POINTS
        or points * (width + 1) * 8 > max_bytes
        or size > 4 * max_bytes + 4096
    ):
        raise BlockError(f"a block that claims {points} points in {width} columns and {size} bytes")
    read = _decode if version == VERSION else _decode_format_1
    try:
        times, *columns = read(_BodyReader(_inflate(block, size)), points, width)
        times_ns = [time * unit for time in times if time is not None]
        if len(times_ns) != points:
            raise ValueError("no times")  # noqa: TRY301 # one of the faults below
    except (IndexError, ValueError, OverflowError) as error:
        raise BlockError(f"a damaged block: {error}") from error
    return times_ns, columns


def read_time_unit(block: bytes) -> int:
    """Time unit of a block in ns, which the checksum does not cover; raises struct.error."""
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


def _encode_column(column: ColumnValues, heads: list[bytes], plain: list[bytes]) -> int:
    """Add what a column needs before the planes, and its values, 8 bytes each; return its kind."""
    flag = 0
    if isinstance(column, array) or None not in column:
        full: Sequence[int] = column  # type: ignore[assignment] # no None in it: just checked
    else:
        present = bytearray(value is not None for value in column)
        if not any(present):
            return _KIND_NULL
        flag = _HAS_NONE
        heads.append(_pack_bits(present))
        full = _fill_gaps(column)
    if not full:
        return _KIND_NULL
    try:
        values = full if isinstance(full, array) and full.itemsize == _DELTA_BYTES else array("Q", full)
    except OverflowError:
        values = array("q", (-1,))  # as what is beyond 63 bits
    if _SWAP:  # pragma: no cover # no such machine has a GPU
        values = values[:]
        values.byteswap()
    raw = values.tobytes()
    if not raw[_TOP_PLANE::_DELTA_BYTES].isascii():
        text = ",".join(map(str, full)).encode()
        heads += (_LENGTH.pack(len(text)), text)
        return _KIND_TEXT | flag
    step = _even_step(full, raw)
    if step is not None:
        heads.append(_LINE.pack(full[0], step))
        return _KIND_LINEAR | flag
    heads.append(raw[:_DELTA_BYTES])
    plain.append(raw)
    return _KIND_PLAIN | flag


def _even_step(full: Sequence[int], raw: bytes) -> int | None:
    """Constant difference of consecutive values; None if it varies."""
    first, last = full[0], full[-1]
    if first == last:
        return 0 if raw == raw[:_DELTA_BYTES] * len(full) else None
    step = full[1] - first
    if step * (len(full) - 1) != last - first:
        return None
    return step if list(full) == list(range(first, last + (step > 0) - (step < 0), step)) else None


def _fill_gaps(column: ColumnValues) -> list[int]:
    """Replace every None by the previous value (the first known one at the start)."""
    previous = next(value for value in column if value is not None)
    full = []
    for value in column:
        if value is not None:
            previous = value
        full.append(previous)
    return full


def _delta_planes(plain: Sequence[bytes]) -> list[bytes]:
    """Split the deltas of columns of values under 2**63 into byte planes."""
    values = b"".join(plain)
    before = b"".join([raw[:_DELTA_BYTES] + raw[:-_DELTA_BYTES] for raw in plain])
    guards = int.from_bytes((bytes(_TOP_PLANE) + b"\x80") * (len(values) // _DELTA_BYTES), "little")
    # The top bit of each value is 0: set, it keeps what is subtracted from a value from borrowing of the next one
    deltas = ((int.from_bytes(values, "little") | guards) - int.from_bytes(before, "little")) ^ guards
    raw = deltas.to_bytes(len(values), "little")
    return _invert_negative([raw[number::_DELTA_BYTES] for number in range(_DELTA_BYTES)])


def _invert_negative(planes: list[bytes]) -> list[bytes]:
    """Invert the lower bytes of negative deltas; applying it twice restores them."""
    top = planes[_TOP_PLANE]
    if top.isascii():
        return planes
    signs = int.from_bytes(top.translate(_SIGNS), "little")
    lower = ((int.from_bytes(plane, "little") ^ signs).to_bytes(len(plane), "little") for plane in planes[:_TOP_PLANE])
    return [*lower, top]


def _pack_bits(plane: bytes | bytearray) -> bytes:
    return int(plane.translate(_DIGITS), 2).to_bytes((len(plane) + 7) // 8, "big")


class _BodyReader:
    """Parses an inflated body."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def read(self, size: int) -> bytes:
        """Consume bytes; raises ValueError if there are too few."""
        part = self._body[self._at : self._at + size]
        if len(part) != size:
            raise ValueError("it ends early")
        self._at += size
        return part

    def number(self, size: int = _DELTA_BYTES, *, signed: bool = False) -> int:
        return int.from_bytes(self.read(size), "little", signed=signed)

    def text(self, points: int) -> list[int]:
        text = self.read(self.number(_LENGTH.size))
        if text.count(b",") != points - 1:
            raise ValueError("a column of another length")
        return [int(word) for word in text.split(b",")]

    def mask(self, length: int) -> bytes:
        """Consume a bit mask, one byte of 0 or 1 per bit; raises ValueError on the wrong length."""
        bits = int.from_bytes(self.read((length + 7) // 8), "big")
        if bits.bit_length() > length:
            raise ValueError("more bits than values")
        return f"{bits:0{length}b}".encode().translate(_FROM_DIGITS)

    def plane(self, length: int) -> bytes:
        mask = self.mask(length)
        busy = self.read(mask.count(1))
        # Zeros with places for the others: no loop and no index fills places as fast as formatting does
        return busy if len(busy) == length else mask.replace(b"\1", b"%c") % tuple(busy)

    def shuffled(self, code: str, length: int) -> array[int]:
        """Consume numbers stored byte plane by byte plane, lowest first."""
        width = array(code).itemsize
        raw = self.read(length * width)
        return _shuffled(code, [raw[at * length : (at + 1) * length] for at in range(width)])


def _shuffled(code: str, planes: Sequence[bytes]) -> array[int]:
    raw = bytearray(len(planes[0]) * len(planes))
    for number, plane in enumerate(planes):
        raw[number :: len(planes)] = plane
    numbers = array(code)
    numbers.frombytes(raw)
    if _SWAP:  # pragma: no cover # no such machine has a GPU
        numbers.byteswap()
    return numbers


def _decode(body: _BodyReader, points: int, width: int) -> Iterator[list[int | None]]:
    """Yield the times, in their unit, and the columns."""
    kinds = body.read(width + 1)
    plane_mask = body.number(1)
    heads = [_head(kind, points, body) for kind in kinds]
    length = points * sum(values is None for _, _, values in heads)
    planes = [body.plane(length) if plane_mask >> number & 1 else bytes(length) for number in range(_DELTA_BYTES)]
    deltas = _shuffled("q", _invert_negative(planes))
    start = 0
    for present, first, values in heads:
        if values is None:
            deltas[start] = first
            yield _with_none(list(accumulate(deltas[start : start + points])), present)
            start += points
        else:
            yield _with_none(values, present)


def _head(kind: int, points: int, body: _BodyReader) -> tuple[bytes | None, int, Sequence[int | None] | None]:
    """Mask of present values (None: all), the first value, and all values (None: they are in the planes)."""
    present = body.mask(points) if kind & _HAS_NONE else None
    form = kind & ~_HAS_NONE
    if form == _KIND_NULL:
        return None, 0, [None] * points
    if form == _KIND_TEXT:
        return present, 0, body.text(points)
    first = body.number()
    if form == _KIND_PLAIN:
        return present, first, None
    if form != _KIND_LINEAR:
        raise ValueError(f"column format {form} is not known")
    step = body.number(signed=True)
    return present, first, range(first, first + step * points, step) if step else [first] * points


def _with_none(values: Sequence[int | None], present: bytes | None) -> list[int | None]:
    if present is None:
        return list(values)
    return [value if is_present else None for value, is_present in zip(values, present, strict=True)]


def _decode_format_1(body: _BodyReader, points: int, width: int) -> Iterator[list[int | None]]:
    """Yield the same of format 1, which 0.1.0 wrote: each column in turn, its deltas in the smallest type that fits.

    There are all of them (dense), or those that are not zero with the steps between their places (sparse).
    """
    for kind in body.read(width + 1):
        form, code = kind & 7, "bhiq"[kind >> 3 & 3]
        if form == _KIND_NULL:
            yield [None] * points
            continue
        bits = int.from_bytes(body.read((points + 7) // 8), "little") if kind & _HAS_NONE else None
        present = None if bits is None else f"{bits:0{points}b}".encode().translate(_FROM_DIGITS)[: -points - 1 : -1]
        values: Sequence[int]
        if form == _TEXT_1:
            values = body.text(points)
        elif not points or form > _TEXT_1:
            raise ValueError(f"column format {form} of {points} points is not known")
        else:
            first = body.number()
            step = body.number(signed=form == _LINEAR_1) if form == _LINEAR_1 or kind & _SCALED else 1
            deltas: Sequence[int] = [step] * (points - 1) if form == _LINEAR_1 else [0] * (points - 1)
            if form in (_DENSE, _SPARSE):
                multiples = body.shuffled(code, points - 1) if form == _DENSE else _sparse(body, code, points - 1)
                deltas = [delta * step for delta in multiples]
            values = list(accumulate(deltas, initial=first))
        yield _with_none(values, present)


def _sparse(body: _BodyReader, code: str, length: int) -> list[int]:
    busy = body.number(_LENGTH.size)
    if busy > length:
        raise ValueError("more changes than points")
    steps = body.shuffled("BHI"[(length > 0x100) + (length > 0x10000)], busy)
    deltas = [0] * length
    for place, delta in zip(accumulate(steps), body.shuffled(code, busy), strict=True):
        deltas[place] = delta
    return deltas
