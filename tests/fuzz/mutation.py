"""Damage of inputs, the same for the same seed: bytes flipped, spans moved, numbers and lines replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

_WINDOW = 4096  # in which a number or a line is looked for
_LONGEST = 1 << 20
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_NUMBERS = (
    b"0", b"-1", b"1", b"255", b"65536", b"2147483647", b"2147483648", b"4294967295", b"9223372036854775807",
    b"9223372036854775808", b"18446744073709551615", b"-9223372036854775809", b"1" + b"0" * 40, b"9" * 5000, b"1e308",
    b"NaN", b"0x10", b"07", b"\xc2\xb2",
)  # fmt: skip
_TOKENS = (
    b"", b"\0", b"\n", b"\r\n\r\n", b"\t", b" ", b"'", b'"', b"\\", b"/", b"..", b"%", b"=", b":", b",", b"{", b"[",
    b"[" * 2000, b"#",
    b"null", b"true", b"\xff\xfe", b"\x1b[2J", b"\xe2\x80\xae", b"\xed\xb2\x80", b"a" * 5000, b"--", b"-", b"(", b")",
)  # fmt: skip
_WORDS = tuple(
    value.to_bytes(size, "little") for size in (2, 4, 8) for value in (0, 1, 1 << 8 * size - 1, (1 << 8 * size) - 1)
)


def mutate(data: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Return `data` with one to six changes; `others` are inputs from which pieces may come."""
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 6))):
        data = chance.choice(_CHANGES)(data, chance, others)
    return data[:_LONGEST]


def _span(data: bytes, chance: Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.choice((1, 2, 4, 8, 16, 64, 512, 4096)))


def _flip(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    if not data:
        return b"\0"
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _byte(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.choice((0, 1, 10, 32, 127, 128, 255, chance.randrange(256)))]) + data[at + 1 :]


def _word(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    word = chance.choice(_WORDS)
    at = chance.randrange(len(data) + 1)
    at -= at % len(word) if chance.random() < 0.7 else 0
    return data[:at] + word + data[at + len(word) :]


def _remove(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(data, chance)
    return data[:start] + data[end:]


def _repeat(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(data, chance)
    times = chance.choice((1, 2, 3, 50))
    return data[:end] + data[start:end] * times + data[end:]


def _cut(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _insert(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_TOKENS) + data[at:]


def _number(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    found = _NUMBER.search(data, at, at + _WINDOW)
    if found is None:
        return data
    new = chance.choice(_NUMBERS)
    if chance.random() < 0.3 and found[0].isdigit() and len(found[0]) < 25:
        new = b"%d" % (int(found[0]) + chance.choice((-1, 1, 1000, -(10**9), 10**12)))
    return data[: found.start()] + new + data[found.end() :]


def _lines(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    """Remove, repeat or swap whole lines, or words between zeros."""
    separator = b"\0" if data.count(b"\0") > data.count(b"\n") else b"\n"
    lines = data.split(separator)
    one, another = chance.randrange(len(lines)), chance.randrange(len(lines))
    how = chance.randrange(3)
    if how == 0:
        del lines[one]
    elif how == 1:
        lines.insert(another, lines[one])
    else:
        lines[one], lines[another] = lines[another], lines[one]
    return separator.join(lines)


def _splice(data: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    other = chance.choice(others) if others else data
    start, end = _span(other, chance)
    at = chance.randrange(len(data) + 1)
    return data[:at] + other[start:end] + data[at + chance.choice((0, end - start)) :]


_Change = Callable[[bytes, Random, Sequence[bytes]], bytes]
_CHANGES: tuple[_Change, ...] = (
    _flip, _flip, _byte, _word, _remove, _repeat, _cut, _insert, _number, _number, _number, _lines, _splice,
)  # fmt: skip
