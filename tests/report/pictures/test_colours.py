"""The colours of limits: families that every reader distinguishes, and a letter for each limit."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from ckptprof.report.pictures import colours
from ckptprof.verdicts import Limit

# What a reader without red or green cones sees, of linear RGB (Machado, Oliveira and Fernandes 2009)
SIGHT = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
}
DIFFERENT = 20  # of CIE 1976: far above 2.3, which is just noticed


def lab(colour: str, sight: str) -> tuple[float, float, float]:
    """Return a colour in CIE L*a*b* as such a reader sees it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    red, green, blue = (max(0.0, sum(a * b for a, b in zip(row, linear, strict=True))) for row in SIGHT[sight])
    x, y, z = (
        part ** (1 / 3)
        for part in (
            (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
            0.2126 * red + 0.7152 * green + 0.0722 * blue,
            (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("sight", SIGHT)
def test_families_differ_for_each_reader(sight: str) -> None:
    """Any limit of one from any of another."""
    for one, other in combinations(colours.OF_LIMIT.values(), 2):
        if one.family != other.family:
            assert math.dist(lab(one.colour, sight), lab(other.colour, sight)) > DIFFERENT, (one, other)


def test_each_limit_has_a_letter_and_a_shade_of_its_own() -> None:
    """Letters distinguish the limits of a family."""
    assert set(colours.OF_LIMIT) == {*Limit, None}
    assert len({one.letter for one in colours.OF_LIMIT.values()}) == len(colours.OF_LIMIT)
    assert len({one.colour for one in colours.OF_LIMIT.values()}) == len(colours.OF_LIMIT)
    assert {one.family for one in colours.OF_LIMIT.values()} == set(colours.FAMILIES)
