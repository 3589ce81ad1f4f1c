"""Runs a program to its end under a Trace of this process's family, and keeps what the trace said of it."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kernel.order import Order

from ckptprof_collectors.ebpf.trace import EbpfTrace
from ckptprof_collectors.samples import (
    BlockActivity,
    DirtyPause,
    FileActivity,
    FileLifeEvent,
    Sample,
    SocketTraffic,
    TraceHealth,
    text,
)

TICK_SECONDS = 0.05  # 20 Hz


@dataclass
class Seen:
    """All that a trace said while a program ran."""

    sessions: dict[str, FileActivity] = field(default_factory=dict)  # the last sample of each
    lives: list[FileLifeEvent] = field(default_factory=list)
    pauses: dict[tuple[int, int], DirtyPause] = field(default_factory=dict)
    blocks: dict[tuple[str, bool], BlockActivity] = field(default_factory=dict)
    traffic: dict[tuple[int, str, int], SocketTraffic] = field(default_factory=dict)  # by pid, remote, port
    health: list[TraceHealth] = field(default_factory=list)
    regressions: list[tuple[FileActivity, FileActivity]] = field(default_factory=list)
    output: bytes = b""

    def take(self, samples: Sequence[Sample]) -> None:
        """Keep what one read gave; a session that went back, or went on after its end, is remembered as a fault."""
        for sample in samples:
            if isinstance(sample, FileActivity):
                before = self.sessions.get(sample.session)
                if before is not None and (sample.operations < before.operations or before.closed_ns is not None):
                    self.regressions.append((before, sample))
                self.sessions[sample.session] = sample
            elif isinstance(sample, FileLifeEvent):
                self.lives.append(sample)
            elif isinstance(sample, DirtyPause):
                self.pauses[sample.pid, sample.start_ticks] = sample
            elif isinstance(sample, BlockActivity):
                self.blocks[sample.device, sample.writes] = sample
            elif isinstance(sample, SocketTraffic):
                self.traffic[sample.pid, sample.remote, sample.port] = sample
            elif isinstance(sample, TraceHealth):
                self.health.append(sample)

    def where(self, wanted: Callable[[FileActivity], bool]) -> list[FileActivity]:
        """Return the sessions that fit, by their begin."""
        return sorted(filter(wanted, self.sessions.values()), key=lambda session: session.first_ns)

    def of(self, path: Path | bytes, *, writes: bool) -> list[FileActivity]:
        """Return the sessions of one path in one direction."""
        name = text(path) if isinstance(path, bytes) else str(path)
        return self.where(lambda session: session.path == name and session.writes is writes)

    def events(self, path: Path, *kinds: str) -> list[FileLifeEvent]:
        """Return what was told of the life of one path."""
        return [event for event in self.lives if event.path == str(path) and (not kinds or event.kind in kinds)]

    @property
    def lost(self) -> int:
        """Return how much the trace itself says that it lost meanwhile."""
        if not self.health:
            return 0
        first, last = self.health[0], self.health[-1]
        names = ("lost_operations", "lost_sessions", "lost_events")
        return sum(getattr(last, name) - getattr(first, name) for name in names)


def order_seen(sessions: Sequence[FileActivity]) -> Order:
    """Return the sum of what sessions say of the order of their operations."""
    total = Order()
    for session in sessions:
        total += Order(*(getattr(session, name) for name in Order.__dataclass_fields__))
    return total


class Tracer:
    """A trace that is read as the agent does, by whoever runs a program under it."""

    def __init__(self, trace: EbpfTrace) -> None:
        self.trace = trace
        self._health: TraceHealth | None = None

    def run(self, command: Sequence[str | Path], **popen: Any) -> Seen:
        """Run a program to its end; raises RuntimeError with what it said if it fails."""
        with self.watch() as seen, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            popen.setdefault("stdin", subprocess.DEVNULL)
            process = subprocess.Popen([str(word) for word in command], stdout=output, stderr=errors, **popen)
            self.wait(process, seen)
            output.seek(0)
            errors.seek(0)
            seen.output = output.read()
            said = errors.read()
        if process.returncode:
            raise RuntimeError(f"{command} ended with {process.returncode}: {said.decode(errors='replace')}")
        return seen

    def listen_to_mappings(self, folder: Path) -> None:
        """Have it listen to what gets dirty, as it does from milliseconds after a file was mapped to be written to.

        Until then a page is told by its fault, and since 6.18 the kernel maps all of a folio at the first of these
        (mm/memory.c, finish_fault): a few MB that are written at once can be over by then.
        """
        code = """
import mmap, sys, time
with open(sys.argv[1], "wb+") as stream:
    stream.truncate(1 << 20)
    mapped = mmap.mmap(stream.fileno(), 1 << 20)
    for at in range(0, 1 << 20, 64 << 10):
        mapped[at] = 1
        time.sleep(0.02)
"""
        path = folder / "listen.bin"
        self.run([sys.executable, "-S", "-c", code, path])
        path.unlink()

    def wait(self, process: subprocess.Popen[bytes], seen: Seen) -> None:
        """Read at every tick, and when the trace asks for it, until the process has ended."""
        ended = os.pidfd_open(process.pid)
        try:
            while True:
                ready, _, _ = select.select([ended, self.trace.fileno()], [], [], TICK_SECONDS)
                if ended in ready:
                    process.wait()
                    return
                seen.take(self.trace.read())
        finally:
            process.kill()  # unless it has ended
            os.close(ended)

    @contextlib.contextmanager
    def watch(self) -> Iterator[Seen]:
        """Keep what the trace tells of what happens in the block."""
        self.trace._swept_ns = 0
        for sample in self.trace.read():  # what came before is nobody's here, nor is what was lost of it
            if isinstance(sample, TraceHealth):
                self._health = sample
        seen = Seen()
        if self._health is not None:
            seen.health.append(self._health)
        yield seen
        seen.take(self.trace.read())
        seen.take(self.trace.read(final=True))  # what it tells once a second, or in the end
        if seen.health:
            self._health = seen.health[-1]


def difference(truth: Order, seen: Order) -> Mapping[str, tuple[int, int]]:
    """Return the (true, seen) values that differ, by name."""
    pairs = {name: (getattr(truth, name), getattr(seen, name)) for name in Order.__dataclass_fields__}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
