"""How bytes went over TCP to a place that is no file, or came from it, as the counters of connections show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

OTHER_ADDRESSES = ""
SENT_PREFIX = "tcp:"  # begins what stands in place of a path


class Sending(NamedTuple):
    """What one process sent to one port of one or more addresses, or got from there, without a longer pause."""

    endpoints: Mapping[tuple[str, int], int]  # bytes by address and port; by FURTHER of addresses beyond so many
    connections: int | None  # at most open at once, as far as that was seen; None: nobody looked
    is_counted: bool = False  # by the trace, call by call
    parts: int = 0  # of those: how often one connection moved 64 KiB or more before something went the other way
    parts_bytes: int = 0
    returned_bytes: int = 0  # over the same connections, the other way; of what is not counted 0
