"""Options of the sampler: once on its command line, later as lines on its standard input."""

from __future__ import annotations

from typing import Literal

import msgspec

RequestedLevel = Literal["auto", "trace", "poll"]


class SamplerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to sample; passed to the sampler process as JSON."""

    uid: str
    level: RequestedLevel = "poll"  # requested; the header has the level in force
    base_hz: float = 10.0  # while a training process exists
    burst_hz: float = 25.0  # while it transfers bytes
    idle_hz: float = 1.0
    monitor_pids: tuple[int, ...] = ()
    only_descendants: bool = False  # `ckptprof run`: watch only descendants of a root process, named later
    attaches: bool = False  # the root process is already running: the trace covers all processes
    cpu_budget: float | None = None  # share of one core for all of ckptprof; None: no limit
    note: str = ""
    witness_fd: int | None = None  # receives the number of each of these signals
    witness_signals: tuple[int, ...] = ()


class SamplerControl(msgspec.Struct, frozen=True, kw_only=True):
    """A line on the sampler's standard input."""

    root_pid: int | None = None
    subreaper_pid: int | None = None
    folders: tuple[str, ...] = ()  # where earlier checkpoints are
