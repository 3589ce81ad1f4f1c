"""Stands in for the trace where eBPF cannot be had: perf events of single calls, added up in Python."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from operator import itemgetter

from ckptprof_collectors.contract import Tracer
from ckptprof_collectors.kernelfs import KernelFs, has_the_hosts_pids
from ckptprof_collectors.perf.calls import filters
from ckptprof_collectors.perf.events import Event, Rings, ring_bytes_for
from ckptprof_collectors.perf.files import Files
from ckptprof_collectors.samples import Sample, TraceHealth

_SECOND_NS = 1_000_000_000
_ALL_RINGS_BYTES = 64 << 20
_PER_SECOND = 300_000  # events, at about 1.3 us each
_AT_ONCE = 300_000
_AT_LEAST = 4_000
_OPENING_NS = (
    2_000_000  # the opening of a file that began so short a time ago is waited for; afterwards it is asked for as often
)
_OPENING_LOOKS, _OPENING_PAUSE = 5, 0.0002
_WAKES = 300  # a second: more files than that opened to be written are no checkpoint
_SIGHT = (
    "reads and writes by io_uring and libaio",
    "pages that are read and written through mappings",
    "names and numbers of files that are open for a few milliseconds only, be it in a process that inherits them",
    "creations, renames and removals of files, but for what polling sees of them",
    "offsets of copies between files that are told in memory (sendfile, splice, copy_file_range): taken as in sequence",
    "the time for which writers are held back because too much is dirty",
    "requests to devices: their sizes, order and latencies",
    "the time that closing files takes, and syncs of a whole file system",
    "what processes send and receive over TCP, call by call",
)


class PerfTrace(Tracer):
    """Reads what every thread did to every file."""

    def __init__(  # noqa: PLR0913 - most of them are for tests and benchmarks
        self,
        fs: KernelFs,
        *,
        family_of: tuple[int, ...] = (),
        ignore: tuple[int, ...] = (),
        reason: str = "",
        ring_bytes: int = 2 << 20,
        per_second: int = _PER_SECOND,
    ) -> None:
        """Begin; raises UnavailableError with the reason.

        `family_of`: trace only what these processes start from now on. `ignore`: processes to leave out. `reason`: why
        this is used. `per_second`: how many events may be worked on; more are lost, and counted.
        """
        processors = os.cpu_count() or 1
        self._reason = reason
        self._family = bool(family_of)
        self._per_second = per_second
        self._files = Files(str(fs.proc), frozenset((*family_of, *ignore)))
        self._late: list[Event] = []
        self._until_ns = 0
        self._allowed_ns = 0
        self._swept_ns = 0
        self._waking = True
        self._write_opens = 0
        self._rings = Rings(
            fs, ring_bytes=ring_bytes_for(ring_bytes, processors, _ALL_RINGS_BYTES), family_of=family_of
        )
        enter, leave = filters(() if family_of or not has_the_hosts_pids(fs) else ignore)
        self._rings.start(fs, enter=enter, leave=leave)
        self._rings.wake_at_opens(wanted=True)

    @property
    def degraded(self) -> tuple[str, ...]:
        """What cannot be seen here, each one sentence."""
        because = f"by perf events, because {self._reason}" if self._reason else "by perf events instead of eBPF"
        found = [f"out of sight: {what}" for what in _SIGHT]
        if self._family:
            found.append("out of sight: programs that run as another user by their set-user-ID bit")
        return (f"the trace is made {because}", *found)

    @property
    def programs(self) -> dict[str, str]:
        """What stands at each hook."""
        return {"calls": "perf-event", "timing": "perf-event"}

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is much to read, or a file is opened to be written."""
        return self._rings.fileno()

    def check(self) -> None:
        """Raise OSError if it cannot be read: never."""

    def read(self, *, last: bool = False) -> Sequence[Sample]:  # noqa: ARG002 - the interface of Trace
        """Return what changed since the previous call."""
        now_ns = time.monotonic_ns()
        self._drain(now_ns)
        for _ in range(_OPENING_LOOKS):
            if not self._files.opens_since(time.monotonic_ns() - _OPENING_NS):
                break
            time.sleep(_OPENING_PAUSE)
            self._drain(time.monotonic_ns())
        if self._files.look():
            self._drain(time.monotonic_ns())
        samples = self._files.take(self._until_ns)
        soon = self._files.impatient or (self._waking and self._files.opens_since(now_ns - _SECOND_NS))
        self._rings.wake_after(_OPENING_NS if soon else 0)
        if now_ns - self._swept_ns >= _SECOND_NS:
            self._sweep(now_ns, samples)
        return samples

    def _drain(self, now_ns: int) -> None:
        """Work on what is there, in the order of time, as far as that much work is allowed."""
        floor_ns = now_ns - _AT_ONCE * _SECOND_NS // self._per_second
        self._allowed_ns = max(self._allowed_ns, floor_ns)
        limit = max(_AT_LEAST, (now_ns - self._allowed_ns) * self._per_second // _SECOND_NS)
        until_ns = time.monotonic_ns()  # what happened until now is in the rings when they are read
        events, whole_ns = self._rings.drain(limit)
        self._allowed_ns += len(events) * _SECOND_NS // self._per_second
        self._until_ns = until_ns = min(until_ns, whole_ns)
        events = self._late + events
        events.sort(key=itemgetter(2))
        at = len(events)
        while at and events[at - 1][2] > until_ns:
            at -= 1
        self._late = events[at:]
        self._files.process(events[:at])

    def _sweep(self, now_ns: int, samples: list[Sample]) -> None:
        self._files.sweep()
        crowd = self._files.write_opens - self._write_opens > _WAKES
        self._write_opens, self._swept_ns = self._files.write_opens, now_ns
        if crowd == self._waking:
            self._waking = not crowd
            self._rings.wake_at_opens(wanted=self._waking)
        lost, lost_events = self._files.lost, self._rings.count_lost()
        health = TraceHealth(
            calls=self._files.operations,
            lost_operations=lost.operations + (lost_events + 1) // 2,  # a call is two events
            lost_bytes=lost.bytes,
            lost_sessions=lost.sessions,
            lost_events=lost.events + lost_events,
            untimed_operations=0,
            programs=self.programs,
            degraded=self.degraded,
        )
        samples += self._news(health)

    def close(self) -> None:
        """Give everything back."""
        self._rings.close()
