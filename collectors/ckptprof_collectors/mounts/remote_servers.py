"""The format of the server in a mount's source, for each remote file system: a table."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable


def _before_path(source: str) -> str:
    """Read `host:/path`, `[fe80::1]:/path`, `user@host:/path`, `host:volume` (mount.nfs, sshfs, gluster)."""
    source = source.rpartition("@")[2] if "@" in source.partition(":")[0] else source
    if source.startswith("["):
        return source[1:].partition("]")[0]
    return source.partition(":/")[0] if ":/" in source else source.partition(":")[0]


def _first_of_list(source: str) -> str:
    """Read `10.0.0.1:6789,10.0.0.2:6789:/path` (ceph), `10.0.0.1@o2ib:10.0.0.2@o2ib:/fsname` (lustre): the first."""
    first = source.partition(":/")[0].partition(",")[0]
    if first.startswith("["):
        return first[1:].partition("]")[0]
    return re.split("[:@]", first, maxsplit=1)[0]


def _after_slashes(source: str) -> str:
    """Read `//host/share` (cifs), `tcp://host:3334/name` (orangefs), `panfs://host/name`."""
    return _without_port(source.partition("//")[2].partition("/")[0])


def _before_slash(source: str) -> str:
    """Read `host1,host2/name` (wekafs)."""
    return _without_port(source.partition("/")[0].partition(",")[0])


def _without_port(host: str) -> str:
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _entire_source(source: str) -> str:
    """Entire source: the tag of an export of the hypervisor (virtiofs, 9p), or an address (9p over TCP)."""
    return source


def _no_server(_source: str) -> str:
    """No server: the source does not name it."""
    return ""


SERVER_PARSERS: dict[str, Callable[[str], str]] = {
    "9p": _entire_source,
    "afs": _no_server,
    "beegfs": _no_server,  # source "beegfs_nodev"; the host stands in the client's configuration
    "ceph": _first_of_list,
    "cifs": _after_slashes,
    "fuse.ceph-fuse": _no_server,
    "fuse.daos": _no_server,
    "fuse.gcsfuse": _no_server,
    "fuse.glusterfs": _before_path,
    "fuse.juicefs": _no_server,
    "fuse.s3fs": _no_server,
    "fuse.sshfs": _before_path,
    "glusterfs": _before_path,
    "gpfs": _no_server,
    "lustre": _first_of_list,
    "nfs": _before_path,
    "nfs4": _before_path,
    "orangefs": _after_slashes,
    "panfs": _after_slashes,
    "pvfs2": _after_slashes,
    "smb3": _after_slashes,
    "virtiofs": _entire_source,
    "wekafs": _before_slash,
}
_ADDRESS_OPTIONS = re.compile(r"(?:^|,)(?:addr|mountaddr|mon_addr)=([^,]+)")  # nfs, cifs; ceph: a list between slashes
_SEPARATORS = re.compile(r"[,/@;\s]|:/")
_BRACKETS = re.compile(r"\[([0-9A-Fa-f:.%]+)\]")
MAX_ADDRESSES = 64
_CEPH_MONITORS = re.compile(r"(?:^|,)mon_addr=(?:v[12]:)?(\[[^\]]+\]|[^,:/]+)")


def is_remote(fs_type: str) -> bool:
    """Test whether files of this type are on another host (or the hypervisor), whether the mount names it or not."""
    return fs_type in SERVER_PARSERS


def fuse_program(fs_type: str, source: str) -> str:
    """Program of a FUSE mount: `fuse.sshfs`; a plain `fuse` may name it in the source."""
    return fs_type.partition(".")[2] or source.partition(":")[0].rpartition("/")[2]


def parse_server(fs_type: str, source: str, options: str = "") -> str | None:
    """Host of a remote mount; None if the file system is local or its mount does not name it."""
    find = SERVER_PARSERS.get(fs_type)
    if find is None:
        return None
    if fs_type == "ceph" and ":/" not in source:  # since 5.16: user@fsid.name=/path, monitors in the options
        monitor = _CEPH_MONITORS.search(options)
        return monitor[1].strip("[]") if monitor else None
    return find(source) or None


def parse_addresses(fs_type: str, source: str, options: str = "") -> tuple[str, ...]:
    """Server addresses in a remote mount; host names are not resolved.

    `10.0.0.1@tcp:10.0.0.2@tcp:/name` (Lustre), `addr=10.0.0.1` (NFS), `10.0.0.1:6789,10.0.0.2:6789:/` (Ceph).
    """
    if not (is_remote(fs_type) or fs_type.startswith("fuse")):
        return ()
    found: dict[str, None] = {}
    for value in (source, *_ADDRESS_OPTIONS.findall(options)):
        # of `10.0.0.1:6789`, `tcp:10.0.0.2` (the network of a Lustre NID) or `fd00::1`
        parts = _SEPARATORS.split(value)
        pieces = [*_BRACKETS.findall(value), *(piece for part in parts for piece in (part, *part.split(":")))]
        found.update((address, None) for piece in pieces if (address := _address(piece)) is not None)
    return tuple(found)[:MAX_ADDRESSES]


def _address(word: str) -> str | None:
    try:
        return str(ipaddress.ip_address(word.partition("%")[0]))
    except ValueError:
        return None
