"""Endpoints of TCP connections: sums that lose nothing, owners, interfaces, and room for so many."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from sockdiag import LISTEN, FakeClosings, FakeNetlink, closed, info, message
from tests.patience import wait_until

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.networks import inet_diag, tcp_endpoints
from ckptprof_collectors.networks.tcp_endpoints import REPORT_BYTES, LocalAddresses, TcpEndpoints, lowest_interfaces
from ckptprof_collectors.samples import TcpSample

MIB = 1 << 20


class Asked:
    """Owners who are known beforehand."""

    turn = 1
    users = frozenset((1000,))

    def __init__(self, found: Mapping[int, tuple[int, int]] | None, number: int = 1) -> None:
        """Take the owners; None: it is too early to look for them."""
        self.found, self.number = found, number
        self.looked = 0

    def __len__(self) -> int:
        """Return how many they are."""
        return self.number

    def __contains__(self, owner: tuple[int, int]) -> bool:
        """Return whether it is one of them."""
        return owner in (self.found or {}).values()

    def find(self, inodes: Collection[int]) -> Mapping[int, tuple[int, int]] | None:
        """Return them."""
        self.looked += 1
        return None if self.found is None else {inode: self.found[inode] for inode in inodes if inode in self.found}


class Bench:
    """A collector whose kernel gives prepared answers, a hundred seconds apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Look a first time, at nothing."""
        monkeypatch.setattr(inet_diag, "Netlink", FakeNetlink)
        monkeypatch.setattr(tcp_endpoints, "Netlink", FakeNetlink)
        monkeypatch.setattr(inet_diag, "ClosedSockets", FakeClosings)
        self.now = 0.0
        self.collector = TcpEndpoints(KernelFs(), clock=lambda: self.now)
        self.collector._addresses.interfaces_of = lambda *_: ("eth0",)  # type: ignore[method-assign] # not of this machine
        self.segments = b""  # of the host; not known
        self.collector._read_segments = lambda: self.segments  # type: ignore[method-assign] # likewise
        self.read()

    @property
    def closings(self) -> FakeClosings:
        """What tells it of sockets that close."""
        made = self.collector._table._closings
        assert isinstance(made, FakeClosings)
        return made

    def read(self, *messages: bytes, after: float = 100) -> list[TcpSample]:
        """Return what one look tells."""
        kernel = self.collector._table._netlink
        assert isinstance(kernel, FakeNetlink)
        kernel.answers.append([messages])
        self.now += after
        samples = self.collector.read()
        assert samples is not None
        return [sample for sample in samples if isinstance(sample, TcpSample)]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Return a bench."""
    made = Bench(monkeypatch)
    yield made
    made.collector.close()


def test_connections_of_one_remote_port_are_summed_up(bench: Bench) -> None:
    """What each has sent, and what held it back; the round is that of the one that moved most."""
    (told,) = bench.read(
        message(1, info(2 * MIB, 100, (9000, 4000, 10), 7, rtt=800, min_rtt=30), local=("10.0.0.2", 4001)),
        message(2, info(1 * MIB, 200, (1000, 500, 20), 3, rtt=100), local=("10.0.0.2", 4002)),
    )

    assert msgspec.structs.replace(told, sent_ns=None, received_ns=None) == TcpSample(
        remote="10.0.0.9",
        port=443,
        is_accepted=False,
        local="10.0.0.2",
        interfaces=("eth0",),
        pid=None,
        start_ticks=None,
        sockets=2,
        bytes_acked=3 * MIB,
        bytes_received=300,
        bytes_retrans=10,
        busy_us=10_000,
        rwnd_limited_us=4500,
        sndbuf_limited_us=30,
        rtt_us=800,
        min_rtt_us=30,
        delivery_rate=None,
        is_new=True,
    )


def test_it_is_told_when_one_of_them_sent_and_received_last(bench: Bench) -> None:
    """To the milliseconds that the kernel tells; who only received did not send."""
    before_ns = time.monotonic_ns()
    (told,) = bench.read(
        message(1, info(MIB, sent_ago_ms=700), local=("10.0.0.2", 4001)),
        message(2, info(MIB, sent_ago_ms=200), local=("10.0.0.2", 4002)),
        message(3, info(0, MIB, sent_ago_ms=10, received_ago_ms=400), local=("10.0.0.2", 4003)),
    )

    assert told.sent_ns is not None
    assert before_ns - 200_000_000 <= told.sent_ns <= time.monotonic_ns() - 200_000_000
    assert told.received_ns is not None
    assert before_ns - 400_000_000 <= told.received_ns <= time.monotonic_ns() - 400_000_000


def test_what_was_there_before_counts_from_the_first_look_on(bench: Bench) -> None:
    """A connection of many days has sent much, but not now."""
    bench.collector._reset()
    assert bench.read(message(1, info(1 << 40))) == []
    (told,) = bench.read(message(1, info((1 << 40) + MIB)))
    assert told.bytes_acked == MIB


def test_a_socket_that_closes_stays_in_the_sum(bench: Bench) -> None:
    """With its last look, however little it had moved since then."""
    bench.read(message(1, info(MIB)))
    assert bench.read(message(1, info(MIB + 10))) == []  # told with what follows it
    (told,) = bench.read()
    assert (told.bytes_acked, told.sockets, told.is_new) == (MIB + 10, 0, False)
    (told,) = bench.read(message(2, info(3 * MIB)))
    assert (told.bytes_acked, told.sockets) == (4 * MIB + 10, 1)


def test_a_little_is_told_soon_after_much(bench: Bench) -> None:
    """As the answers to it are; what goes on so is told with what follows it."""
    bench.read(message(1, info(MIB)))
    (told,) = bench.read(message(1, info(MIB, 300)), after=2)
    assert told.bytes_received == 300
    assert bench.read(message(1, info(MIB, 600)), after=2) == []


def test_a_socket_that_closes_counts_to_its_end(bench: Bench) -> None:
    """As the kernel tells of it then: what it moved since it was looked at last is in the sum."""
    bench.read(message(1, info(MIB)))
    bench.closings.messages = [closed(1, info(5 * MIB, 300))]
    (told,) = bench.read()
    assert (told.bytes_acked, told.bytes_received, told.sockets) == (5 * MIB, 300, 0)
    assert bench.read() == []


def test_a_socket_that_no_look_met_is_whose_who_alone_connects_to_there(bench: Bench) -> None:
    """Its inode is gone with it; of who has ended, and where two connect to, nobody knows."""
    owners = bench.collector.owners = Asked({77: (5, 50), 78: (6, 60)})
    there, here = {"remote": ("10.0.0.7", 443)}, {"remote": ("10.0.0.8", 443)}
    bench.read(message(1, info(MIB)), message(2, info(MIB), **there), message(3, info(MIB), inode=78, **there))
    bench.closings.messages = [closed(4, info(2 * MIB)), closed(5, info(MIB), **there), closed(6, info(MIB), **here)]
    told = bench.read(message(7, info(MIB), inode=78, **here))
    owners.found = {78: (6, 60)}
    bench.closings.messages = [closed(8, info(4 * MIB))]
    later = bench.read()

    assert {(one.remote, one.pid): one.bytes_acked for one in told} == {
        ("10.0.0.9", 5): 3 * MIB, ("10.0.0.7", None): MIB, ("10.0.0.8", 6): 2 * MIB,
    }  # fmt: skip
    assert [(one.pid, one.bytes_acked) for one in later] == [(None, 4 * MIB)]


def test_a_socket_that_was_reset_counts_once_however_late_it_is_closed(bench: Bench) -> None:
    """Its process has it all the while, but no look meets it, so that it is forgotten; it has moved nothing since."""
    bench.read(message(1, info(5 * MIB)))
    for _ in range(inet_diag.MAX_ABSENT_DUMPS + 2):
        bench.read()
    bench.closings.messages = [closed(1, info(5 * MIB, sent_ago_ms=60_000, received_ago_ms=60_000))]

    assert bench.read() == []


def test_a_closed_socket_may_be_of_a_stranger_who_connects_to_there(bench: Bench) -> None:
    """A backup, say, to the store of who trains: nobody knows whose it was."""
    bench.collector.owners = Asked({77: (5, 50)})
    bench.read(message(1, info(MIB)), message(2, info(MIB), inode=99))
    bench.read(message(1, info(MIB)), message(2, info(2 * MIB), inode=99))
    bench.closings.messages = [closed(3, info(4 * MIB))]

    assert [(one.pid, one.bytes_acked) for one in bench.read()] == [(None, 6 * MIB)]


def test_a_closed_socket_of_one_of_several_belongs_to_one_that_is_still_connected(bench: Bench) -> None:
    """Another of them, such as the next run of a job, may have connected for as short a time."""
    bench.collector.owners = Asked({77: (5, 50)}, number=2)
    bench.read(message(1, info(MIB)))
    bench.closings.messages = [closed(2, info(2 * MIB))]
    connected = bench.read(message(1, info(MIB)))
    bench.read()
    bench.closings.messages = [closed(3, info(4 * MIB))]

    assert [(one.pid, one.bytes_acked) for one in connected] == [(5, 3 * MIB)]
    assert [(one.pid, one.bytes_acked) for one in bench.read()] == [(None, 4 * MIB)]


def test_a_socket_that_closed_before_it_was_looked_for_is_no_stranger(bench: Bench) -> None:
    """Who opens a connection for each object closes many so; what closes later is still its own."""
    bench.collector.owners = Asked({77: (5, 50)})
    bench.read(message(1, info(MIB)))
    bench.read(message(1, info(MIB)), message(2, info(10), inode=78))
    bench.closings.messages = [closed(2, info(2 * MIB))]
    bench.read(message(1, info(MIB)))
    bench.closings.messages = [closed(3, info(4 * MIB))]

    assert [(one.pid, one.bytes_acked) for one in bench.read(message(1, info(MIB)))] == [(5, 5 * MIB)]


def test_who_came_to_matter_after_its_connection_was_no_stranger(bench: Bench) -> None:
    """What closes from then on is its own."""
    owners = bench.collector.owners = Asked({})
    bench.read(message(1, info(MIB)))
    bench.read(message(1, info(2 * MIB)))
    owners.turn += 1  # it trains now
    owners.found = {77: (5, 50)}
    bench.read(message(1, info(3 * MIB)))
    bench.closings.messages = [closed(2, info(4 * MIB))]

    assert [(one.pid, one.bytes_acked) for one in bench.read(message(1, info(3 * MIB)))] == [(5, 5 * MIB)]


def test_what_closed_before_anybody_mattered_does_not_count(bench: Bench) -> None:
    """Nor is anything heard of it."""
    before = bench.closings
    bench.collector.owners = Asked({}, number=0)
    assert bench.collector.read() is None
    assert not before.is_open
    bench.collector.owners = Asked({})
    assert bench.read(message(2, info(MIB))) == []
    bench.closings.messages = [closed(1, info(MIB)), b"", b"left over"]
    assert [one.bytes_acked for one in bench.read()] == [MIB]
    bench.closings.messages = [b"", b"left over", bytes(12), bytes(400)]
    assert bench.read() == []
    assert bench.read() == []


def test_a_socket_that_an_answer_misses_is_not_counted_twice(bench: Bench) -> None:
    """It comes back with all that it had counted."""
    bench.read(message(1, info(MIB)))
    bench.read()
    (told,) = bench.read(message(1, info(2 * MIB)))
    assert told.bytes_acked == 2 * MIB


def test_a_counter_that_goes_back_adds_nothing(bench: Bench) -> None:
    """Nor do numbers that cannot be."""
    bench.read(message(1, info(4 * MIB, 0, (800_000, 0, 0))))
    (told,) = bench.read(message(1, info(MIB, 0, (900_000, 0, 0))))
    assert (told.bytes_acked, told.busy_us) == (4 * MIB, 900_000)


def test_a_stalled_sender_is_told_though_nothing_moves(bench: Bench) -> None:
    """A window of zero: no bytes, but time."""
    bench.read(message(1, info(MIB)))
    (told,) = bench.read(message(1, info(MIB, 0, (200_000, 190_000, 0))))
    assert (told.busy_us, told.rwnd_limited_us) == (200_000, 190_000)


def test_connections_that_the_other_end_opened_have_our_port(bench: Bench) -> None:
    """Of a thousand clients the ports would be a thousand endpoints."""
    told = bench.read(
        message(9, info(), state=LISTEN, local=("10.0.0.2", 80)),
        *(message(port, info(MIB), local=("10.0.0.2", 80), remote=("10.0.0.9", port)) for port in range(5000, 5008)),
    )

    assert [(one.port, one.is_accepted, one.sockets, one.bytes_acked) for one in told] == [(80, True, 8, 8 * MIB)]


def test_each_owner_has_an_endpoint_of_its_own(bench: Bench) -> None:
    """By the inode of the socket; sockets of other users are not asked for."""
    owners = bench.collector.owners = Asked({77: (5, 50), 79: (9, 90)})
    told = bench.read(
        message(1, info(MIB), inode=77), message(2, info(2 * MIB), inode=78), message(3, info(4 * MIB), inode=79, uid=0)
    )

    assert {(one.pid, one.start_ticks): one.bytes_acked for one in told} == {(5, 50): MIB, (None, None): 6 * MIB}
    bench.read(message(1, info(9 * MIB), inode=77), message(2, info(9 * MIB), inode=78))
    assert owners.looked == 1
    owners.turn += 1  # another process is there
    owners.found = {78: (6, 60)}
    told = bench.read(message(1, info(9 * MIB), inode=77), message(2, info(10 * MIB), inode=78))
    assert [(one.pid, one.bytes_acked) for one in told] == [(6, MIB)]


def test_who_cannot_be_looked_for_yet_is_counted_later(bench: Bench) -> None:
    """So that nothing is counted for nobody, and nothing is lost."""
    owners = bench.collector.owners = Asked(None)
    assert bench.read(message(1, info(MIB))) == []
    owners.found = {77: (5, 50)}
    (told,) = bench.read(message(1, info(MIB)))
    assert (told.pid, told.bytes_acked) == (5, MIB)


def test_nothing_is_read_while_no_segment_comes_or_goes(bench: Bench) -> None:
    """A poll walks over all slots of the kernel's table; while one finds a change, the next one is made anyway."""
    bench.segments = b"1 1"
    bench.read(message(1, info(MIB)))
    (told,) = bench.read(message(1, info(MIB, 0, (200_000, 200_000, 0))))  # waits, and sends no segment
    assert told.rwnd_limited_us == 200_000
    bench.read(message(1, info(MIB, 0, (200_000, 200_000, 0))))
    assert bench.read(message(1, info(3 * MIB))) == []  # not asked for
    bench.segments = b"1 2"
    (told,) = bench.read()
    assert told.bytes_acked == 3 * MIB


def test_nothing_is_read_while_nobody_matters(bench: Bench) -> None:
    """And what moved meanwhile does not count."""
    bench.collector.owners = Asked({}, number=0)
    assert bench.collector.read() is None
    bench.collector.owners = Asked({})
    assert bench.read(message(1, info(1 << 40))) == []
    assert bench.read(message(1, info(1 << 40))) == []


def test_endpoints_are_bounded_and_the_rest_is_summed_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who moved longest ago gives way; if all have moved now, the others are one."""
    monkeypatch.setattr(tcp_endpoints, "MAX_ENDPOINTS", 2)
    many = [message(port, info(MIB * port), remote=("10.0.0.9", port)) for port in (1, 2, 3, 4)]
    told = bench.read(*many)
    assert {(one.remote, one.port): one.bytes_acked for one in told} == {
        ("10.0.0.9", 1): MIB, ("10.0.0.9", 2): 2 * MIB, ("", 0): 7 * MIB,
    }  # fmt: skip
    told = bench.read(*many, message(5, info(MIB), remote=("10.0.0.9", 5)))
    assert [(one.remote, one.port) for one in told] == [("10.0.0.9", 5)]
    (told,) = bench.read(*many[1:], message(1, info(3 * MIB), remote=("10.0.0.9", 1)))
    assert (told.port, told.bytes_acked, told.is_new) == (1, 2 * MIB, True)  # it had given way


def test_a_crowd_of_sockets_is_looked_at_less_often(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of a core at most."""
    spent = iter((0.0, 0.5, 1.0, 1.0))
    monkeypatch.setattr(tcp_endpoints.time, "thread_time", lambda: next(spent))
    bench.read()
    bench.now += 49
    assert bench.collector.read() is None
    bench.now += 2
    assert bench.collector.read() == []


def test_made_up_files_have_none(tmp_path: Path) -> None:
    """The kernel is asked, so that a tree of files says nothing."""
    with pytest.raises(UnavailableError, match="netlink"):
        TcpEndpoints(KernelFs(proc=tmp_path))


def test_an_address_of_a_bond_is_on_what_carries_it(tmp_path: Path) -> None:
    """Of a VLAN on a bond both of its ports; a circle or a missing folder ends it."""
    for path in ("vlan7/lower_bond0", "bond0/lower_eth1", "bond0/lower_eth0", "eth0", "eth1", "a/lower_a"):
        (tmp_path / path).mkdir(parents=True)

    assert [lowest_interfaces(tmp_path, name) for name in ("vlan7", "eth0", "gone", "a")] == [
        ["eth0", "eth1"], ["eth0"], ["gone"], ["a"],
    ]  # fmt: skip


@pytest.mark.programs("ip")
def test_addresses_of_this_host_are_known() -> None:
    """As `ip` tells them; a connection to itself goes through lo."""
    listed = subprocess.run(["ip", "-j", "address"], check=True, capture_output=True, text=True).stdout
    known = LocalAddresses(KernelFs())
    own = [
        (socket.inet_pton(family, one["local"]), link["ifname"])
        for link in json.loads(listed)
        for one in link["addr_info"]
        if (family := {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(one["family"]))
    ]
    far = socket.inet_aton("192.0.2.1")
    for address, name in own:
        found = known.interfaces_of(address, far)
        assert found == ("lo",) if name == "lo" else name in found or "lower" in str(list_of(name)), (name, found)
        assert known.interfaces_of(address, address) == ("lo",)
    assert known.interfaces_of(socket.inet_aton("192.0.2.77"), far) == ()
    known.close()


def list_of(name: str) -> list[str]:
    """Return what the kernel says of an interface."""
    return [entry.name for entry in Path("/sys/class/net", name).iterdir()]


def test_the_kernel_is_read() -> None:
    """What a real connection sends and receives, both ends of it."""
    now = [0.0]
    collector = TcpEndpoints(KernelFs(), clock=lambda: now[0])
    collector.read()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as taken:
            client.sendall(bytes(REPORT_BYTES))
            left = REPORT_BYTES
            while left:
                left -= len(taken.recv(left))
            found: dict[bool, TcpSample] = {}

            def counted() -> bool:
                now[0] += 100
                for sample in collector.read() or ():
                    if isinstance(sample, TcpSample) and sample.port == port:
                        found[sample.is_accepted] = sample
                return len(found) == 2 and found[False].bytes_acked >= REPORT_BYTES

            wait_until(counted, lambda: found)
        for _ in range(3):  # of three that come and go nobody sees one
            with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as taken:
                client.sendall(bytes(REPORT_BYTES))
                client.shutdown(socket.SHUT_WR)
                while taken.recv(REPORT_BYTES):
                    pass
        wait_until(lambda: counted() and found[True].bytes_received >= 4 * REPORT_BYTES, lambda: found)
    collector.close()

    assert found[False].bytes_acked - 4 * REPORT_BYTES in range(9)  # what opens one counts as a byte, what ends it, too
    assert found[True].bytes_received - 4 * REPORT_BYTES in range(5)
    assert {one.interfaces for one in found.values()} == {("lo",)}
