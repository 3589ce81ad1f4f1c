"""What tells a folder alike on every host that mounts its file system, and nothing alike that is another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof.frameworks.placekeys import KINDS, file_system_key, identify_place
from ckptprof.model import Place
from ckptprof_collectors.samples import MountInfo

_FSID = "0f3c2a1e-0000-1111-2222-0123456789ab"
_OWN = "host:boot:40:131"


def mount(fs_type: str, source: str, point: str = "/ckpt", root: str = "/", device: str | None = None) -> MountInfo:
    """Return a mount as mountinfo has it."""
    return MountInfo(1, 0, 40, root, point, fs_type, source, device, None)


@pytest.mark.parametrize(
    ("fs_type", "source", "key"),
    [
        ("nfs4", "filer:/export/a", "nfs:filer:/export/a:131"),
        ("nfs", "Filer:/export/a/", "nfs:filer:/export/a:131"),
        ("nfs4", "filer.site-b.example:/export/a", "nfs:filer.site-b.example:/export/a:131"),
        ("nfs4", "10.0.0.1:/export/a", "nfs:10.0.0.1:/export/a:131"),
        ("nfs4", "[FD00:0::1]:/a", "nfs:fd00::1:/a:131"),
        ("nfs4", "filer:/", "nfs:filer:/:131"),
        ("lustre", "10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch", "lustre:scratch:131"),
        ("lustre", "10.1.0.1@tcp:/scratch/sub", "lustre:scratch:131"),  # another network, and a part of it
        ("lustre", "10.0.0.1@o2ib,10.1.0.1@tcp:/scratch", "lustre:scratch:131"),
        ("gpfs", "gpfs0", "gpfs:gpfs0:131"),
        ("gpfs", "/dev/gpfs0", "gpfs:gpfs0:131"),
        ("ceph", f"admin@{_FSID}.cephfs=/volumes/a", f"ceph:{_FSID}.cephfs:131"),
        ("ceph", f"other@{_FSID}.cephfs=/", f"ceph:{_FSID}.cephfs:131"),
        ("wekafs", "backend1,backend2/default", "weka:default:131"),
        ("wekafs", "backend3/default", "weka:default:131"),  # nodes are given different backends
        ("cifs", "//Filer/share", "cifs://filer/share:131"),
        ("smb3", "//filer/share/", "cifs://filer/share:131"),
        ("panfs", "panfs://realm/home", "panfs://realm/home:131"),
        ("orangefs", "tcp://meta:3334/orangefs", "orangefs://meta:3334/orangefs:131"),
        ("fuse.glusterfs", "node-1:/volume", "gluster:volume:131"),
        ("glusterfs", "node-2:volume", "gluster:volume:131"),  # each node asks another one
        ("fuse.juicefs", "JuiceFS:train", "juicefs:train:131"),
        # daemons that number inodes as they like
        ("fuse.sshfs", "me@filer:/data", "sshfs:filer:/data:/a/step_7"),
        ("fuse.sshfs", "filer:/data/", "sshfs:filer:/data:/a/step_7"),
        ("fuse.sshfs", "me@filer:", "sshfs:me@filer::/a/step_7"),  # that user's home
        ("fuse.sshfs", "me@[FD00::1]:/data", "sshfs:fd00::1:/data:/a/step_7"),
        ("fuse.gcsfuse", "my-bucket", "gcsfuse:my-bucket:/a/step_7"),
        ("fuse.geesefs", "my-bucket:prefix", "s3:my-bucket:prefix:/a/step_7"),
        ("fuse.rclone", "remote:path", "rclone:remote:path:/a/step_7"),
    ],
)
def test_other_hosts_say_the_same(fs_type: str, source: str, key: str) -> None:
    """By the file system's own name, whatever its mount says of servers and networks."""
    assert identify_place((40, 131), "/ckpt/a/step_7", [mount(fs_type, source)], "boot") == Place(key=key, shared=True)


@pytest.mark.parametrize(
    ("fs_type", "source", "device", "shared"),
    [
        ("ext4", "/dev/nvme0n1p1", "nvme0n1p1", False),
        ("xfs", "/dev/mapper/data", "dm-0", False),
        ("btrfs", "/dev/sda1", "sda1", False),
        ("fuseblk", "/dev/sdb1", "sdb1", False),
        ("tmpfs", "tmpfs", None, False),
        ("overlay", "overlay", None, False),
        ("zfs", "pool/data", None, False),
        ("gfs2", "/dev/mapper/shared", "dm-1", None),  # a disk that several hosts have
        ("ocfs2", "/dev/sdc", "sdc", None),
        ("virtiofs", "share", None, None),  # other guests may have it, too
        ("9p", "share", None, None),
        ("beegfs", "beegfs_nodev", None, None),
        ("afs", "#cell:root.cell", None, None),
        ("ceph", "10.0.0.1:6789,10.0.0.2:6789:/", None, None),  # one of several of that cluster
        ("ceph", "admin@.cephfs=/", None, None),
        ("fuse.ceph-fuse", "ceph-fuse", None, None),
        ("fuse.s3fs", "s3fs", None, None),  # does not say which bucket
        ("fuse", "mountpoint-s3", None, None),
        ("fuse.gcsfuse", "gcsfuse", None, None),
        ("fuse.daos", "dfuse", None, None),
        ("fuse.sshfs", "me@localhost:/data", None, None),
        ("nfs4", "localhost:/export", None, None),
        ("nfs4", "127.0.0.1:/export", None, None),
        ("nfs4", "[::1]:/export", None, None),
        ("nfs", "none", None, None),
        ("lustre", "scratch", None, None),
        ("lustre", "", None, None),
        ("cifs", "//filer", None, None),
        ("gpfs", "", None, None),
        ("fuse.juicefs", "JuiceFS", None, None),
    ],
)
def test_what_is_not_called_alike_elsewhere_is_of_this_host(
    fs_type: str,
    source: str,
    device: str | None,
    shared: bool | None,  # noqa: FBT001 # a parameter of the test
) -> None:
    """Two hosts say the same of it only if they are one; whether others have it is told where that is known."""
    place = identify_place((40, 131), "/ckpt/a/step_7", [mount(fs_type, source, device=device)], "boot")
    assert place == Place(key=_OWN, shared=shared)


def test_its_client_may_say_what_the_mount_does_not() -> None:
    """As that of BeeGFS: the source of each mount of it is the same."""
    place = identify_place((40, 131), "/ckpt", [mount("beegfs", "beegfs_nodev")], "boot", "B0-77")
    assert place == Place(key="beegfs:B0-77:131", shared=True)


def test_a_file_system_that_is_nowhere_mounted_is_of_this_host() -> None:
    """A container's own: what it is cannot be told."""
    assert identify_place((40, 131), "/ckpt", [], "boot") == Place(key=_OWN, shared=None)


@pytest.mark.parametrize(
    ("point", "root", "key"),
    [
        ("/ckpt", "/", "sshfs:filer:/data:/a"),
        ("/ckpt", "/sub", "sshfs:filer:/data:/sub/a"),  # a bind mount
        ("/ckpt/a", "/sub", "sshfs:filer:/data:/sub"),
        ("/ckpt/a", "/", "sshfs:filer:/data:/"),
        ("/", "/", "sshfs:filer:/data:/ckpt/a"),
        ("/ck", "/", _OWN),  # as a container calls it
    ],
)
def test_where_inodes_tell_nothing_the_path_within_the_file_system_does(point: str, root: str, key: str) -> None:
    """Whatever the mount point is, and none where the path is not below it."""
    assert identify_place((40, 131), "/ckpt/a", [mount("fuse.sshfs", "filer:/data", point, root)], "boot").key == key


def test_of_several_mounts_the_nearest_one_above_tells() -> None:
    """A file system and a part of it: other hosts may have mounted the part alone."""
    parts = [mount("nfs4", "filer:/x", "/mnt"), mount("nfs4", "filer:/x/b", "/mnt/b")]
    assert identify_place((40, 131), "/mnt/b/c", parts, "boot").key == "nfs:filer:/x/b:131"
    assert identify_place((40, 131), "/mnt/a/c", parts, "boot").key == "nfs:filer:/x:131"

    mounts = [mount("fuse.sshfs", "filer:/data", "/mnt"), mount("fuse.sshfs", "filer:/data", "/mnt/b", "/x")]
    assert identify_place((40, 131), "/mnt/b/c", mounts, "boot").key == "sshfs:filer:/data:/x/c"


@given(st.sampled_from(sorted(KINDS)), st.text(alphabet="a1.:/@[]=-\n\u0130 "))
def test_whatever_a_mount_is_called_it_has_a_key(fs_type: str, source: str) -> None:
    """Anybody may mount a FUSE of any source: it is of its own kind, or of this host."""
    place = identify_place((40, 131), "/ckpt/a", [mount(fs_type, source)], "boot")
    assert place.key.startswith(f"{KINDS[fs_type].name}:") if place.shared else place == Place(key=_OWN, shared=None)


@pytest.mark.parametrize(
    ("key", "file_system"),
    [
        ("nfs:filer.site:/export/ckpt:131", "nfs:filer.site:/export/ckpt"),
        ("lustre:scratch:144115205255725057", "lustre:scratch"),
        ("ceph:0f5b1c2d-0000-1111-2222-333344445555.fs:109951", "ceph:0f5b1c2d-0000-1111-2222-333344445555.fs"),
        ("cifs://filer/share:7", "cifs://filer/share"),
        ("s3:bucket:/run/step_100", "s3:bucket"),
        ("rclone:remote:bucket:/run:7/step_100", "rclone:remote:bucket"),
        ("sshfs:gateway:/srv:/run", "sshfs:gateway"),
    ],
)  # fmt: skip
def test_all_folders_of_one_file_system_have_it_in_common(key: str, file_system: str) -> None:
    """Whatever their inodes and paths are."""
    assert file_system_key(key) == file_system
