"""Whoever interrupts the tests, nothing of them is left on the host: tests/leftovers.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.leftovers import CGROUPS, PLACES
from tests.machine import held
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.suite.ownrules import copy_rules

ROOT = Path(__file__).resolve().parents[2]
# Leaves all that a test can leave, and says what; what is not allowed here is not left
CASES = """
import contextlib, json, os, subprocess, tempfile, time
from pathlib import Path
from tests.leftovers import CGROUPS, given_back, own, own_link
def test_leaves_it(tmp_path):
    def call(*command): return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lost = int(call("sh", "-c", "setsid sleep 1200 >&- 2>&- & echo $!"))
    names = [own("place"), own_link("one")]
    folder = tempfile.mkdtemp(prefix=own("place-"), dir="/var/tmp")
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        call("ip", "link", "add", own_link("one"), "type", "veth", "peer", "name", own_link("two"))
        call("ip", "netns", "add", own("place"))
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        image = Path(folder, "image")
        image.touch()
        os.truncate(image, 8 << 20)
        call("mkfs.ext4", "-q", image)
        call("mount", "-o", "loop", image, tmp_path)
        call("mount", "-t", "tmpfs", "none", folder)
    for hierarchy in (one for one in (CGROUPS, *CGROUPS.iterdir()) if (one / "cgroup.procs").exists()):
        with contextlib.suppress(OSError):
            (hierarchy / own("place") / "below").mkdir(parents=True)
            (hierarchy / own("place") / "below/cgroup.procs").write_text(str(lost))
    setting = Path("setting")
    with given_back(setting, "as before"):
        setting.write_text("lowered")
        told = {"lost": lost, "names": names, "places": [str(tmp_path), folder], "setting": str(setting.resolve())}
        Path("written").write_text(json.dumps(told))
        os.rename("written", "left")
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(1200)
        time.sleep(1200)
"""


def mounts_and_loops() -> str:
    """Return what is mounted, whoever sees it, and on which files loop devices lie."""
    said = []
    for path in (*Path("/sys/block").glob("loop*/loop/backing_file"), *Path("/proc").glob("[0-9]*/mountinfo")):
        with contextlib.suppress(OSError):  # its process has ended
            said.append(path.read_text())
    return "".join(said)


def named(names: Iterable[str]) -> list[Path]:
    """Return what has one of these names, wherever such a thing may be."""
    folders = (*map(Path, PLACES), Path("/sys/class/net"))
    found = [path for name in names for folder in folders for path in folder.glob(f"{name}*")]
    return [*found, *(path for name in names for path in CGROUPS.rglob(f"{name}*"))]


@pytest.mark.slow
def test_who_interrupts_the_tests_finds_nothing_of_them(tmp_path: Path) -> None:
    """No process though it has a session of its own, no mount, interface, namespace, cgroup, folder or setting."""
    copy_rules(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_cases.py").write_text(CASES)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "CKPTPROF_"))}
    command = [sys.executable, str(ROOT / "tests/tries.py"), "--workers", "1", "-p", "no:cacheprovider"]
    environment = {**inherited, "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
    with (tmp_path / "said").open("wb") as said:
        tries = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
    left = tmp_path / "left"
    wait_until(lambda: left.exists() or tries.poll() is not None)
    told: dict[str, Any] = json.loads(left.read_text())
    there = psutil.Process(told["lost"]), *psutil.Process(tries.pid).children(recursive=True)
    if held("SYS_ADMIN", "NET_ADMIN"):
        assert len(named(told["names"])) >= 3  # the interface, the namespace, a cgroup
        assert all(place in mounts_and_loops() for place in told["places"])

    tries.send_signal(signal.SIGTERM)
    code = tries.wait(PATIENCE_SECONDS)

    printed = (tmp_path / "said").read_text()
    assert code == 2, printed
    assert "not all of them ran to their end" in printed
    assert not [one for one in there if one.is_running()]
    assert named(told["names"]) == []
    assert not [place for place in told["places"] if place in mounts_and_loops()]
    assert Path(told["setting"]).read_text() == "as before"
