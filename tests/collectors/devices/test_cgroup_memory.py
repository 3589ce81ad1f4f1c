"""The memory of cgroups with a limit, of both versions, in made-up trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptprof_collectors.devices.throttles import find_nearest
from ckptprof_collectors.kernelfs import KernelFs

STAT = {
    "v1": "inactive_file 1\nactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n",
    "v2": "anon 5\nfile 300\ninactive_file 200\nactive_file 100\n",
}
LIMIT = {"v1": "memory.limit_in_bytes", "v2": "memory.max"}
USAGE = {"v1": "memory.usage_in_bytes", "v2": "memory.current"}
NONE = {"v1": "9223372036854771712", "v2": "max"}


@pytest.fixture(params=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> str:
    """Return a version of cgroups."""
    return str(request.param)


def machine(root: Path, version: str, limits: dict[str, tuple[str, int]]) -> KernelFs:
    """Return a machine with process 7 in /a/b, and cgroups with (limit, usage)."""
    kind = "cgroup2 rw" if version == "v2" else "cgroup rw,memory"
    for folder in ("proc/self", "proc/7", "top/a/b"):
        (root / folder).mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(f"30 20 0:26 / {root}/top rw - {kind.split(maxsplit=1)[0]} {kind}\n")
    (root / "proc/7/cgroup").write_text("0::/a/b\n" if version == "v2" else "5:cpu:/x\n4:memory:/a/b\n")
    for name, (limit, usage) in limits.items():
        (root / f"top{name}" / LIMIT[version]).write_text(f"{limit}\n")
        (root / f"top{name}" / USAGE[version]).write_text(f"{usage}\n")
        (root / f"top{name}" / "memory.stat").write_text(STAT[version])
    return KernelFs(proc=root / "proc", sys=root / "sys")


def test_the_nearest_limit_counts_without_page_cache(version: str, tmp_path: Path) -> None:
    """A cgroup above may have less left; one without a limit has none, nor has the host."""
    fs = machine(tmp_path, version, {"/a/b": ("5000", 1300), "/a": ("6000", 5300), "/": (NONE[version], 9000)})
    above = find_nearest(fs, 7)
    (tmp_path / "top/a" / USAGE[version]).write_text("1400\n")
    own = find_nearest(fs, 7)

    assert above is not None
    assert own is not None
    assert (above.folder, above.limit_bytes, above.read_used()) == (bytes(tmp_path / "top/a"), 6000, 1100)
    assert (own.folder, own.limit_bytes, own.read_used()) == (bytes(tmp_path / "top/a/b"), 5000, 1000)


def test_what_cannot_be_read_is_unknown(version: str, tmp_path: Path) -> None:
    """A process that has ended has no cgroup; a file that is missing or says nothing has no number."""
    fs = machine(tmp_path, version, {"/a/b": ("5000", 1300), "/a": ("much", 1)})
    (tmp_path / "top/a/b/memory.stat").write_text("anon 5\n")
    found = find_nearest(fs, 7)

    assert found is not None
    assert (found.limit_bytes, found.read_used()) == (5000, None)
    assert find_nearest(fs, 8) is None
