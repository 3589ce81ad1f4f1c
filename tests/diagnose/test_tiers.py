"""Tiers of storage against NVIDIA's figures and those derived from them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptprof.diagnose.tiers import HIGH, LIGHT, MEDIUM, TIERS, Tier, needed, reached
from ckptprof.model import Kind


@pytest.mark.parametrize(("tier", "read", "write"), [(LIGHT, 1, 0.75), (MEDIUM, 2, 1.5), (HIGH, 4, 3)])
def test_dgx_tiers(tier: Tier, read: float, write: float) -> None:
    """Decimal GB/s for each GPU, as the DGX H100 guides give them."""
    assert [tier.rate(kind) / 1e9 for kind in (Kind.RESTORE, Kind.SAVE)] == [read, write]


@pytest.mark.parametrize(
    ("kind", "rate", "is_reached", "is_needed"),
    [
        (Kind.SAVE, 0, None, LIGHT), (Kind.SAVE, 0.74e9, None, LIGHT), (Kind.SAVE, 0.75e9, LIGHT, LIGHT),
        (Kind.SAVE, 1.49e9, LIGHT, MEDIUM), (Kind.SAVE, 3e9, HIGH, HIGH), (Kind.SAVE, 3.1e9, HIGH, None),
        (Kind.RESTORE, 0.99e9, None, LIGHT), (Kind.RESTORE, 2e9, MEDIUM, MEDIUM), (Kind.RESTORE, 2.1e9, MEDIUM, HIGH),
    ],
)  # fmt: skip
def test_reached_and_needed(kind: Kind, rate: float, is_reached: Tier | None, is_needed: Tier | None) -> None:
    """A throughput reaches the tier at or below it, and needs the one at or above it."""
    assert reached(kind, rate) == is_reached
    assert needed(kind, rate) == is_needed


@settings(max_examples=50)
@given(st.floats(0, 1e12), st.floats(0, 1e12), st.sampled_from([Kind.SAVE, Kind.RESTORE]))
def test_more_throughput_never_reaches_less(one: float, other: float, kind: Kind) -> None:
    """And what is needed is never under what is reached, unless it is exactly that."""
    ranks = [-1 if (tier := reached(kind, rate)) is None else TIERS.index(tier) for rate in sorted((one, other))]
    above = needed(kind, one)

    assert ranks == sorted(ranks)
    assert above is None or above.rate(kind) >= one
