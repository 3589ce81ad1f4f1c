"""Tiers of storage: the rates that NVIDIA's DGX guides require per GPU, and the tier that a rate reaches."""

from __future__ import annotations

import msgspec

from ckptprof.model import Kind

GPUS_PER_NODE = 8  # of a DGX or HGX


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """One tier; decimal bytes per second, per GPU."""

    name: str
    read_bytes_per_second: float
    write_bytes_per_second: float

    def rate(self, kind: Kind) -> float:
        """Return bytes per second and GPU in the direction of a kind: a restore reads, all others write."""
        return self.read_bytes_per_second if kind is Kind.RESTORE else self.write_bytes_per_second


# DGX H100, per GPU: Light (NVIDIA's default) 1 GB/s read and 0.75 write, Medium 2 and 1.5, High 4 and 3
LIGHT = Tier(name="Light", read_bytes_per_second=1e9, write_bytes_per_second=0.75e9)
MEDIUM = Tier(name="Medium", read_bytes_per_second=2e9, write_bytes_per_second=1.5e9)
HIGH = Tier(name="High", read_bytes_per_second=4e9, write_bytes_per_second=3e9)
TIERS = (LIGHT, MEDIUM, HIGH)  # ascending


def reached(kind: Kind, bytes_per_second_per_gpu: float) -> Tier | None:
    """Return the highest tier that a measured rate per GPU reaches, None if it is below Light."""
    found = [tier for tier in TIERS if tier.rate(kind) <= bytes_per_second_per_gpu]
    return found[-1] if found else None


def word(kind: Kind, bytes_per_second_per_gpu: float | None) -> str | None:
    """Return light, medium, high, or below; None for an unknown rate."""
    if bytes_per_second_per_gpu is None:
        return None
    tier = reached(kind, bytes_per_second_per_gpu)
    return "below" if tier is None else tier.name.lower()


def needed(kind: Kind, bytes_per_second_per_gpu: float) -> Tier | None:
    """Return the lowest tier with at least this rate per GPU, None if it is above High."""
    return next((tier for tier in TIERS if tier.rate(kind) >= bytes_per_second_per_gpu), None)
