"""What `ckptprof service` would do to a host, with a stand-in for systemd; the real one is in tests/systemd."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import psutil
import pytest
from tests.report.schemas import validate

from ckptprof.cli.main import main
from ckptprof.cli.shared import agent_settings
from ckptprof.errors import CkptprofError, PermissionDeniedError
from ckptprof.report import service as rendering
from ckptprof.report.document import dump, to_document
from ckptprof.service.commands import environment, installation
from ckptprof.service.commands.environment import Environment
from ckptprof.service.commands.installation import service_status
from ckptprof.store import location

HERE = Environment(Path("/opt/ckptprof/bin/python3"), Path("/opt/ckptprof/bin/ckptprof"))


class StandIn(installation.ServiceHost):
    """A host below a folder; systemd answers what it is told to, and what it is asked is kept."""

    def __init__(self, root: Path, **state: str) -> None:
        """Nothing is installed, unless `state` says so."""
        super().__init__(root)
        self.told = {"LoadState": "not-found", "ActiveState": "inactive", "UnitFileState": ""} | state
        self.user = False
        self.calls: list[str] = []

    def run_systemd(self, *command: str) -> str:
        """Do as systemd does."""
        self.calls.append(" ".join(command))
        if command[:2] == ("systemctl", "start"):
            self.told["ActiveState"] = "active"
        elif command[:2] == ("systemctl", "enable"):
            self.told["UnitFileState"] = "enabled"
        elif command[0] == "systemd-sysusers":
            self.user = True
        return ""

    def properties(self) -> dict[str, str]:
        """Return what was told."""
        return self.told

    def has_user(self) -> bool:
        """Return whether it was made."""
        return self.user


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be root, as far as Python knows."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def texts(steps: list[installation.InstallStep], root: Path) -> list[str]:
    """Return the steps in words, without the folder that stands for the root."""
    return [step.text.replace(str(root), "") for step in steps]


def test_a_new_host_gets_files_user_and_unit_in_this_order(tmp_path: Path, as_root: None) -> None:
    """And a second time there is nothing to do."""
    host = StandIn(tmp_path)
    steps = installation.install_steps(host, HERE)
    assert texts(steps, tmp_path) == [
        "write /etc/sysusers.d/ckptprof.conf",
        "write /etc/ckptprof/config.toml",
        "systemd-sysusers /etc/sysusers.d/ckptprof.conf",
        "write /etc/systemd/system/ckptprof.service",
        "systemctl daemon-reload",
        "systemctl enable --quiet ckptprof",
        "systemctl start ckptprof",
    ]
    assert not host.unit.exists()

    installation.run_steps(steps)

    agent = "/opt/ckptprof/bin/python3 -I /opt/ckptprof/bin/ckptprof agent --config /etc/ckptprof/config.toml"
    assert f"\nExecStart={agent}\n" in host.unit.read_text()
    assert host.unit.stat().st_mode & 0o777 == 0o644
    assert installation.install_steps(host, HERE) == []


def test_another_environment_replaces_the_unit_and_restarts(tmp_path: Path, as_root: None) -> None:
    """What is there already is kept; a service that gave up is given another chance."""
    host = StandIn(tmp_path)
    installation.run_steps(installation.install_steps(host, HERE))
    other = Environment(Path("/srv/p/bin/python3"), Path("/srv/p/bin/ckptprof"))
    unit = "replace /etc/systemd/system/ckptprof.service"

    assert texts(installation.install_steps(host, other), tmp_path) == [
        unit, "systemctl daemon-reload", "systemctl restart ckptprof"
    ]  # fmt: skip
    host.told["ActiveState"] = "failed"
    assert texts(installation.install_steps(host, other), tmp_path) == [
        unit, "systemctl daemon-reload", "systemctl start ckptprof"
    ]  # fmt: skip


def test_a_service_that_runs_the_version_before_an_upgrade_is_restarted_once(
    tmp_path: Path, as_root: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started before this version was installed: `status` says what to do, and `install` does it."""
    stands = "{ path=x ; argv[]=" + environment.current_environment().command + " agent ; ignore_errors=no }"
    host = StandIn(tmp_path, LoadState="loaded", ExecStart=stands, MainPID=str(os.getpid()))
    installation.run_steps(installation.install_steps(host, HERE))
    restart = ["systemctl restart ckptprof"]
    started = psutil.Process().create_time()

    def told(installed_at: float) -> tuple[list[str], bool]:
        """Return what is to be done if the files here are of such a time, and whether `status` says so."""
        monkeypatch.setattr(installation, "installed_at", lambda: installed_at)
        status = rendering.render(rendering.ActionResult("status", False, (), service_status(host)), width=120)  # noqa: FBT003 # as a struct's field
        return texts(
            installation.install_steps(host, HERE), tmp_path
        ), "root run `systemctl restart ckptprof`" in status

    assert [told(started - 1.0), told(started + 1.0)] == [([], False), (restart, True)]
    other = Environment(Path("/srv/p/bin/python3"), Path("/srv/p/bin/ckptprof"))
    assert texts(installation.install_steps(host, other), tmp_path)[-1:] == restart
    assert [step.text for step in installation.install_steps(host, other)].count(restart[0]) == 1
    host.told["MainPID"] = "0"
    assert told(started + 1.0) == ([], False)


def test_uninstalling_removes_what_was_put_there_and_nothing_else(tmp_path: Path, as_root: None) -> None:
    """A second time there is nothing to do."""
    host = StandIn(tmp_path)
    installation.run_steps(installation.install_steps(host, HERE))
    dropped = host.unit.parent / "ckptprof.service.d" / "mine.conf"
    dropped.parent.mkdir()
    dropped.touch()
    host.config.write_text("timeline_days = 7\n")
    installation.run_steps(installation.install_steps(host, HERE))
    host.calls.clear()

    installation.run_steps(installation.uninstall_steps(host))
    host.told["ActiveState"] = "inactive"

    assert [path for path in sorted(tmp_path.rglob("*")) if path.is_file()] == [host.config, dropped]
    assert host.config.read_text() == "timeline_days = 7\n"
    assert host.calls == ["systemctl disable --quiet --now ckptprof", "systemctl daemon-reload"]
    assert installation.uninstall_steps(host) == []


def test_only_root_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody else is told so before anything is done."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    host = StandIn(tmp_path)
    with pytest.raises(PermissionDeniedError):
        installation.run_steps(installation.install_steps(host, HERE))

    assert host.calls == []
    assert list(tmp_path.iterdir()) == []


def test_without_d_bus_a_user_is_told_what_files_tell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, as_root: None
) -> None:
    """As on a minimal Debian, where only root can ask systemd."""

    def no_bus(*_: str) -> str:
        raise CkptprofError("no bus")

    mute = installation.ServiceHost(tmp_path)
    monkeypatch.setattr(mute, "run_systemd", no_bus)
    with pytest.raises(CkptprofError, match="no bus"):
        mute.properties()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not service_status(mute).installed

    mute.unit.parent.mkdir(parents=True)
    mute.unit.write_text(f"[Service]\nExecStart={HERE.command} agent\n")
    monkeypatch.setattr(location, "UNIT_INVOCATION", mute.unit)
    told = service_status(mute)
    assert (told.installed, told.enabled, told.active, told.from_here) == (True, False, True, False)
    assert told.runs == f"{HERE.command} agent"


@pytest.mark.root
def test_an_environment_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    """Anywhere on the way, behind a link too; and one that the service's user cannot read."""
    folder = tmp_path / "opt"
    program = folder / "bin" / "ckptprof"
    program.parent.mkdir(parents=True)
    program.touch()
    assert environment.untrusted_reason(Path("/usr/bin/env")) is None
    assert environment.untrusted_reason(program) is not None  # below /tmp, where everybody writes

    link = tmp_path / "link"
    link.symlink_to("/usr/bin/env")
    assert str(tmp_path) in (environment.untrusted_reason(link) or "")  # which is for its owner only
    assert environment.untrusted_reason(Path("/tmp/x").parent) == "users other than root can write to /tmp"
    assert "No such file" in (environment.untrusted_reason(Path("/usr/bin/no-such-program")) or "")


def test_a_refusal_names_commands_for_an_environment_of_roots(tmp_path: Path) -> None:
    """They can be pasted: a path for the environment, what to install, and the command again."""
    mine = Environment(tmp_path / "bin/python", tmp_path / "bin/ckptprof")
    with pytest.raises(CkptprofError, match="must not run from this environment") as caught:
        environment.check_environment(mine)

    hint = caught.value.hint or ""
    assert "python3 -m venv /opt/ckptprof && /opt/ckptprof/bin/pip install " in hint
    assert hint.endswith(" && /opt/ckptprof/bin/ckptprof service install`")


def test_where_systemd_does_not_run_there_is_no_service(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A container has another way, and is told of it."""
    monkeypatch.setattr(installation, "SYSTEMD_RUNTIME", tmp_path / "none")

    assert main(["service", "status"]) == 1
    assert "this host does not run systemd" in capsys.readouterr().err


def test_nothing_is_installed_with_settings_that_the_service_would_refuse(
    as_root: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own file and those that it names: what is wrong is said before it fails, in a dry run, too."""
    host = StandIn(tmp_path)
    host.config.parent.mkdir(parents=True)
    monkeypatch.setattr(installation, "ServiceHost", lambda: host)
    monkeypatch.setattr(host, "check", lambda: None)
    monkeypatch.setattr(environment, "check_environment", lambda _: None)
    monkeypatch.setattr(agent_settings, "FILE", host.config)
    for dry_run in (["--dry-run"], []):
        for text, said in (
            ("levl = 1\n", "line 1: there is no setting 'levl'"),
            ('web_config = "web.yml"\n', "web_config is no longer a setting"),
            ('listen = "0.0.0.0:12578"\n', "beyond loopback"),
            (f'tls_cert = "{host.config}"\ntls_key = "/none"\nclient_ca = "/none"\n', "/none: No such file"),
        ):
            host.config.write_text(text)

            assert main(["service", "install", *dry_run]) != 0
            assert said in capsys.readouterr().err
    assert host.calls == []


@pytest.mark.parametrize("action", ["install", "status", "uninstall"])
def test_both_forms_tell_how_the_service_stands(action: str, tmp_path: Path) -> None:
    """The document fits its schema."""
    command = environment.current_environment().command
    stands = "{ path=x ; argv[]=" + command + " agent ; ignore_errors=no }"
    seen = {"LoadState": "loaded", "ActiveState": "active", "StatusText": "watching", "ExecStart": stands}
    for host in (StandIn(tmp_path), StandIn(tmp_path, **seen)):
        outcome = rendering.ActionResult(action, False, ("a step",), service_status(host))  # noqa: FBT003 # as a struct's field
        validate("service", json.loads(dump(to_document(outcome))))
        text = rendering.render(outcome, width=80)
        assert ("done: a step" in text) == (action != "status")
        assert ("Not removed: " in text) == (action == "uninstall")
        assert ("not installed" in text) != ("service   active, watching" in text)
    assert service_status(StandIn(tmp_path, **seen)).from_here is True
    assert sys.executable in command


def test_a_service_that_is_stopped_says_nothing_of_itself(tmp_path: Path) -> None:
    """The service manager keeps the last word of the dead, which was that it stores what is left."""
    seen = {"LoadState": "loaded", "ActiveState": "inactive", "StatusText": "storing the remaining data"}
    outcome = rendering.ActionResult(
        "install",
        True,  # noqa: FBT003 # as a struct's field
        ("systemctl daemon-reload",),
        service_status(StandIn(tmp_path, **seen)),
    )

    text = rendering.render(outcome, width=80)

    assert "service   inactive; " in text
    assert "to do: systemctl daemon-reload\n" in text
