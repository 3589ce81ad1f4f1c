"""Each limit is told from its near neighbours, whose measures differ in one number, at both levels."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from tests.diagnose.hand import (
    GIB,
    MIB,
    START_NS,
    changed,
    device,
    far,
    held,
    link,
    local,
    measured,
    memory,
    ns,
    process,
    restore,
    save,
    thread,
)

from ckptprof.diagnose.accounts import outside, ranks
from ckptprof.diagnose.context import busy_share
from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.model import Checkpoint, Interval, Level, Metadata, Mode, Moments, Pattern, Run, Writer
from ckptprof.verdicts import Limit, Verdict

BOTH = pytest.mark.parametrize("level", [Level.TRACE, Level.POLL])


def told(checkpoint: Checkpoint, *history: Checkpoint) -> Verdict:
    """Return its verdict, whose accounts add up."""
    verdict = diagnose(checkpoint, history).verdict
    assert verdict is not None
    assert sum(one.seconds for one in verdict.accounts) == pytest.approx(verdict.seconds, abs=1e-6)
    return verdict


@BOTH
def test_serialisation_and_storage_are_told_apart_by_who_is_on_cpu(level: Level) -> None:
    """The issue's own example: 31 of 39 s in CRC32; with the same seconds asleep in a sync it is the device."""
    stacks = (process(stacks={"crc": 18, "write": 2}),)
    busy = thread(level, 39, user=31, copy=3, data=1, sync=4)
    verdict = told(save(level, 39, measured(busy, processes=stacks, devices=(device(39, busy_seconds=4.7),))))
    assert verdict.limit is Limit.SERIALIZE
    assert verdict.expected_seconds == pytest.approx(8, rel=0.05)
    assert "for 31.0 s the single writing thread was on CPU in zip CRC32" in verdict.sentence
    assert re.search("; it takes about 8.* with CRC off$", verdict.sentence)

    asleep = thread(level, 39, user=4, copy=3, data=1, sync=31)
    verdict = told(save(level, 39, measured(asleep, devices=(device(39, busy_seconds=38),))))
    assert verdict.limit is Limit.DEVICE
    assert "39.0 s, disk-bound: for 32" in verdict.sentence


@BOTH
def test_a_throttled_device_is_one_though_it_is_never_busy(level: Level) -> None:
    """What a cgroup holds back waits before the queue; the promise is copying, and the device at what it has shown."""
    at = thread(level, 21, copy=1, sync=20)
    limited = device(21, busy_seconds=0.6, throttled_bytes_per_second=50 * MIB, steadiness=0.98, mean_queue=0.175)
    verdict = told(save(level, 21, measured(at, devices=(limited,))))
    assert verdict.limit is Limit.DEVICE
    assert "throttled to 52.4 MB/s by a cgroup" in verdict.sentence
    assert sum("throttled to 52.4 MB/s by a cgroup" in reason for reason in verdict.evidence) == 1  # not twice
    assert verdict.expected_seconds == pytest.approx(1 + GIB / 2e9, rel=0.1)
    assert verdict.throttle_bytes_per_second == 50 * MIB
    assert (verdict.remedy or "").startswith("raise the throttle of nvme0n1: io.max ")
    assert verdict.excluded[0] == "the speed of the disk itself: 0.17 requests in flight"
    assert verdict.sentence.startswith("21.0 s, throttled: for 20.0 s")


@BOTH
def test_what_a_disk_does_without_its_throttle_is_known_only_if_it_was_faster(level: Level) -> None:
    """And a throttle that it exceeds by far was raised since it was read."""
    at = thread(level, 21, copy=1, sync=20)
    even = {"shown_bytes_per_second": 52e6, "peak_bytes_per_second": 52e6, "busy_seconds": 0.0}
    verdict = told(save(level, 21, measured(at, devices=(device(21, throttled_bytes_per_second=50 * MIB, **even),))))
    assert (verdict.expected_seconds, verdict.throttle_bytes_per_second) == (None, 50 * MIB)
    assert "whose rate without the throttle is not known" in (verdict.capped_by or "")
    verdict = told(save(level, 21, measured(at, devices=(device(21, throttled_bytes_per_second=15 * MIB),))))
    assert verdict.throttle_bytes_per_second is None
    assert "throttled to" not in verdict.sentence


def test_a_disk_is_busy_for_as_long_as_its_requests_take() -> None:
    """The kernel does not count those between two ticks: 13 a second of 1.5 ms are 2 %; many at a time overlap."""
    assert busy_share(device(6.7, busy_seconds=0.004, mean_queue=0.0193)) == 0.0193
    assert busy_share(device(10, busy_seconds=2, mean_queue=8)) == 0.2


@BOTH
def test_copying_at_memory_speed_is_nothing(level: Level) -> None:
    """A buffered save that nobody syncs is not slow, whatever the device below is held to."""
    at = thread(level, 1.2, user=0.1, copy=1.1)
    limited = device(1.2, 60 * MIB, throttled_bytes_per_second=50 * MIB)
    verdict = told(save(level, 1.2, measured(at, devices=(limited,))))
    assert verdict.limit is Limit.NONE
    assert "a normal rate for one thread" in verdict.sentence


@BOTH
def test_a_crowded_host_makes_no_limit_of_what_is_over_in_a_moment(level: Level) -> None:
    """0.3 s of waiting for the device limit nothing where 1.6 s went by without a CPU; 3 s of it do."""
    for waited, limit in ((0.3, Limit.CPU), (3.0, Limit.DEVICE)):
        at = thread(level, 1.9 + waited, copy=0.2, sync=waited, runqueue=1.6, moved=200 * MIB)
        under = device(1.9 + waited, 200 * MIB, busy_seconds=0.9 * waited)
        assert told(save(level, 1.9 + waited, measured(at, devices=(under,)))).limit is limit


@BOTH
def test_what_is_slow_on_a_quiet_host_is_the_limit_of_a_crowded_one(level: Level) -> None:
    """Compression of six seconds owns its waits for a CPU; 0.2 s of it do not; a second remedy has its own gain."""
    for user, limit in ((6.0, Limit.SERIALIZE), (0.2, Limit.CPU)):
        at = thread(level, 10, user=user, copy=0.2, runqueue=9.6 - user)
        verdict = told(save(level, 10, measured(at, devices=(device(10, busy_seconds=0.1),))))
        assert verdict.limit is limit
        own = sum(one.seconds for one in verdict.accounts if one.limit is limit)
        assert own == pytest.approx(9.4, abs=0.4)  # in proportion to its CPU time
        assert f": for {own:.2f} s" in verdict.sentence
        assert verdict.expected_seconds == pytest.approx(10 - own)
        assert (verdict.alternative is None) is (limit is Limit.CPU)  # the code alone takes a fiftieth
        if verdict.alternative is not None:
            assert verdict.alternative.limit is Limit.CPU
            assert verdict.alternative.expected_seconds == pytest.approx(6.4, abs=0.3)


def test_what_a_remedy_leaves_waits_for_a_cpu_as_what_it_removes() -> None:
    """In the same share of its time: a copy of 0.2 s takes 2.2 where a thread has a CPU for an eleventh of it.

    What waits in the account of another limit is not won.
    """
    packing = thread(Level.TRACE, 10, user=5, copy=0.05, data=0.1, runqueue=4.8)
    under = (device(4, 64 * MIB),)
    syncing = thread(Level.TRACE, 4, copy=0.2, sync=1.8, runqueue=2, moved=64 * MIB)
    naming = thread(Level.TRACE, 4, copy=0.5, create=0.5, runqueue=3, moved=24 * MIB)
    many: dict[str, Any] = {"bytes": 24 * MIB, "files": 6000, "metadata": Metadata(created=6000)}
    small: dict[str, Any] = {"bytes": 64 * MIB, "metadata": Metadata(synced=1000)}
    for one, cause, expected in (
        (save(Level.TRACE, 4, measured(syncing, devices=under), **small), "sync-pieces", 2.2),
        (save(Level.TRACE, 4, measured(naming, devices=under), **many), "many-files", 7 * 24 * MIB / 1e9),
        (
            save(Level.TRACE, 10, measured(packing, devices=under)),
            "single-thread",
            0.1 + 0.05 + 0.05 + 0.14,
        ),  # asleep, copied, unexplained, and waits
    ):
        verdict = told(one)
        assert (verdict.cause, verdict.expected_seconds) == (cause, pytest.approx(expected, abs=0.04))


@BOTH
@pytest.mark.parametrize(
    ("before", "limit"),
    [
        ((1.2, 1.3), Limit.CPU),
        ((1.2, 1.3, 9.0), Limit.CPU),
        ((8.0, 9.0), Limit.SERIALIZE),  # always crowded
        ((1.2,), Limit.CPU),  # longer than the work
        ((), Limit.CPU),
    ],
)
def test_a_wait_longer_than_whole_saves_before_is_not_of_the_work(
    level: Level, before: tuple[float, ...], limit: Limit
) -> None:
    """The same work took as long before as this save waited for a CPU: it has become short of them."""
    at = thread(level, 9, user=1.0, copy=0.02, runqueue=7.9)
    earlier = [save(level, spent, measured(), begin=100.0 * n - 900) for n, spent in enumerate(before)]
    half = [msgspec.structs.replace(one, bytes=one.bytes // 3) for one in earlier]  # another kind of save
    one = save(level, 9, measured(at))

    assert told(one, *earlier).limit is limit
    assert told(one, *half).limit is Limit.CPU


@BOTH
@pytest.mark.parametrize(("work", "waits", "is_owner"), [(0.55, 0.5, True), (0.55, 0.7, False), (0.45, 0.3, False)])
def test_work_that_is_slow_owns_waits_that_are_no_longer(
    level: Level, work: float, waits: float, *, is_owner: bool
) -> None:
    """Half a second on CPU, of which a free CPU would leave as much."""
    at = thread(level, work + waits + 0.02, user=work, copy=0.02, runqueue=waits)
    accounts = told(save(level, work + waits + 0.02, measured(at))).accounts
    spent = sum(one.seconds for one in accounts if one.limit is Limit.SERIALIZE)
    assert (spent > work + 0.1) is is_owner


@BOTH
def test_what_a_limit_was_spent_in_has_its_own_seconds_each(level: Level) -> None:
    """Packing before the first byte and checksums after it are both serialisation, and none of them is told as both."""
    at = thread(level, 4, user=3, copy=0.2, sync=0.8)
    before = held(5, busy=1.0)
    verdict = told(save(level, 4, measured(at, before=before, devices=(device(4),)), stall_ns=ns(9)))
    assert verdict.limit is Limit.SERIALIZE
    assert verdict.sentence.startswith(
        "9.00 s since training stopped for it, serialisation-bound: for 5.00 s training was blocked before the first "
        "byte, with 1.0 cores busy in the writing process, and for 3.00 s on CPU in its own code"
    )
    assert verdict.expected_seconds == pytest.approx(1)


@BOTH
def test_what_is_parsed_after_the_last_byte_is_of_the_restore(level: Level) -> None:
    """For the part of the time in which it had a CPU; the rest is the wait for one."""
    for runqueue, limit, parsed in ((0.0, Limit.SERIALIZE, 3.0), (0.9, Limit.CPU, 0.3)):
        at = thread(level, 1, copy=0.1, runqueue=runqueue)
        blocked = (Interval(START_NS, START_NS + ns(4)),)
        verdict = told(restore(level, 1, measured(at, devices=(device(1),)), stall_ns=ns(4), blocked=blocked))
        grew = [one.seconds for one in verdict.accounts if "after the last byte" in one.text]

        assert verdict.limit is limit
        assert verdict.seconds == pytest.approx(4)
        assert grew == pytest.approx([parsed])
        assert verdict.sentence.startswith(
            "restore of 4.00 s, serialisation-bound: for 3.00 s memory kept growing"
        ) is (not runqueue)


@BOTH
def test_nothing_is_blocked_where_no_stall_was_seen(level: Level) -> None:
    """How long training was blocked is told once: what is explained of such a save is its own duration."""
    at = thread(level, 4, user=3, copy=0.2, sync=0.8)
    known = measured(at, before=held(5, busy=1.0, grown_bytes=GIB), devices=(device(4),))
    verdict = told(save(level, 4, known, stall_ns=None, mode=Mode.ASYNC))
    assert verdict.seconds == pytest.approx(4)
    assert not any("before the first byte" in one.text for one in verdict.accounts)


@BOTH
def test_a_tenth_of_a_second_of_work_is_what_nobody_waited_for(level: Level) -> None:
    """An eighth of the time had a CPU: 0.08 s of the others may be chance, 0.15 s are not."""

    def waited(work: float) -> Limit:
        at = thread(level, 2, user=0.02, copy=0.05, runqueue=0.5, moved=GIB, other={"lock": 0.6})
        at = msgspec.structs.replace(at, samples_by_state={"lock": 6, "running": 14})
        known = measured(at, processes=(process(busy=(0.07 + work) / 2),), devices=(device(2, busy_seconds=0.1),))
        return told(save(level, 2, known)).limit

    assert (waited(0.08), waited(0.15)) == (Limit.UNCLEAR, Limit.SERIALIZE)


@BOTH
def test_a_pool_that_got_no_cpu_still_is_what_its_writer_waited_for(level: Level) -> None:
    """Half of the time that a thread wants a CPU, it has one; so had the pool, whose 0.4 cores are 0.8 of its work."""
    for busy, limit in ((0.45, Limit.SERIALIZE), (0.1, Limit.UNCLEAR)):
        at = thread(level, 10, user=0.1, copy=0.1, runqueue=0.2, other={"lock": 9.6})
        if level is Level.TRACE:
            at = msgspec.structs.replace(at, samples=96, samples_by_state={"lock": 96})
        pool = (process(busy=busy, stacks={"compress": 5}),)
        known = measured(at, processes=pool, devices=(device(10, busy_seconds=0.1),))
        assert told(save(level, 10, known)).limit is limit


@BOTH
def test_a_limit_on_the_device_goes_on_while_its_writer_waits_for_a_cpu(level: Level) -> None:
    """Of 8 s a device of 200 MB/s needs 5.4 s, however long its writer was kept from a processor beside it."""
    in_calls = 5.8 if level is Level.TRACE else 0.0  # calls last until their thread runs again
    at = thread(level, 8, copy=0.2, data=2.0 + in_calls, runqueue=5.8)
    held = device(8, busy_seconds=0.5, throttled_bytes_per_second=200_000_000)
    verdict = told(save(level, 8, measured(at, devices=(held,))))
    assert verdict.limit is Limit.DEVICE
    assert sum(one.seconds for one in verdict.accounts if one.limit is Limit.DEVICE) == pytest.approx(5.37, rel=0.02)


@BOTH
def test_pauses_by_a_lowered_threshold_are_the_page_caches_and_else_the_devices(level: Level) -> None:
    """The same pauses with a threshold that was left alone tell of the device below."""
    at = thread(level, 20, copy=1, data=19)
    paused = (process(dirty_pause_ns=ns(18.9), dirty_pauses=200),)
    low = memory(dirty_threshold_bytes=8 * MIB, dirty_background_bytes=4 * MIB, dirty_max_bytes=8 * MIB)
    under = (device(20, busy_seconds=19, shown_bytes_per_second=60e6),)
    verdict = told(save(level, 20, measured(at, processes=paused, memory=low, devices=under)))
    assert verdict.limit is Limit.PAGE_CACHE
    assert verdict.expected_seconds is not None
    usual = memory(dirty_threshold_bytes=GIB // 2 + 4 * GIB, dirty_max_bytes=4 * GIB)
    verdict = told(save(level, 20, measured(at, processes=paused, memory=usual, devices=under)))
    assert verdict.limit is Limit.DEVICE
    little = memory(dirty_threshold_bytes=4 * GIB, dirty_background_bytes=2 * GIB, dirty_max_bytes=200 * MIB)
    verdict = told(save(level, 20, measured(at, processes=paused, memory=little, devices=under)))
    assert verdict.limit is Limit.PAGE_CACHE
    assert "/sys/class/bdi" in (verdict.remedy or "")


@BOTH
def test_a_disk_that_transferred_nothing_in_the_time_is_not_what_was_waited_for(level: Level) -> None:
    """A loop device has written into the page cache of the disk below it, which writes later."""
    layers = (device(10, busy_seconds=9, device="loop0", countable=False), device(10, 0, busy_seconds=0, device="vda"))
    verdict = told(save(level, 10, measured(thread(level, 10, copy=1, data=9), devices=layers)))
    assert "waiting for loop0" in verdict.accounts[0].text


@BOTH
def test_many_small_syncs_are_flushes_and_one_is_the_device(level: Level) -> None:
    """4,096 syncs of 256 KiB; the same seconds in one sync are the device's."""
    at = thread(level, 40, copy=1, sync=39)
    metadata = Metadata(synced=4096)
    verdict = told(save(level, 40, measured(at, devices=(device(40),)), metadata=metadata))
    assert verdict.limit is Limit.FLUSH
    assert verdict.expected_seconds == pytest.approx(1 + GIB / 2e9, rel=0.1)
    verdict = told(save(level, 40, measured(at, devices=(device(40),)), metadata=Metadata(synced=1)))
    assert verdict.limit is Limit.DEVICE


def test_an_earlier_save_that_was_on_disk_shows_what_its_storage_takes() -> None:
    """A gigabyte in four seconds with one sync; of one that returned before, or lies elsewhere, nothing is known."""
    once = thread(Level.TRACE, 4, copy=1, sync=3)
    slow = device(40, shown_bytes_per_second=None, peak_bytes_per_second=None, busy_seconds=None)
    before = diagnose(save(Level.TRACE, 4, measured(once, devices=(device(4),)), begin=-100, durable_ns=START_NS))
    assert before.cost is not None
    cost = msgspec.structs.replace(before.cost, durable_on_return=True, durable_bytes_per_second=GIB / 4)
    synced = msgspec.structs.replace(before, uid="before", cost=cost)
    late = msgspec.structs.replace(synced, cost=msgspec.structs.replace(cost, durable_on_return=False))
    far_away = changed(synced, mount=msgspec.structs.replace(local(), mount_point="/other"))
    at = thread(Level.TRACE, 40, copy=1, sync=39)
    one = save(Level.TRACE, 40, measured(at, devices=(slow,)), metadata=Metadata(synced=4096))
    expected = [told(one, earlier).expected_seconds for earlier in (synced, late, far_away)]

    assert expected == [pytest.approx(5, abs=0.2), None, None]


@BOTH
def test_small_direct_writes_are_small_io_and_large_ones_the_device(level: Level) -> None:
    """Calls of 4 KiB past the page cache, then of 4 MiB."""
    at = thread(level, 30, user=0.5, copy=1.5, data=28)
    small = Pattern(class_=None, median_operation_bytes=4096, direct_share_bytes=1.0)
    few = device(30, writes=GIB // 4096, throttled_operations_per_second=9000)
    assert told(save(level, 30, measured(at, devices=(few,)), pattern=small)).limit is Limit.SMALL_IO
    large = Pattern(class_=None, median_operation_bytes=4 * MIB, direct_share_bytes=1.0)
    verdict = told(save(level, 30, measured(at, devices=(device(30, busy_seconds=29),)), pattern=large))
    assert verdict.limit is Limit.DEVICE


@BOTH
@pytest.mark.parametrize("seconds", [0.8, 8])
def test_a_best_that_these_small_requests_have_shown_says_nothing_of_larger_ones(level: Level, seconds: float) -> None:
    """16 KiB past the page cache, on a host that has seen nothing else; where 1 MiB was no faster, bytes limit it."""
    at = thread(level, seconds, user=0.05 * seconds, copy=0.05 * seconds, data=0.9 * seconds)
    small = Pattern(class_=None, median_operation_bytes=16384, direct_share_bytes=1.0)

    def of(shown_request_bytes: int | None) -> Verdict:
        under = device(
            seconds, writes=GIB // 16384, shown_bytes_per_second=GIB / seconds, shown_request_bytes=shown_request_bytes
        )
        one, before = (
            save(level, seconds, measured(at, devices=(under,)), pattern=small, begin=begin)
            for begin in (0.0, -2 * seconds)
        )
        return told(one, before)

    assert of(16384).limit is Limit.SMALL_IO
    assert Limit.DEVICE in of(16384).candidates
    for shown in (3 * 16384, MIB, None):  # half of the time between two saves is no best
        assert of(shown).limit is Limit.DEVICE


@BOTH
def test_the_network_and_the_server_are_told_apart_by_the_link(level: Level) -> None:
    """A link at its speed or shaped is the network; one with room is not."""
    at = thread(level, 20, copy=1, sync=10, close=9)
    full = link(speed_bytes_per_second=60e6, shown_bytes_per_second=60e6, peak_bytes_per_second=58e6)
    assert told(save(level, 20, measured(at, mount=far(), links=(full,)))).limit is Limit.NETWORK
    shaped = link(shaped_overlimits=4000, backlog_bytes=MIB)
    assert told(save(level, 20, measured(at, mount=far(), links=(shaped,)))).limit is Limit.NETWORK
    trickle = {"speed_bytes_per_second": None, "shown_bytes_per_second": 5e3, "active_seconds": 19.0}
    for steadiness, limit in ((0.95, Limit.NETWORK), (0.4, Limit.SERVER)):
        unknown = link(**trickle, steadiness=steadiness, peak_bytes_per_second=9e7)
        assert told(save(level, 20, measured(at, mount=far(), links=(unknown,)))).limit is limit
    verdict = told(save(level, 20, measured(at, mount=far(), links=(link(),))))
    assert verdict.limit is Limit.SERVER
    assert any("the network carried only" in one for one in verdict.excluded)


@BOTH
def test_what_comes_in_evenly_over_a_shaped_link_is_the_network(level: Level) -> None:
    """A pair of virtual interfaces counts for nothing unless it is shaped; what it holds up shows at the other end."""
    at = thread(level, 20, copy=1, data=19)
    told_of = {
        "name": "ckpt0", "countable": False, "received_bytes": GIB, "sent_bytes": MIB, "speed_bytes_per_second": 1.25e9,
        "shown_bytes_per_second": 260.0, "peak_bytes_per_second": 56e6, "active_seconds": 19.0, "steadiness": 1.0,
    }  # fmt: skip
    for steadiness in (1.0, 0.6):  # a crowded host makes an even rate look uneven
        shaped = link(**{**told_of, "steadiness": steadiness})
        assert told(restore(level, 20, measured(at, mount=far(), links=(shaped,)))).limit is Limit.NETWORK
    bursts = link(**{**told_of, "steadiness": 0.4, "peak_bytes_per_second": 400e6})
    assert told(restore(level, 20, measured(at, mount=far(), links=(bursts,)))).limit is Limit.SERVER
    free = link(**{**told_of, "shaped_drops": None, "shaped_overlimits": None})
    assert told(restore(level, 20, measured(at, mount=far(), links=(free,)))).limit is Limit.SERVER


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"shaped_overlimits": 40}, "40 packets delayed by"),
        ({"shaped_drops": 30}, "30 packets dropped by"),
        ({"shaped_overlimits": 40, "shaped_drops": 1}, "40 packets delayed and 1 packet dropped by"),
        ({"backlog_bytes": 1 << 20}, "packets queued by"),
    ],
)
def test_a_shaped_link_is_named_with_what_its_queueing_discipline_did(counts: dict[str, int], words: str) -> None:
    """And not with what it did not."""
    held_up = {"name": "eth0", "received_bytes": MIB, "sent_bytes": GIB, "active_seconds": 19.0, **counts}
    at = thread(Level.TRACE, 20, copy=1, data=19)
    verdict = told(save(Level.TRACE, 20, measured(at, mount=far(), links=(link(**held_up),))))

    assert verdict.limit is Limit.NETWORK
    assert any(words in one for one in verdict.evidence), verdict.evidence


@BOTH
def test_many_small_files_are_metadata_and_few_are_not(level: Level) -> None:
    """20,000 files of 8 KiB; the same seconds of writing are not the names."""
    small = {"files": 20_000, "bytes": 160 * MIB, "metadata": Metadata(created=20_000)}
    at = thread(level, 9, user=2, copy=1, create=6, moved=160 * MIB)
    verdict = told(save(level, 9, measured(at, devices=(device(9, 160 * MIB),)), **small))
    assert verdict.limit is Limit.METADATA
    assert verdict.expected_seconds is not None
    assert verdict.expected_seconds >= 0.16  # one file of 160 MB is not written in no time
    at = thread(level, 9, user=2, copy=1, sync=6, moved=160 * MIB)
    one = {**small, "files": 1, "metadata": Metadata(created=1)}
    under = (device(9, 160 * MIB, busy_seconds=8.8),)
    assert told(save(level, 9, measured(at, devices=under), **one)).limit is Limit.DEVICE


@BOTH
@pytest.mark.parametrize(("files", "limit"), [(1, Limit.SERVER), (8, Limit.SERVER), (40, Limit.METADATA)])
def test_names_that_take_long_each_wait_for_what_stores_them(level: Level, files: int, limit: Limit) -> None:
    """An NFS server whose disk flushes for 2 s: opening and renaming one file took 5 of 11 s."""
    at = thread(level, 11, create=4, rename=4, sync=3)
    of_it = {"files": files, "metadata": Metadata(created=files)}

    assert told(save(level, 11, measured(at, mount=far(), links=(link(),)), **of_it)).limit is limit


@pytest.mark.parametrize(("told_of", "limit"), [(1_399, Limit.METADATA), (20_000, Limit.PAGE_CACHE)])
def test_files_that_the_trace_had_no_room_for_are_metadata_too(told_of: int, limit: Limit) -> None:
    """Of 20,000 files in 1.3 s it was told of 1,399: the rest of the time in the kernel was of the others."""
    seen = thread(Level.TRACE, 1.32, user=0.18, copy=0.82, runqueue=0.3, moved=6 * MIB)
    at = msgspec.structs.replace(seen, data_call_ns=ns(0.027), create_call_ns=ns(0.034), creates=told_of)
    small = {"files": 20_000, "bytes": 80_000_000, "metadata": Metadata(created=told_of, at_least=told_of < 20_000)}
    assert told(save(Level.TRACE, 1.32, measured(at, devices=(device(1.32, 0),)), **small)).limit is limit


def _ranks(
    level: Level, ends: tuple[float, ...], moved: tuple[int, ...], *, late: float = 0.0, cores: int = 8, **under: float
) -> Checkpoint:
    """Return a save of several ranks, of which the third begins so late; `under`: what else is known of the device."""
    threads, processes, writers = [], [], []
    for rank, (end, own) in enumerate(zip(ends, moved, strict=True)):
        begin = late if rank == 2 else 0.0
        took = end - begin
        base = thread(level, took, copy=took * 0.3, user=took * 0.1, sync=took * 0.6, moved=own, begin=begin)
        threads.append(type(base)(**{**{f: getattr(base, f) for f in base.__struct_fields__}, "pid": 100 + rank}))
        first, last = base.start_ns, base.end_ns
        processes.append(process(pid=100 + rank, rank=rank, bytes=own, first_ns=first, last_ns=last))
        if own:
            writers.append(Writer(pid=100 + rank, comm="python", bytes=own, rank=rank, start_ns=first, end_ns=last))
    known = measured(*threads, processes=tuple(processes), devices=(device(max(ends), **under),), cores=cores)
    return save(level, max(ends), known, ranks=len(ends), writers=tuple(writers))


@BOTH
def test_a_rank_that_ends_long_after_the_others_is_a_straggler(level: Level) -> None:
    """Without it the save takes as long as the others; ranks that end together are no stragglers."""
    verdict = told(_ranks(level, (4.0, 4.2, 14.0, 4.1), (GIB // 4,) * 4))
    assert verdict.limit is Limit.STRAGGLER
    assert verdict.expected_seconds == pytest.approx(4.1, rel=0.05)
    assert told(_ranks(level, (13.0, 13.5, 14.0, 13.8), (GIB // 4,) * 4)).limit is not Limit.STRAGGLER


@BOTH
def test_without_a_late_rank_the_ranks_share_their_device(level: Level) -> None:
    """Three waited 2.4 s for a device that is busy: with a fourth beside them they wait longer by a third."""
    ends, moved = (4.0, 4.0, 14.0, 4.0), (GIB // 4,) * 4
    verdict = told(_ranks(level, ends, moved, late=12.0, busy_seconds=3.2))
    assert verdict.limit is Limit.STRAGGLER
    assert verdict.expected_seconds == pytest.approx(4.0 + 2.4 / 3, rel=0.02)
    idle = told(_ranks(level, ends, moved, late=12.0, busy_seconds=0.5))
    assert idle.expected_seconds == pytest.approx(4.0, rel=0.02)
    crowded = told(_ranks(level, ends, moved, late=12.0, busy_seconds=0.5, cores=2))
    assert crowded.expected_seconds == pytest.approx(4.0 + 1.6 / 3, rel=0.02)


@BOTH
@pytest.mark.parametrize(
    ("busy", "stacks", "mode", "said"),
    [
        (1.05, {"other": 20}, Mode.SYNC, Limit.SERIALIZE),  # Python's lock: one core for all
        (1.05, {"pickle": 20}, Mode.ASYNC, Limit.SERIALIZE),
        (1.05, None, Mode.SYNC, Limit.SERIALIZE),
        (1.05, None, Mode.ASYNC, Limit.UNCLEAR),  # training may spin on one core
        (1.05, {"gather": 15, "other": 5}, Mode.ASYNC, Limit.UNCLEAR),
        (1.05, {"wait": 15, "other": 5}, Mode.ASYNC, Limit.UNCLEAR),  # it waits for what others bring
        (3.1, {"wait": 15, "other": 5}, Mode.SYNC, Limit.SERIALIZE),  # a pool compresses
        (3.1, None, Mode.ASYNC, Limit.UNCLEAR),  # training goes on meanwhile
        (0.2, None, Mode.SYNC, Limit.UNCLEAR),
        (None, None, Mode.SYNC, Limit.UNCLEAR),
    ],
)
def test_waiting_for_a_lock_that_computing_threads_have_is_serialisation(
    level: Level, busy: float | None, stacks: dict[str, int] | None, mode: Mode, said: Limit
) -> None:
    """Python runs one thread at a time, a pool compresses for its writer; a wait for nothing known stays unclear."""
    at = thread(level, 10, user=0.5, copy=0.5, other={"lock": 9.0})
    if level is Level.TRACE:
        at = msgspec.structs.replace(at, samples=100, samples_by_state={"lock": 90, "running": 10})
    known = measured(at, processes=(process(busy=busy, stacks=stacks),), devices=(device(10, 64 * MIB),))
    verdict = told(save(level, 10, known, mode=mode))
    assert verdict.limit is said
    if said is Limit.SERIALIZE:
        one_core = busy == 1.05
        assert verdict.cause == ("gil" if one_core else "pool")
        assert verdict.expected_seconds == pytest.approx(1.0 if one_core else 0.5, abs=0.05)


@BOTH
def test_one_writer_of_four_ranks_is_a_single_writer_if_the_device_has_room(level: Level) -> None:
    """On a device that is held to what it does, more writers would not help."""
    at = thread(level, 16, user=13, copy=3)
    idle = tuple(process(pid=101 + rank, rank=1 + rank, bytes=0, busy=0.0) for rank in range(3))
    known = measured(at, processes=(process(), *idle), devices=(device(16),))
    verdict = told(save(level, 16, known, ranks=4))
    assert verdict.limit is Limit.SINGLE_WRITER
    assert verdict.expected_seconds == pytest.approx(3 + 13 / 4, rel=0.1)
    slow = thread(level, 16, user=1, copy=3, sync=12)
    limited = device(16, throttled_bytes_per_second=80_000_000)
    known = measured(slow, processes=(process(), *idle), devices=(limited,))
    assert told(save(level, 16, known, ranks=4)).limit is Limit.DEVICE
    assert told(save(level, 16, measured(at, devices=(device(16),)))).limit is Limit.SERIALIZE


@BOTH
@pytest.mark.parametrize(
    ("nodes", "idle", "limit"),
    [(None, 0, "single-writer"), (1, 0, "single-writer"), (4, 0, "serialize"), (4, 1, "single-writer")],
)
def test_the_only_rank_of_a_node_is_no_single_writer(level: Level, nodes: int | None, idle: int, limit: str) -> None:
    """Those of the other nodes write unseen; of several on this one it is."""
    at = thread(level, 16, user=13, copy=3)
    others = tuple(process(pid=101 + rank, rank=1 + rank, bytes=0, busy=0.0) for rank in range(idle))
    known = measured(at, processes=(process(), *others), devices=(device(16),))
    run = Run(key="rendezvous:node-0:29500", scheduler="rendezvous", ranks=4, nodes=nodes)

    verdict = told(msgspec.structs.replace(save(level, 16, known, ranks=4), run=run))

    assert verdict.limit is Limit(limit)
    assert not idle or f"one of {1 + idle} ranks wrote" in " ".join(verdict.evidence)


@BOTH
def test_a_mapped_restore_over_a_full_link_waits_for_the_network(level: Level) -> None:
    """Reading it by calls would wait alike; a link with room leaves it to the page faults."""
    mapped = Pattern(class_=None, mapped_share_bytes=1.0)
    at = thread(level, 20, user=1, copy=1, other={"fault": 18})
    if level is Level.TRACE:
        at = msgspec.structs.replace(at, samples=200, samples_by_state={"fault": 180, "running": 20})
    faults = (process(major_faults=3_000, faulted_bytes=GIB),)

    def said(speed: float) -> Limit:
        nic = link(0, received_bytes=GIB, speed_bytes_per_second=speed, peak_bytes_per_second=60e6)
        known = measured(at, mount=far(), links=(nic,), processes=faults, devices=())
        return told(restore(level, 20, known, pattern=mapped)).limit

    assert said(62.5e6) is Limit.NETWORK
    assert said(12.5e9) is Limit.PAGE_FAULT


@BOTH
def test_a_restore_of_many_small_files_far_away_is_limited_by_opening_them(level: Level) -> None:
    """The trace times no opening of what is there already: looks meet it in openat(2) and stat(2)."""
    looks = {"create": 60, "metadata": 20, "running": 20}
    at = thread(level, 10, user=1, copy=1)
    at = msgspec.structs.replace(at, samples=100, samples_by_state=looks, create_call_ns=None)
    small = {"files": 3_000, "bytes": 12 * MIB}
    verdict = told(restore(level, 10, measured(at, mount=far(), links=(link(0),), devices=()), **small))
    assert verdict.limit is Limit.METADATA
    assert "opening 3,000 files" in verdict.sentence


def test_one_look_at_a_name_explains_no_long_sleep() -> None:
    """Looks that met a traced thread asleep elsewhere (a driver, munmap) count against it."""
    at = thread(Level.TRACE, 10, user=0.2, copy=0.3)
    at = msgspec.structs.replace(at, samples=81, samples_by_state={"other": 80, "metadata": 1}, create_call_ns=None)
    assert told(save(Level.TRACE, 10, measured(at, devices=(device(10, 64 * MIB),)))).limit is Limit.UNCLEAR


@BOTH
def test_what_training_was_held_for_before_the_first_byte_is_gather_or_staging(level: Level) -> None:
    """What came in over the network was gathered; memory that grew without it was a copy; neither is unclear."""
    at = thread(level, 2, copy=2)
    under = (device(2, 64 * MIB),)
    came = held(20, received_bytes=GIB, grown_bytes=GIB, growing_ns=ns(20))
    verdict = told(save(level, 2, measured(at, before=came, devices=under), ranks=4))
    assert (verdict.limit, verdict.expected_seconds) == (Limit.GATHER, pytest.approx(0.5, rel=0.05))
    part = held(1.5, received_bytes=GIB // 2, grown_bytes=GIB, growing_ns=ns(1))  # less than the copying
    verdict = told(save(level, 2, measured(at, before=part, devices=under), ranks=2))
    assert (verdict.limit, verdict.expected_seconds) == (Limit.GATHER, pytest.approx(1, rel=0.05))
    assert sum(one.seconds for one in verdict.accounts if one.limit is Limit.NONE) == pytest.approx(1, rel=0.05)
    grew = held(20, received_bytes=0, grown_bytes=GIB, growing_ns=ns(19), busy=0.1)
    long = {"stall_ns": ns(22)}
    assert told(save(level, 2, measured(at, before=grew, devices=under), **long)).limit is Limit.STAGING
    for busy, limit in ((0.4, Limit.STAGING), (0.6, Limit.SERIALIZE)):  # at 56 MB/s half a core builds it
        slow = msgspec.structs.replace(grew, busy=busy)
        assert told(save(level, 2, measured(at, before=slow, devices=under), **long)).limit is limit
    still = held(20, received_bytes=0, grown_bytes=0, busy=0.0)
    assert told(save(level, 2, measured(at, before=still, devices=under), **long)).limit is Limit.UNCLEAR
    assert told(save(level, 2, measured(at, before=still, devices=under))).limit is Limit.NONE


def test_ranks_are_compared_once_for_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wrote alone, and what had arrived there before, is needed by three accounts."""
    calls = [Mock(wraps=ranks.single_writer), Mock(wraps=outside.arrived_share)]
    monkeypatch.setattr(ranks, "single_writer", calls[0])
    monkeypatch.setattr(outside, "arrived_share", calls[1])
    came = held(20, received_bytes=GIB, grown_bytes=GIB, growing_ns=ns(20))
    one = save(Level.TRACE, 2, measured(thread(Level.TRACE, 2, copy=2), before=came), ranks=4)
    assert told(one).limit is Limit.GATHER
    assert [one.call_count for one in calls] == [1, 1]


@BOTH
def test_what_was_blocked_without_growth_is_told_by_who_was_busy(level: Level) -> None:
    """A copy of the state in the first second says nothing of the 19 that its pickling took."""
    at, long = thread(level, 2, copy=2), {"stall_ns": ns(22)}
    under = (device(2, 64 * MIB),)
    packed = held(20, received_bytes=0, grown_bytes=GIB, growing_ns=ns(1), busy=0.9)
    verdict = told(save(level, 2, measured(at, before=packed, devices=under), **long))
    assert (verdict.limit, verdict.expected_seconds) == (Limit.SERIALIZE, pytest.approx(3, rel=0.2))
    still = held(20, received_bytes=0, grown_bytes=GIB, growing_ns=ns(1), busy=0.0)
    assert told(save(level, 2, measured(at, before=still, devices=under), **long)).limit is Limit.UNCLEAR


@BOTH
@pytest.mark.parametrize(("ranks", "busy", "limit"), [(1, 0.1, "gather"), (1, 0.9, "serialize"), (2, 0.9, "gather")])
def test_a_process_alone_that_computes_waits_for_no_data_that_arrives(
    level: Level, ranks: int, busy: float, limit: str
) -> None:
    """On a busy host something always arrives in 20 s; of several ranks, one may unpickle what the others sent."""
    came = held(20, received_bytes=GIB // 2, grown_bytes=0, busy=busy)
    known = measured(thread(level, 2, copy=2), before=came, devices=(device(2, 64 * MIB),))

    assert told(save(level, 2, known, stall_ns=ns(22), ranks=ranks)).limit.value == limit


@BOTH
def test_what_is_pickled_before_the_first_byte_waits_for_a_cpu_on_a_crowded_host(level: Level) -> None:
    """For 15 of 20 s, of which training was runnable throughout: less of it removes all, free CPUs remove the rest."""
    at = thread(level, 2, copy=0.5, runqueue=1.5)
    packed = held(20, received_bytes=GIB, grown_bytes=0, busy=0.25, runnable_share=1.0)
    verdict = told(save(level, 2, measured(at, before=packed, devices=(device(2, 64 * MIB),)), stall_ns=ns(22)))

    assert verdict.limit is Limit.SERIALIZE
    assert sum(one.runnable_seconds for one in verdict.accounts if one.limit is Limit.SERIALIZE) == pytest.approx(15)
    assert verdict.alternative is not None
    assert verdict.alternative.expected_seconds == pytest.approx(5.5)


@BOTH
def test_saves_in_the_background_that_follow_at_once_wait_for_each_other(level: Level) -> None:
    """With a pause between them, or where each holds training anyway, they do not."""
    at = thread(level, 10, copy=1, sync=9)
    limited = (device(10, throttled_bytes_per_second=100_000_000),)

    def one(begin: float, mode: Mode) -> Checkpoint:
        shifted = measured(at, devices=limited)
        return save(level, 10, shifted, begin=begin, mode=mode, stall_ns=ns(8))

    chain = [one(begin, Mode.ASYNC) for begin in (-20.2, -10.1, 0.0)]
    assert told(chain[2], *chain[:2]).limit is Limit.PREVIOUS_SAVE
    apart = [one(begin, Mode.ASYNC) for begin in (-60.0, -30.0, 0.0)]
    assert told(apart[2], *apart[:2]).limit is Limit.DEVICE
    sync = [one(begin, Mode.SYNC) for begin in (-20.2, -10.1, 0.0)]
    assert told(sync[2], *sync[:2]).limit is Limit.DEVICE


@BOTH
def test_one_save_that_waited_for_the_one_before_is_told_with_what_makes_them_slow(level: Level) -> None:
    """Though training was held nearly all the time; one whose own thread writes back to back waits for nothing else."""
    at = thread(level, 3.6, copy=0.2, sync=3.0, runqueue=0.4)
    limited = (device(3.6, busy_seconds=0.1, throttled_bytes_per_second=300_000_000),)

    def one(begin: float, role: str) -> Checkpoint:
        writers = (Writer(pid=100, comm="python", bytes=GIB, rank=0, role=role),)
        return save(level, 3.6, measured(at, devices=limited), begin=begin, writers=writers)

    verdict = told(one(0.0, "thread"), one(-3.602, "thread"))
    assert verdict.limit is Limit.PREVIOUS_SAVE
    assert "it started as soon as the previous save ended, which took 3.60 s in the background" in verdict.sentence
    assert "in each, for 3.40 s the single writing thread was asleep waiting for nvme0n1" in verdict.sentence
    assert verdict.accounts[0].limit is Limit.PREVIOUS_SAVE
    assert verdict.expected_seconds is None
    assert told(one(0.0, "trainer"), one(-3.602, "trainer")).limit is Limit.DEVICE
    assert told(one(0.0, "thread"), one(-4.6, "thread")).limit is Limit.DEVICE


@BOTH
def test_deletion_in_line_is_clean_up_wherever_it_stands(level: Level) -> None:
    """Within the span or after its end; without it the device is left."""
    at = thread(level, 10, copy=1, sync=2, unlink=7)
    under = (device(10),)
    within = measured(at, devices=under, clean_up_ns=ns(7), clean_up_files=40)
    verdict = told(save(level, 10, within))
    assert (verdict.limit, verdict.expected_seconds) == (Limit.CLEAN_UP, pytest.approx(3, rel=0.05))
    short = thread(level, 3, copy=1, sync=2)
    after = measured(short, devices=under, clean_up_ns=ns(7), clean_up_files=40)
    cleaned = Moments(cleaned_ns=save(level, 10, None).end_ns)
    verdict = told(save(level, 3, after, moments=cleaned))
    assert (verdict.limit, verdict.expected_seconds) == (Limit.CLEAN_UP, pytest.approx(3, rel=0.05))
    assert told(save(level, 3, measured(short, devices=under))).limit is not Limit.CLEAN_UP


@BOTH
def test_a_short_save_is_as_long_as_the_deletion_that_training_waits_for_after_it(level: Level) -> None:
    """The sentence tells both; what was deleted beside training, or by nobody, is not counted."""
    at = thread(level, 0.29, copy=0.28)
    cleared = measured(at, clean_up_ns=ns(1.6), clean_up_files=400, clean_up_after_ns=ns(1.7))
    verdict = told(save(level, 0.29, cleared, stall_ns=ns(2.0)))
    assert verdict.limit is Limit.CLEAN_UP
    assert verdict.seconds == pytest.approx(1.99)
    assert verdict.expected_seconds == pytest.approx(0.29)
    assert verdict.sentence.startswith(
        "0.29 s and 1.70 s more deleting 400 files of older checkpoints synchronously: blocked by deletion"
    )
    beside = measured(at, clean_up_ns=ns(1.6), clean_up_files=400, clean_up_after_ns=0)
    verdict = told(save(level, 0.29, beside))
    assert (verdict.limit, verdict.seconds) == (Limit.NONE, pytest.approx(0.29))


@BOTH
def test_a_cold_mapped_restore_is_page_faults_and_a_warm_one_nothing(level: Level) -> None:
    """The same file read by calls waits for the device; from the page cache it is not slow."""
    mapped = Pattern(class_=None, mapped_share_bytes=1.0)
    faults = (process(major_faults=30_000, faulted_bytes=GIB),)
    read = device(20, 0, read_bytes=GIB, reads=GIB // 16384, busy_seconds=15)
    at = (
        thread(level, 20, user=1, copy=6, other={"fault": 13})
        if level is Level.POLL
        else thread(level, 20, user=1, copy=6)
    )
    verdict = told(restore(level, 20, measured(at, processes=faults, devices=(read,)), pattern=mapped))
    assert verdict.limit is Limit.PAGE_FAULT
    assert verdict.sentence.startswith("restore of 20.0 s, bound by page faults: for")
    called = thread(level, 20, user=1, copy=2, data=17)
    limited = device(20, 0, read_bytes=GIB, reads=2000, throttled_bytes_per_second=53_000_000)
    assert told(restore(level, 20, measured(called, devices=(limited,)))).limit is Limit.DEVICE
    unpickling = thread(level, 20, user=17, copy=2, data=1)
    assert told(restore(level, 20, measured(unpickling, devices=(read,)))).limit is Limit.SERIALIZE
    warm = thread(level, 2, user=0.4, copy=1.6)
    assert told(restore(level, 2, measured(warm, mount=local()), cache="warm")).limit is Limit.NONE


@BOTH
def test_what_is_long_is_slow_though_its_device_does_what_it_can(level: Level) -> None:
    """A save of eight seconds at the best rate of the device is as fast as it gets; one of twelve may be too large."""

    def at_its_best(seconds: float) -> Verdict:
        under = device(seconds, busy_seconds=seconds, shown_bytes_per_second=GIB / seconds)
        at = thread(level, seconds, copy=0.5, sync=seconds - 0.5)
        return told(save(level, seconds, measured(at, devices=(under,))))

    assert at_its_best(8).limit is Limit.NONE
    assert at_its_best(12).limit is Limit.DEVICE


@pytest.mark.parametrize(
    ("requests", "shown", "speed"), [(GIB >> 12, 4096, None), (GIB >> 12, MIB, 0.5e9), (GIB >> 20, MIB, 0.8e9)]
)
def test_nothing_is_promised_of_a_device_whose_rate_in_large_requests_is_not_known(
    requests: int, shown: float, speed: float | None
) -> None:
    """However busy it was with small ones: large calls, one sync and reads instead of faults have no known gain."""
    expected = None if speed is None else pytest.approx(GIB / speed, rel=0.02)
    known: dict[str, Any] = {
        "busy_seconds": GIB / 0.8e9, "peak_bytes_per_second": 60e6, "shown_bytes_per_second": 0.5e9,
        "shown_request_bytes": shown,
    }  # fmt: skip
    read = device(20, 0, read_bytes=GIB, reads=requests, **known)
    faults = (process(major_faults=250_000, faulted_bytes=GIB),)
    at = thread(Level.POLL, 20, other={"fault": 20})
    mapped = Pattern(class_=None, mapped_share_bytes=1.0)
    direct = Pattern(class_=None, direct_share_bytes=1.0, median_operation_bytes=GIB // requests)
    synced = msgspec.structs.replace(thread(Level.TRACE, 20, sync=20), syncs=GIB // MIB)
    for checkpoint in (
        restore(Level.POLL, 20, measured(at, processes=faults, devices=(read,)), pattern=mapped),
        restore(Level.TRACE, 20, measured(thread(Level.TRACE, 20, data=20), devices=(read,)), pattern=direct),
        save(Level.TRACE, 20, measured(synced, devices=(device(20, writes=requests, **known),))),
    ):
        verdict = told(checkpoint)
        assert verdict.expected_seconds == expected, verdict.limit
        assert ("was not measured" in str(verdict.capped_by)) == ("is not known" in verdict.sentence) == (speed is None)


@pytest.mark.parametrize(("of_moved", "is_known"), [(0.6, True), (0.7, False), (1.3, False), (1.4, True)])
def test_a_best_second_that_is_a_whole_checkpoint_tells_no_rate(of_moved: float, *, is_known: bool) -> None:
    """A checkpoint that took less than a second moved no more in its best one, however fast the device is."""
    under = device(4, shown_bytes_per_second=of_moved * GIB, peak_bytes_per_second=None, busy_seconds=None)
    at = thread(Level.TRACE, 4, copy=0.1, sync=3.9)
    verdict = told(save(Level.TRACE, 4, measured(at, devices=(under,))))

    assert verdict.limit is Limit.DEVICE
    assert ((verdict.expected_seconds or 0.0) > 1 / 1.5) == is_known
