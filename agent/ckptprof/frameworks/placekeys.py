"""Keys of folders, equal on every host that has them mounted: from the mount and the inode alone, as data.

Each kind of network file system has a name that is equal on all hosts, and in most a folder has one inode number
everywhere: NFS has its server's (fileid), Lustre derives it from the FID (`lustre/llite/llite_lib.c`), BeeGFS and
Gluster from the entry's id, GPFS, CephFS, Weka and JuiceFS store it. FUSE daemons without inode numbers invent them on
each host: there the path below the mount is used. Nothing is resolved: a server that one host calls by name and another
by address has two keys.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ckptprof.frameworks.places import NETWORKED
from ckptprof.frameworks.runkeys import is_local_host
from ckptprof.model import Place
from ckptprof_collectors.mounts.remote_servers import is_remote
from ckptprof_collectors.samples import MountInfo


class FileSystemKind(NamedTuple):
    """How a file system is distinguished from others of its kind."""

    name: str
    shared_name: Callable[[str], str | None]  # its name on all hosts, from the source of a mount; None: unknown
    by_path: bool = False  # each host invents its own inode numbers


def _of_server(source: str) -> str | None:
    """Read `host:/path`, `[fe80::1]:/path`; None for a server under a name that means the local host."""
    host, colon, path = source.rpartition(":/")
    host = _normalise_host(host)
    return f"{host}:/{path.rstrip('/')}" if colon and not is_local_host(host) else None


def _of_share(source: str) -> str | None:
    """Read `//host/share`, `panfs://host:port/name`, `tcp://host:3334/name`."""
    host, slash, path = source.partition("//")[2].partition("/")
    host = _normalise_host(host)
    return f"//{host}/{path.rstrip('/')}" if slash and path and not is_local_host(host) else None


def _after_servers(source: str) -> str | None:
    """Read `10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch/sub` (lustre), `host1,host2/name` (wekafs) without the servers."""
    _, slash, path = source.partition("/")
    return path.strip("/").partition("/")[0] or None if slash else None


def _of_volume(source: str) -> str | None:
    """Read `host:/volume/sub`, `host:volume` (gluster); inodes of two volumes are practically never equal."""
    return source.rpartition(":")[2].strip("/").partition("/")[0] or None


def _of_device(source: str) -> str | None:
    """Read `gpfs0`, `/dev/gpfs0`."""
    return source.rpartition("/")[2] or None


_CEPH = re.compile(r"[^@/]*@(?P<cluster>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.(?P<name>[^=/]+)=")


def _of_cluster(source: str) -> str | None:
    """Read `user@fsid.name=/path` (since 5.16); before, it was a list of monitors, each with several names."""
    found = _CEPH.match(source)
    return f"{found['cluster']}.{found['name']}" if found else None


def _after_colon(source: str) -> str | None:
    """Read `JuiceFS:name`."""
    return source.partition(":")[2] or None


def _of_remote(source: str) -> str | None:
    """Read `user@host:/path`, `user@host:` (sshfs): a relative path is in that user's home."""
    where, colon, path = source.partition(":")
    if source.rpartition("@")[2].startswith("["):
        where, colon, path = source.partition("]:")
    user, _, host = where.rpartition("@")
    host = _normalise_host(host)
    if not colon or not host or is_local_host(host):
        return None
    return f"{host}:{path.rstrip('/') or '/'}" if path.startswith("/") else f"{user}@{host}:{path.rstrip('/')}"


def _of_bucket(source: str) -> str | None:
    """Use the source: a bucket, or a remote with its path; None for daemons without a name."""
    return source if source not in {"gcsfuse", "goofys", "geesefs", "rclone"} else None


KINDS: dict[str, FileSystemKind] = {
    "ceph": FileSystemKind("ceph", _of_cluster),
    "cifs": FileSystemKind("cifs", _of_share),
    "fuse.gcsfuse": FileSystemKind("gcsfuse", _of_bucket, by_path=True),
    "fuse.geesefs": FileSystemKind("s3", _of_bucket, by_path=True),
    "fuse.glusterfs": FileSystemKind("gluster", _of_volume),
    "fuse.goofys": FileSystemKind("s3", _of_bucket, by_path=True),
    "fuse.juicefs": FileSystemKind("juicefs", _after_colon),
    "fuse.rclone": FileSystemKind("rclone", _of_bucket, by_path=True),
    "fuse.sshfs": FileSystemKind("sshfs", _of_remote, by_path=True),
    "glusterfs": FileSystemKind("gluster", _of_volume),
    "gpfs": FileSystemKind("gpfs", _of_device),
    "lustre": FileSystemKind("lustre", _after_servers),
    "nfs": FileSystemKind("nfs", _of_server),
    "nfs4": FileSystemKind("nfs", _of_server),
    "orangefs": FileSystemKind("orangefs", _of_share),
    "panfs": FileSystemKind("panfs", _of_share),
    "pvfs2": FileSystemKind("orangefs", _of_share),
    "smb3": FileSystemKind("cifs", _of_share),
    "wekafs": FileSystemKind("weka", _after_servers),
}
_CLUSTERED = frozenset(("gfs2", "ocfs2"))  # on a device that several hosts have


def identify_place(
    folder: tuple[int, int], path: str, mounts: Sequence[MountInfo], host: str, client_name: str | None = None
) -> Place:
    """Identify the place of a folder with this (st_dev, inode) on one of these mounts.

    `host` is unique to a running kernel: the key of a folder without a shared name. `client_name`: the name that all
    clients of the file system use, by its own client.
    """
    device, inode = folder
    host_key = f"host:{host}:{device}:{inode}"
    if not mounts:
        return Place(key=host_key, shared=None)
    # None: the path is below none of them, as in a container
    above = [mount for mount in mounts if f"{path}/".startswith(f"{mount.mount_point.rstrip('/')}/")]
    nearest = max(above, key=lambda mount: len(mount.mount_point), default=None)
    fs_type, source = (nearest or mounts[0]).fs_type, (nearest or mounts[0]).source
    if client_name is not None:
        return Place(key=f"{fs_type}:{client_name}:{inode}", shared=True)
    kind = KINDS.get(fs_type)
    name = kind.shared_name(source) if kind is not None else None
    if kind is not None and name is not None:
        if not kind.by_path:
            return Place(key=f"{kind.name}:{name}:{inode}", shared=True)
        if nearest is not None:
            below = f"{nearest.root.rstrip('/')}{path[len(nearest.mount_point.rstrip('/')) :]}" or "/"
            return Place(key=f"{kind.name}:{name}:{below}", shared=True)
    elsewhere = is_remote(fs_type) or fs_type in NETWORKED or fs_type in _CLUSTERED or fs_type.split(".")[0] == "fuse"
    return Place(key=host_key, shared=None if elsewhere else False)


def file_system_key(key: str) -> str:
    """Shorten the key of a folder to the part that all folders of its shared file system have in common."""
    kind, _, rest = key.partition(":")
    by_path = any(one.by_path for one in KINDS.values() if one.name == kind)
    called = rest.partition(":/")[0] if by_path else rest.rpartition(":")[0]
    return f"{kind}:{called}"


def _normalise_host(host: str) -> str:
    """Normalise a host: no case, no brackets; its domain stays: servers of two sites may have equal names."""
    host = host.strip().lower().strip("[]").rstrip(".")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host
