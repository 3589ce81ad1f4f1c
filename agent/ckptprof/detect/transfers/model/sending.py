"""Connections of a transfer over TCP, by their counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

OTHER_ADDRESSES = ""
SENT_PREFIX = "tcp:"  # of the placeholder for a path


class Sending(NamedTuple):
    """Bytes that one process sent to, or received from, one port of one or more addresses, without a long pause."""

    endpoints: Mapping[tuple[str, int], int]  # bytes by address and port; FURTHER: of addresses beyond a limit
    connections: int | None  # maximum observed open at once; None: not observed
    is_counted: bool = False  # by the trace, call by call
    parts: int = 0  # if counted: times that one connection transferred 64 KiB or more before an answer
    parts_bytes: int = 0
    returned_bytes: int = 0  # over the same connections in the other direction; 0 if not counted
