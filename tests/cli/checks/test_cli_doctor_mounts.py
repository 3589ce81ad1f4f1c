"""What doctor says of remote mounts: whether their clients tell what they do, without touching them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.collectors.mounts.mountstats import block, put
from tests.collectors.processes.processtree import ProcessTree
from tests.lustretree import LustreTree
from tests.nvmetree import NvmeTree
from tests.silentfuse import silent

from ckptprof.cli.checks import host
from ckptprof.report.doctor import Check
from ckptprof_collectors import kernelfs
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts import lustre_client

Tree = Callable[..., KernelFs]
LUSTRE = "41 1 0:41 / /ckpt rw - lustre 10.0.3.1@o2ib:/scratch rw"
NFS = "40 1 0:40 / /ckpt rw - nfs4 filer:/x rw,vers=4.2,addr=10.0.0.9"
LOCAL = "1 0 8:1 / / rw - ext4 /dev/sda1 rw"


def told(tmp_path: Path, *lines: str, stats: bytes | None = b"") -> list[Check]:
    """Return what is said of such mounts."""
    root = put(tmp_path / "proc", *([stats] if stats is not None else []))
    (root / "self/mountinfo").write_text("".join(f"{line}\n" for line in (LOCAL, *lines)))
    if stats is None:
        (root / "self/mountstats").unlink()
    return host.remote(KernelFs(root, tmp_path / "sys", tmp_path / "dev"))


def test_a_client_that_can_be_read_is_told_with_what_it_counts(tmp_path: Path) -> None:
    """And what stays out of sight."""
    (found,) = told(tmp_path, NFS, stats=block(read_write=(0, 1, 0, 0, 0, 1, 0, 0), pnfs="LAYOUT_NFSV4_1_FILES"))

    assert (found.id, found.status, found.fix) == ("mount:/ckpt", "ok", None)
    assert found.text == (
        "nfs4 of filer: nfs 4.2 over tcp shows bytes, operations and their times, connections, requests without a "
        "slot; not observed: bytes of each data server, and the connections to them (pNFS)"
    )


def test_one_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    """With the reason: nothing that is needed is missing."""
    (none,) = told(tmp_path / "none", NFS, stats=None)
    (hidden,) = told(tmp_path / "hidden", NFS)
    (gpfs,) = told(tmp_path / "gpfs", "41 1 0:41 / /w rw - gpfs gpfs0 rw")
    (tag,) = told(tmp_path / "virtiofs", "42 1 0:42 / /s rw - virtiofs tag rw")

    assert [one.status for one in (none, hidden, gpfs, tag)] == ["note"] * 4
    assert "cannot be read ([Errno 2]" in none.text
    assert "cannot be separated" in hidden.text
    assert "gpfs of gpfs0: its client has no counters that ckptprof reads" in gpfs.text
    assert "pending requests are counted" in tag.text


def test_who_serves_a_fuse_mount_is_told_with_what_tells_of_it(tmp_path: Path) -> None:
    """By its descriptor of /dev/fuse; where it is not seen, that is out of sight."""
    line = "42 1 0:42 / /s rw - fuse.sshfs host:/x rw"
    waiting = tmp_path / "sys/fs/fuse/connections/42/waiting"
    (unseen,) = told(tmp_path / "unseen", line)
    waiting.parent.mkdir(parents=True)
    waiting.write_text("3\n")
    processes = ProcessTree(tmp_path)
    processes.process(50, "sshfs", "/dev/fuse", connection=42, children="70 ")
    processes.process(70, "ssh")
    (seen,) = told(tmp_path, line)

    assert (unseen.status, seen.status) == ("note", "note")
    assert unseen.text == (
        "fuse.sshfs of host: its server process is not visible; observed: nothing; not observed: the processor time "
        "and the TCP connections of sshfs, the number of pending requests, the time of each request, data sent after "
        "close(2) returned"
    )
    assert seen.text == (
        "fuse.sshfs of host: served by sshfs, process 50 with 70; observed: the number of pending requests (3 "
        "now), the processor time and the TCP connections of these processes; not observed: the time of each "
        "request, data sent after close(2) returned"
    )


@pytest.mark.root
@pytest.mark.fuse
def test_a_mount_that_hangs_is_never_touched(tmp_path: Path) -> None:
    """Whatever it says to be: FUSE, or an NFS whose server is gone."""
    with silent(tmp_path / "place") as made:
        for number, kind in enumerate(("fuse.sshfs", "nfs4", "lustre", "wekafs", "virtiofs")):
            (found,) = told(tmp_path / str(number), f"42 1 0:42 / {made.place} rw - {kind} host:/x rw")
            assert (found.id, found.status) == (f"mount:{made.place}", "note")
        assert made.asked == 0


def test_a_client_whose_counters_are_closed_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the settings of a Lustre are open, but not what it counted: it names what is missing."""
    LustreTree(tmp_path, osts=2, settings={"hybrid_io": 1})
    read = kernelfs.read_limited

    def denied(path: Path) -> bytes:
        if "kernel/debug" in os.fspath(path):
            raise PermissionError(13, "Permission denied")
        return read(path)

    (before,) = told(tmp_path, LUSTRE)
    monkeypatch.setattr(lustre_client, "read_limited", denied)
    (found,) = told(tmp_path, LUSTRE)

    assert (before.status, found.status) == ("ok", "note")
    assert "shows nothing; not observed: the counters of its client" in found.text
    assert "CAP_DAC_READ_SEARCH" in found.text


def test_of_many_a_few_are_told(tmp_path: Path) -> None:
    """Names as they are; a host without remote mounts has no line."""
    many = [f"{at} 1 0:{at} / /h\\040{at} rw - nfs4 filer:/{at} rw" for at in range(50, 90)]
    found = told(tmp_path / "many", *many)

    assert len(found) == host.MAX_MOUNTS + 1
    assert (found[0].id, found[-1].text) == ("mount:/h 50", "24 more remote mounts are not listed")
    assert told(tmp_path / "local") == []
    (unknown,) = host.remote(KernelFs(tmp_path / "nowhere"))
    assert unknown.status == "warn"


def test_a_disk_behind_a_fabric_is_told_with_its_paths(tmp_path: Path) -> None:
    """One that cannot be used is a warning; of a disk of this host nothing is said."""
    tree = NvmeTree(tmp_path / "far")
    (live,) = host.paths(tree.fs)
    tree.state(1, "connecting")
    (lost,) = host.paths(tree.fs)

    assert (live.id, live.status, live.fix) == ("disk:nvme1n1", "ok", None)
    assert live.text.startswith("nvme1n1 is reached over tcp through 2 paths: ")
    assert lost.status == "warn"
    assert lost.text == "nvme1n1 is reached over tcp through 2 paths: nvme1c1n1 to 10.0.0.3 is connecting"
    assert host.paths(NvmeTree(tmp_path / "near", transport="pcie").fs) == []
    assert host.paths(KernelFs(tmp_path / "none", tmp_path / "none", tmp_path / "none")) == []
