"""What Lustre clients counted: on texts of real ones, and on trees made after their formats. None is in this kernel."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.lustretree import HEX, MIB, LustreTree, lustre_mount

from ckptprof_collectors import kernelfs
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts import lustre_client
from ckptprof_collectors.mounts.lustre_client import (
    LustreClients,
    StatsCounter,
    TargetImport,
    parse_import,
    parse_stats,
)
from ckptprof_collectors.samples import ClientOperation, ClientSample, ClientTarget

FIXTURES = Path(__file__).parents[2] / "fixtures/lustre"
MOUNT = lustre_mount()


def seen(tree: LustreTree, *mounts: str) -> ClientSample:
    """Return what is read of a tree."""
    (sample,) = LustreClients(tree.fs).read([lustre_mount(name) for name in mounts or (tree.name,)])
    return sample


def target(sample: ClientSample, name: str) -> ClientTarget:
    """Return one of its targets."""
    return next(one for one in sample.targets if one.name == name)


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[bytes]:
    """Return where each text is noted that is parsed by a function."""
    texts: list[bytes] = []
    parse = getattr(lustre_client, name)

    def noted(data: bytes) -> object:
        texts.append(data)
        return parse(data)

    monkeypatch.setattr(lustre_client, name, noted)
    return texts


def test_a_client_of_2_10(tmp_path: Path) -> None:
    """All of it stands in /proc, and only bytes have sums."""
    shutil.copytree(FIXTURES / "2.10.1", tmp_path / "proc/fs/lustre")
    fs = KernelFs(proc=tmp_path / "proc", sys=tmp_path / "sys")
    (sample,) = LustreClients(fs).read([lustre_mount("lustrefs", minor=55)])

    assert (sample.major, sample.minor, sample.client, sample.transport) == (0, 55, "lustre", "rdma")
    assert (sample.written_bytes, sample.read_bytes) == (93_813_797_294_080, 4_194_304)
    assert sample.operations == (
        ClientOperation("open", 136),
        ClientOperation("close", 96),
        ClientOperation("truncate", 134),
    )
    assert (sample.wire_written_bytes, sample.wire_read_bytes) == (65_298_098_221_056, 0)
    assert (sample.sends, sample.in_use, sample.slots) == (18_215_582, 83_626_277, 8)
    assert sample.counters == {"reads": 1, "writes": 89_467_810}
    assert (sample.settings, sample.limitations) == ({"osts": 1}, ())
    ost = target(sample, "OST0000")
    assert (ost.address, ost.state, ost.timeouts, ost.slots) == ("172.20.20.5", "FULL", 0, 8)
    assert ost.gauges == {"grant_bytes": 262_144, "dirty_bytes": 27_815_936, "max_dirty_bytes": 32 * MIB}
    assert ost.operations[0] == ClientOperation("ost_write", 18_210_286, server_us=110_277_857_878)
    assert target(sample, "MDT0000").operations == (ClientOperation("req_waittime", 7604, server_us=3_103_430),)


def test_the_calls_of_2_14() -> None:
    """They have latencies; the sum of squares is passed over."""
    counts = parse_stats((FIXTURES / "2.14.0-llite.stats").read_bytes())

    assert counts["mkdir"] == StatsCounter(17_987_059, 23_731_812_831, "usec")
    assert counts["opencount"] == StatsCounter(35_955_576, 40_433_335)
    assert counts["ioctl"] == StatsCounter(114, None)


@pytest.mark.parametrize("version", ["2.10.1", "2.12.9", "2.14.0", "2.15.5", "2.17.0"])
def test_each_layout_tells_the_same(tmp_path: Path, version: str) -> None:
    """Wherever a version has its counters and settings, and however it writes a NID."""
    tree = LustreTree(tmp_path, version, osts=2, settings={"hybrid_io": 1, "hybrid_io_write_threshold_bytes": 2 * MIB})
    tree.count("llite", "write_bytes", 8, 8 * MIB, "bytes")
    tree.count("llite", "hybrid_write_bytes", 2, 4 * MIB, "bytes")
    tree.count("llite", "hybrid_noswitch", 6, 0, "calls")
    tree.count("llite", "fsync", 1, 9000)
    tree.wrote("OST0001", 2, 4 * MIB, 5000, active=3)
    tree.flush()
    sample = seen(tree)

    assert (sample.client, sample.transport) == (f"lustre {version}", "rdma")
    assert (sample.written_bytes, sample.wire_written_bytes) == (8 * MIB, 8 * MIB)
    assert (sample.sends, sample.in_use, sample.slots) == (2, 6, 8)
    assert sample.operations == (ClientOperation("fsync", 1, total_us=9000),)
    assert sample.settings == {"hybrid_io": 1, "hybrid_io_write_threshold_bytes": 2 * MIB, "osts": 2}
    assert sample.counters == {"hybrid_write_bytes": 4 * MIB, "hybrid_noswitch": 6, "writes": 8}
    assert [one.name for one in sample.targets] == ["MDT0000", "OST0001"]  # the other OST was never asked
    ost = target(sample, "OST0001")
    assert (ost.written_bytes, ost.address, ost.gauges) == (8 * MIB, "10.0.3.3", {"grant_bytes": 27_815_936})


def test_without_a_mount_nothing_is_told(tmp_path: Path) -> None:
    """Nor of a file system of another name."""
    assert LustreClients(KernelFs(proc=tmp_path, sys=tmp_path)).read([MOUNT]) == []
    assert LustreClients(LustreTree(tmp_path).fs).read([lustre_mount("other")]) == []


def test_two_mounts_of_one_file_system_are_told_together(tmp_path: Path) -> None:
    """Nothing says which number is which mount's: the sum holds for both; another file system stays by itself."""
    for number, name in ((HEX, "scratch"), ("ffff88105db50800", "scratch"), ("ffff88105db51000", "scratch-2")):
        tree = LustreTree(tmp_path, osts=1, name=name, hex=number)
        tree.count("llite", "write_bytes", 1, MIB, "bytes")
        tree.wrote("OST0000", 1, MIB, 5000)
        tree.flush()
    mounts = [MOUNT, lustre_mount(at="/other", minor=41), lustre_mount("scratch-2/folder", "/two", 42)]
    first, second, third = LustreClients(tree.fs).read(mounts)

    assert (first.written_bytes, first.wire_written_bytes, target(first, "OST0000").written_bytes) == (2 * MIB,) * 3
    assert second.targets == first.targets
    assert (third.written_bytes, third.minor) == (MIB, 42)


def test_data_that_an_mdt_holds_came_over_the_wire_too(tmp_path: Path) -> None:
    """Small files may be there as a whole (Data-on-MDT): a restore of them is not warm for want of an OST."""
    tree = LustreTree(tmp_path, osts=2)
    tree.wrote("OST0000", 1, MIB, 5000, reads=True)
    tree.wrote("MDT0000", 3, MIB, 5000, reads=True)
    tree.flush()
    sample = seen(tree)

    assert (sample.wire_read_bytes, sample.wire_written_bytes, sample.sends) == (4 * MIB, 0, 1)


def test_what_a_server_of_the_same_host_has_is_not_the_clients(tmp_path: Path) -> None:
    """The MDS has an osc of its own, without a number."""
    tree = LustreTree(tmp_path, osts=1)
    tree.write("osc/scratch-OST0000-osc-MDT0000/stats", "write_bytes 1 samples [bytes] 1 1 1\n")

    assert seen(tree).wire_written_bytes == 0


def test_counters_that_only_root_may_read_are_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are told all the same."""
    tree = LustreTree(tmp_path, osts=1, settings={"hybrid_io": 1})
    read = kernelfs.read_limited

    def denied(path: Path) -> bytes:
        if "kernel/debug" in os.fspath(path):
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(lustre_client, "read_limited", denied)
    sample = seen(tree)

    assert len(sample.limitations) == 1
    assert "CAP_DAC_READ_SEARCH" in sample.limitations[0]
    assert (sample.written_bytes, sample.settings) == (None, {"hybrid_io": 1, "osts": 1})
    assert sample.targets == ()


def test_a_mount_that_vanishes_and_comes_back(tmp_path: Path) -> None:
    """Its folders go in the middle; the next one has another number."""
    tree = LustreTree(tmp_path, osts=2)
    tree.wrote("OST0000", 1, MIB, 5000)
    tree.flush()
    now = [0.0]
    clients = LustreClients(tree.fs, clock=lambda: now[0])
    assert clients.read([MOUNT])[0].wire_written_bytes == MIB
    shutil.rmtree(tmp_path / "sys")
    assert clients.read([MOUNT])[0].wire_written_bytes is None
    now[0] += lustre_client.REVIEW_SECONDS
    assert clients.read([MOUNT]) == []
    LustreTree(tmp_path, osts=2, hex="ffff88105db59999")
    now[0] += lustre_client.REVIEW_SECONDS

    assert clients.read([MOUNT])[0].client == "lustre 2.15.5"
    clients.close()


def test_connections_are_looked_at_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many targets there are, one reading looks at a few; a failover shows within a round of them."""
    tree = LustreTree(tmp_path, osts=40)
    for ost in tree.names:
        tree.wrote(ost, 1, MIB, 5000)
    tree.flush()
    clients = LustreClients(tree.fs)
    clients.read([MOUNT])
    looks = counted(monkeypatch, "parse_import")
    tree.connect("OST0010", "10.0.9.9@tcp1", state="DISCONN", timeouts=3)
    told = []
    for _ in range(11):
        looks.clear()
        (sample,) = clients.read([MOUNT])
        told.append(target(sample, "OST0010"))
        assert len(looks) <= lustre_client.TARGETS_PER_READ + (told[-1].state == "DISCONN")  # that one each time

    assert (told[-1].address, told[-1].state, told[-1].timeouts) == ("10.0.9.9", "DISCONN", 3)


def test_a_connection_that_is_lost_or_was_used_is_looked_at_each_time(tmp_path: Path) -> None:
    """Else its timeouts would be told of the save after."""
    tree = LustreTree(tmp_path, osts=40)
    for ost in tree.names:
        tree.wrote(ost, 1, MIB, 5000)
    tree.flush()
    clients = LustreClients(tree.fs)
    clients.read([MOUNT])
    tree.wrote("OST0020", 1, MIB, 5000)
    tree.flush()
    seen = []
    for state, timeouts in (("DISCONN", 1), ("CONNECTING", 4), ("FULL", 4)):
        tree.connect("OST0020", "10.0.9.9@tcp", state=state, timeouts=timeouts)
        (sample,) = clients.read([MOUNT])
        seen.append((target(sample, "OST0020").state, target(sample, "OST0020").timeouts))

    assert seen == [("DISCONN", 1), ("CONNECTING", 4), ("FULL", 4)]


def test_what_did_not_change_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the snapshot is no change."""
    tree = LustreTree(tmp_path, osts=16)
    for ost in tree.names:
        tree.wrote(ost, 1, MIB, 5000)
    tree.flush()
    clients = LustreClients(tree.fs)
    (before,) = clients.read([MOUNT])
    parsed = counted(monkeypatch, "parse_stats")
    tree.wrote("OST0003", 1, MIB, 5000)
    tree.flush()
    (after,) = clients.read([MOUNT])

    assert len(parsed) == 1
    assert after != before


def test_only_so_many_targets_are_told_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums have all of them, and what is left out is said."""
    monkeypatch.setattr(lustre_client, "MAX_TARGETS", 4)
    tree = LustreTree(tmp_path, osts=6)
    for ost in tree.names:
        tree.wrote(ost, 1, MIB, 5000)
    tree.flush()
    sample = seen(tree)

    assert (len(sample.targets), sample.wire_written_bytes) == (4, 6 * MIB)
    assert sample.limitations == ("each of 3 of its 7 targets",)


@pytest.mark.parametrize(
    "line",
    [
        b"write_bytes",
        b"write_bytes x samples [bytes] 1 1 1",
        b"write_bytes -1 samples [bytes] 1 1 1",
        b"write_bytes 1 samples",
        b"write_bytes 99999999999999999999999 samples [bytes] 1 1 1",
        b"\xff\xfe\x00 1 samples",
    ],
)
def test_a_line_that_makes_no_sense_is_no_counter(line: bytes) -> None:
    """Those beside it are."""
    assert parse_stats(b"snapshot_time 1.2 secs.nsecs\n" + line + b"\nopen 3 samples [regs]\n") == {
        "open": StatsCounter(3, None)
    }


@pytest.mark.parametrize("total", [b"-5", b"18446743919241604546", b"", b"nonsense"])
def test_a_sum_that_cannot_be_is_not_seen(total: bytes) -> None:
    """How often it was counted may be right all the same."""
    assert parse_stats(b"ost_write 7 samples [usec] 1 2 " + total + b" 9\n")["ost_write"].times == 7
    assert parse_stats(b"ost_write 7 samples [usec] 1 2 " + total)["ost_write"].total_in("usec") is None


def test_a_file_without_an_end_is_read_in_part(tmp_path: Path) -> None:
    """Its last line may be cut: it is left out."""
    file = tmp_path / "stats"
    file.write_bytes(b"open 3 samples [regs]\n" * 250_000)
    data = kernelfs.read_limited(file)

    assert len(data) <= 1 << 16
    assert data.endswith(b"\n")


@pytest.mark.parametrize(
    ("written", "means"),
    [
        (b"    state: FULL\n       current_connection: 10.0.0.1@o2ib1\n", TargetImport("FULL", "10.0.0.1", "rdma")),
        (b'    state: FULL\n       current_connection: "fd00::1@tcp"\n', TargetImport("FULL", "fd00::1", "tcp")),
        (
            b"    state: DISCONN\n       current_connection: <none>\n       timeouts: 4\n",
            TargetImport("DISCONN", timeouts=4),
        ),
        (b"       timeouts: -4\n", TargetImport()),
        (b"\xff\x00", TargetImport()),
    ],
)
def test_an_import(written: bytes, means: TargetImport) -> None:
    """Names of networks may have a number; without a connection there is no address."""
    assert parse_import(written) == means
