"""Samples of one open file: the position of its descriptor, and the file's size."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, overload

MAX_POSITION_SAMPLES = 4000  # of one file
_NUMBERS_PER_SAMPLE = 3  # time, position, size
_MAX_OFFSET = (1 << 63) - 1  # of the kernel's loff_t; a damaged recording may have more


class PositionSample(NamedTuple):
    """The position in a file, and its size, at one time."""

    at_ns: int
    position: int
    size: int


_as_sample = partial(tuple.__new__, PositionSample)  # half the time of its constructor


class PositionSamples(Sequence[PositionSample]):
    """The samples of one file in an array of numbers: a log that is open for hours is sampled thousands of times."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = array("q")

    def append(self, sample: PositionSample) -> None:
        """Add a later one; after `MAX_POSITION_SAMPLES` it replaces the last."""
        if len(self._numbers) >= MAX_POSITION_SAMPLES * _NUMBERS_PER_SAMPLE:
            del self._numbers[-_NUMBERS_PER_SAMPLE:]
        try:
            self._numbers.extend(array("q", sample))
        except OverflowError:
            self._numbers.extend([min(number, _MAX_OFFSET) for number in sample])

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._numbers) // _NUMBERS_PER_SAMPLE

    def __iter__(self) -> Iterator[PositionSample]:
        """Yield all of them, the oldest first."""
        numbers = iter(self._numbers)
        return map(_as_sample, zip(numbers, numbers, numbers, strict=False))

    @overload
    def __getitem__(self, index: int) -> PositionSample: ...
    @overload
    def __getitem__(self, index: slice) -> list[PositionSample]: ...
    def __getitem__(self, index: int | slice) -> PositionSample | list[PositionSample]:
        """Return one, or some of them; raises IndexError."""
        if isinstance(index, slice):
            return list(self)[index]
        numbers = self._numbers[index * _NUMBERS_PER_SAMPLE : (index + 1) * _NUMBERS_PER_SAMPLE or None]
        if len(numbers) < _NUMBERS_PER_SAMPLE:
            raise IndexError(index)
        return _as_sample(numbers)
