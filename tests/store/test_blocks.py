"""The codec of timelines: exact, small, and safe with bytes from anyone."""

from __future__ import annotations

import json
import os
import random
import struct
import zlib
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof.store.series.blocks import VERSION, BlockError, decode, encode

_BOUND = 1 << 24
_COUNTERS = st.integers(0, (1 << 64) - 1)
_VALUES = st.one_of(st.none(), _COUNTERS, st.integers(0, 300), st.integers(-(1 << 70), 1 << 70))


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[int], list[list[int | None]]]:
    points = draw(st.integers(0, 40))
    times = draw(st.lists(_COUNTERS, min_size=points, max_size=points))
    columns = draw(st.lists(st.lists(_VALUES, min_size=points, max_size=points), max_size=5))
    return times, columns


@given(_tables())
def test_what_goes_in_comes_out(table: tuple[list[int], list[list[int | None]]]) -> None:
    """Any whole numbers, any resets and any holes survive a round trip."""
    times, columns = table

    assert (times, columns) == decode(encode(times, columns), _BOUND)


@given(
    st.integers(1, 400),
    st.sampled_from([1, 200, 70_000, 1 << 40, (1 << 63) - 1]),
    st.sampled_from([0.0, 0.05, 1.0]),
    st.integers(0, 1 << 32),
)
def test_every_width_and_density_survives(points: int, largest: int, busy: float, seed: int) -> None:
    """Deltas of one to eight bytes, up and down, dense and sparse, come back; long gaps between them too."""
    chance = random.Random(seed)  # noqa: S311 # data for a test
    value = 1 << 63
    column = []
    for _ in range(points):
        if chance.random() < busy:
            value = min(max(value + chance.randint(-largest, largest), 0), (1 << 64) - 1)
        column.append(value)
    times = list(range(points))

    assert (times, [column]) == decode(encode(times, [array("Q", column)]), _BOUND)


@given(st.integers(0, (1 << 64) - 1), st.integers(-(1 << 60), 1 << 60), st.integers(1, 40), st.booleans())
def test_even_steps_survive(first: int, step: int, points: int, but_one: bool) -> None:  # noqa: FBT001 - drawn
    """A counter that moves evenly, or not at all, and one that does so but once."""
    column = [first + step * number for number in range(points)]
    column[points // 2] += but_one
    times = list(range(7, 7 + 60 * points, 60))

    assert (times, [column, column]) == decode(encode(times, [column, column]), _BOUND)


def test_sparse_columns_longer_than_any_position_type() -> None:
    """At the lengths at which format 1 had wider positions."""
    for points in (256, 257, 258, 65_536, 65_537, 65_538):
        column = [0] * (points - 1) + [1]

        assert [column] == decode(encode(range(points), [column]), _BOUND)[1]


def test_times_are_rounded_to_the_unit_and_values_are_not() -> None:
    """A coarser clock is the caller's choice."""
    assert decode(encode([149, 151], [[149, 151]], time_unit_ns=100), _BOUND) == ([100, 200], [[149, 151]])


def test_a_busy_hour_is_small() -> None:
    """A quarter of the increments nonzero: under 0.40 bytes a value, times included."""
    chance = random.Random(1)  # noqa: S311 # data for a test
    columns, times = [], [10**18 + second * 10**9 + chance.randrange(200_000) for second in range(3600)]
    for _ in range(12):
        value, column = chance.randrange(1 << 40), []
        for second in range(3600):
            if second % 900 < 225:
                value += 4096 * int(abs(chance.gauss(50, 20)))
            column.append(value)
        columns.append(column)

    assert len(encode(times, columns, time_unit_ns=100_000)) < 0.40 * 12 * 3600


def test_unequal_columns_are_refused() -> None:
    """A column of another length is a mistake of the caller."""
    with pytest.raises(ValueError, match="unequal"):
        encode([1, 2], [[1]])


def _claim(points: int, size: int, body: bytes, *, columns: int = 1, version: int = VERSION) -> bytes:
    return struct.pack("<BBHIII", version, 0, columns, points, 1, size) + zlib.compress(body)


def _old_claim(points: int, size: int, body: bytes) -> bytes:
    return _claim(points, size, body, version=1)


def _old_blocks() -> list[dict[str, Any]]:
    """Return blocks of format 1 as the last ckptprof that wrote them made them, with what is in them."""
    lines = (
        (Path(__file__).parents[1] / "fixtures" / "store" / "blocks-1.jsonl").read_text(encoding="utf-8").splitlines()
    )
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("old", _old_blocks(), ids=lambda old: str(old["table"]))
def test_a_block_of_format_1_is_read(old: dict[str, Any]) -> None:
    """As it was written."""
    block, columns = bytes.fromhex(old["block"]), old["columns"]

    assert decode(block, _BOUND) == (old["times"], columns)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x01",
        b"\x03" + bytes(40),
        encode([1, 2, 3], [[1, 2, 4]])[:-3],
        encode([1, 2, 3], [[1, 2, 4]])[:16] + b"not zlib",
        _claim(1 << 22, 30, bytes(30)),
        _old_claim(10, 4, b"\x00\x00\x00\x00"),
        _old_claim(10, 1 << 31, bytes(100)),
        _old_claim(2, 100_000_000, bytes(100_000_000)),
        _old_claim(3, 10, b"\x01\x07" + bytes(8)),
        _old_claim(0, 10, b"\x03\x03" + bytes(8)),
        _old_claim(3, 14, b"\x01\x05" + bytes(8) + struct.pack("<I", 1 << 31)),
        _old_claim(3, 18, b"\x02\x01" + bytes(16)),
        _old_claim(3, 22, b"\x01\x04" + bytes(16) + struct.pack("<I", 1 << 31)),
        _claim(10, 4, b"\x01\x01\x00\x00"),  # no first value
        _claim(2, 3, b"\x00\x00\x00"),  # no times
        _claim(2, 35, b"\x82\x00\x00\x01" + bytes(31)),  # times with holes
        _claim(2, 18, b"\x02\x04\x00" + bytes(15)),  # a kind that is not known
        _claim(2, 28, b"\x01\x00\x01" + bytes(8) + b"\xff" + bytes(16)),  # more bits than values
        _claim(2, 12, b"\x01\x00\x01" + bytes(8) + b"\x03"),  # bits without their bytes
        _claim(2, 23, b"\x02\x03\x00" + bytes(16) + struct.pack("<I", 1 << 31)),
    ],
)
def test_a_hostile_block_is_an_error(block: bytes) -> None:
    """Bombs, lies about lengths and bytes that are no block are refused, within the bound."""
    with pytest.raises(BlockError):
        decode(block, 1 << 20)


@pytest.mark.parametrize("version", [1, VERSION])
def test_flipped_bytes_never_do_more_than_raise_block_error(version: int) -> None:
    """Whatever is in the body, decoding ends with a table of the claimed shape or with BlockError."""
    chance = random.Random(7)  # noqa: S311 # data for a test
    (old,) = (one for one in _old_blocks() if one["table"] == "forms")
    points, columns = len(old["times"]), old["columns"]
    block = bytes.fromhex(old["block"]) if version == 1 else encode(old["times"], columns)
    body = zlib.decompress(block[16:])
    sound = 0
    for _ in range(2000):
        broken = bytearray(body)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        claim = _claim(points, len(body), bytes(broken), columns=len(columns), version=version)
        try:
            _, found = decode(claim, _BOUND)
        except BlockError:
            continue
        sound += 1

        assert all(len(column) == points for column in found)
    assert 0 < sound < 2000


def test_random_bytes_are_an_error() -> None:
    """No luck makes noise a block."""
    for length in range(0, 400, 7):
        with pytest.raises(BlockError):
            decode(os.urandom(length), _BOUND)
