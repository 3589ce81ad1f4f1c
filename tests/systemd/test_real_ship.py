"""The unit of the shipper under a real systemd: its credential, its sandbox, the address it may reach, kill -9."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from bootedmachine import PROGRAM, Machine, booted, copy_of_tree, fetch, inside, install, until
from tests.postgres import Server, served

from ckptprof.assets import asset

pytestmark = [
    pytest.mark.root,
    pytest.mark.nspawn,
    pytest.mark.postgres,
    pytest.mark.registry,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # the first of them makes a Debian and installs into it
    pytest.mark.xdist_group("systemd"),
]
UNIT = "ckptprof-ship"
OTHERS, HERE = "IPAddressAllow=192.0.2.10", "IPAddressAllow=127.0.0.1\nIPAddressAllow=::1"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Return a booted machine on which the service runs, with what the shipper needs beside it."""
    work = tmp_path_factory.mktemp("ship")
    root = copy_of_tree(work)
    install(root)
    fetch(root, "psycopg[binary]")
    inside(root, "/opt/ckptprof/bin/pip install --quiet --no-index --find-links=/wheels 'psycopg[binary]'")
    shutil.copy(asset(f"systemd/{UNIT}.service"), root / "etc/systemd/system")
    with booted(root) as machine:
        until("the service", lambda: machine.property("ActiveState") == "active")
        yield machine
    assert machine.leftovers() == []
    shutil.rmtree(work)


@pytest.fixture(scope="module")
def server(machine: Machine) -> Iterator[Server]:
    """Return a server on the machine's own loopback."""
    with served(within=machine.network) as server:
        yield server


@pytest.fixture(scope="module")
def fleet(machine: Machine, server: Server) -> str:
    """Return a database with a role of this node, to which the drop-in leads."""
    database = server.database()
    node = server.role(machine.run("hostname").strip(), "ckptprof_node")
    (machine.root / "etc/hosts").write_text("127.0.0.1 localhost\n")  # nobody else would know the name here
    folder = machine.root / "etc/ckptprof"
    folder.mkdir(exist_ok=True)
    shutil.copy(server.certificate, folder / "ca.pem")
    (folder / "ca.pem").chmod(0o644)
    (folder / "ship-password").write_text(f"{node}\n")
    (folder / "ship-password").chmod(0o600)
    url = f"{server.url(database, node, 'localhost')}?sslrootcert=/etc/ckptprof/ca.pem"
    example = asset(f"systemd/{UNIT}.service.d/10-to.conf.example").read_text(encoding="utf-8")
    kept = [line for line in example.splitlines() if not line.startswith(("IPAddressAllow=", "Environment="))]
    text = "\n".join([*kept, f"Environment=CKPTPROF_SHIP_TO={url}", ""])
    place = machine.root / f"etc/systemd/system/{UNIT}.service.d"
    place.mkdir()
    (place / "10-to.conf").write_text(text)
    return database


def train(machine: Machine) -> None:
    """Save more, and wait until that is told."""
    before = len(machine.steps())
    machine.train("--saves=2", "--interval=1.5", wait=True)
    until("a save more", lambda: len(machine.steps()) > before)


def configured(machine: Machine, *settings: str) -> None:
    """Give the shipper some settings beyond those of the example."""
    path = machine.root / f"etc/systemd/system/{UNIT}.service.d/20-test.conf"
    path.write_text("\n".join(["[Service]", *settings, ""]))
    machine.run("systemctl", "daemon-reload")


def sent_once(machine: Machine, allowed: str) -> bool:
    """Return whether the unit could send, with leave to reach some addresses; it ends then, and waits for no turn."""
    command = f"/opt/ckptprof/bin/python3 -I {PROGRAM} ship --once"
    configured(machine, allowed, "Type=oneshot", "Restart=no", "ExecStart=", f"ExecStart={command}")
    return machine.call("systemctl", "start", UNIT).returncode == 0


def shipped(server: Server, fleet: str) -> list[object]:
    """Return the steps that the server has, one for each checkpoint."""
    return [step for (step,) in server.ask("SELECT step FROM ckptprof.checkpoints ORDER BY step", fleet)]


def test_it_reaches_no_address_that_is_not_allowed(machine: Machine, server: Server, fleet: str) -> None:
    """The server answers on loopback, and the drop-in allows another address alone."""
    train(machine)
    before = shipped(server, fleet)
    sent = sent_once(machine, OTHERS)
    if not machine.filters_addresses():
        pytest.skip("systemd has no unified hierarchy of cgroups here, and filters no addresses")

    assert not sent
    assert "timeout expired" in machine.run("journalctl", "--boot", f"--unit={UNIT}", "--output=cat", "--no-pager")
    assert shipped(server, fleet) == before


def test_it_ships_by_its_credential_to_the_address_that_it_may_reach(
    machine: Machine, server: Server, fleet: str
) -> None:
    """Over TLS, as the role of its node; all that was recorded."""
    train(machine)

    assert sent_once(machine, HERE)
    until("all that is over", lambda: sent_once(machine, HERE) and shipped(server, fleet) == sorted(machine.steps()))


def test_it_goes_on_where_it_was_after_a_kill(machine: Machine, server: Server, fleet: str) -> None:
    """Systemd starts it again; nothing is lost, nothing twice."""
    configured(machine, HERE, "RestartSec=1")
    machine.run("systemctl", "restart", UNIT)
    machine.run("systemctl", "kill", "--signal=KILL", UNIT)
    until("another start", lambda: machine.run("systemctl", "show", "--property=NRestarts", "--value", UNIT) == "1\n")
    train(machine)
    before = len(shipped(server, fleet))

    until("its turn", lambda: len(shipped(server, fleet)) > before)  # within two minutes after something changed
    until("all of it, once", lambda: shipped(server, fleet) == sorted(machine.steps()))


def test_it_has_no_right_and_is_little_exposed(machine: Machine, fleet: str) -> None:
    """No capability in any set, nothing that it could write, and systemd's own judgement; nobody reads its password."""
    assert fleet
    configured(machine, HERE)
    machine.run("systemctl", "restart", UNIT)
    pid = int(until("a process", lambda: machine.run("systemctl", "show", "--property=MainPID", "--value", UNIT)))
    sets = machine.capabilities(pid)

    assert {name: int(mask, 16) for name, mask in sets.items()} == dict.fromkeys(sets, 0)
    mounts = machine.run("cat", f"/proc/{pid}/mountinfo").splitlines()
    assert all(mount.split()[5].startswith("ro") for mount in mounts if mount.split()[4] in ("/", "/var/lib/ckptprof"))
    assert machine.call("cat", "/etc/ckptprof/ship-password", user="trainer").returncode != 0
    exposed = machine.run("systemd-analyze", "security", "--threshold=15", "--no-pager", UNIT)
    assert "OK" in exposed.splitlines()[-1]
