"""What is told of the client of a remote mount: what it counted while a checkpoint went on, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.detect.observed import frame

from ckptprof.detect.world.bounded import MAX_ENTRIES
from ckptprof.detect.world.counter_history import MAX_HISTORY_BYTES
from ckptprof.detect.world.host.devices import Devices
from ckptprof.detect.world.host.remote_client_counters import RemoteClientCounters
from ckptprof.measures import MountMeasure
from ckptprof_collectors.samples import ClientOperation, ClientSample, ClientTarget, EntityGone, MountInfo

SECOND = 1_000_000_000
MIB = 1 << 20
NFS = MountInfo(1, 0, 40, "/", "/ckpt", "nfs4", "filer:/x", None, "filer", ("10.0.0.9",))
BARE = MountMeasure(mount_point="/ckpt", fs_type="nfs4", source="filer:/x", remote=True, server="filer")


def client(second: float, **more: Any) -> ClientSample:
    """Return a client that writes 100 MiB/s in WRITEs of 1 MiB, each of which waits 30 ms here and 8 ms there."""
    count = int(100 * second)
    write = ClientOperation(
        "WRITE", count, 40_000 * count, 30_000 * count, 8_000 * count, count * MIB, 100 * count, count + int(second),
        0, 0,
    )  # fmt: skip
    told: dict[str, Any] = {
        "major": 0, "minor": 40, "client": "nfs 4.2", "transport": "tcp", "read_bytes": 0, "written_bytes": count * MIB,
        "direct_read_bytes": 0, "direct_written_bytes": 0, "wire_read_bytes": 0, "wire_written_bytes": count * MIB,
        "operations": (write,) if count else (), "delays": int(second), "connections": 1, "sends": count,
        "backlog": 7 * count, "in_use": 60 * count, "slots": 64, "settings": {"wsize": MIB},
    }  # fmt: skip
    return ClientSample(**{**told, **more})


def played(*seen: ClientSample | None) -> RemoteClientCounters:
    """Return what was seen of one sample a second; None: nothing had changed."""
    made = RemoteClientCounters()
    for second, one in enumerate(seen, start=1):
        made.ingest(frame(second * SECOND, (second - 1) * SECOND, *([one] if one is not None else [])))
    return made


def told(made: RemoteClientCounters, start_s: float, end_s: float) -> MountMeasure:
    """Return the mount from one time to another."""
    return made.enrich(BARE, NFS, int(start_s * SECOND), int(end_s * SECOND))


def test_it_is_told_by_what_it_did_meanwhile() -> None:
    """Sums of that time, means of its operations."""
    mount = told(played(*map(client, range(10))), 3, 7)
    (write,) = mount.operations

    assert (mount.client, mount.transport, mount.connections, mount.slots) == ("nfs 4.2", "tcp", 1, 64)
    assert (mount.written_bytes, mount.wire_written_bytes, mount.wire_read_bytes) == (400 * MIB, 400 * MIB, 0)
    assert (mount.delays, mount.backlog_mean, mount.in_use_mean) == (4, pytest.approx(7), pytest.approx(60))
    assert (write.kind, write.count, write.retransmissions, write.sent_bytes) == ("WRITE", 400, 4, 400 * MIB)
    assert (write.seconds, write.queue_seconds, write.server_seconds) == pytest.approx((0.04, 0.03, 0.008))
    assert mount.settings == {"wsize": MIB}


def test_an_operation_that_was_not_told_before_stood_at_zero() -> None:
    """If its mount was looked at; else it is not known since when."""
    assert told(played(client(0), client(0), client(2), client(3)), 2, 4).operations[0].count == 300
    assert told(played(client(2), client(3)), 1, 2).operations[0].count == 100


def test_what_a_client_does_not_count_is_not_known() -> None:
    """None, and not zero."""
    bare = {"read_bytes": None, "delays": None, "sends": None, "transport": None, "settings": {}}
    mount = told(played(*(client(second, **bare) for second in range(5))), 2, 4)

    assert (mount.read_bytes, mount.delays, mount.backlog_mean, mount.transport, mount.settings) == (None,) * 5
    assert mount.written_bytes == 200 * MIB
    assert told(RemoteClientCounters(), 0, 5) == BARE


def test_counters_that_fall_have_a_new_past() -> None:
    """It was mounted anew: what lay before cannot be told, and nothing is negative."""
    made = played(client(8), client(9), client(1), client(2))

    assert told(made, 1, 4) == BARE
    assert told(made, 3, 4).written_bytes == 100 * MIB
    assert told(made, 3, 4).operations[0].count == 100


def test_of_what_began_before_the_first_look_nothing_is_told() -> None:
    """Most of it may have been fetched by then: a restore that had it all from the server would be told as warm."""
    made = played(*map(client, range(5)))

    assert told(made, 0.5, 4) == BARE
    assert told(made, 0.8, 4).wire_written_bytes == 300 * MIB


def test_after_a_pause_of_looks_the_past_is_not_known() -> None:
    """What it did before the first look is not spread over the hour before; where it did nothing, that is known."""
    hour, still = played(client(0)), played(client(0))
    for second in (3600, 3601, 3602):
        before_s = 1 if second == 3600 else second - 1
        hour.ingest(frame(second * SECOND, before_s * SECOND, client(second - 3500)))
        still.ingest(frame(second * SECOND, before_s * SECOND, client(0)))

    assert told(hour, 3598, 3602) == BARE
    assert told(hour, 3600, 3602).wire_written_bytes == 200 * MIB
    assert told(hour, 1, 3602).wire_written_bytes == 10_200 * MIB
    assert told(still, 3598, 3602).wire_written_bytes == 0


def test_a_mount_that_is_gone_is_forgotten() -> None:
    """When the last mount of its file system is."""
    devices = Devices()
    twice = replace(NFS, mount_id=2, mount_point="/second")
    devices.ingest(frame(SECOND, 0, NFS, twice, client(1)))
    devices.ingest(frame(2 * SECOND, SECOND, client(2)))
    assert devices.clients.enrich(BARE, NFS, SECOND, 2 * SECOND).written_bytes == 100 * MIB

    devices.ingest(frame(3 * SECOND, 2 * SECOND, EntityGone("mount", "1")))
    assert devices.clients.enrich(BARE, NFS, SECOND, 2 * SECOND).written_bytes == 100 * MIB
    devices.ingest(frame(4 * SECOND, 3 * SECOND, EntityGone("mount", "2"), EntityGone("mount", "7")))
    assert devices.clients.enrich(BARE, NFS, SECOND, 2 * SECOND) == BARE
    assert devices.clients.retained_bytes == 0


def target(name: str, second: float, each_us: int) -> ClientTarget:
    """Return one that takes 10 MiB/s."""
    count = int(10 * second)
    write = ClientOperation("ost_write", count, server_us=each_us * count)
    return ClientTarget(
        name, "10.0.3.7@tcp", "FULL", 0, count * MIB, (write,) if count else (), 0, int(second) % 4, 8, {"grant": 5}
    )


def test_each_server_is_told_and_the_busiest_first() -> None:
    """Of many a few; how many there are is told, too, and operations are those of all of them."""
    slow = [target("OST0007", 2 * second, 50_000) for second in range(8)]
    seen = [
        client(second, operations=(), targets=(*(target(f"OST{at}", second, 1_000) for at in range(30)), slow[second]))
        for second in range(8)
    ]
    mount = told(played(*seen), 2, 6)
    first, (write,) = mount.per_server[0], mount.operations

    assert (mount.servers, len(mount.per_server)) == (31, 16)
    assert (first.name, first.address, first.state) == ("OST0007", "10.0.3.7@tcp", "FULL")
    assert (first.written_bytes, first.operations, first.seconds) == (80 * MIB, 80, pytest.approx(0.05))
    assert (first.in_flight, first.slots, first.gauges, first.timeouts) == (2, 8, {"grant": 5}, 0)
    assert (write.kind, write.count) == ("ost_write", 40 * 30 + 80)
    assert write.server_seconds == pytest.approx((1200 * 0.001 + 80 * 0.05) / 1280)


def test_servers_that_do_not_answer_come_before_the_busiest() -> None:
    """They complete nothing, and may be one of hundreds."""
    busy = [tuple(target(f"OST{at}", second, 1_000) for at in range(30)) for second in range(8)]
    quiet = ClientTarget("OST0fe", state="FULL", timeouts=0), ClientTarget("OST0ff", state="IDLE", timeouts=0)
    lost = ClientTarget("OST0fe", state="FULL", timeouts=2), ClientTarget("OST0ff", state="DISCONN", timeouts=0)
    seen = [client(at, targets=(*each, *(lost if at > 3 else quiet))) for at, each in enumerate(busy)]
    mount = told(played(*seen), 2, 6)

    assert {one.name for one in mount.per_server[:2]} == {"OST0fe", "OST0ff"}
    assert (mount.servers, len(mount.per_server)) == (32, 16)


def test_what_only_one_kind_of_client_counts_is_told_by_name() -> None:
    """Differences, as all counters; what came later stood at zero."""
    seen = [client(second, counters={"pcc_hit_bytes": 5 * second} if second > 2 else {}) for second in range(8)]
    assert told(played(*seen), 2, 6).counters == {"pcc_hit_bytes": 25}


def test_the_share_that_was_sent_after_all_had_been_written_is_told() -> None:
    """The client may keep it until it is closed."""
    kept = [
        client(second, written_bytes=min(second, 4) * 200 * MIB, wire_written_bytes=max(0, second - 4) * 200 * MIB)
        for second in range(9)
    ]
    late, even = told(played(*kept), 1, 9), told(played(*map(client, range(9))), 1, 9)

    assert (late.late_share, late.requested_seconds) == (pytest.approx(1.0), pytest.approx(4.0))
    assert even.late_share is not None
    assert even.late_share <= 0.13
    assert told(played(client(1), client(1)), 1, 2).late_share is None


def test_a_client_of_hundreds_of_servers_is_bounded() -> None:
    """Rows and looks."""
    made = RemoteClientCounters()
    for second in range(1, 60):
        places = tuple(target(f"OST{at}", second, 1_000) for at in range(256))
        made.ingest(frame(second * SECOND, (second - 1) * SECOND, client(second, targets=places)))
    before = made.retained_bytes
    made.shrink(1 / 8)

    assert before < 8_000_000
    assert made.retained_bytes < before / 2


def test_a_client_of_more_than_a_thousand_rows_keeps_what_each_did() -> None:
    """256 OSTs with four kinds of requests each; of those that stand still no look is added."""
    kinds = "ost_read", "ost_write", "ost_sync", "ost_punch"

    def many(second: int) -> ClientSample:
        counts = [int(second) if at == 255 else 1 for at in range(256)]
        return client(
            second,
            operations=(),
            targets=tuple(
                ClientTarget(f"OST{at}", operations=tuple(ClientOperation(kind, counts[at]) for kind in kinds))
                for at in range(256)
            ),
        )

    made = played(*(many(second) for second in range(1, 9)))

    assert {one.kind: one.count for one in told(made, 2, 6).operations} == dict.fromkeys(kinds, 4)
    assert sum(len(past) for past in made._operations.values()) == 4 * (255 + 8)


def test_the_rows_of_many_clients_are_bounded() -> None:
    """The oldest go first; of an hour there are fewer looks the older they are."""
    made = RemoteClientCounters()
    for minor in range(17):
        places = tuple(target(f"OST{at}", 3, 1_000) for at in range(256))
        made.ingest(frame((minor + 1) * SECOND, minor * SECOND, client(3, minor=minor, targets=places)))
    assert len(made._operations) == 8 * MAX_ENTRIES
    long = RemoteClientCounters()
    for tick in range(2000):
        long.ingest(frame((tick + 1) * SECOND, tick * SECOND, client(tick)))
    (past,) = long._operations.values()
    assert MAX_HISTORY_BYTES // 64 < 8 * 10 * len(past) <= MAX_HISTORY_BYTES // 16
