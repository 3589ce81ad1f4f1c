"""How much is saved: the size of a checkpoint, the bytes of a day, the throughput that they need, the room they take.

Bytes are bytes, rates are bytes per second; what is printed is decimal: kB, MB, GB, TB.
"""

from __future__ import annotations

import math

import msgspec

# fp16 weights (2) and in fp32 their master copy and Adam's two moments (3 x 4): MLPerf Storage v2. With gradients: 16.
BYTES_PER_PARAMETER = 14.0
MODEL_BYTES_PER_PARAMETER = 2.0
DAY_SECONDS = 86_400
BURST_SHARE = 0.05  # of the interval: a sync save that takes no more keeps the stall under SNIA's 5 %
_ROUNDING = 1e-9


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """How long a directory lasts."""

    free_bytes: float
    fitting: int  # whole checkpoints in what is free
    keep: int | None  # how many are kept; None: all
    kept_bytes: float | None  # what these take, with the one that is being written before the oldest goes
    full_after_seconds: float | None  # until a save begins that does not fit; None: never


def from_parameters(parameters: float, bytes_per_parameter: float = BYTES_PER_PARAMETER) -> float:
    """Return the bytes of a checkpoint of weights and optimizer."""
    return parameters * bytes_per_parameter


def per_rank(size_bytes: float, ranks: int) -> float:
    """Return what one rank writes where all write the same."""
    return size_bytes / ranks


def saves_per_day(interval: float) -> float:
    """Return how many saves begin in a day that begins with one: 233 at 6.2 min; for more than a day their share."""
    each = DAY_SECONDS / interval
    return each if each < 1 else math.ceil(each - _ROUNDING)


def bytes_per_day(size_bytes: float, interval: float) -> float:
    """Return what a day's saves write."""
    return size_bytes * saves_per_day(interval)


def average_rate(size_bytes: float, interval: float) -> float:
    """Return the throughput over the day. It is not what is needed: a save should not take all of its interval."""
    return bytes_per_day(size_bytes, interval) / DAY_SECONDS


def burst_rate(size_bytes: float, interval: float, share: float = BURST_SHARE) -> float:
    """Return the throughput that writes a checkpoint within a share of the interval: 269 GB/s for 5 TB at 6.2 min."""
    return size_bytes / (share * interval)


def fill(free_bytes: float, size_bytes: float, interval: float, keep: int | None = None) -> Filling:
    """Return how long the free space lasts, when the first save begins one interval from now.

    Checkpoints that lie there already are not counted on. Old ones are deleted after the new one is complete, as
    frameworks do, so that one more than is kept has to fit.
    """
    fitting = math.floor(free_bytes / size_bytes + _ROUNDING)
    fits = keep is not None and fitting >= keep + 1
    return Filling(
        free_bytes=free_bytes,
        fitting=fitting,
        keep=keep,
        kept_bytes=None if keep is None else (keep + 1) * size_bytes,
        full_after_seconds=None if fits else (fitting + 1) * interval,
    )
