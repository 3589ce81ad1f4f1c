"""The unit of the shipper under a real systemd: its timer, its sandbox, the address it may reach, kill -9."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bootedmachine import Machine, booted, copy_of_tree, fetch, inside, install, until
from pyarrow import parquet

from ckptprof.assets import asset

pytestmark = [
    pytest.mark.root,
    pytest.mark.nspawn,
    pytest.mark.registry,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # the first of them makes a Debian and installs into it
    pytest.mark.xdist_group("systemd"),
]
UNIT = "ckptprof-ship"
FLEET = "srv/fleet"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Return a booted machine on which the service runs, with a folder for a fleet."""
    work = tmp_path_factory.mktemp("ship")
    root = copy_of_tree(work)
    install(root)
    fetch(root, "pyarrow")
    inside(root, "/opt/ckptprof/bin/pip install --quiet --no-index --find-links=/wheels pyarrow")
    for name in (f"{UNIT}.service", f"{UNIT}.timer"):
        shutil.copy(asset(f"systemd/{name}"), root / "etc/systemd/system")
    with booted(root) as machine:
        until("the service", lambda: machine.property("ActiveState") == "active")
        machine.run("install", "-d", "-o", "ckptprof", f"/{FLEET}")
        to(machine, f"/{FLEET}")
        yield machine
    assert machine.leftovers() == []
    shutil.rmtree(work)


def to(machine: Machine, target: str, *settings: str) -> None:
    """Let the shipper have a target."""
    folder = machine.root / f"etc/systemd/system/{UNIT}.service.d"
    folder.mkdir(exist_ok=True)
    lines = ["[Service]", f"Environment=CKPTPROF_SHIP_TO={target}", f"ReadWritePaths=/{FLEET}", *settings, ""]
    (folder / "10-to.conf").write_text("\n".join(lines))
    machine.run("systemctl", "daemon-reload")


def train(machine: Machine) -> None:
    """Save more, and wait until that is reported."""
    before = len(machine.steps())
    machine.train("--saves=2", "--interval=1.5", wait=True)
    until("a save more", lambda: len(machine.steps()) > before)


def ship(machine: Machine) -> bool:
    """Return whether a run succeeds."""
    return machine.call("systemctl", "start", UNIT).returncode == 0


def shipped(machine: Machine) -> list[object]:
    """Return the steps that the fleet has, one for each checkpoint."""
    found: dict[str, object] = {}
    for path in sorted(Path(machine.root / FLEET).rglob("*.parquet")):
        found.update((row["uid"], row["step"]) for row in parquet.read_table(path, partitioning=None).to_pylist())
    return sorted(found.values(), key=str)


def test_it_ships_all_of_it(machine: Machine) -> None:
    """Into the folder that it may write to; after a kill as well."""
    train(machine)
    machine.call("systemctl", "start", "--no-block", UNIT)
    machine.call("systemctl", "kill", "--signal=KILL", UNIT)

    until("all of it", lambda: ship(machine) and shipped(machine) == sorted(machine.steps(), key=str))


def test_its_timer_starts_it(machine: Machine) -> None:
    """As long as it is enabled."""
    machine.run("systemctl", "enable", "--now", f"{UNIT}.timer")
    assert machine.run("systemctl", "show", "--property=Unit", "--value", f"{UNIT}.timer") == f"{UNIT}.service\n"
    assert machine.run("systemctl", "show", "--property=NextElapseUSecRealtime", "--value", f"{UNIT}.timer").strip()
    machine.run("systemctl", "disable", "--now", f"{UNIT}.timer")


def test_it_reaches_no_address_that_is_not_allowed(machine: Machine) -> None:
    """A store on loopback is none of those."""
    if not machine.filters_addresses():
        pytest.skip("systemd has no unified hierarchy of cgroups here, and filters no addresses")
    train(machine)  # without a checkpoint it has nothing to send
    to(machine, "s3://fleet/site?scheme=http&endpoint_override=127.0.0.1%%3A9", "Environment=AWS_MAX_ATTEMPTS=1")
    try:
        assert not ship(machine)
    finally:
        to(machine, f"/{FLEET}")


def test_it_is_little_exposed(machine: Machine) -> None:
    """By systemd's own judgement."""
    exposed = machine.run("systemd-analyze", "security", "--threshold=15", "--no-pager", UNIT)
    assert "OK" in exposed.splitlines()[-1]
