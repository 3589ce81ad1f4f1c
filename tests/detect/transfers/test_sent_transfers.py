"""What goes over the network and to no file, stretch by stretch: where it begins and ends, and what is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from tests.detect.observed import frame, observed
from tests.detect.stage import MIB

from ckptprof.detect.describe.connection_measures import summarize_sendings
from ckptprof.detect.tolerances import MAX_PER_ITEM, MAX_POINTS
from ckptprof.detect.transfers.observed.sent_transfers import SentTransfers
from ckptprof_collectors.samples import SocketTraffic, TcpSample

SECOND = 1_000_000_000
TRAINER = (100, 1)
QUIET_NS = 90 * SECOND


def tcp(sent: int, **more: Any) -> TcpSample:
    """Return a connection with an object store that has sent so much."""
    told: dict[str, Any] = {
        "remote": "10.0.0.9", "port": 443, "is_accepted": False, "local": "10.0.0.2",
        "interfaces": (), "pid": TRAINER[0],
        "start_ticks": TRAINER[1], "sockets": 2, "bytes_acked": sent, "bytes_received": 0, "bytes_retrans": 0,
        "busy_us": 0, "rwnd_limited_us": 0, "sndbuf_limited_us": 0, "rtt_us": 800, "min_rtt_us": 40,
        "delivery_rate": None,
    }  # fmt: skip
    return TcpSample(**{**told, **more})


def counted(sent: int, received: int) -> SocketTraffic:
    """Return as much of such a connection as the trace counts."""
    names = ("sends", "receives", "parts", "parts_bytes", "answers", "answers_bytes")
    return SocketTraffic(
        pid=TRAINER[0], start_ticks=TRAINER[1], remote="10.0.0.9", port=443, local_port=5000, sockets=2,
        sent_bytes=sent, received_bytes=received, send_start_ns=SECOND, sent_ns=2 * SECOND, receive_start_ns=SECOND,
        received_ns=2 * SECOND, part_bytes=None, tid=TRAINER[0], **dict.fromkeys(names, 0),
    )  # fmt: skip


def sending(seconds: int, every_s: int = 60) -> SentTransfers:
    """Return what is known of a process that has sent for so long."""
    made = SentTransfers(observed(trainers=(TRAINER[0],)))
    for tick in range(seconds // every_s + 1):
        at_ns = (tick + 1) * every_s * SECOND
        made.ingest(frame(at_ns, at_ns - every_s * SECOND, tcp(tick * MIB, is_new=not tick)))
    return made


@pytest.mark.parametrize(("minutes", "transfers"), [(20, 1), (45, 0)])
def test_what_never_pauses_is_forgotten(minutes: int, transfers: int) -> None:
    """A log goes on for days, a save does not."""
    made = sending(minutes * 60)
    now_ns = (minutes + 10) * 60 * SECOND

    assert (made.oldest_ns(now_ns) == now_ns) is not bool(transfers)
    assert sum(len(parts) for _, parts in made.take_ended(now_ns, QUIET_NS)) == transfers
    assert made.take_ended(now_ns, QUIET_NS) == []


def test_a_long_one_is_kept_in_few_points() -> None:
    """With all of its bytes."""
    ((_, (transfer,)),) = sending(1700, every_s=1).take_ended(4000 * SECOND, QUIET_NS)

    assert len(transfer.points) < 2 * MAX_POINTS
    assert sum(point.bytes for point in transfer.points) == transfer.bytes == 1700 * MIB


def test_of_one_without_an_end_no_points_are_kept() -> None:
    """They would take the room of all else, for as long as it goes on."""
    assert sending(1700, every_s=1).point_count > MAX_POINTS
    assert sending(1900, every_s=1).point_count == 0


def test_where_room_is_scarce_it_is_kept_in_fewer_points() -> None:
    """With all of its bytes, and from end to end."""
    made = sending(1001, every_s=1)
    made.shrink(1 / 8)
    assert made.point_count <= MAX_POINTS // 4 + 1
    ((_, (transfer,)),) = made.take_ended(4000 * SECOND, QUIET_NS)

    assert sum(point.bytes for point in transfer.points) == transfer.bytes == 1001 * MIB
    assert max(point.end_ns for point in transfer.points) == 1002 * SECOND


def test_a_little_telemetry_is_no_upload_that_saves_are_followed_for() -> None:
    """It goes on whenever a save does: what may be one is larger."""
    made = SentTransfers(observed(trainers=(TRAINER[0],)))
    for second, sent, is_waited_for in ((1, 0, False), (2, MIB // 2, False), (3, 2 * MIB, True)):
        made.ingest(frame(second * SECOND, (second - 1) * SECOND, tcp(sent)))
        assert made.is_sending_since(SECOND) is is_waited_for
    assert not made.is_sending_since(3 * SECOND)


def test_it_begins_as_early_as_data_was_on_its_way() -> None:
    """Where it is over by the next look, the sum of that over its connections tells, shared out among them."""
    made = SentTransfers(observed(trainers=(TRAINER[0],)))
    made.ingest(frame(SECOND, 0, tcp(0)))
    made.ingest(frame(2 * SECOND, SECOND, tcp(50 * MIB, busy_us=600_000, sent_ns=int(1.9 * SECOND))))
    ((_, (transfer,)),) = made.take_ended(200 * SECOND, QUIET_NS)

    assert (transfer.start_ns, transfer.end_ns) == (int(1.6 * SECOND), int(1.9 * SECOND))


def test_of_connections_that_were_never_seen_open_the_number_is_not_known() -> None:
    """They opened and closed between two looks: none is no number of them."""
    made = SentTransfers(observed(trainers=(TRAINER[0],)))
    made.ingest(frame(SECOND, 0, tcp(0, sockets=0)))
    made.ingest(frame(2 * SECOND, SECOND, tcp(50 * MIB, sockets=0)))
    ((_, (transfer,)),) = made.take_ended(200 * SECOND, QUIET_NS)

    assert transfer.sending is not None
    assert transfer.sending.connections is None


def test_of_changing_addresses_so_many_are_kept() -> None:
    """With the bytes of the further ones, which have no name."""
    made = SentTransfers(observed(trainers=(TRAINER[0],)))
    for tick in range(1, 1000):
        told = tcp(MIB, is_new=True, remote=f"10.1.{tick // 250}.{tick % 250}")
        made.ingest(frame(tick * SECOND, (tick - 1) * SECOND or 1, told))
    ((_, (transfer,)),) = made.take_ended(2000 * SECOND, QUIET_NS)

    assert transfer.sending is not None
    assert len(transfer.sending.endpoints) == MAX_PER_ITEM + 1
    assert transfer.bytes == sum(transfer.sending.endpoints.values()) == 999 * MIB
    sent = summarize_sendings([transfer])
    assert sent is not None
    assert all(one.remote for one in sent.destinations)


@pytest.mark.parametrize("is_counted", [False, True], ids=["looked-at", "counted"])
@pytest.mark.parametrize(
    ("sent", "received", "directions"),
    [
        (50 * MIB, 4000, [True]),
        (4000, 50 * MIB, [False]),
        (6 * MIB, 50 * MIB, [False, True]),
        (50 * MIB, 6 * MIB, [False, True]),
        (0, 50 * MIB, [False]),
    ],
    ids=["a-save", "a-restore", "much-is-asked", "much-is-answered", "a-stream"],
)
def test_what_only_asks_or_acknowledges_is_no_transfer(
    sent: int, received: int, directions: list[bool], *, is_counted: bool
) -> None:
    """A tenth of what goes the other way, or less, is that."""
    made = SentTransfers(observed(trainers=(TRAINER[0],)))
    made.ingest(frame(SECOND, 0, tcp(0)))
    moved = counted(sent, received) if is_counted else tcp(sent, bytes_received=received)
    made.ingest(frame(2 * SECOND, SECOND, moved))
    found = [one for _, parts in made.take_ended(200 * SECOND, QUIET_NS) for one in parts]

    assert sorted(one.writes for one in found) == directions
    assert {one.bytes for one in found} == {(received, sent)[writes] for writes in directions}
