"""The settings of the agent: from its options, the environment, a file and the defaults, in this order."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.leftovers import own
from tests.report.schemas import validate

from ckptprof.assets import asset
from ckptprof.cli.main import main
from ckptprof.cli.shared import agent_settings
from ckptprof.store import location

NAMING = ("tls_cert", "tls_key", "client_ca", "textfile")  # settings that name a file


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of settings, which is not written yet; nothing of the outside's settings is there."""
    for name in ("CKPTPROF_DB", "CKPTPROF_LEVEL", "CKPTPROF_LISTEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "config.toml"


def test_each_value_names_its_source(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option wins over the environment, that over the file, and that over the default."""
    file.write_text(
        'level = "trace"\nlisten = "[::1]:1"\ntimeline_days = 7\nno_metrics = true\nmetrics = "minimal"\n'
        "job_names = true\nrate = 5\n"
    )
    monkeypatch.setenv("CKPTPROF_LEVEL", "poll")
    monkeypatch.setenv("CKPTPROF_LISTEN", "127.0.0.1:2")

    assert main(["config", "--config", str(file), "--listen", "127.0.0.1:3", "--no-job-names", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    validate("config", told)
    assert told["found"]
    assert {one["name"]: (one["value"], one["source"]) for one in told["settings"] if one["name"] != "db"} == {
        "level": ("poll", "environment"),
        "rate": (5.0, "file"),
        "cpu_budget": (5.0, "default"),
        "no_metrics": (True, "file"),
        "metrics": ("minimal", "file"),
        "job_names": (False, "option"),
        "listen": ("127.0.0.1:3", "option"),
        "tls_cert": (None, "default"),
        "tls_key": (None, "default"),
        "client_ca": (None, "default"),
        "textfile": (None, "default"),
        "timeline_days": (7, "file"),
        "max_bytes": (1 << 30, "default"),
    }


def test_the_text_has_a_line_for_each(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And one for the file."""
    file.write_text("max_bytes = 2_000_000_000\n")
    assert main(["config", "--config", str(file)]) == 0

    out = capsys.readouterr().out
    assert re.search(r"(?m)^max_bytes +2000000000 +file$", out)
    assert re.search(r"(?m)^tls_cert +none +default$", out)
    assert out.endswith(f"\nfile: {file}\n")


def test_where_the_service_records_is_said(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To who would have another place: a `report` without --db may ask the one or the other."""
    file.touch()
    said = f"the service records to {location.SERVICE_DATABASE}"
    for runs, db, told in (
        (True, "/home/alice/x.db", True),
        (True, str(location.SERVICE_DATABASE), False),
        (False, "x", False),
    ):
        monkeypatch.setattr(location, "is_service_running", lambda runs=runs: runs)
        assert main(["config", "--config", str(file), "--db", db]) == 0
        assert (said in capsys.readouterr().out) is told


@pytest.mark.parametrize("command", ["config", "agent"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("timelin_days = 3", "line 2: there is no setting 'timelin_days'\nhint: did you mean 'timeline_days'?"),
        ('timeline_days = "3"', "line 2: timeline_days: expected a whole number, got a string in quotes"),
        ("timeline_days = 0", "line 2: timeline_days: expected a whole number >= 1"),
        ("rate = 0.1", "line 2: rate: expected a number >= 0.5"),
        ('listen = "here"', "line 2: listen: expected a string in quotes of the form HOST:PORT"),
        ('level = "fast"', "line 2: level: must be one of auto, trace, poll, not 'fast'"),
        ("no_metrics = 1", "line 2: no_metrics: expected true or false, got a whole number"),
        ("[retention]\ntimeline_days = 3", "line 2: there is no setting 'retention'"),
        ("rate =", "(at line 2, column 7)"),
        (
            'web_config = "w.yml"',
            "line 2: web_config is no longer a setting\nhint: passwords and web.yml are gone; set",
        ),
        ('listen = "0.0.0.0:1"', "metrics on 0.0.0.0: TLS with client certificates is required beyond loopback"),
        ('tls_key = "k"', "tls_cert, tls_key and client_ca belong together\nhint: set tls_cert, client_ca as well"),
    ],
)
def test_a_mistake_is_told_with_line_and_key(
    command: str, text: str, told: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the agent as well, which does not start."""
    file.write_text(f"# settings\n{text}\n")

    assert main([command, "--config", str(file)]) == 2
    assert told in capsys.readouterr().err


def test_no_more_of_a_file_is_read_than_settings_have(capsys: pytest.CaptureFixture[str]) -> None:
    """A device that never ends is refused after 64 KiB."""
    assert main(["config", "--config", "/dev/zero"]) == 2
    assert capsys.readouterr().err == "ckptprof: /dev/zero: more than 64 KiB\n"


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is named has to be there, except that of the service: all of it is default then."""
    assert main(["config", "--config", str(tmp_path / "none.toml")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_a_file_without_end_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """It is read up to the bound, and no further."""
    assert main(["config", "--config", "/dev/zero"]) == 2
    assert "/dev/zero: more than 64 KiB" in capsys.readouterr().err


def test_the_installed_file_names_every_setting_with_its_default(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its # each line sets what is set anyway, except the files that it has none of."""
    text = asset("systemd/config.toml").read_text()
    lines = re.findall(r"(?m)^#(\w+ = .*)$", text)

    assert sorted(line.partition(" ")[0] for line in lines) == sorted(agent_settings.TYPES)
    assert agent_settings.read(asset("systemd/config.toml")) == {}
    main(["config", "--config", "/dev/null", "--json"])
    default = json.loads(capsys.readouterr().out)["settings"]
    file.write_text("\n".join(line for line in lines if not line.startswith(NAMING)))
    main(["config", "--config", str(file), "--json"])
    told = json.loads(capsys.readouterr().out)["settings"]
    assert [(one["name"], one["value"]) for one in told] == [(one["name"], one["value"]) for one in default]


@pytest.mark.parametrize("command", ["config", "agent"])
def test_an_option_that_is_gone_names_what_does_its_work(
    command: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A unit or manifest that still has it does not start open."""
    file.touch()
    assert main([command, "--config", str(file), "--web-config", "web.yml"]) == 2
    told = capsys.readouterr().err
    assert "--web-config is no longer an option\nhint: passwords and web.yml are gone; set tls_cert" in told


def test_the_files_of_tls_are_checked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before a restart of the service, and not by its failure; unless nothing is served."""
    folder = file.parent
    names = {key: folder / key for key in ("tls_cert", "tls_key", "client_ca")}
    file.write_text("".join(f'{key} = "{path}"\n' for key, path in names.items()))
    assert main(["config", "--config", str(file)]) == 1
    assert "tls_cert: No such file or directory" in capsys.readouterr().err
    assert main(["config", "--config", str(file), "--no-metrics"]) == 0


@pytest.mark.root
@pytest.mark.capabilities("DAC_READ_SEARCH")
def test_what_only_a_capability_lets_read_is_read() -> None:
    """The service reads what root keeps to itself (0600); who may not read it is shown the settings all the same."""
    folder = Path(tempfile.mkdtemp(prefix=own("config-"), dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        for key in ("tls_cert", "tls_key", "client_ca"):
            (folder / key).write_text("no PEM\n")
            (folder / key).chmod(0o600)
        text = "".join(f'{key} = "{folder}/{key}"\n' for key in ("tls_cert", "tls_key", "client_ca"))
        (folder / "config.toml").write_text(text)
        become = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        capable = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
        # from outside of the checkout, which may be closed to others
        program = "from ckptprof.cli.main import main; import sys; raise SystemExit(main(sys.argv[1:]))"
        asks = (sys.executable, "-c", program, "config", "--config", str(folder / "config.toml"))
        service = subprocess.run([*become, *capable, *asks], capture_output=True, text=True, check=False, cwd="/")
        user = subprocess.run([*become, *asks], capture_output=True, text=True, check=False, cwd="/")
    finally:
        shutil.rmtree(folder)

    assert (service.returncode, "PEM files" in service.stderr) == (1, True), service.stderr
    if "Permission" not in user.stderr:  # the interpreter itself lies where that user may read
        assert (user.returncode, user.stderr) == (0, "")
        assert f"{folder}/tls_key" in user.stdout
