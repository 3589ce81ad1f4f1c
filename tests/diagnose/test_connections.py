"""What TCP tells of who held a save up decides between the server and the network, and only where it tells enough."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.diagnose.hand import GIB, MIB, link, measured, restore, save, thread

from ckptprof.diagnose.accounts.network_evidence import transport
from ckptprof.diagnose.context import gather_context
from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.measures import ConnectionMeasure, Measures, MountMeasure
from ckptprof.model import Checkpoint, Level
from ckptprof.verdicts import Limit, Verdict


def connection(busy: float = 19.0, rwnd: float | None = 0.02, **more: Any) -> ConnectionMeasure:
    """Return the connection of the mount with its server, over which a save of 20 s went."""
    told: dict[str, Any] = {
        "remote": "10.0.0.9", "port": 22, "links": ("eth0",), "relation": "server", "sockets": 1, "sent_bytes": GIB,
        "received_bytes": MIB, "retransmitted_bytes": 0, "seconds": 20.0, "busy_seconds": busy, "rwnd_share": rwnd,
        "sndbuf_share": 0.0, "rtt_seconds": 0.008, "min_rtt_seconds": 0.00004,
    }  # fmt: skip
    return ConnectionMeasure(**{**told, **more})


FAR = MountMeasure(mount_point="/ckpt", fs_type="fuse.sshfs", source="10.0.0.9:/x", remote=True, server="10.0.0.9")


def measures(*connections: ConnectionMeasure, level: Level = Level.TRACE, **more: Any) -> Measures:
    """Return a thread that waited 19 of 20 s in writes to a server, by a link with much room."""
    at = thread(level, 20, data=19, copy=1)
    told: dict[str, Any] = {"mount": FAR, "links": (link(steadiness=0.3),), "connections": connections}
    return measured(at, **{**told, **more})


def told(checkpoint: Checkpoint) -> Verdict:
    """Return the verdict."""
    verdict = diagnose(checkpoint).verdict
    assert verdict is not None
    return verdict


def said(*connections: ConnectionMeasure, **more: Any) -> Verdict:
    """Return the verdict of a save with these connections."""
    return told(save(Level.TRACE, 20, measures(*connections, **more)))


@pytest.mark.parametrize("level", list(Level))
def test_a_window_that_is_full_is_the_server_and_one_that_is_not_is_the_path(level: Level) -> None:
    """With who it was and the numbers, at both levels; the other one is excluded, and is no candidate."""
    slow = told(save(level, 20, measures(connection(rwnd=0.61), level=level)))
    path = told(save(level, 20, measures(connection(), level=level)))

    assert (slow.limit, path.limit) == (Limit.SERVER, Limit.NETWORK)
    assert "the receive window of 10.0.0.9:22 was full for 61 % of the 19.0 s" in slow.evidence[0]
    assert "a round trip of 8.0 ms, 0.04 ms without queues" in path.evidence[0]
    assert any("the server's receive window was full for only 2 %" in one for one in path.excluded), path
    assert (slow.cause, path.cause) == ("slow-server", "slow-path")
    assert not {Limit.SERVER, Limit.NETWORK} & {*slow.candidates, *path.candidates}


def test_it_is_surer_than_without() -> None:
    """Without it the same numbers only tell that the link has room."""
    assert said().limit is Limit.SERVER
    assert said(connection()).confidence > said().confidence
    even = (link(steadiness=0.95, active_seconds=20.0, shown_bytes_per_second=None, speed_bytes_per_second=None),)
    assert said(links=even).limit is Limit.NETWORK
    assert said(connection(rwnd=0.5), links=even).limit is Limit.SERVER
    assert said(connection(busy=2.0), links=even).limit is Limit.SERVER
    idle = said(connection(busy=2.0), links=even)
    assert "data was in flight to 10.0.0.9:22 for only 2.00 s of it" in idle.evidence[0]
    assert any("no data was in flight for 89.5 %" in one for one in idle.excluded)


@pytest.mark.parametrize(
    ("busy", "limit", "cause"), [(0.9, Limit.SERIALIZE, "busy-daemon"), (0.3, Limit.SERVER, "slow-server")]
)
def test_who_serves_the_mount_is_the_limit_where_it_computes_all_the_while(
    busy: float, limit: Limit, cause: str
) -> None:
    """It is named, whether it was at work or at rest; data was seldom on its way."""
    mount = msgspec.structs.replace(FAR, client="sshfs", daemon="sshfs", daemon_pid=7, daemon_busy=busy)
    verdict = said(connection(busy=2.0), mount=mount)

    assert (verdict.limit, verdict.cause) == (limit, cause)
    assert any("sshfs, which serves the mount" in one for one in (*verdict.evidence, *verdict.excluded))
    on_its_way = said(connection(), mount=mount)
    assert on_its_way.limit is Limit.NETWORK


def test_a_link_that_is_shaped_or_full_keeps_its_name() -> None:
    """What the link itself shows says more than that the path is slow."""
    shaped = said(connection(), links=(link(shaped_overlimits=5000),))
    full = said(connection(), links=(link(sent_bytes=60 * GIB, peak_bytes_per_second=3.1e9),))

    assert (shaped.cause, full.cause) == ("shaped", "full-link")
    assert all("10.0.0.9:22" in one.evidence[0] for one in (shaped, full))


@pytest.mark.parametrize(
    "one",
    [
        connection(busy_seconds=None, rwnd_share=None),  # an old kernel
        connection(sent_bytes=MIB),  # its data went elsewhere
        connection(relation="process"),  # the ranks among themselves
        connection(accepted=True),  # it came to us
        connection(rwnd=0.2),  # both, and neither
        connection(links=("lo",)),  # it never left the host
    ],
)
def test_where_it_does_not_tell_enough_nothing_changes(one: ConnectionMeasure) -> None:
    """The link decides, as it did."""
    verdict, without = said(one), said()
    assert (verdict.limit, verdict.cause) == (without.limit, without.cause)


def test_connections_that_are_only_known_by_their_bytes_leave_a_doubt() -> None:
    """A ceph of which the object servers are in no mount."""
    verdict = said(connection(relation="bytes"))
    assert (verdict.limit, verdict.candidates) == (Limit.NETWORK, (Limit.SERVER,))
    assert verdict.confidence < said(connection()).confidence


def test_many_connections_count_together() -> None:
    """`nconnect`: each has its share."""
    each = [connection(busy=6.0, rwnd=rwnd, sent_bytes=GIB // 3) for rwnd in (0.9, 0.1, 0.2)]
    assert said(*each).limit is Limit.SERVER


def test_small_writes_wait_for_a_round_and_not_for_the_path() -> None:
    """Each is on its way for as long as the way is, which is no queue."""
    near = {"rtt_seconds": 0.0101, "min_rtt_seconds": 0.01}
    checkpoint = save(Level.TRACE, 20, measures(connection(**near)))
    small = save(
        Level.TRACE, 20, measures(connection(**near)),
        pattern=type(checkpoint.pattern)(class_=None, median_operation_bytes=4096, direct_share_bytes=1.0),
    )  # fmt: skip
    assert told(small).limit is Limit.SMALL_IO
    assert told(checkpoint).limit is Limit.NETWORK


def test_of_reads_this_end_knows_nothing() -> None:
    """The sender would."""
    got = connection(received_bytes=GIB, sent_bytes=MIB)
    with_it = told(restore(Level.TRACE, 20, measures(got)))
    assert with_it.limit is told(restore(Level.TRACE, 20, measures())).limit


def test_the_link_is_that_of_the_connections() -> None:
    """A second interface that the ranks speak over is busier, and says nothing of the storage."""
    ranks = link(name="ib0", sent_bytes=100 * GIB, speed_bytes_per_second=6e9, peak_bytes_per_second=5.9e9)
    links = (ranks, link(steadiness=0.3))
    assert said(links=links).limit is Limit.NETWORK
    verdict = said(connection(rwnd=0.2), links=links)
    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "slow-server")


def test_a_connection_that_carries_a_twentieth_of_the_busiest_counts() -> None:
    """Of many connections of one mount each is the path; one that only keeps the mount alive is none of them."""
    main = connection(busy=11.0)

    assert said(main, connection(busy=5.0, sent_bytes=GIB // 16)).limit is Limit.NETWORK
    assert said(main, connection(busy=5.0, sent_bytes=GIB // 25)).limit is Limit.SERVER


@pytest.mark.parametrize(("waiting", "tells"), [(0.8, True), (0.45, False)])
def test_half_a_second_is_the_least_that_a_connection_tells_of(waiting: float, *, tells: bool) -> None:
    """The window of a fast connection is full for milliseconds."""
    sight = gather_context(save(Level.TRACE, 1, measures(connection(busy=0.9 * waiting))))

    assert (transport(sight, waiting) is not None) == tells
