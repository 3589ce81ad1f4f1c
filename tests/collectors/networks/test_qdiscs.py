"""Queueing disciplines: messages taken apart, and the kernel's own held against `tc`."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.leftovers import own_link
from tests.machine import need

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.networks.netlink import parse_attributes
from ckptprof_collectors.networks.qdiscs import _RTM_NEWQDISC, QdiscReader, parse
from ckptprof_collectors.samples import EntityGone, QdiscSample

ROOT = 0xFFFFFFFF


def attribute(kind: int, data: bytes) -> bytes:
    """Return an attribute, padded."""
    return struct.pack("=HH", len(data) + 4, kind) + data + bytes(-len(data) % 4)


def message(kind: bytes, parent: int = ROOT, options: bytes = b"", stats: bytes | None = None) -> bytes:
    """Return the body of a message about interface 3."""
    if stats is None:
        stats = attribute(1, struct.pack("=QI", 5000, 40)) + attribute(3, struct.pack("=IIIII", 2, 3000, 7, 8, 9))
    head = struct.pack("=BxxxiIII", 0, 3, 0x80010000, parent, 2)
    return head + attribute(1, kind + b"\0") + attribute(2, options) + attribute(7, stats)


def told(body: bytes, name: str | None = "eth0") -> QdiscSample | None:
    """Return what is made of a message."""
    found = parse(body, lambda _: name)
    return None if found is None else found[1]


def test_every_number_is_found() -> None:
    """Sent, dropped, held back, waiting, and the rate of one that has a single one."""
    tbf = attribute(1, bytes(8) + struct.pack("=I", 1_250_000) + bytes(24))

    assert told(message(b"tbf", options=tbf)) == QdiscSample(
        "eth0", "tbf", 0x80010000, ROOT, 5000, 40, 7, 9, 3000, 2, 1_250_000
    )


def test_rates_and_packets_that_need_more_room_have_it() -> None:
    """64-bit attributes count before those of 32 bits."""
    stats = attribute(1, struct.pack("=QI", 1 << 40, 5)) + attribute(8, struct.pack("=Q", 1 << 33))
    tbf = attribute(1, bytes(8) + struct.pack("=I", 0xFFFFFFFF) + bytes(24)) + attribute(4, struct.pack("=Q", 1 << 35))
    found = told(message(b"tbf", options=tbf, stats=stats))

    assert found is not None
    assert (found.packets, found.rate_bytes_per_second, found.overlimits) == (1 << 33, 1 << 35, None)


def test_a_rate_of_netem_is_found_behind_its_fixed_part() -> None:
    """Without a rate it is None."""
    with_rate = bytes(24) + attribute(6, struct.pack("=IiIi", 125_000, 0, 0, 0))

    found = [told(message(b"netem", options=options)) for options in (with_rate, bytes(24))]
    assert [sample and sample.rate_bytes_per_second for sample in found] == [125_000, None]


def test_only_roots_and_shapers_count() -> None:
    """Of 64 queues of a NIC the root has the sum; what has no queue says nothing."""
    assert told(message(b"fq_codel", parent=0x10001)) is None
    assert told(message(b"noqueue")) is None
    assert told(message(b"mq")) is not None
    assert told(message(b"tbf", parent=0x10001)) is not None
    assert told(message(b"tbf"), name=None) is None


def test_without_statistics_numbers_are_none() -> None:
    """Not zero."""
    found = told(message(b"htb", stats=b""))

    assert found is not None
    assert (found.bytes, found.packets, found.drops, found.backlog_bytes) == (None,) * 4


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    """Whatever comes through the socket."""
    assert isinstance(parse_attributes(data), dict)
    assert told(data) is None or isinstance(told(data), QdiscSample)
    assert told(message(b"tbf", options=data, stats=data)) is not None


def test_made_up_files_have_none(tmp_path: Path) -> None:
    """The kernel is asked, so that a tree of files says nothing."""
    with pytest.raises(UnavailableError, match="netlink"):
        QdiscReader(KernelFs(proc=tmp_path))


def test_hundreds_of_them_are_asked_after_less_often() -> None:
    """Two milliseconds each between two readings."""
    now = 100.0
    collector = QdiscReader(KernelFs(), clock=lambda: now)
    many = [(_RTM_NEWQDISC, b"")] * 600  # a host with as many
    collector._netlink.dump = lambda *_: iter(many)  # type: ignore[method-assign]
    collector.read()
    asked = []
    collector._netlink.dump = lambda *_: iter(asked.append(now) or [])  # type: ignore[method-assign, func-returns-value]
    now = 101.0
    assert (collector.read(), asked) == (None, [])
    now = 101.3
    collector.read()
    collector.close()

    assert asked == [101.3]


@pytest.fixture
def interface() -> Iterator[str]:
    """Return a pair of interfaces' one end; remove it afterwards."""
    need("programs", "ip", "tc")
    need("capabilities", "NET_ADMIN")
    name = own_link("tc")
    made = subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"], check=False)
    if made.returncode:
        pytest.skip("no interface can be made here")
    yield name
    subprocess.run(["ip", "link", "del", name], check=False)


@pytest.mark.root
def test_the_kernel_is_read_as_tc_reads_it(interface: str) -> None:
    """A shaper that is set, seen, and gone with its interface."""

    def tc(*words: str) -> str:
        return subprocess.run(["tc", *words], check=True, capture_output=True, text=True).stdout

    now = [100.0]
    collector = QdiscReader(KernelFs(), clock=lambda: now[0])
    collector.read()
    tc("qdisc", "add", "dev", interface, "root", "tbf", "rate", "8mbit", "burst", "32kbit", "latency", "400ms")
    now[0] += 100
    (sample,) = [s for s in collector.read() if isinstance(s, QdiscSample) and s.interface == interface]
    (truth,) = json.loads(tc("-s", "-j", "qdisc", "show", "dev", interface))

    assert (sample.kind, sample.rate_bytes_per_second) == ("tbf", 1_000_000)
    assert (sample.kind, sample.bytes, sample.drops) == (truth["kind"], truth["bytes"], truth["drops"])
    assert (sample.overlimits, sample.backlog_bytes) == (truth["overlimits"], truth["backlog"])
    tc("qdisc", "del", "dev", interface, "root")
    now[0] += 100
    assert EntityGone("qdisc", interface) in (collector.read() or ())
    collector.close()
