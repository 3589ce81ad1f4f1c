"""What the client of BeeGFS tells, on files made after the formats of its module."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts.beegfs_client import BeegfsClients
from ckptprof_collectors.samples import ClientSample, MountInfo

NODES = """storage1 [ID: 1]
   Connections: RDMA: 8 (10.0.3.1:8003);\x20
storage2 [ID: 2]
   Root: <yes>
   Connections: TCP: 4 (10.0.4.2:8003 [fallback route]);\x20
storage3 [ID: 3]
   Connections: TCP: 1 ([fd00::3]:8003); RDMA: 2 ([fd00::3]:8003);\x20
storage4 [ID: 4]
   Connections: <none>
storage5 [ID: 5]
   Connections not available [Error: Out of memory]
"""
CONFIG = "cfgFile = /etc/beegfs/beegfs-client.conf\nconnUseRDMA = 1\nconnTCPFallbackEnabled = 1\nconnRDMABufNum = 70\n"
INFO = """ClientID: c1A2B-host
Interfaces:
+ ib0[ip addr: 10.0.3.100; type: RDMA]
+ ib0[ip addr: 10.0.3.100; type: TCP]
Outbound RDMA Interfaces:
+ Any
"""


def mount(minor: int = 50, fs_type: str = "beegfs") -> MountInfo:
    """Return a mount."""
    return MountInfo(minor, 0, minor, "/", f"/m{minor}", fs_type, f"{fs_type}_nodev", None, None)


def put(root: Path, nodes: str = NODES, client: str = "c1A2B-host") -> KernelFs:
    """Write what the client of a mount tells."""
    folder = root / "proc/fs/beegfs" / client
    folder.mkdir(parents=True)
    told = (("storage_nodes", nodes), ("config", CONFIG), ("client_info", INFO), ("fs_uuid", "7d1c-0B\n"))
    for name, content in told:
        (folder / name).write_text(content)
    (root / "sys/module/beegfs").mkdir(parents=True, exist_ok=True)
    (root / "sys/module/beegfs/version").write_text("8.3.1\n")
    return KernelFs(proc=root / "proc", sys=root / "sys")


def seen(fs: KernelFs) -> ClientSample:
    """Return what is read."""
    (sample,) = BeegfsClients(fs).read([mount()])
    return sample


def test_how_a_client_is_connected(tmp_path: Path) -> None:
    """With each storage server that it was ever connected with, and whether that is a fallback."""
    sample = seen(put(tmp_path))

    assert (sample.client, sample.transport, sample.minor) == ("beegfs 8.3.1", "rdma", 50)
    assert sample.settings == {"connUseRDMA": 1, "connTCPFallbackEnabled": 1, "rdma_interfaces": 1}
    assert [(one.name, one.address, *one.gauges.values()) for one in sample.targets] == [
        ("storage1", "10.0.3.1", 8, 0, 0),
        ("storage2", "10.0.4.2", 0, 4, 4),
        ("storage3", "fd00::3", 2, 1, 0),
        ("storage4", None, 0, 0, 0),
    ]
    assert sample.limitations == ("bytes and requests: the client of BeeGFS counts none",)
    assert sample.file_system == "7d1c-0B"


def test_older_clients_do_not_say_which_file_system_it_is(tmp_path: Path) -> None:
    """Nor need they have such a file."""
    fs = put(tmp_path)
    next(tmp_path.glob("proc/fs/beegfs/*/fs_uuid")).unlink()

    assert seen(fs).file_system is None


def test_of_several_mounts_nothing_is_told(tmp_path: Path) -> None:
    """Nothing says which is which; nor without the module, or once it is unmounted."""
    fs = put(tmp_path)
    assert BeegfsClients(fs).read([mount(), mount(51)]) == []
    put(tmp_path, client="c3C4D-host")
    assert BeegfsClients(fs).read([mount()]) == []
    assert BeegfsClients(KernelFs(proc=tmp_path, sys=tmp_path)).read([mount()]) == []


@pytest.mark.parametrize(
    "nodes", ["", "\x00\n", "x [ID: 1]\n   Connections: TCP: -4 (a); RDMA: 99999999999 (b);\n", NODES[:40]]
)
def test_what_makes_no_sense_is_no_connection(tmp_path: Path, nodes: str) -> None:
    """Nothing is made up."""
    assert all(sum(one.gauges.values()) == 0 for one in seen(put(tmp_path, nodes)).targets)
