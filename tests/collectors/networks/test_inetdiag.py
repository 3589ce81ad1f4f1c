"""TCP sockets: messages taken apart, and the kernel's own held against what a test has sent."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sockdiag import LISTEN, NEVER, FakeNetlink, done, info, message, packed
from tests.patience import wait_until

from ckptprof_collectors.kernelfs import UnavailableError
from ckptprof_collectors.networks import inet_diag
from ckptprof_collectors.networks.inet_diag import ClosedSockets, TcpCounters, TcpSocket, TcpTable


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> TcpTable[TcpSocket]:
    """Return a table whose kernel gives prepared answers."""
    monkeypatch.setattr(inet_diag, "Netlink", FakeNetlink)
    return TcpTable(TcpSocket)


def kernel(table: TcpTable[TcpSocket]) -> FakeNetlink:
    """Return the kernel of a table."""
    assert isinstance(table._netlink, FakeNetlink)
    return table._netlink


def looked(table: TcpTable[TcpSocket], *messages: bytes) -> tuple[list[TcpSocket], list[TcpSocket]]:
    """Return what one look finds."""
    kernel(table).answers.append([messages])
    return table.poll()


def test_every_number_is_found(table: TcpTable[TcpSocket]) -> None:
    """Addresses, owner, bytes, what held the sender back, and the times of a round."""
    told = info(5000, 300, (900, 400, 50), 1448, rtt=8032, min_rtt=36, rate=1_000_000)
    (one,), _ = looked(table, message(1, told))

    assert one.counts() == TcpCounters(5000, 300, 900, 400, 50, 1448, 36, 1_000_000)
    assert (one.rtt_us, one.uid, one.inode, one.local_port, one.remote_port) == (8032, 1000, 77, 40000, 443)
    assert socket.inet_ntop(socket.AF_INET, one.remote) == "10.0.0.9"


@pytest.mark.parametrize(
    ("size", "known"), [(168, (None, None, None, None)), (192, (9, 4, 1, None)), (200, (9, 4, 1, None))]
)
def test_an_older_kernel_leaves_unknown_what_it_does_not_count(
    table: TcpTable[TcpSocket], size: int, known: tuple[int | None, ...]
) -> None:
    """None, not zero: before 4.10 there are no limits, before 4.19 no bytes that were sent again."""
    (one,), _ = looked(table, message(1, info(5000, 300, (9, 4, 1), 7, size=size)), message(2, None))
    counts = one.counts()

    assert (counts.bytes_acked, counts.bytes_received) == (5000, 300)
    assert (*counts[2:5], counts.bytes_retrans) == known


def test_a_number_that_cannot_be_was_not_seen(table: TcpTable[TcpSocket]) -> None:
    """A negative one looks as if it were huge; a round of which none was measured is no time."""
    negative = (1 << 64) - 5
    (one,), _ = looked(table, message(1, info(negative, 3, (negative, 1, 1), negative, min_rtt=NEVER)))

    assert one.counts() == TcpCounters(0, 3, None, None, None, None, None, None)


def test_both_versions_of_ip_are_told_apart_and_mapped_addresses_are_not(table: TcpTable[TcpSocket]) -> None:
    """::ffff:10.0.0.9 is 10.0.0.9."""
    v6 = message(1, info(), local=("fd00::2", 1), remote=("fd00::9", 2))
    mapped = message(2, info(), local=("::ffff:10.0.0.2", 1), remote=("::ffff:10.0.0.9", 2))
    found, _ = looked(table, v6, mapped)

    assert [len(one.remote) for one in found] == [16, 4]


def test_only_what_changed_is_told(table: TcpTable[TcpSocket]) -> None:
    """Listening ports are noted; a socket that stands still is silent, one that is gone is told once."""
    still, moving = message(1, info(10)), message(2, info(20))
    listening = message(3, info(), state=LISTEN, local=("10.0.0.2", 22))
    assert len(looked(table, listening, still, moving)[0]) == 2
    changed, gone = looked(table, listening, still, message(2, info(25)))
    assert ([one.counts().bytes_acked for one in changed], gone) == ([25], [])
    assert table.listening == {22}
    (changed, gone) = looked(table, still)
    assert (changed, [one.counts().bytes_acked for one in gone]) == ([], [25])
    assert looked(table, still) == ([], [])


def test_a_socket_that_an_answer_misses_is_the_same_when_it_is_back(table: TcpTable[TcpSocket]) -> None:
    """The table changes between two parts of an answer; only after many answers it is forgotten."""
    (one,), _ = looked(table, message(1, info(10)))
    looked(table)
    assert looked(table, message(1, info(30)))[0] == [one]
    for _ in range(inet_diag.MAX_ABSENT_DUMPS + 1):
        looked(table)
    assert looked(table, message(1, info(30)))[0] != [one]


def test_attributes_may_stand_elsewhere_in_the_next_message(table: TcpTable[TcpSocket]) -> None:
    """A mark, which only some are told of, moves what follows it."""
    marked = message(2, info(7), extra=struct.pack("=HHI", 8, 15, 1))
    found, _ = looked(table, message(1, info(5)), marked, message(3, info(6)))

    assert [one.counts().bytes_acked for one in found] == [5, 7, 6]
    assert looked(table, message(1, info(5)), marked, message(3, info(6))) == ([], [])


def test_there_is_room_for_so_many(table: TcpTable[TcpSocket], monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are counted."""
    monkeypatch.setattr(inet_diag, "MAX_SOCKETS", 3)
    found, _ = looked(table, *(message(cookie, info(1)) for cookie in range(5)))

    assert (len(found), table.omitted) == (3, 2)


def test_a_refusal_is_an_error_and_what_was_broken_off_is_passed_over(table: TcpTable[TcpSocket]) -> None:
    """The end of an answer may carry an error; what has another number belongs to another question."""
    kernel(table).answers.append([lambda sequence: done(sequence, error=12)])
    with pytest.raises(OSError, match="refused") as refused:
        table.poll()
    assert refused.value.errno == 12
    kernel(table).answers.append([lambda sequence: packed(message(1, info(5)), sequence - 1) + done(sequence - 1)])
    assert table.poll() == ([], [])


@pytest.mark.parametrize("damage", [lambda raw: raw[:-30], lambda raw: struct.pack("=I", 3) + raw[4:]])
def test_a_truncated_answer_is_an_error_and_no_number(
    table: TcpTable[TcpSocket], damage: Callable[[bytes], bytes]
) -> None:
    """What came before it stands."""
    kernel(table).answers.append([lambda sequence: damage(packed(message(1, info(5)), sequence))])
    with pytest.raises(OSError, match="malformed"):
        table.poll()


@given(st.lists(st.binary(max_size=400), max_size=4), st.binary(max_size=300))
def test_no_bytes_make_it_fail_otherwise(parts: list[bytes], told: bytes) -> None:
    """Whatever comes through the socket: sockets, or an OSError."""
    table = TcpTable.__new__(TcpTable)
    fake = FakeNetlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inet_diag, "Netlink", lambda *_: fake)
        table.__init__(TcpSocket)  # type: ignore[misc] # with a kernel of its own
    fake.answers.append([[message(1, told), message(2, info(3)), *parts]])
    for part in parts:
        fake.answers.append([lambda _, part=part: part])  # type: ignore[misc]
    for _ in range(len(parts) + 1):
        try:
            changed, gone = table.poll()
        except OSError:
            continue
        assert all(one.counts().bytes_acked >= 0 for one in [*changed, *gone])


def test_a_kernel_without_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is fit for a person."""

    class Without(FakeNetlink):
        def receive(self) -> bytes:
            return packed(struct.pack("=i", -2), self.sequence, 2)

    monkeypatch.setattr(inet_diag, "Netlink", Without)
    with pytest.raises(UnavailableError, match="INET_TCP_DIAG"):
        TcpTable(TcpSocket)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_kernel_counts_what_was_sent(host: str) -> None:
    """Of both ends of a real connection, as any user."""
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        table = TcpTable(TcpSocket)
        with socket.create_connection(server.getsockname()[:2]) as client, server.accept()[0] as taken:
            client.sendall(bytes(100_000))
            left = 100_000
            while left:
                left -= len(taken.recv(left))
            port, served = client.getsockname()[1], server.getsockname()[1]  # both: others may have one of them
            ends: dict[tuple[int, int], TcpSocket] = {}

            def counted() -> bool:
                table.poll()
                ends.update({(one.local_port, one.remote_port): one for one in table.open_sockets()})
                return (port, served) in ends and ends[port, served].counts().bytes_acked >= 100_000

            wait_until(counted, lambda: ends)
            own, other = ends[port, served], ends[served, port]
            assert own.counts().bytes_acked in {100_000, 100_001}  # a kernel may count SYN
            assert other.counts().bytes_received == 100_000
            assert {own.inode, other.inode} == {os.fstat(end.fileno()).st_ino for end in (client, taken)}
            assert server.getsockname()[1] in table.listening
        table.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_kernel_tells_of_each_that_closes_if_it_moved_much(host: str) -> None:
    """With all that it has moved, to any user; of the many that move little nothing reaches us."""
    closings = ClosedSockets()
    heard: dict[int, list[bytes]] = {}
    sizes = (100, 65_000, 66_000, 100_000, 40 << 20)
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        for size in sizes:
            with socket.create_connection(server.getsockname()[:2]) as client:
                sender = threading.Thread(target=client.sendall, args=(bytes(size),))
                sender.start()
                with server.accept()[0] as taken:
                    left = size
                    while left:
                        left -= len(taken.recv(left))
                sender.join()
        port = server.getsockname()[1]

        def have_come() -> bool:
            for message in closings.read_messages():
                local, remote = struct.unpack_from("!HH", message, 20)
                heard.setdefault(remote if local == port else local if remote == port else 0, []).append(message)
            return len(heard.keys() - {0}) == 3 and all(len(ends) == 2 for key, ends in heard.items() if key)

        wait_until(have_come, lambda: heard)
    closings.close()

    counted = [max(struct.unpack_from("=Q", one, 220)[0] for one in ends) for key, ends in heard.items() if key]
    assert [one - size in range(3) for one, size in zip(sorted(counted), sizes[2:], strict=True)] == [True] * 3
