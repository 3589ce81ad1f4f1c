"""Clients whose files lie: whatever a word of them is, what is told of the rest is true, and can be sent."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.collectors.mounts import test_beegfsclients, test_cephclients
from tests.collectors.mounts.mountstats import block, mounted, put
from tests.lustretree import MIB, LustreTree, lustre_mount

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts.client_counters import RemoteClientReader
from ckptprof_collectors.samples import ClientSample, MountInfo

MOUNTS = (mounted(), lustre_mount(at="/l", minor=41), test_beegfsclients.mount(42), test_cephclients.mount(minor=43))
WRITE = (64, 65, 1, 67_000_000, 9_000, 3_200, 640, 3_840, 2)
LIES = (
    b"-1", b"0", b"18446743919241604546", str((1 << 63) - 1).encode(), b"9" * 400, b"nan", b"1e9", b"0x10", b"\xd9\xa3",
    b"", b"\x00", b"\xff\xfe", b"\n", b"WRITE:", b"[ID: 1]", b"samples", b"\\040",
)  # fmt: skip
WORD = re.compile(rb"[^\s,=:]+")


def host(root: Path) -> tuple[KernelFs, list[Path]]:
    """Make one mount of each kind; return where its files are, and those that clients tell by."""
    tree = LustreTree(root, "2.17.0", osts=3)
    for ost in tree.names:
        tree.wrote(ost, 20, MIB, 3000)
    tree.count("llite", "write_bytes", 60, 60 * MIB, "bytes")
    tree.flush()
    put(root / "proc", block(counted={"WRITE": WRITE}, transports=["tcp 832 0 1 0 11 64 64 0 640 32 24 26 57"] * 2))
    test_beegfsclients.put(root)
    test_cephclients.put(root / "sys")
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size]
    return tree.fs, [path for path in files if path.name != "version"]


def read(fs: KernelFs, mounts: tuple[MountInfo, ...] = MOUNTS) -> dict[int, ClientSample]:
    """Return what is told of each mount, as the recorder gets it."""
    collector = RemoteClientReader(fs)
    collector.set_mounts(mounts)
    told = [one for one in collector.read() or () if isinstance(one, ClientSample)]
    collector.close()
    packed = msgspec.msgpack.encode(told)
    assert msgspec.msgpack.decode(packed, type=list[ClientSample]) == told
    return {one.minor: one for one in told}


def numbers(one: object) -> Iterator[int]:
    """Yield every number of a sample."""
    if isinstance(one, int):
        yield one
    elif isinstance(one, msgspec.Struct):
        yield from numbers(msgspec.structs.astuple(one))
    elif isinstance(one, dict):
        yield from numbers(tuple(one.values()))
    elif isinstance(one, tuple):
        for each in one:
            yield from numbers(each)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> tuple[KernelFs, list[Path]]:
    """Give one host for all examples, which each put back what they changed."""
    return host(tmp_path_factory.mktemp("host"))


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=150)
@given(data=st.data())
def test_a_lie_stays_where_it_is(healthy: tuple[KernelFs, list[Path]], data: st.DataObject) -> None:
    """Some words of one file are replaced, or it ends early: the other clients tell the same, and all can be sent."""
    fs, files = healthy
    truth = read(fs)
    assert set(truth) == {40, 41, 42, 43}
    path = data.draw(st.sampled_from(files), label="file")
    before = path.read_bytes()
    words = [match.span() for match in WORD.finditer(before)]
    text = before
    for start, end in sorted(data.draw(st.lists(st.sampled_from(words), max_size=6, unique=True)), reverse=True):
        text = text[:start] + data.draw(st.one_of(st.sampled_from(LIES), st.binary(max_size=8))) + text[end:]
    text = text[: data.draw(st.one_of(st.none(), st.integers(0, len(text))), label="until")]
    path.write_bytes(text)
    try:
        told = read(fs)
    finally:
        path.write_bytes(before)

    changed = {minor for minor in truth if told.get(minor) != truth[minor]}
    assert len(changed) <= 1, changed
    assert all(0 <= number < 1 << 63 for one in told.values() for number in numbers(one))
    assert read(fs) == truth


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(data=st.data())
def test_no_bytes_make_a_client_fail(healthy: tuple[KernelFs, list[Path]], data: st.DataObject) -> None:
    """Whatever stands in one of its files."""
    fs, files = healthy
    path = data.draw(st.sampled_from(files), label="file")
    before = path.read_bytes()
    path.write_bytes(data.draw(st.binary(max_size=400)))
    try:
        told = read(fs)
    finally:
        path.write_bytes(before)
    assert all(0 <= number < 1 << 63 for one in told.values() for number in numbers(one))


@pytest.mark.parametrize("lie", [str((1 << 63) - 1).encode(), b"9000000000000000000"])
def test_counters_that_are_nearly_too_large_come_to_nothing(tmp_path: Path, lie: bytes) -> None:
    """Times in microseconds, sums over connections and targets: what would be no counter any more is not known."""
    fs, files = host(tmp_path)
    for path in files:
        path.write_bytes(re.sub(rb"(?<![\w.:-])\d{2,}(?![\w.:-])", lie, path.read_bytes()))
    told = read(fs)

    assert told[40].operations[-1].total_us is None
    assert told[40].in_use is None
    assert told[41].wire_written_bytes is None
    assert all(one.server_us is None or one.server_us < 1 << 63 for one in told[43].operations)
    assert all(0 <= number < 1 << 63 for one in told.values() for number in numbers(one))


def test_a_file_of_five_megabytes_is_read_in_part(tmp_path: Path) -> None:
    """But for mountstats, where other mounts come first, no file of a client is larger than a few pages."""
    fs, files = host(tmp_path)
    truth = read(fs)
    for path in files:
        if path.name in {"stats", "import", "storage_nodes", "latency", "size", "osdc"}:
            path.write_bytes(path.read_bytes() + b"x 1 samples [bytes] 1 1 1\n" * 200_000)
    told = read(fs)

    assert {minor: one.wire_written_bytes for minor, one in told.items()} == {
        minor: one.wire_written_bytes for minor, one in truth.items()
    }
    assert all(len(one.operations) <= 128 and len(one.targets) <= 256 for one in told.values())


def test_a_mount_that_vanishes_between_two_looks_is_told_no_more(tmp_path: Path) -> None:
    """Its files are gone before anybody tells that it is; the others go on."""
    fs, _ = host(tmp_path)
    now = 0.0
    collector = RemoteClientReader(fs, clock=lambda: now, cpu_seconds=float)
    collector.set_mounts(MOUNTS)
    assert len(collector.read() or ()) == 4
    for folder in ("proc/fs", "sys/kernel", "sys/fs"):
        shutil.rmtree(tmp_path / folder)
    (tmp_path / "proc/self/mountstats").write_bytes(b"")
    now = 100.0
    last = collector.read() or ()
    put(tmp_path / "proc", block(counted={"WRITE": (65, *WRITE[1:])}))
    now = 200.0
    again = collector.read() or ()
    collector.close()

    assert all(isinstance(one, ClientSample) and one.minor == 41 and one.wire_written_bytes is None for one in last)
    assert [one.minor for one in again if isinstance(one, ClientSample)] == [40]


def test_thousands_of_mounts_are_told_as_far_as_the_bound_goes(tmp_path: Path) -> None:
    """Of NFS, each with a name of its own that has to be unescaped."""
    many = tuple(mounted(at, f"/home/a b{at}", f"filer:/x y{at}") for at in range(3000))
    texts = [block(point=f"/home/a\\040b{at}".encode(), source=f"filer:/x\\040y{at}".encode()) for at in range(3000)]
    fs = KernelFs(proc=put(tmp_path, *texts))

    assert sorted(read(fs, many)) == list(range(64))
