"""An upgrade of 0.1.0 under a real systemd, by the commands of docs/deployment.md, while a job saves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bootedmachine import DATABASE, PROGRAM, REPOSITORY, Machine, booted, copy_of_tree, fetch, inside, quietly, until

from ckptprof import __version__

RELEASED = "f72a3e7e"  # 0.1.0 has no tag: what main held at the end of its day
SETTINGS = "etc/ckptprof/config.toml"
pytestmark = [
    pytest.mark.root,
    pytest.mark.nspawn,
    pytest.mark.registry,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # it makes a Debian
    pytest.mark.xdist_group("systemd"),
]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return a booted machine with 0.1.0 in /opt/ckptprof, not yet as a service, and this version in /wheels."""
    if subprocess.call(["git", "-C", REPOSITORY, "cat-file", "-e", RELEASED], stderr=subprocess.DEVNULL):
        pytest.skip("this checkout has no history of 0.1.0")
    root, old = copy_of_tree(tmp_path), tmp_path / "old"
    old.mkdir()
    quietly("sh", "-euc", f"git -C {REPOSITORY} archive {RELEASED} | tar -x -C {old}")
    quietly(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", old / "dist", old)
    fetch(root, *(old / "dist").glob("*.whl"))
    pip = "/opt/ckptprof/bin/pip install --quiet --no-index --find-links=/wheels"
    inside(root, f"python3 -m venv /opt/ckptprof; {pip} ckptprof==0.1.0.dev0")
    with booted(root) as machine:
        yield machine
    assert machine.leftovers() == []


def test_what_0_1_0_recorded_is_there_after_the_upgrade(
    machine: Machine, record_property: Callable[[str, object], None]
) -> None:
    """With its settings; its verdicts are marked, the saves that follow are recorded, and there is one gap."""
    machine.run(PROGRAM, "service", "install")
    until("the service", lambda: machine.property("ActiveState") == "active")
    with (machine.root / SETTINGS).open("a") as settings:
        settings.write("timeline_days = 7\n")
    machine.train("--saves=60", "--interval=1", wait=False)
    before = until("two saves", lambda: steps if len(steps := machine.steps()) >= 2 else None)
    page = (REPOSITORY / "docs/deployment.md").read_text(encoding="utf-8").partition("\n## Upgrade and removal\n")[2]
    commands = re.findall(r"^/opt/ckptprof/bin/(?:pip|ckptprof service install).*", page, re.MULTILINE)
    assert len(commands) == 2
    (wheel,) = (machine.root / "wheels").glob(f"ckptprof-{__version__}-*.whl")
    offline = "export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels; "
    for command in commands:
        machine.run("sh", "-euc", offline + command.replace("/path/to/checkout", f"/wheels/{wheel.name}"))
        assert machine.steps()[: len(before)] == before  # between the two as well

    assert machine.run(PROGRAM, "version").split()[1] == __version__
    until("the service", lambda: machine.property("ActiveState") == "active")
    after = until("two more saves", lambda: steps if len(steps := machine.steps()) >= len(before) + 2 else None)
    assert after[: len(before)] == before
    assert {*after} - {None} <= {save["step"] for save in machine.truth()}
    assert (machine.root / SETTINGS).read_text().endswith("timeline_days = 7\n")
    first = json.loads(machine.run(PROGRAM, "show", "1", "--json", "--db", DATABASE))["checkpoint"]
    assert first["verdict"]["sentence"].endswith("(Decided by an older ckptprof.)")
    (gap,) = machine.report()["watched"]["gaps"]
    record_property("figure", f"upgrade of 0.1.0: not watched for {(gap['end_ns'] - gap['start_ns']) / 1e9:.1f} s")
