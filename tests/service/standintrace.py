"""A trace that tells what a test gives it, in the place of the one that takes eBPF."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ckptprof.recording import Unpacker, pack
from ckptprof.service.sampler.outputqueue import OutputQueue
from ckptprof.service.sampler.sampler_loop import Sampler
from ckptprof.service.sampler_options import SamplerOptions
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import FileActivity, Frame, Sample

MIB = 1 << 20
ACTIVITY = FileActivity(
    session="s", pid=0, start_ticks=0, tid=0, comm="python", device=0, inode=0, generation=0, writes=True, path=None,
    size=0, operations=1, bytes=0, consecutive_operations=1, consecutive_bytes=0, sequential_operations=1,
    sequential_bytes=0, large_bytes=0, direct_bytes=0, call_ns=None, timed_operations=0, first_ns=0, last_ns=0,
    first_offset=0, end_offset=0, low_offset=0, high_offset=0, kinds=1, sizes=(),
)  # fmt: skip


def start_ticks(pid: int | str = "self") -> int:
    """Return field 22 of /proc/PID/stat."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def activity(pid: int, path: Path | str | None, moved_bytes: int, **more: Any) -> FileActivity:
    """Return what a process is said to have written to a file."""
    found = Path(path).stat() if path is not None and Path(path).exists() else None
    where = {"device": found.st_dev, "inode": found.st_ino, "size": found.st_size} if found else {}
    told: dict[str, Any] = {
        "pid": pid,
        "start_ticks": start_ticks(pid) if Path(f"/proc/{pid}").exists() else 1,
        "tid": pid,
        **where,
    }
    told |= {"session": f"{pid} {path}", "path": None if path is None else str(path), "bytes": moved_bytes}
    return msgspec.structs.replace(ACTIVITY, **{**told, **more})


@dataclass
class StandIn:
    """One read for each entry: samples, or the error that it ends in; nothing after that."""

    reads: list[Sequence[Sample] | Exception] = field(default_factory=list)
    degraded: tuple[str, ...] = ()
    asked: dict[str, tuple[int, ...]] = field(default_factory=dict)
    closed: int = 0
    attended: list[tuple[dict[int, bool], int]] = field(default_factory=list)
    read_trifles: dict[int, int] = field(default_factory=dict)
    wake: tuple[int, int] = field(default_factory=os.pipe)

    def __call__(self, _: KernelFs, *, family_of: tuple[int, ...], ignore: tuple[int, ...]) -> StandIn:
        """Be made, by itself."""
        self.asked = {"family_of": family_of, "ignore": ignore}
        return self

    def read(self, *, final: bool = False) -> Sequence[Sample]:  # noqa: ARG002 - the interface of Trace
        """Give the next."""
        os.set_blocking(self.wake[0], False)
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake[0], 64)
        parsed = self.reads.pop(0) if self.reads else ()
        if isinstance(parsed, Exception):
            raise parsed
        return parsed

    def set_attended(self, processes: Mapping[int, bool], trifle_bytes: int) -> None:
        """Keep of whom trifles are wanted."""
        self.attended.append((dict(processes), trifle_bytes))

    def consume_trifles(self) -> Mapping[int, int]:
        """Give what a test has put there."""
        return self.read_trifles

    def check(self) -> None:
        """Be readable."""

    def fileno(self) -> int:
        """Return what a test makes readable."""
        return self.wake[0]

    def close(self) -> None:
        """Count."""
        self.closed += 1
        for fd in self.wake:
            os.close(fd)


class Desk:
    """A sampler in this process, and the frames that it sends."""

    def __init__(self, attach: Callable[..., Any], **options: Any) -> None:
        """Start nothing; `tick` does a tick."""
        self._out, into = os.pipe()
        os.set_blocking(self._out, False)
        self._control, self.recorder = os.pipe()
        self._unpacker = Unpacker()
        self._output = OutputQueue(into)
        self._into = into
        chosen = SamplerOptions(uid="u", **{"level": "auto", **options})
        self.sampler = Sampler(chosen, KernelFs(), self._output, self._control, attach=attach)
        self.header = self.sampler.header()
        self._output.put(pack(self.header))

    def tick(self, at_ns: int) -> list[Sample]:
        """Tick, and return the samples of all frames that came of it."""
        self.sampler.tick(at_ns)
        return self.take()

    def take(self) -> list[Sample]:
        """Return the samples that have come."""
        self._output.flush()
        try:
            data = os.read(self._out, 8 << 20)
        except BlockingIOError:
            return []
        return [s for m in self._unpacker.feed(data) if isinstance(m, Frame) for s in m.samples]

    def close(self) -> None:
        """End the sampler and give everything back."""
        self.sampler._finish()
        for fd in (self._out, self._into, self._control, self.recorder):
            os.close(fd)
