"""What the kernel's client of CephFS counts, on files made after its formats: there is none in this kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts import ceph_client
from ckptprof_collectors.mounts.ceph_client import CephClients
from ckptprof_collectors.samples import ClientOperation, MountInfo

FSID = "5d4c2f0e-6a43-11ee-9d5a-0242ac110002"
LATENCY = """item          total       avg_lat(us)     min_lat(us)     max_lat(us)     stdev(us)
-----------------------------------------------------------------------------------
read          3           900             100             2000            10
write         {count:<12}{mean:<16}9120            18003           2833
metadata      40          300             1               900             5
copyfrom      0           0               0               0               0
"""
SIZES = """item          total       avg_sz(bytes)   min_sz(bytes)   max_sz(bytes)  total_sz(bytes)
----------------------------------------------------------------------------------------
read          3           100             100             100             300
write         7           4194304         4194304         4194304         29360128
"""
OSDC = "REQUESTS 3 homeless 0\n" + "".join(
    f"{tid}\tosd{osd}\t2.1f\t[3,1]/3\t...\n" for tid, osd in ((7, 3), (8, 3), (9, 1))
)


def mount(source: str = f"admin@{FSID}.cephfs=/", minor: int = 60) -> MountInfo:
    """Return a mount."""
    return MountInfo(minor, 0, minor, "/", f"/m{minor}", "ceph", source, None, "10.0.0.1")


def put(root: Path, client: str = f"{FSID}.client4123", *, count: int = 7, mean: int = 12040) -> KernelFs:
    """Write what a client counts."""
    folder = root / "kernel/debug/ceph" / client
    (folder / "metrics").mkdir(parents=True, exist_ok=True)
    (folder / "metrics/latency").write_text(LATENCY.format(count=count, mean=mean))
    (folder / "metrics/size").write_text(SIZES)
    (folder / "osdc").write_text(OSDC)
    (folder / "mdsc").touch()
    return KernelFs(sys=root)


def test_what_it_counts(tmp_path: Path) -> None:
    """Bytes, requests with their time, and how many wait for each OSD."""
    (sample,) = CephClients(put(tmp_path)).read([mount()])

    assert (sample.client, sample.wire_read_bytes, sample.wire_written_bytes) == ("ceph", 300, 7 * 4194304)
    assert sample.operations == (
        ClientOperation("read", 3, server_us=2700),
        ClientOperation("write", 7, server_us=84_280),
        ClientOperation("metadata", 40, server_us=12_000),
    )
    assert [(one.name, one.in_flight) for one in sample.targets] == [("osd1", 1), ("osd3", 2)]


def test_a_mean_that_is_cut_does_not_let_the_sum_fall(tmp_path: Path) -> None:
    """Unless there are fewer requests: then it is another client."""
    clients = CephClients(put(tmp_path, count=3, mean=3))
    sums = []
    for count, mean in ((3, 3), (4, 2), (5, 3), (2, 1)):
        put(tmp_path, count=count, mean=mean)
        (sample,) = clients.read([mount()])
        sums.append(next(one.server_us for one in sample.operations if one.kind == "write"))
    clients.close()

    assert sums == [9, 9, 15, 2]


def test_which_client_is_of_which_mount(tmp_path: Path) -> None:
    """By the identity in the source; else there has to be one only."""
    fs = put(tmp_path)
    old = mount("10.0.0.1:6789:/", 61)
    assert len(CephClients(fs).read([old])) == 1
    assert [one.minor for one in CephClients(fs).read([old, mount()])] == [60]
    put(tmp_path, f"{FSID}.client9")
    assert CephClients(fs).read([mount()]) == []
    assert CephClients(KernelFs(sys=tmp_path / "none")).read([mount()]) == []


def test_a_volume_of_the_same_cluster_is_no_mount(tmp_path: Path) -> None:
    """An rbd has a folder like that of a mount, but asks no MDS."""
    fs = put(tmp_path)
    put(tmp_path, f"{FSID}.client9", count=1)
    (tmp_path / "kernel/debug/ceph" / f"{FSID}.client9" / "mdsc").unlink()

    (sample,) = CephClients(fs).read([mount()])
    assert next(one.count for one in sample.operations if one.kind == "write") == 7


def test_files_that_may_not_be_opened_are_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though their folders are listed: so does a lockdown."""
    fs = put(tmp_path)

    def denied(path: Path) -> bytes:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(ceph_client, "read_limited", denied)
    (sample,) = CephClients(fs).read([mount()])
    assert (sample.operations, sample.wire_written_bytes) == ((), None)
    assert "lockdown" in sample.limitations[0]


def test_nonsense_and_what_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither raises."""
    fs = put(tmp_path)
    folder = tmp_path / "kernel/debug/ceph" / f"{FSID}.client4123"
    for name in ("metrics/latency", "metrics/size", "osdc"):
        (folder / name).write_bytes(b"\xff write -1 99999999999999999999999 x\nwrite\nwrite a b c d e\nosd\tosdX\t\n")
    (sample,) = CephClients(fs).read([mount()])
    assert (sample.operations, sample.targets, sample.wire_written_bytes) == ((), (), None)

    def denied(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", denied)
    (sample,) = CephClients(fs).read([mount()])
    assert "CAP_DAC_READ_SEARCH" in sample.limitations[0]
