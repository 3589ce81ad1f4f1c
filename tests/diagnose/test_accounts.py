"""Parts of a thread's time: what takes them leaves the rest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.diagnose.hand import MIB, device, measured, ns, save, thread

from ckptprof.diagnose.accounts.accounts import account
from ckptprof.diagnose.accounts.parts import BUSY, IDLE, Part, Parts
from ckptprof.diagnose.causes import Cause
from ckptprof.diagnose.context import gather_context
from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.measures import BeforeMeasure
from ckptprof.model import Checkpoint, Level, Mode
from ckptprof.verdicts import Limit

_PARTS = Parts({Part.DATA: 3.0, Part.REST: 2.0, Part.USER: 1.0})


def test_what_is_taken_is_missing_from_the_rest() -> None:
    """Time is taken in the order of the parts, as much as there is; nothing is taken for less than nothing."""
    assert _PARTS.claim(4.0, Part.REST, Part.DATA) == (4.0, Parts({Part.DATA: 1.0, Part.REST: 0.0, Part.USER: 1.0}))
    assert _PARTS.claim(9.0, Part.USER) == (1.0, Parts({Part.DATA: 3.0, Part.REST: 2.0, Part.USER: 0.0}))
    assert _PARTS.claim(-1.0, Part.USER) == (0.0, _PARTS)


def test_all_parts_give_the_same_share() -> None:
    """Half of all of it is half of each part; more than all is all."""
    assert _PARTS.claim_evenly(3.0) == (3.0, Parts({Part.DATA: 1.5, Part.REST: 1.0, Part.USER: 0.5}))
    assert _PARTS.claim_evenly(7.0)[0] == 6.0
    assert Parts({}).claim_evenly(1.0) == (0.0, Parts({}))


def test_what_moves_stays_in_the_sum() -> None:
    """Sleep that turns out to be for storage becomes sleep in a call."""
    assert _PARTS.reassign(5.0, Part.REST, Part.DATA) == Parts({Part.DATA: 5.0, Part.REST: 0.0, Part.USER: 1.0})


def test_each_part_is_one_of_the_busy_or_the_idle() -> None:
    """A part that is added is told to be one of the two."""
    assert {*BUSY, *IDLE} == set(Part)


def test_looking_up_is_told_as_such() -> None:
    """A save that waits for stat(2) and the like more than for creating and renaming says so."""
    told = thread(Level.POLL, 4, user=1, create=1, metadata=2)
    (names,) = (
        one for one in account(gather_context(save(Level.POLL, 4, measured(told)))).accounts if one.cause is Cause.NAMES
    )

    assert (names.limit, names.seconds, names.text) == (Limit.METADATA, pytest.approx(3), "looking up files")


def _spent(checkpoint: Checkpoint, cause: Cause) -> float:
    """Return the seconds of a cause in the account of a checkpoint, rounded to a hundredth."""
    return round(sum(one.seconds for one in account(gather_context(checkpoint)).accounts if one.cause is cause), 2)


@pytest.mark.parametrize(
    ("files", "names", "spent"),
    [
        (10_000, 2.0, 10.0),
        (10_000, 0.9, 0.9),  # of files that names take little of, the bytes are the limit
        (7_000, 2.0, 2.0),  # so are they of large files
        (150, 2.0, 2.0),
    ],
)
def test_what_many_small_files_take_is_paid_for_each_of_them(files: int, names: float, spent: float) -> None:
    """Where names take a tenth and more of it, all that is done for a file is the work of having so many."""
    at = thread(Level.TRACE, 10, user=2, copy=1, create=names, data=7 - names)

    assert _spent(save(Level.TRACE, 10, measured(at), files=files), Cause.NAMES) == spent


def test_of_many_small_files_the_kernel_does_more_than_to_copy() -> None:
    """Without call times, what is more than copying at a gigabyte a second is for names."""
    at = thread(Level.POLL, 20, copy=2, other={"sleep": 18})
    checkpoint = save(Level.POLL, 20, measured(at), files=10_000)

    assert (_spent(checkpoint, Cause.NAMES), _spent(checkpoint, Cause.COPYING)) == (0.93, 1.07)


@pytest.mark.parametrize(("busy", "stored"), [(8.0, 9.0), (6.0, 0.0)])
def test_sleep_that_nobody_looked_at_is_for_a_device_that_was_busy(busy: float, stored: float) -> None:
    """For seven tenths of the time; of one that had pauses it is not known."""
    at = thread(Level.POLL, 10, user=1)
    checkpoint = save(Level.POLL, 10, measured(at, devices=(device(10, busy_seconds=busy),)))

    assert (_spent(checkpoint, Cause.DEVICE), _spent(checkpoint, Cause.UNEXPLAINED)) == (stored, 9.0 - stored)


@pytest.mark.parametrize(("in_flight", "stored"), [(0.05, 0.5), (0.5, 9.5), (2.0, 9.5)])
def test_a_disk_without_requests_is_not_what_a_file_call_waits_for(in_flight: float, stored: float) -> None:
    """A frozen file system keeps a sync asleep while its disk is idle."""
    at = thread(Level.TRACE, 10, copy=0.5, sync=9.5)
    checkpoint = save(Level.TRACE, 10, measured(at, devices=(device(10, mean_queue=in_flight, busy_seconds=9),)))

    assert (_spent(checkpoint, Cause.DEVICE), _spent(checkpoint, Cause.UNEXPLAINED)) == (stored, 9.5 - stored)


@pytest.mark.parametrize("level", Level)
def test_a_stopped_process_waits_for_nobody(level: Level) -> None:
    """Suspended for four of six seconds: no disk, no server and no work is blamed for them, and a rerun is faster."""
    at = thread(level, 6, copy=1, sync=1, other={"stopped": 4})
    if level is Level.TRACE:
        at = msgspec.structs.replace(at, samples=40, samples_by_state={"stopped": 40.0})
    verdict = diagnose(save(level, 6, measured(at, devices=(device(6, mean_queue=0.2),)))).verdict

    assert verdict is not None
    assert (verdict.limit, verdict.cause) == (Limit.CPU, "stopped")
    assert "for 4.00 s the single writing thread was stopped by a signal" in verdict.sentence
    assert verdict.expected_seconds == pytest.approx(2, abs=0.05)


def test_training_that_stands_still_while_the_save_before_is_written_waits_for_it() -> None:
    """Of the four seconds before the first byte the save before went on for three."""
    at = thread(Level.TRACE, 2, copy=2)
    earlier = save(Level.TRACE, 9, measured(at), begin=-10, mode=Mode.ASYNC)
    held = measured(at, before=BeforeMeasure(blocked_ns=ns(4)))
    later = save(Level.TRACE, 2, held, mode=Mode.ASYNC, stall_ns=ns(4))

    spent = {one.cause: round(one.seconds, 2) for one in account(gather_context(later, [earlier])).accounts}
    assert spent[Cause.PREVIOUS_SAVE] == 3
    assert spent[Cause.UNKNOWN_BEFORE] == 1


def test_a_stacked_device_is_blamed_at_the_layer_that_is_limited() -> None:
    """A throttle above an idle disk is even at both; a slow disk keeps all layers above it busy; a queue is its own."""
    idle: dict[str, Any] = {"steadiness": 0.95, "busy_seconds": 0.4, "shown_bytes_per_second": 5e8}
    at = thread(Level.TRACE, 10, copy=0.5, sync=9.5)
    for loop, disk, name, cause in (
        ({}, {}, "loop3", "throttled"),
        ({"busy_seconds": 9.5}, {"busy_seconds": 9}, "vda", "slow-device"),
        ({"busy_seconds": 9.5}, {}, "loop3", "slow-device"),
        ({"steadiness": 0.2}, {"steadiness": 0.3}, "vda", "slow-device"),
        ({"throttled_bytes_per_second": 100 * MIB}, {}, "loop3", "throttled"),
    ):
        above = device(10, **{**idle, "device": "loop3", "countable": False, **loop})
        below = device(10, **{**idle, "device": "vda", **disk})
        verdict = diagnose(save(Level.TRACE, 10, measured(at, devices=(below, above)))).verdict
        assert verdict is not None
        assert f"asleep waiting for {name} at" in verdict.sentence
        assert verdict.cause == cause


def test_no_rate_of_a_device_is_above_what_it_was_seen_to_do() -> None:
    """A tenth of a second asleep in a save of a second is not the time in which its gigabyte was written."""
    at = thread(Level.TRACE, 1, user=0.9, copy=0, sync=0.1)
    for shown, words in ((5e8, "500 MB/s"), (5e9, "1.07 GB/s")):
        under = device(1, shown_bytes_per_second=shown, peak_bytes_per_second=shown)
        (one,) = [one for one in account(gather_context(save(Level.TRACE, 1, measured(at, devices=(under,))))).accounts
                  if one.limit is Limit.DEVICE]  # fmt: skip
        assert f"at {words}" in one.text
