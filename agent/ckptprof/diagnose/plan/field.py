"""Published figures of the field, each with its source and year: how often GPUs fail, how fast storage writes."""

from __future__ import annotations

import msgspec

from ckptprof.units import GIB


class PublishedRate(msgspec.Struct, frozen=True, kw_only=True):
    """A published rate of failures."""

    gpu_hours: float  # of one GPU, between failures that stop its job
    source: str


# Research: arXiv 2410.21680, 7.9 h at 1,024 GPUs measured, 1.8 h at 16,384 projected. Llama 3: 419 interruptions in 54
# days. Micron and Lightbits: a failure every 124 min. The model is a cloud's
SEED = PublishedRate(gpu_hours=24_000 * 124 / 60, source="Micron and Lightbits, 24,000 GPUs")
FAILURE_RATES = (
    PublishedRate(gpu_hours=1_024 * 7.9, source="Meta, research, 1,024 GPUs (2024)"),
    PublishedRate(gpu_hours=16_384 * 1.8, source="the same, projected to 16,384"),
    SEED,
    PublishedRate(gpu_hours=16_384 * 54 * 24 / 419, source="Meta, Llama 3, 16,384 GPUs (2024)"),
    PublishedRate(gpu_hours=100 * 365 * 24, source="model: 1 % of GPUs fail a year"),
)


class PublishedWrite(msgspec.Struct, frozen=True, kw_only=True):
    """The median write rate of the submissions to MLPerf Storage v3.0 (September 2026) for a model."""

    model: str
    size_bytes: float  # of its checkpoint
    bytes_per_second: float


WRITES = (
    PublishedWrite(model="70B", size_bytes=912 * GIB, bytes_per_second=70 * GIB),
    PublishedWrite(model="405B", size_bytes=5_288 * GIB, bytes_per_second=156 * GIB),
    PublishedWrite(model="1T", size_bytes=17_997 * GIB, bytes_per_second=294 * GIB),
)


def write_of(size_bytes: float) -> PublishedWrite | None:
    """Return the published rate for the smallest model with a checkpoint at least this large, or for the largest model.

    None for a checkpoint of less than half the size of the smallest: nothing is published for it.
    """
    if size_bytes < WRITES[0].size_bytes / 2:
        return None
    return next((one for one in WRITES if one.size_bytes >= size_bytes), WRITES[-1])
