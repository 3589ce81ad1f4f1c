"""Hundreds of short processes a second: the cost of each does not grow with the number of those before it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.detect.calls import LINEAR, calls_of
from tests.detect.stage import MIB, SECOND_NS, Stage
from tests.detect.tracer import activity

from ckptprof.detect.pipeline import Detector
from ckptprof_collectors.samples import FileActivity, Frame, OperationKind, ProcessExit

TICKS = 10
FEW, MANY = 15, 60  # processes at each tick
COMMON = "/data/common.npy"


def reads(pid: int, at_s: float) -> FileActivity:
    """Return what a process reads of a file that all of them read."""
    return activity(pid, COMMON, at_s, at_s + 0.001, MIB, inode=7, writes=False)


def maps(pid: int, at_s: float) -> FileActivity:
    """Return what a process touches of a file that all of them map."""
    fault = int(OperationKind.FAULT)
    return activity(
        pid, COMMON, at_s, at_s + 0.001, MIB, inode=7, writes=False, closed=False, kinds=fault, faulted_bytes=MIB
    )


def appends(pid: int, at_s: float) -> FileActivity:
    """Return what a process adds to a log that all of them write."""
    return activity(pid, "/data/common.log", at_s, at_s + 0.001, 4096, inode=8, offset=4096 * pid)


def crowd(processes: int, does: Callable[[int, float], FileActivity]) -> None:
    """Feed a detector so many processes at each tick."""
    stage = Stage()
    detector = Detector(stage.header())
    pid = 1000
    for tick in range(TICKS):
        at_s = 1.0 + tick
        fresh = range(pid, pid := pid + processes)
        samples = [*(does(one, at_s) for one in fresh), *(ProcessExit(one, one * 10) for one in fresh)]
        at_ns = stage.header().at_ns + int((at_s + 0.5) * SECOND_NS)
        detector.ingest(Frame(at_ns, stage.wall(at_s + 0.5), ("trace", "processes"), tuple(samples)))


@pytest.mark.parametrize("does", [reads, maps, appends])
def test_the_cost_of_a_short_process_does_not_grow_with_their_number(
    does: Callable[[int, float], FileActivity],
) -> None:
    """Four times as many processes at one file take four times the calls, not sixteen times."""
    few, many = (calls_of(partial(crowd, number, does)) for number in (FEW, MANY))

    assert many / MANY < LINEAR * few / FEW
