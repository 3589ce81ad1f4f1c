"""What the unit's capabilities reach, and what ProtectHome= hides: the claims of systemd/README.md, on the kernel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.leftovers import own
from tests.patience import LIFETIME

PYTHON = shutil.which("python3", path="/usr/bin") or ""  # one that any user may run
PROBE = """
import json, os, sys
pid, path = sys.argv[1:]
def seen(look):
    try:
        return look()
    except OSError as error:
        return error.strerror
print(json.dumps({
    "direct": seen(lambda: os.stat(path).st_size),
    "root": seen(lambda: os.stat(f"/proc/{pid}/root{path}").st_size),
    "link": seen(lambda: os.readlink(f"/proc/{pid}/fd/0")),
    "io": seen(lambda: len(open(f"/proc/{pid}/io").read()) > 0),
    "write": seen(lambda: os.close(os.open(f"/proc/{pid}/root{path}", os.O_WRONLY))),
    "mounted": sum(line.split()[4] == os.path.dirname(os.path.dirname(path)) for line in open("/proc/self/mountinfo")),
}))
"""

pytestmark = [
    pytest.mark.root,
    pytest.mark.mount,
    pytest.mark.capabilities("SYS_PTRACE", "DAC_READ_SEARCH"),
    pytest.mark.skipif(not PYTHON, reason="no /usr/bin/python3"),
]


@pytest.fixture
def job() -> Iterator[tuple[int, Path]]:
    """Return a process of another user that has a file open in its private home."""
    home = Path(tempfile.mkdtemp(prefix=own("home-"), dir="/var/tmp"))  # not tmp_path: that is closed to others
    secret = home / "private" / "model.pt"
    secret.parent.mkdir()
    secret.write_bytes(b"x" * 100)
    for path, mode in ((home, 0o700), (secret.parent, 0o700), (secret, 0o600)):
        os.chown(path, 4321, 4321)
        path.chmod(mode)
    with secret.open("rb") as stdin:
        process = subprocess.Popen(["/usr/bin/sleep", LIFETIME], stdin=stdin, user=4321, group=4321, extra_groups=[])
    yield process.pid, secret
    process.kill()
    process.wait()
    shutil.rmtree(home)


def look(job: tuple[int, Path], capabilities: str, hide: str) -> dict[str, object]:
    """Look at the job as an unprivileged user with these capabilities, its home hidden as systemd would."""
    pid, path = job
    home = path.parent.parent
    prepare = {
        "no": "true",
        "read-only": f"mount --bind {home} {home} && mount -o remount,ro,bind {home}",
        "yes": f"mount -t tmpfs -o mode=000 none {home}",
    }[hide]
    caps = f"-all{capabilities}"
    become = f"setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --inh-caps={caps}"
    become += f" --ambient-caps={caps} --bounding-set={caps} {PYTHON} -I -c '{PROBE.replace(chr(39), chr(34))}'"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{prepare} && {become} "$0" "$1"', str(pid), str(path)],
        capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("hide", ["no", "read-only", "yes"])
def test_both_capabilities_reach_a_private_home(job: tuple[int, Path], hide: str) -> None:
    """Through /proc/PID/root a file in another user's closed home is seen whatever ProtectHome= says, never written."""
    found = look(job, ",+sys_ptrace,+dac_read_search", hide)
    assert (found["root"], found["io"], found["link"]) == (100, True, str(job[1]))
    assert found["write"] in {"Permission denied", "Read-only file system"}
    assert found["direct"] == ("No such file or directory" if hide == "yes" else 100)


@pytest.mark.parametrize(
    ("capability", "missing"), [(",+sys_ptrace", "root"), (",+dac_read_search", "io"), ("", "root")]
)
def test_one_capability_alone_does_not_do(job: tuple[int, Path], capability: str, missing: str) -> None:
    """Each of the two is needed, so the unit may drop neither."""
    assert look(job, capability, "no")[missing] == "Permission denied"


def test_protect_home_yes_would_hide_the_mount_of_a_home(job: tuple[int, Path]) -> None:
    """With `yes` something else is mounted over it in the agent's own table: why the unit says `read-only`."""
    pid, path = job
    home = path.parent.parent
    found = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs -o mode=000 none {home} && stat -c %d {home}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(found.stdout) != home.stat().st_dev
    assert pid > 0
