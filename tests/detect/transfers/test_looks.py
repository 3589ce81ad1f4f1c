"""Looks at a file are kept as numbers, and read as what they are."""

from __future__ import annotations

import pytest

from ckptprof.detect.transfers.model.position_samples import PositionSample, PositionSamples

LOOKS = [PositionSample(1, 0, 10), PositionSample(2, 5, 10), PositionSample(3, 10, 12)]


def kept(looks: list[PositionSample]) -> PositionSamples:
    """Keep them."""
    found = PositionSamples()
    for look in looks:
        found.append(look)
    return found


def test_they_are_read_as_a_list_would_be() -> None:
    """By number from either end, in part and in turn."""
    looks = kept(LOOKS)

    assert list(looks) == LOOKS
    assert list(reversed(looks)) == LOOKS[::-1]
    assert [looks[index] for index in (0, 1, 2, -1, -2, -3)] == [LOOKS[index] for index in (0, 1, 2, -1, -2, -3)]
    assert looks[1:] == LOOKS[1:]
    assert looks[-1].size == 12
    assert len(looks) == 3
    assert not PositionSamples()


@pytest.mark.parametrize("index", [3, -4, 100, -100])
def test_there_is_none_beyond_them(index: int) -> None:
    """An empty place is told as such."""
    with pytest.raises(IndexError):
        kept(LOOKS)[index]


def test_a_number_that_no_kernel_has_is_held_to_the_largest() -> None:
    """A recording may be damaged: 64 bits without a sign."""
    assert list(kept([PositionSample(1, (1 << 64) - 1, 7)])) == [PositionSample(1, (1 << 63) - 1, 7)]
