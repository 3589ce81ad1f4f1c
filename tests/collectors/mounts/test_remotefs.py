"""Servers as remote file systems write them into a mount."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof_collectors.mounts.remote_servers import SERVER_PARSERS, is_remote, parse_server


@pytest.mark.parametrize(
    ("fs_type", "source", "server"),
    [
        ("nfs4", "filer.example:/export/ckpt", "filer.example"),
        ("nfs", "[fe80::1%eth0]:/export", "fe80::1%eth0"),
        ("nfs", "10.0.0.5:/", "10.0.0.5"),
        ("cifs", "//nas/share/dir", "nas"),
        ("smb3", "//[2001:db8::5]/share", "2001:db8::5"),
        ("ceph", "10.0.0.1:6789,10.0.0.2:6789:/volumes", "10.0.0.1"),
        ("lustre", "10.1.1.1@o2ib:10.1.1.2@o2ib:/scratch", "10.1.1.1"),
        ("lustre", "mds1@tcp0,mds1@o2ib0:mds2@tcp0:/fs", "mds1"),
        ("fuse.glusterfs", "gluster1:/vol", "gluster1"),
        ("fuse.glusterfs", "gluster1:vol", "gluster1"),
        ("fuse.sshfs", "me@login.example:/home/me", "login.example"),
        ("fuse.sshfs", "login.example:a@b", "login.example"),
        ("pvfs2", "tcp://meta:3334/pvfs2-fs", "meta"),
        ("wekafs", "weka1,weka2/default", "weka1"),
        ("virtiofs", "shared", "shared"),
        ("9p", "hostshare", "hostshare"),
        ("beegfs", "beegfs_nodev", None),
        ("ext4", "/dev/vda", None),
        ("tmpfs", "host:/looks/remote", None),
    ],
)
def test_server_of(fs_type: str, source: str, server: str | None) -> None:
    """The host is cut out of the source as the type writes it; a local type has none whatever its source says."""
    assert server == parse_server(fs_type, source)


def test_new_ceph_syntax_names_its_monitors_in_the_options() -> None:
    """Since 5.16 the source of ceph holds no host: the first monitor in the options does."""
    options = "rw,name=admin,mon_addr=192.168.1.7:6789/192.168.1.8:6789,acl"

    assert parse_server("ceph", "admin@b3acfc0d.cephfs=/", options) == "192.168.1.7"
    assert parse_server("ceph", "admin@b3acfc0d.cephfs=/", "rw") is None


def test_remote_is_known_even_without_a_server() -> None:
    """A type whose mount does not name its server is remote all the same."""
    assert is_remote("beegfs")
    assert not is_remote("ext4")


@given(st.sampled_from(sorted(SERVER_PARSERS)), st.text(), st.text())
def test_no_source_makes_it_fail(fs_type: str, source: str, options: str) -> None:
    """Any user may mount a FUSE with a source of his choice: it yields a non-empty text or None."""
    assert parse_server(fs_type, source, options) != ""
