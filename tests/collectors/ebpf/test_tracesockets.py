"""Counters of connections as the programs leave them, and the sums that become of them."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import cast

import pytest

from ckptprof_collectors.ebpf import socket_traffic
from ckptprof_collectors.ebpf.layouts import ConnectionDirection, ConnectionKey, TcpConnection
from ckptprof_collectors.ebpf.libbpf import BpfMap
from ckptprof_collectors.ebpf.socket_traffic import MAX_SUMS, REPORT_BYTES, SocketReader
from ckptprof_collectors.samples import SocketTraffic

SECOND_NS = 1_000_000_000
KIB = 1 << 10


@dataclass
class Entries:
    """A map of connections."""

    key_size: int = 16
    stride_bytes: int = len(bytes(TcpConnection()))
    max_entries: int = 8
    held: dict[bytes, TcpConnection] = field(default_factory=dict)
    reads: int = 0

    def lookup_batch(self) -> tuple[int, bytes, bytes]:
        """Return (entries, keys, values)."""
        self.reads += 1
        return len(self.held), b"".join(self.held), b"".join(map(bytes, self.held.values()))

    def delete(self, key: bytes) -> bool:
        """Remove an entry."""
        return self.held.pop(key, None) is not None


@dataclass
class Desk:
    """A reader of two such maps."""

    connections: Entries = field(default_factory=Entries)
    crowds: Entries = field(default_factory=lambda: Entries(key_size=4))
    calls: int = 0

    def __post_init__(self) -> None:
        """Make the reader."""
        maps = (cast("BpfMap", self.connections), cast("BpfMap", self.crowds))
        self.reader = SocketReader(*maps, lambda start_ns: start_ns // 10)

    def sends(self, cookie: int, size: int, at_ns: int, *, began_ns: int = 0, pid: int = 7, remote: int = 9) -> None:
        """Have a connection send something."""
        key = bytes(ConnectionKey(cookie=cookie, process=pid))
        one = self.connections.held.setdefault(
            key, TcpConnection(process_start_ns=1000, family=socket.AF_INET, remote_port=443, local_port=5000, tid=71)
        )
        one.remote[0] = remote
        one.sent.bytes += size
        one.sent.calls += 1
        one.sent.last_ns = at_ns
        one.sent.began_ns = began_ns or one.sent.began_ns or at_ns
        self.calls += 1

    def read(self, now_ns: int) -> list[SocketTraffic]:
        """Read if it is due."""
        if not self.reader.is_due(now_ns, self.calls):
            return []
        return self.reader.read(now_ns, self.calls)


def test_what_moved_little_is_told_with_what_follows_it() -> None:
    """Sixty-four KiB at once, or anything within three seconds of what was told."""
    desk = Desk()
    told = []
    for second, size in enumerate((1, 63 * KIB, 64 * KIB, 5, 0, 0, 0, 0, 6), 1):
        if size:
            desk.sends(1, size, second * SECOND_NS)
        told.append([sample.sent_bytes for sample in desk.read(second * SECOND_NS)])

    assert told == [[], [], [127 * KIB + 1], [127 * KIB + 6], [], [], [], [], []]


def test_what_beats_on_after_much_is_told_for_three_seconds_more() -> None:
    """A connection that once moved much may be kept for weeks by a word each second."""
    desk = Desk()
    told = []
    for second in range(1, 11):
        desk.sends(1, REPORT_BYTES if second == 1 else 100, second * SECOND_NS)
        told.append(len(desk.read(second * SECOND_NS)))

    assert told == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]


def test_a_host_on_which_nothing_moved_is_not_read() -> None:
    """One comparison, whatever the map holds."""
    desk = Desk()
    desk.sends(1, REPORT_BYTES, SECOND_NS)
    for at in range(1, 100):
        desk.read(at * SECOND_NS)

    assert desk.connections.reads == 1


def test_the_connections_of_a_process_to_one_port_are_one_sum() -> None:
    """It began with the first of them after the last silence, and ends with the last."""
    desk = Desk()
    desk.sends(1, REPORT_BYTES, 10 * SECOND_NS, began_ns=9 * SECOND_NS)
    desk.sends(2, REPORT_BYTES, 11 * SECOND_NS, began_ns=8 * SECOND_NS)
    desk.sends(3, REPORT_BYTES, 11 * SECOND_NS, began_ns=8 * SECOND_NS, remote=10)
    first = {sample.remote: sample for sample in desk.read(11 * SECOND_NS)}
    desk.sends(1, REPORT_BYTES, 20 * SECOND_NS, began_ns=19 * SECOND_NS)
    (later,) = desk.read(20 * SECOND_NS)

    both = first["9.0.0.0"]
    assert (both.pid, both.start_ticks, both.port, both.local_port, both.tid) == (7, 100, 443, 5000, 71)
    assert (both.sockets, both.sent_bytes, both.sends) == (2, 2 * REPORT_BYTES, 2)
    assert (both.send_start_ns, both.sent_ns) == (8 * SECOND_NS, 11 * SECOND_NS)
    assert first["10.0.0.0"].sent_bytes == REPORT_BYTES
    assert (later.sockets, later.sent_bytes) == (2, 3 * REPORT_BYTES)
    assert (later.send_start_ns, later.sent_ns) == (19 * SECOND_NS, 20 * SECOND_NS)


def test_a_part_that_ends_with_an_answer_is_told_though_nothing_more_was_sent() -> None:
    """The map was read between the two."""
    desk = Desk()
    desk.sends(1, REPORT_BYTES, SECOND_NS)
    (begun,) = desk.read(SECOND_NS)
    (entry,) = desk.connections.held.values()
    entry.sent.parts, entry.sent.parts_bytes = 1, REPORT_BYTES
    entry.received.bytes, entry.received.last_ns = 100, SECOND_NS + 1
    desk.calls += 1
    (ended,) = desk.read(3 * SECOND_NS)

    assert (begun.parts, ended.parts, ended.parts_bytes, ended.received_bytes) == (0, 1, REPORT_BYTES, 100)


def test_who_stood_still_longest_gives_way_and_the_sum_stays() -> None:
    """Of a map that is more than half full; nobody who has moved since it was read before."""
    desk = Desk()
    for second, cookie in enumerate((3, 4, 5, 0, 1, 2), 1):
        desk.sends(cookie, REPORT_BYTES, second * SECOND_NS)
        desk.read(second * SECOND_NS)
    desk.sends(5, REPORT_BYTES, 10 * SECOND_NS)
    desk.read(10 * SECOND_NS)
    left = {ConnectionKey.from_buffer_copy(key).cookie for key in desk.connections.held}
    desk.sends(3, REPORT_BYTES, 11 * SECOND_NS)
    (again,) = desk.read(11 * SECOND_NS)

    assert left == {0, 1, 2, 5}
    assert again.sent_bytes == 8 * REPORT_BYTES


def test_connections_without_room_are_one_sum_without_a_name() -> None:
    """Its parts mean nothing: they are of many connections."""
    desk = Desk()
    for cookie in range(8):
        desk.sends(cookie, 1, SECOND_NS)
    desk.crowds.held[(7).to_bytes(4, "little")] = TcpConnection(
        process_start_ns=1000,
        sent=ConnectionDirection(bytes=REPORT_BYTES, calls=3, last_ns=SECOND_NS, parts=2, parts_bytes=5),
    )

    (crowd,) = desk.read(SECOND_NS)

    assert (crowd.pid, crowd.remote, crowd.port, crowd.sent_bytes) == (7, "", 0, REPORT_BYTES)
    assert (crowd.parts, crowd.parts_bytes, crowd.part_bytes) == (0, 0, None)


def test_the_number_of_sums_is_bounded() -> None:
    """The one that moved longest ago goes."""
    desk = Desk(Entries(max_entries=1 << 20))
    for cookie in range(MAX_SUMS + 5):
        desk.sends(cookie, REPORT_BYTES, SECOND_NS, remote=cookie)

    assert len(desk.read(SECOND_NS)) == MAX_SUMS
    assert len(desk.reader._sums) == MAX_SUMS

    again = []
    for second, cookie in ((200, MAX_SUMS + 9), (400, 0)):  # another connection to the place that went, and the old one
        desk.sends(cookie, REPORT_BYTES, second * SECOND_NS, remote=0)
        again += [sample.sent_bytes for sample in desk.read(second * SECOND_NS)]
    assert again == [REPORT_BYTES, 2 * REPORT_BYTES]


def test_a_map_in_which_all_moves_is_read_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it costs: nothing is lost by that, as the kernel counts."""
    desk, spent_ns = Desk(), iter(range(0, 10**9, 4_000_000))
    monkeypatch.setattr(socket_traffic.time, "thread_time_ns", lambda: next(spent_ns))
    desk.sends(1, REPORT_BYTES, SECOND_NS)
    desk.read(SECOND_NS)
    desk.sends(1, REPORT_BYTES, SECOND_NS + 1)

    assert desk.read(2 * SECOND_NS) == []
    assert [sample.sent_bytes for sample in desk.read(3 * SECOND_NS)] == [2 * REPORT_BYTES]


def test_an_address_of_the_old_protocol_within_the_new_one_is_told_as_what_it_is() -> None:
    """As packets have it, and as TcpSample tells it."""
    assert socket_traffic._address(socket.AF_INET6, bytes(10) + b"\xff\xff\x0a\x00\x00\x09") == "10.0.0.9"
    assert socket_traffic._address(socket.AF_INET6, bytes(15) + b"\x01") == "::1"
    assert socket_traffic._address(0, bytes(16)) == ""
