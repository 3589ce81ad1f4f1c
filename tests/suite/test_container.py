"""The container in which the suite is proved has what Docker's has, and no more."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.patience import PATIENCE_SECONDS

CONTAINER = Path(__file__).resolve().parents[2] / ".ci/container"
DOCKERS = "00000000a80425fb"  # the mask of the capabilities that Docker gives, capabilities(7)
LOOK = """
grep -E '^Cap(Eff|Bnd)' /proc/self/status; id -u; df --output=size -m /dev/shm | tail -1; ls /dev
mount -t tmpfs none /mnt 2>/dev/null || echo no mount
unshare --mount true 2>/dev/null || echo no namespace
touch /proc/sys/kernel/hostname-x 2>/dev/null || echo read-only
exit 7
"""

pytestmark = [
    pytest.mark.root,
    pytest.mark.mount,
    pytest.mark.namespaces,
    pytest.mark.capabilities("SYS_ADMIN", "NET_ADMIN"),
    pytest.mark.programs("git", "ip", "pivot_root", "setpriv"),
    pytest.mark.slow,
]


@pytest.mark.parametrize(("flags", "uid", "effective"), [((), "0", DOCKERS), (("--user",), "1000", "0" * 16)])
def test_it_is_as_docker_makes_it(flags: tuple[str, ...], uid: str, effective: str) -> None:
    """For root and for an ordinary user; the exit code is the command's."""
    done = subprocess.run(
        [CONTAINER, *flags, "--", "sh", "-c", LOOK],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    lines = done.stdout.split("\n")

    assert done.returncode == 7, done.stderr
    assert lines[:3] == [f"CapEff:\t{effective}", f"CapBnd:\t{DOCKERS}", uid]
    assert lines[3].strip() == "64"
    assert {"null", "pts", "shm", "urandom"} <= set(lines)
    assert {"fuse", "kmsg", "loop-control"}.isdisjoint(lines)
    assert lines[-4:-1] == ["no mount", "no namespace", "read-only"]
