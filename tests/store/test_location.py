"""Where the database is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckptprof.errors import StoreError
from ckptprof.store import location


def test_root_has_the_service_database_and_others_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """XDG's state directory if it is absolute, else ~/.local/state."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert location.default_path() == Path("/var/lib/ckptprof/ckptprof.db")

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert location.default_path() == tmp_path / "ckptprof" / "ckptprof.db"

    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/u")
    assert location.default_path() == Path("/home/u/.local/state/ckptprof/ckptprof.db")


@pytest.mark.parametrize(("there", "asked"), [({"own", "service"}, "own"), ({"service"}, "service"), (set(), "own")])
def test_who_has_no_database_asks_that_of_the_service(
    there: set[str], asked: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If this user may read it; a user without a home may do so, too."""
    paths = {"own": tmp_path / "state/ckptprof/ckptprof.db", "service": tmp_path / "ckptprof.db"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(location, "SERVICE_DATABASE", paths["service"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    paths["own"].parent.mkdir(parents=True)
    for name in there:
        paths[name].touch()

    assert location.path_to_read() == paths[asked]
    assert location.default_path() == paths["own"]

    def homeless() -> Path:
        raise StoreError("no home")

    monkeypatch.setattr(location, "default_path", homeless)
    if "service" in there:
        assert location.path_to_read() == paths["service"]
    else:
        with pytest.raises(StoreError, match="no home"):
            location.path_to_read()


def test_a_missing_database_is_told_with_what_this_host_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With and without systemd; with the service running, for who may read its record and who may not."""
    own, service = tmp_path / "own.db", tmp_path / "ckptprof.db"
    monkeypatch.setattr(location, "SERVICE_DATABASE", service)
    monkeypatch.setattr(location, "SYSTEMD_RUNTIME", tmp_path / "systemd")
    monkeypatch.setattr(location, "UNIT_INVOCATION", tmp_path / "running")
    assert "`ckptprof agent` as root" in location.missing_data_hint(own)
    location.SYSTEMD_RUNTIME.mkdir()
    assert "`ckptprof service install` as root" in location.missing_data_hint(own)

    location.UNIT_INVOCATION.symlink_to("an-invocation-that-is-no-file")
    assert "usermod -aG ckptprof USER" in location.missing_data_hint(own)
    assert "has just started" in location.missing_data_hint(service)
    service.touch()
    assert f"records to {service}" in location.missing_data_hint(own)


def test_paths_and_urls(tmp_path: Path) -> None:
    """A URL is refused by its kind, without its password."""
    path = tmp_path / "with ? and % and #.db"

    assert location.path_of_database(str(path)) == path
    with pytest.raises(StoreError, match="'postgresql' is not supported") as caught:
        location.path_of_database("postgresql://u:secret@h/db")
    assert "secret" not in str(caught.value)


def test_a_path_that_is_no_text_is_shown_escaped() -> None:
    """An error line never holds a surrogate."""
    assert location.printable_path(Path(os.fsdecode(b"/tmp/\xff.db"))) == "/tmp/\\xff.db"


def test_knowing_the_place_imports_no_sqlalchemy() -> None:
    """The command line asks for the default path before it knows whether it needs the store."""
    code = "import ckptprof.store.location, ckptprof.store.timeline, sys; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
