"""Limits on devices, of both versions of cgroups, in made-up trees and for real."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.leftovers import own

from ckptprof_collectors.devices.throttles import ThrottleReader, _read_v2, read_limits
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import ThrottleInfo


class Tree:
    """A made-up machine with one process, 7."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fs = KernelFs(proc=root / "proc", sys=root / "sys")
        for folder in ("proc/self", "proc/7", "sys/dev/block", "v1", "v2"):
            (root / folder).mkdir(parents=True)
        (root / "sys/dev/block/8:16").symlink_to("../../devices/pci/block/sdb")

    def mounts(self, v1_root: str = "/", v2_root: str = "/") -> None:
        """Mount both."""
        (self.root / "proc/self/mountinfo").write_text(
            f"30 20 0:26 {v1_root} {self.root}/v1 rw - cgroup cgroup rw,blkio\n"
            f"31 20 0:27 {v2_root} {self.root}/v2 rw - cgroup2 cgroup2 rw\n"
            f"32 20 0:28 / {self.root}/cpu rw - cgroup cgroup rw,cpu\n"
        )

    def inside(self, text: str) -> None:
        """Put process 7 into these cgroups."""
        (self.root / "proc/7/cgroup").write_text(text)

    def write(self, path: str, text: str) -> None:
        """Write a file of a cgroup."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a machine."""
    made = Tree(tmp_path)
    made.mounts()
    return made


def test_limits_of_both_versions_are_found_up_to_the_root(tree: Tree) -> None:
    """A limit above holds as well; one of a sibling does not."""
    tree.inside("5:cpu:/x\n4:blkio:/jobs/a\n0::/jobs/b\n")
    tree.write("v1/jobs/a/blkio.throttle.write_bps_device", "8:16 1000\n")
    tree.write("v1/blkio.throttle.read_iops_device", "8:16 50\n")
    tree.write("v1/jobs/z/blkio.throttle.write_bps_device", "8:16 7\n")
    tree.write("v2/jobs/io.max", "8:16 rbps=max wbps=2000 riops=max wiops=30\n9:0 rbps=max wbps=max\n")

    assert read_limits(tree.fs, 7) == [
        ThrottleInfo("8:16", "/jobs/a", None, 1000, None, None, "sdb", 7),
        ThrottleInfo("8:16", "/", None, None, 50, None, "sdb", 7),
        ThrottleInfo("8:16", "/jobs", None, 2000, None, 30, "sdb", 7),
    ]


def test_a_container_sees_its_own_part(tree: Tree) -> None:
    """What is mounted is not the root; what lies outside of it cannot be seen."""
    tree.mounts(v1_root="/docker/abc", v2_root="/elsewhere")
    tree.inside("4:blkio:/docker/abc/job\n0::/x\n")
    tree.write("v1/job/blkio.throttle.write_iops_device", "8:17 9\n")

    assert read_limits(tree.fs, 7) == [ThrottleInfo("8:17", "/docker/abc/job", None, None, None, 9, None, 7)]


def test_only_what_changed_is_told(tree: Tree) -> None:
    """And that a limit was lifted."""
    tree.inside("0::/a\n")
    tree.write("v2/a/io.max", "8:16 rbps=5\n")
    throttles = ThrottleReader(tree.fs)
    first, again = throttles.read_changes(7), throttles.read_changes(7)
    tree.write("v2/a/io.max", "8:16 rbps=6\n")
    changed = throttles.read_changes(7)
    tree.write("v2/a/io.max", "")
    lifted, later = throttles.read_changes(7), throttles.read_changes(7)

    assert [info.read_bytes_per_second for info in (*first, *again, *changed)] == [5, 6]
    assert lifted == [ThrottleInfo("8:16", "/a", None, None, None, None, "sdb", 7)]
    assert later == []


def test_a_process_that_is_gone_has_none(tree: Tree) -> None:
    """It raises nothing."""
    assert ThrottleReader(tree.fs).read_changes(8) == []
    tree.inside("garbage\n0::/../..\n:\n")
    assert read_limits(tree.fs, 7) == []


@given(data=st.binary(max_size=120))
def test_no_bytes_make_it_fail(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever io.max holds."""
    folder = tmp_path_factory.getbasetemp() / "io"
    folder.mkdir(exist_ok=True)
    (folder / "io.max").write_bytes(data + b"\n8:16 wbps=5\n")

    limits = _read_v2(os.fsencode(folder))
    assert limits.get(b"8:16", {}).get("write_bytes_per_second") == 5


@pytest.mark.root
def test_a_limit_that_is_set_for_real_is_seen() -> None:
    """On the first disk of this machine, for a process that does nothing."""
    base = Path("/sys/fs/cgroup/blkio")
    if not (base / "blkio.throttle.write_bps_device").exists():
        pytest.skip("no blkio controller of cgroup v1")
    disks = [name for name in sorted(os.listdir("/sys/block")) if not name.startswith(("ram", "zram"))]  # noqa: PTH208 - names
    if not disks:
        pytest.skip("no disk")
    device = Path(f"/sys/block/{disks[0]}/dev").read_text().strip()
    group = base / own(f"throttled-{os.getpid()}")
    group.mkdir()
    try:
        with subprocess.Popen(["/usr/bin/sleep", "30"]) as child:
            (group / "cgroup.procs").write_text(str(child.pid))
            (group / "blkio.throttle.write_bps_device").write_text(f"{device} 123456789")
            found = read_limits(KernelFs(), child.pid)
            child.kill()
    finally:
        group.rmdir()

    mine = [info for info in found if info.cgroup.endswith(group.name)]
    assert [(info.device, info.write_bytes_per_second, info.name) for info in mine] == [(device, 123456789, disks[0])]
