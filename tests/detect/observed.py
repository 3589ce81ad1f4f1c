"""A world of which only the processes were observed: for tests of a single fact, which need no frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any

from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.process_counters import ProcessHistory, ProcessInterval
from ckptprof.detect.world.world import World
from ckptprof.recording import Header
from ckptprof_collectors.samples import Frame, ProcessInfo, Sample


def history_of(intervals: Iterable[ProcessInterval], *fields: Any, **named: Any) -> ProcessHistory:
    """Return the history of a process with these intervals, and its other fields in their order."""
    history = ProcessHistory(*fields, **named)
    for one in intervals:
        history._append(one)
    return history


def observed(
    histories: Mapping[tuple[int, int], ProcessHistory] | None = None,
    *,
    trainers: tuple[int, ...] = (),
    parents: Mapping[int, int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> World:
    """Return a world with the counters of some processes, in which wall and monotonic clock are the same.

    Of all processes only `trainers` have PyTorch loaded; `parents` tells by whom some were started. All are described,
    have this environment, and began at tick 1.
    """
    world = World(Header(uid="", host="", boot_id="", kernel="", ckptprof="", level="poll", at_ns=0, wall_ns=0,
                         ticks_per_second=100, page_size=4096, monitor_pids=(1,)))  # fmt: skip
    world.histories.update(histories or {})
    parents, told = parents or {}, dict(environment or {})
    counted = (pid for pid, _ in world.histories)
    for pid in sorted({*trainers, *counted, *parents, *parents.values()}):
        runtimes = ("torch",) if pid in trainers else ()
        info = ProcessInfo(pid=pid, start_ticks=1, parent_pid=parents.get(pid, 1), uid=0, comm="python3",
                           program="train.py", runtimes=runtimes, environment=told, cgroup=None)  # fmt: skip
        world.jobs.observe(info)
    return world


def books(thing: object) -> int:
    """Return how many entries an object holds in its collections, and in those of the objects of detection in it."""
    if isinstance(thing, Sized):
        return len(thing)
    return sum(map(books, vars(thing).values())) if type(thing).__module__.startswith("ckptprof.detect") else 0


def frame(at_ns: int, unchanged_ns: int, *samples: Sample) -> FrameSamples:
    """Return the samples of one frame; up to `unchanged_ns` nothing had changed that any collector tells."""
    collectors = ("disks", "nics", "rdma", "qdiscs", "wires", "tcp", "clients", "processes", "trace")
    return FrameSamples(Frame(at_ns, at_ns, (), samples), dict.fromkeys(collectors, unchanged_ns))
