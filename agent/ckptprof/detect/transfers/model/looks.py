"""The looks at one open file: where its process was in it, and how large it was."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, overload

MAX_LOOKS = 4000  # at one file
_WIDTH = 3  # numbers of a look
_LARGEST = (1 << 63) - 1  # of the kernel's loff_t; a damaged recording may say more


class Look(NamedTuple):
    """Where in the file the process was at one instant."""

    at_ns: int
    position: int
    size: int


_as_look = partial(tuple.__new__, Look)  # half the time of its constructor


class Looks(Sequence[Look]):
    """The looks at one file, as numbers side by side: a log that is open for hours is looked at thousands of times."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = array("q")

    def append(self, look: Look) -> None:
        """Add a later one; once there are `MAX_LOOKS`, in the place of the last."""
        if len(self._numbers) >= MAX_LOOKS * _WIDTH:
            del self._numbers[-_WIDTH:]
        try:
            self._numbers.extend(array("q", look))
        except OverflowError:
            self._numbers.extend([min(number, _LARGEST) for number in look])

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._numbers) // _WIDTH

    def __iter__(self) -> Iterator[Look]:
        """Yield all of them, the oldest first."""
        numbers = iter(self._numbers)
        return map(_as_look, zip(numbers, numbers, numbers, strict=False))

    @overload
    def __getitem__(self, index: int) -> Look: ...
    @overload
    def __getitem__(self, index: slice) -> list[Look]: ...
    def __getitem__(self, index: int | slice) -> Look | list[Look]:
        """Return one, or some of them; raises IndexError."""
        if isinstance(index, slice):
            return list(self)[index]
        found = self._numbers[index * _WIDTH : (index + 1) * _WIDTH or None]
        if len(found) < _WIDTH:
            raise IndexError(index)
        return _as_look(found)
