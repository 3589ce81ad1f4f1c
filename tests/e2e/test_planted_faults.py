"""Causes that are planted for real are named, and are not named where they were taken away."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.machine import need_room

sys.path.insert(0, str(Path(__file__).resolve().parent / "faults"))

from fault_bench import Outcome, run_case
from fault_cases import CASES, Case
from fault_grounds import IMAGE_MIB

# All of them, at both sizes and with figures, are benchmarks/faults.py; here is each kind of ground and of fault once.
EVERYDAY = ("device-fsync-ext4", "network-fuse", "serialize-zlib", "straggler", "sync-pieces", "restore-mapping")
NEEDED = ("sshfs", "socat", "mkfs.xfs", "losetup", "tc", "ip")


def chosen() -> list[Case]:
    """Return those that are run here: `CKPTPROF_FAULTS=all` is every one."""
    everything = os.environ.get("CKPTPROF_FAULTS") == "all"
    return [case for case in CASES if everything or case.name in EVERYDAY]


def named(outcome: Outcome) -> str:
    """Return what was said, for a figure or a failure."""
    promised = outcome.fault.expected_seconds
    return (
        f"{outcome.level:5} {outcome.case.name:18} {', '.join(outcome.fault.limits)} in {outcome.fault.seconds:.2f} s; "
        f"without it {', '.join(outcome.control.limits)} in {outcome.control.seconds:.2f} s"
        + ("" if promised is None else f", promised {promised:.2f} s")
    )


def told(outcome: Outcome) -> str:
    """Return all that was said of the faulty run, for a failure."""
    seen = ("cache", "pattern", "verdict", "blind")
    events = [{name: event.get(name) for name in seen} for event in outcome.fault.events]
    return f"{named(outcome)}\n{json.dumps(events, indent=1)}"


@pytest.mark.root
@pytest.mark.programs(*NEEDED)
@pytest.mark.bpf
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.xdist_group("live")
@pytest.mark.parametrize("case", chosen(), ids=lambda case: case.name)
def test_a_planted_cause_is_named(case: Case, record_property: Callable[[str, object], None]) -> None:
    """Most verdicts of the faulty run name the cause, at both levels; without the fault few do."""
    need_room("/dev/shm", IMAGE_MIB << 20)

    outcomes = run_case(case, case.sizes_mb[0], saves=2 + case.skip, probed=False)

    record_property("figure", "; ".join(named(outcome) for outcome in outcomes))
    for outcome in outcomes:
        assert outcome.fault.events, named(outcome)
        assert outcome.right * 2 > len(outcome.fault.limits), told(outcome)
        still_named = sum(limit in case.limits for limit in outcome.control.limits)
        assert still_named * 2 < max(1, len(outcome.control.limits)), named(outcome)
