"""Where the bytes of a restore came from: the page cache, or a device or the network."""

from __future__ import annotations

from dataclasses import dataclass

from ckptprof.detect.candidates import Candidate
from ckptprof.detect.intervals import History
from ckptprof.detect.streams import ProcessKey


@dataclass(frozen=True)
class Source:
    """Of a restore."""

    storage_bytes: int | None = None
    unique_bytes: int | None = None
    cache: str | None = None  # cold | warm | partly


def source_of(candidate: Candidate, histories: dict[ProcessKey, History]) -> Source:
    """Return where the bytes came from; of a save nothing."""
    del candidate, histories
    return Source()
