"""Causes that are planted for real are named, and are not named where they were taken away.

Each kind of ground and of fault once. The captures fault-* and control-* hold the others, `make score` plants more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.machine import need_room

sys.path.insert(0, str(Path(__file__).resolve().parent / "faults"))

from fault_bench import Told, Work, run_work
from fault_grounds import IMAGE_MIB, Throttle, loop


@dataclass(frozen=True)
class Case:
    """One fault, the limit that it is, and its control: the same work without it."""

    limit: str
    fault: Work
    control: Work
    size_mb: int
    kind: str = "save"


SLOW = partial(loop, "ext4", Throttle(write_bytes=50 << 20))
FEW = partial(loop, "ext4", Throttle(write_operations=400))
RANKS = ("--way", "fsync", "--ranks", "4")
ONE_SAVE = ("--way", "fsync", "--saves", "1")
CASES = {
    "device-fsync": Case("device", Work(SLOW, ("--way", "fsync")), Work(loop, ("--way", "fsync")), 100),
    "serialize-zlib": Case("serialize", Work(loop, ("--way", "zlib")), Work(loop, ("--way", "raw")), 60),
    "straggler": Case("straggler", Work(loop, (*RANKS, "--straggler", "2", "--straggle", "3")), Work(loop, RANKS), 80),
    "sync-pieces": Case("flush", Work(FEW, ("--way", "sync-pieces")), Work(FEW, ("--way", "fsync")), 16),
    "restore-device": Case(
        "device",
        Work(partial(loop, "ext4", Throttle(read_bytes=50 << 20)), ("--restore",), ONE_SAVE),
        Work(loop, ("--restore",), ONE_SAVE),
        50,
        "restore",
    ),
}


def named(level: str, name: str, fault: Told, control: Told) -> str:
    """Return what was said, for a figure or a failure."""
    return (
        f"{level:5} {name:18} {', '.join(fault.limits)} in {fault.seconds:.2f} s; "
        f"without it {', '.join(control.limits)} in {control.seconds:.2f} s"
    )


@pytest.mark.root
@pytest.mark.bpf
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.xdist_group("live")
@pytest.mark.parametrize("name", CASES)
def test_a_planted_cause_is_named(name: str, record_property: Callable[[str, object], None]) -> None:
    """Most verdicts of the faulty run name the cause, at both levels; without the fault few do."""
    need_room("/dev/shm", IMAGE_MIB << 20)
    case = CASES[name]

    fault, control = (run_work(one, case.size_mb, case.kind, saves=2) for one in (case.fault, case.control))

    figures = {level: named(level, name, fault[level], control[level]) for level in fault}
    record_property("figure", "; ".join(figures.values()))
    for level, figure in figures.items():
        seen = ("cache", "pattern", "verdict", "limitations")
        events = [{name: event.get(name) for name in seen} for event in fault[level].events]
        assert events, figure
        right = fault[level].limits.count(case.limit)
        assert right * 2 > len(events), f"{figure}\n{json.dumps(events, indent=1)}"
        assert control[level].limits.count(case.limit) * 2 < max(1, len(control[level].limits)), figure
