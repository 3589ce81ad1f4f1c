"""What the recorder tells the sampler: once on its command line, and then in lines on its standard input."""

from __future__ import annotations

from typing import Literal

import msgspec

Wish = Literal["auto", "trace", "poll"]


class SamplerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to sample; handed to the sampler process as JSON."""

    uid: str
    level: Wish = "poll"  # the header says what became of it
    base_hz: float = 10.0  # while something that trains is there
    burst_hz: float = 25.0  # while it moves bytes
    idle_hz: float = 1.0
    monitor_pids: tuple[int, ...] = ()
    only_family: bool = False  # `ckptprof run`: watch nothing until a root process is named
    among_others: bool = False  # that one runs already: the trace cannot tell it by who starts it, and sees all
    note: str = ""
    witness_fd: int | None = None  # where the number of each of these signals is written as it comes
    witness_signals: tuple[int, ...] = ()


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A line that the recorder writes to the sampler's standard input."""

    root_pid: int | None = None
    subreaper_pid: int | None = None
    folders: tuple[str, ...] = ()  # where earlier checkpoints are
