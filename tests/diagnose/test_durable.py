"""Whether a save was on stable storage when it returned, and how fast it goes there."""

from __future__ import annotations

import pytest
from tests.diagnose.hand import GIB, device, measured, ns, restore, save, thread

from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.model import Checkpoint, Evidence, Interval, Level, Mode, Moments, Status
from ckptprof.verdicts import Cost

BY_LOOKS = (Evidence(name="durable", weight=0.0, text="by looks"),)


def cost(checkpoint: Checkpoint) -> Cost:
    """Return what it cost."""
    told = diagnose(checkpoint).cost
    assert told is not None
    return told


def one(durable: float | None, unwritten: float | None = None, **more: object) -> Checkpoint:
    """Return a save of 2 s; seconds from its start to when it was durable, and to the last look that found it not."""
    begin_ns = save(Level.TRACE, 2, None).start_ns
    backs = {name: more.pop(name) for name in ("written_back_bytes", "written_back_ns", "devices") if name in more}
    told_ns = None if unwritten is None else begin_ns + ns(unwritten)
    seen = measured(thread(Level.TRACE, 2, copy=2), unwritten_ns=told_ns, **backs)
    durable_ns = None if durable is None else begin_ns + ns(durable)
    return save(Level.TRACE, 2, seen, durable_ns=durable_ns, **more)


def test_what_was_synced_before_its_end_goes_at_its_own_rate() -> None:
    """A look that finds all written by then tells it, too."""
    for evidence in ((), BY_LOOKS):
        told = cost(one(1.9, evidence=evidence))
        assert (told.durable_on_return, told.durable_bytes_per_second) == (True, pytest.approx(GIB / 1.9))


def test_what_the_kernel_wrote_later_goes_as_if_it_had_been_synced() -> None:
    """The device had work for 4 of the 30 s in which the kernel waited: a sync had taken these 4 s."""
    told = cost(one(30.0, written_back_bytes=GIB, written_back_ns=ns(4)))
    assert told.durable_on_return is False
    assert told.durable_bytes_per_second == pytest.approx(GIB / 6)


def test_a_sync_takes_no_longer_than_the_kernel_took_without_one() -> None:
    """The device wrote all the while: it was durable after 3 s, and so it had been with a sync."""
    told = cost(one(3.0, written_back_bytes=GIB, written_back_ns=ns(3)))
    assert told.durable_bytes_per_second == pytest.approx(GIB / 3)


def test_a_limit_on_the_device_is_not_exceeded() -> None:
    """Requests that are held back before its queue are no work of it."""
    slow = (device(2, throttled_bytes_per_second=100_000_000),)
    told = cost(one(30.0, written_back_bytes=GIB, written_back_ns=ns(0.5), devices=slow))
    assert told.durable_bytes_per_second == pytest.approx(GIB / (2 + GIB / 1e8))


@pytest.mark.parametrize(
    ("durable", "unwritten", "evidence", "was"),
    [
        (30.0, 28.0, BY_LOOKS, False),
        (None, 28.0, (), False),  # the watch ended
        (2.4, None, BY_LOOKS, None),  # it may have been so long before that look
        (2.4, 1.0, BY_LOOKS, None),
        (2.4, None, (), False),  # a sync of another program
        (None, None, (), None),
    ],
)
def test_it_is_told_only_where_it_is_known(
    *, durable: float | None, unwritten: float | None, evidence: tuple[Evidence, ...], was: bool | None
) -> None:
    """Without the work of the device no rate is."""
    told = cost(one(durable, unwritten, evidence=evidence))
    assert (told.durable_on_return, told.durable_bytes_per_second) == (was, None)


def test_a_save_returns_when_training_goes_on() -> None:
    """The sync came after the marker, and the call of the job after it."""
    begin_ns = one(None).start_ns
    told = {"moments": Moments(committed_ns=begin_ns + ns(1)), "blocked": (Interval(begin_ns, begin_ns + ns(2.6)),)}
    assert cost(one(2.5, **told)).durable_on_return is True
    assert cost(one(2.5, **told, mode=Mode.ASYNC)).durable_on_return is None  # it returned long before


def test_of_a_restore_and_of_what_was_broken_off_nothing_is_told() -> None:
    """Nor of what only a part was seen of."""
    assert cost(restore(Level.TRACE, 2, measured())).durable_on_return is None
    assert cost(one(1.0, status=Status.INCOMPLETE)).durable_on_return is None


def test_what_the_device_wrote_for_others_alone_is_no_rate() -> None:
    """It took a tenth of the bytes in all that time, so they went elsewhere."""
    assert cost(one(30.0, written_back_bytes=GIB // 10, written_back_ns=ns(4))).durable_bytes_per_second is None


@pytest.mark.parametrize(("busy", "known"), [(0.03, True), (0.015, False)])
def test_a_rate_is_of_what_the_kernel_can_count(*, busy: float, known: bool) -> None:
    """A device that had work for less than two ticks has none."""
    told = cost(one(30.0, written_back_bytes=GIB, written_back_ns=ns(busy)))
    assert (told.durable_bytes_per_second is not None) == known
