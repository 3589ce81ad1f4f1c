"""The Debian package: installed, upgraded, removed and purged under a real systemd of the release that it is for."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

import pytest
from bootedmachine import REPOSITORY, STATE, Machine, booted, python_of, quietly, tree, until

BUILD = REPOSITORY / "deploy/deb/build"
SETTINGS = "etc/ckptprof/config.toml"
pytestmark = [
    pytest.mark.root,
    pytest.mark.nspawn,
    pytest.mark.registry,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # it makes a Debian
    pytest.mark.xdist_group("systemd"),
]


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Return a booted machine of a release that has the package in /debs, and one that claims to be older."""
    work = tmp_path_factory.mktemp("deb")
    root = work / "root"
    quietly("cp", "--archive", "--reflink=auto", tree(request.param), root)
    shutil.rmtree(root / "etc/dpkg/dpkg.cfg.d")  # as on a host: nothing of a package is left out
    shutil.copytree(REPOSITORY / "examples", root / "opt/examples")
    quietly(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", work, REPOSITORY)
    quietly(
        BUILD, next(work.glob("*.whl")), work, python_of(root), environment={**os.environ, "PIP_PYTHON": sys.executable}
    )
    (made,) = work.glob("*.deb")
    (root / "debs").mkdir()
    shutil.copy(made, root / "debs/new.deb")
    quietly("dpkg-deb", "--raw-extract", made, work / "older")
    control = work / "older/DEBIAN/control"
    control.write_text(control.read_text().replace("\nVersion: ", "\nVersion: 0.0~"))
    quietly("dpkg-deb", "--root-owner-group", "--build", work / "older", root / "debs/old.deb")
    with booted(root) as machine:
        yield machine
    assert machine.leftovers() == []
    shutil.rmtree(work)


def is_active(machine: Machine) -> bool:
    """Return whether the service is active."""
    return machine.property("ActiveState") == "active"


def test_it_is_installed_upgraded_removed_and_purged(machine: Machine) -> None:
    """It records at once; an upgrade restarts it and keeps record and settings; a purge leaves nothing but the user."""
    machine.run("dpkg", "--install", "/debs/old.deb")
    until("the service", lambda: is_active(machine))
    assert [machine.property(name) for name in ("UnitFileState", "User")] == ["enabled", "ckptprof"]
    machine.train("--saves=2", "--interval=1.5", wait=True)
    shown = ("ckptprof", "list", "--db", f"{STATE}/ckptprof.db")
    until("a save", lambda: "save" in machine.call(*shown).stdout)
    with (machine.root / SETTINGS).open("a") as settings:
        settings.write("timeline_days = 7\n")
    before = machine.property("MainPID")

    machine.run("dpkg", "--install", "/debs/new.deb")
    until("the service", lambda: is_active(machine))
    assert machine.property("MainPID") != before
    assert machine.run("dpkg-query", "--show", "--showformat=${Version}", "ckptprof")[:4] != "0.0~"
    assert "timeline_days = 7\n" in (machine.root / SETTINGS).read_text()
    assert "save" in machine.run(*shown)
    assert machine.run("dpkg", "--verify", "ckptprof").split()[1:] == ["c", f"/{SETTINGS}"]  # the one file that differs

    machine.run("dpkg", "--remove", "ckptprof")
    assert machine.property("ActiveState") == "inactive"
    assert not (machine.root / "usr/lib/ckptprof").exists()
    assert (machine.root / STATE[1:] / "ckptprof.db").exists()
    assert (machine.root / SETTINGS).exists()
    machine.run("dpkg", "--install", "/debs/new.deb")
    until("the service", lambda: is_active(machine))

    machine.run("dpkg", "--purge", "ckptprof")
    for left in (STATE[1:], "etc/ckptprof", "usr/lib/ckptprof", "usr/bin/ckptprof"):
        assert not (machine.root / left).exists(), left
    assert machine.property("LoadState") == "not-found"
    assert not list(machine.root.glob("etc/systemd/system/*/ckptprof*"))
