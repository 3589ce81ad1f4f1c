"""Texts of /proc/self/mountstats, as Linux writes them: no kernel of ours has NFS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ckptprof_collectors.samples import MountInfo

HOST = b"device proc mounted on /proc with fstype proc\ndevice /dev/sda1 mounted on / with fstype ext4\n"


def mounted(minor: int = 40, point: str = "/ckpt", source: str = "filer:/x", fs_type: str = "nfs4") -> MountInfo:
    """Return the mount of a block."""
    return MountInfo(minor, 0, minor, "/", point, fs_type, source, None, "filer", ("10.0.0.9",))


def block(
    *,
    counted: Mapping[str, Sequence[object]] | None = None,
    read_write: Sequence[object] = (0,) * 8,
    transports: Sequence[str] = ("tcp 832 0 1 0 11 64 64 0 640 32 24 26 57",),
    options: str = "rw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,timeo=600,retrans=2,sec=sys",
    delays: object = 0,
    age: int = 10,
    point: bytes = b"/ckpt",
    source: bytes = b"filer:/x",
    pnfs: str = "not configured",
) -> bytes:
    """Return one mount; `counted`: the numbers of its operations."""
    events = [*[0] * 24, delays, 0, 0]
    lines = [
        f"\topts:\t{options}", f"\tage:\t{age}", "\tcaps:\tcaps=0xfff7,wtmult=512,dtsize=32768,bsize=0,namlen=255",
        f"\tnfsv4:\tbm0=0xfdffafff,bm1=0xf9be3e,bm2=0x0,acl=0x0,pnfs={pnfs}", "\tsec:\tflavor=1,pseudoflavor=1",
        f"\tevents:\t{' '.join(map(str, events))}", f"\tbytes:\t{' '.join(map(str, read_write))}",
        "\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)", *(f"\txprt:\t{one}" for one in transports),
        "\tper-op statistics", "\t        NULL: 1 1 0 44 24 0 0 0 0",
        *(f"\t{name:>12}: {' '.join(map(str, numbers))}" for name, numbers in (counted or {}).items()), "",
    ]  # fmt: skip
    head = b"device " + source + b" mounted on " + point + b" with fstype nfs4 statvers=1.1\n"
    return head + "\n".join(lines).encode() + b"\n"


def put(root: Path, *blocks: bytes) -> Path:
    """Write the file below a root of /proc, and return that."""
    folder = root / "self"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mountstats").write_bytes(HOST + b"".join(blocks))
    (folder / "mountinfo").touch()
    return root
