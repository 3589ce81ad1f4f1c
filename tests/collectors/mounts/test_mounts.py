"""The mounts collector: hostile names, stacks of mounts, and the live namespace."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.mounts import mountinfo
from ckptprof_collectors.mounts.mountinfo import MountReader, find_mount, parse, unescape
from ckptprof_collectors.samples import EntityGone, MountInfo

# Captured: Firecracker VM, Linux 6.18.44, 2026-11-21 (two of its lines).
REAL = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"


def tree(root: Path, mountinfo: bytes) -> KernelFs:
    """Write mountinfo and a sysfs that knows vda as 254:0 and dm-3 as 253:3."""
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/mountinfo").write_bytes(mountinfo)
    for number, name in (("254:0", "vda"), ("253:3", "dm-3")):
        device = root / "sys/devices/virtual/block" / name
        if not device.exists():
            device.mkdir(parents=True)
            (root / "sys/dev/block").mkdir(parents=True, exist_ok=True)
            (root / "sys/class/block").mkdir(parents=True, exist_ok=True)
            (root / "sys/dev/block" / number).symlink_to(f"../../devices/virtual/block/{name}")
            (root / "sys/class/block" / name).symlink_to(device)
    return KernelFs(proc=root / "proc", sys=root / "sys", dev=root / "dev")


def read(fs: KernelFs) -> list[MountInfo]:
    """Return what a new collector reports."""
    collector = MountReader(fs)
    samples = collector.read()
    collector.close()
    return [sample for sample in samples if isinstance(sample, MountInfo)]


def test_absent_file_is_unavailable(tmp_path: Path) -> None:
    """Without mountinfo the reason names it."""
    with pytest.raises(UnavailableError, match="mountinfo"):
        MountReader(KernelFs(proc=tmp_path))


def test_real_lines(tmp_path: Path) -> None:
    """A file system on a disk names its device, one without names none."""
    proc, root = read(tree(tmp_path, REAL))

    assert root == MountInfo(27, 254, 0, "/", "/", "ext4", "/dev/vda", "vda", None)
    assert (proc.mount_point, proc.device, proc.server) == ("/proc", None, None)


def test_escapes_optional_fields_and_hostile_names(tmp_path: Path) -> None:
    """Space, tab, newline and backslash come back; stray bytes become text, and a dash in a name is no separator."""
    line = (
        b"40 27 0:50 /a\\040b /mnt/x\\040-\\040y\\012z\\134\\011\xff\x1b[2J rw shared:5 master:1 propagate_from:2"
        b" - nfs4 [fd00::7]:/ex\\040port rw,vers=4.2\n"
    )

    (mount,) = read(tree(tmp_path, line))

    assert mount.root == "/a b"
    assert mount.mount_point == "/mnt/x - y\nz\\\t\\xff\x1b[2J"
    assert (mount.source, mount.server, mount.device) == ("[fd00::7]:/ex port", "fd00::7", None)


def test_btrfs_has_an_anonymous_device(tmp_path: Path) -> None:
    """The device of a btrfs is found through the links that its source leads over."""
    fs = tree(tmp_path, b"50 27 0:44 /sub /data rw - btrfs /dev/mapper/vg0-data rw,subvol=/sub\n")
    (fs.dev / "mapper").mkdir(parents=True)
    (fs.dev / "dm-3").touch()
    (fs.dev / "mapper/vg0-data").symlink_to("../dm-3")

    assert [mount.device for mount in read(fs)] == ["dm-3"]


def test_fuse_cannot_claim_a_disk(tmp_path: Path) -> None:
    """Any user may mount a FUSE under the name of a disk: it is not believed."""
    fs = tree(tmp_path, b"51 27 0:45 / /home/eve/m rw - fuse.evil /dev/vda rw,user_id=1000\n")
    (fs.dev).mkdir()
    (fs.dev / "vda").touch()

    assert [mount.device for mount in read(fs)] == [None]


def test_overlay_lies_where_its_upper_directory_is(tmp_path: Path) -> None:
    """What a container writes goes to the device under the upper directory."""
    upper = b"lowerdir=/l1:/l2,upperdir=/var/lib/a\\\\,b\\040c/diff,workdir=/w"
    line = b"60 27 0:52 / /merged rw - overlay overlay rw," + upper + b"\n"

    assert [mount.device for mount in read(tree(tmp_path, REAL + line))] == [None, "vda", "vda"]


def test_changes_only(tmp_path: Path) -> None:
    """An unchanged file gives nothing; a remount, a new mount and an unmount are told, each once."""
    fs = tree(tmp_path, REAL)
    collector = MountReader(fs)
    collector.read()
    quiet = list(collector.read())
    tree(
        tmp_path, REAL.splitlines(keepends=True)[1].replace(b"/ /", b"/ /moved") + b"70 27 0:60 / /t rw - tmpfs t rw\n"
    )
    told = list(collector.read())
    collector.close()

    assert quiet == []
    assert told[0] == EntityGone("mount", "22")
    assert [sample.mount_point for sample in told if isinstance(sample, MountInfo)] == ["/moved", "/t"]


def test_mount_of_a_path() -> None:
    """The longest mount point that is a folder above the path wins, of equals the one mounted last."""
    mounts = parse(
        b"1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /mnt rw - ext4 b rw\n"
        b"3 2 8:3 / /mnt/deep rw - ext4 c rw\n4 1 8:4 / /mnt rw - ext4 d rw\n"
    )
    minors = {path: find_mount(mounts, path) for path in (b"/x", b"/mntx", b"/mnt", b"/mnt/y", b"/mnt/deep/z")}

    assert [mount.minor for mount in minors.values() if mount] == [1, 1, 4, 4, 3]
    assert find_mount([], b"/x") is None


@pytest.mark.parametrize(
    "line", [b"", b"a b 0:1 / / rw - x y z", b"1 2 3 / / rw - t s", b"1 0 8:1 / / rw -", b"1 0 8:1 / / rw ext4 a rw"]
)
def test_malformed_lines_are_left_out(line: bytes) -> None:
    """A line without its parts is no mount."""
    assert parse(line) == []


@given(st.binary())
def test_no_bytes_make_it_fail(data: bytes) -> None:
    """Whatever the file holds, parsing it gives mounts or nothing."""
    assert len(parse(data)) <= data.count(b"\n") + 1


@given(st.binary(max_size=20).filter(lambda name: b"\0" not in name))
def test_names_survive_the_kernels_escaping(name: bytes) -> None:
    """Undoing mangle() of fs/proc_namespace.c (blank, tab, newline, backslash) gives the name back."""
    escaped = b"".join(b"\\%03o" % byte if byte in b" \t\n\\" else bytes((byte,)) for byte in name)

    assert unescape(escaped) == name


def test_live_root_is_on_its_device() -> None:
    """The mount at / of this namespace has the device number that stat gives."""
    roots = [mount for mount in read(KernelFs()) if mount.mount_point == "/"]
    device = Path("/").stat().st_dev

    assert (roots[-1].major, roots[-1].minor) == (os.major(device), os.minor(device))


@pytest.mark.root
@pytest.mark.mount
def test_live_mount_with_newline_and_space_comes_and_goes(tmp_path: Path) -> None:
    """The kernel's poll tells of a mount and its end, and its own escaping is undone."""
    point = tmp_path / "a b\nc\\040d"
    point.mkdir()
    collector = MountReader(KernelFs())
    collector.read()
    subprocess.run(["mount", "-t", "tmpfs", "ckptprof test", str(point)], check=True)
    try:
        came = [mount for mount in collector.read() if isinstance(mount, MountInfo)]
    finally:
        subprocess.run(["umount", str(point)], check=True)
    went = list(collector.read())
    collector.close()

    (mount,) = [mount for mount in came if mount.mount_point == str(point)]
    assert (mount.fs_type, mount.source, mount.device) == ("tmpfs", "ckptprof test", None)
    assert EntityGone("mount", str(mount.mount_id)) in went


@pytest.mark.parametrize(
    ("has_pids", "init", "points"),
    [
        (True, REAL, ["/proc", "/"]),
        (True, b"9 8 0:77 / / rw - overlay overlay rw\n" + REAL.splitlines(keepends=True)[0], ["/"]),  # a service
        (False, REAL, ["/"]),
        (None, REAL, ["/"]),
        (True, None, ["/"]),
        (True, b"", ["/"]),
    ],
)
def test_a_container_with_the_hosts_pids_has_the_hosts_mounts(
    *, has_pids: bool | None, init: bytes | None, points: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of init, whose root is another one."""
    fs = tree(tmp_path, b"9 8 0:77 / / rw - overlay overlay rw\n")
    (tmp_path / "proc/1").mkdir()
    if init is not None:
        (tmp_path / "proc/1/mountinfo").write_bytes(init)
    monkeypatch.setattr(mountinfo, "has_host_pids", lambda _: has_pids)

    assert [one.mount_point for one in read(fs)] == points
