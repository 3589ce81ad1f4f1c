"""A process that was not read at each tick: what it moved lies between its own two readings."""

from __future__ import annotations

from tests.detect.stage import SECOND_NS, Stage

from ckptprof.detect.world.world import World
from ckptprof_collectors.samples import Frame, PreviousRead, ProcessIo, Sample, ThreadTime

PID, TICKS = 100, 1000
MOVED = 64 << 20


def world_after(*told: Sample) -> tuple[World, int]:
    """Return what is known after ten frames a second, and of the process the first and the last tell; when it began."""
    stage = Stage()
    world = World(stage.header())
    start_ns = stage.header().at_ns
    first = (ProcessIo(PID, TICKS, 0, 0, 0, 0, 0, 0, 0), ThreadTime(PID, TICKS, PID, 0, 0, 0))
    last = (ProcessIo(PID, TICKS, 0, MOVED, 0, 64, 0, MOVED, 0), ThreadTime(PID, TICKS, PID, 9 * SECOND_NS // 10, 0, 9))
    for tick in range(11):
        samples = first if tick == 0 else (*last, *told) if tick == 10 else ()
        at_ns = start_ns + tick * SECOND_NS // 10
        world.ingest_exits(world.ingest(Frame(at_ns, stage.wall(tick / 10), ("processes",), samples)))
    return world, start_ns


def test_who_was_read_at_each_tick_moved_within_the_last() -> None:
    """What is not told has not changed."""
    world, start_ns = world_after()

    (interval,) = world.histories[PID, TICKS].intervals

    assert (interval.start_ns - start_ns, interval.end_ns - start_ns) == (9 * SECOND_NS // 10, SECOND_NS)


def test_who_was_read_before_may_have_moved_since_then() -> None:
    """A crowd that stands still is read in turn, and a frame says when this one was."""
    before_ns = Stage().header().at_ns + SECOND_NS // 10
    world, start_ns = world_after(PreviousRead(PID, TICKS, before_ns))

    (interval,) = world.histories[PID, TICKS].intervals
    (stood, ran) = world.trainers.stretches((PID, TICKS), start_ns, start_ns + SECOND_NS)

    assert (interval.start_ns, interval.end_ns) == (before_ns, start_ns + SECOND_NS)
    assert (stood.share, stood.end_ns) == (0.0, before_ns)
    assert ran.share == 1.0
