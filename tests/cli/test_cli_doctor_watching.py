"""What doctor says of who watches this host: a real agent at each level, and what stands in its way."""

from __future__ import annotations

import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.export import certificates
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof.cli.checks import remedies, trace_checks
from ckptprof.errors import CkptprofError
from ckptprof.export.http import MetricsServer
from ckptprof.export.listening import Tls
from ckptprof.export.metrics import Metrics
from ckptprof.export.wsgi_pages import Pages
from ckptprof.model import Session
from ckptprof.report.doctor import Check
from ckptprof.service.commands import levels
from ckptprof.service.commands.levels import AgentStatus
from ckptprof.service.sampler.tracing import namespace_problem
from ckptprof_collectors.kernelfs import KernelFs

COMMAND = [sys.executable, str(Path(sys.executable).with_name("ckptprof"))]
NO_LIBBPF = {"CKPTPROF_LIBBPF": "/nowhere/libbpf.so.1"}
BOUNDED = ("setpriv", "--bounding-set", "-bpf,-perfmon,-sys_admin")  # as a container without privileges
OWN_PIDS = ("unshare", "--pid", "--fork", "--kill-child=TERM", "--mount-proc")
WORKS = [Check("trace-libbpf", "ok", "libbpf 1.1"), Check("trace", "ok", "the trace level works: calls (call_exit)")]
BROKEN = [Check("trace-libbpf", "warn", "no libbpf", "install it"), Check("trace", "warn", "no trace", None)]


class Host:
    """A place for an agent that doctor asks."""

    def __init__(self, folder: Path) -> None:
        """Take a database of its own, and a port at which nobody listens."""
        self.taken = socket.socket()
        self.taken.bind(("127.0.0.1", 0))
        self.port = self.taken.getsockname()[1]
        self.folder = folder
        self.db = str(folder / "watched.db")
        self.environment = {**os.environ, "CKPTPROF_LISTEN": f"127.0.0.1:{self.port}"}
        self.agents: list[subprocess.Popen[bytes]] = []

    def watch(self, *options: str, before: tuple[str, ...] = (), **environment: str) -> None:
        """Start an agent and wait until it has something to say."""
        command = [*before, *COMMAND, "agent", "--db", self.db, *options]
        said = self.folder / f"said-{len(list(self.folder.iterdir()))}"
        wanted = {**self.environment, "CKPTPROF_LISTEN": "127.0.0.1:0", **environment}
        with said.open("wb") as stream:
            self.agents.append(subprocess.Popen(command, env=wanted, stderr=stream))
        if "--no-metrics" not in options:
            found = wait_until(
                lambda: (
                    re.search(r"metrics on http://127\.0\.0\.1:(\d+)", said.read_text())
                    or self.agents[-1].poll() is not None
                ),
                said.read_text,
            )
            assert found is not True, said.read_text()
            self.port = int(found[1])
            self.environment["CKPTPROF_LISTEN"] = f"127.0.0.1:{self.port}"
            wait_until(lambda: trace_checks.query_agent("127.0.0.1", self.port))

    def end(self) -> None:
        """End what watches."""
        for agent in self.agents:
            agent.terminate()
            agent.wait(PATIENCE_SECONDS)
        self.agents.clear()

    def doctor(self, before: tuple[str, ...] = ()) -> tuple[int, dict[str, dict[str, Any]]]:
        """Return the exit code of doctor, and its checks."""
        command = [*before, *COMMAND, "doctor", "--json", "--db", self.db]
        done = subprocess.run(command, capture_output=True, env=self.environment, check=False)
        return done.returncode, {check["id"]: check for check in json.loads(done.stdout)["checks"]}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Return it; its agents are ended."""
    made = Host(tmp_path)
    yield made
    made.end()
    made.taken.close()


@pytest.mark.slow
def test_an_agent_that_polls_is_no_ok(host: Host) -> None:
    """Whatever this command could do itself; the port is its own."""
    host.watch("--level", "poll")
    code, checks = host.doctor()

    assert code == 4
    assert checks["watching"]["status"] == "warn"
    assert checks["watching"]["text"].endswith("monitors this host at poll level, as configured")
    assert checks["watching"]["fix"] == "end it and start it with `--level auto`"
    assert checks["metrics-port"]["text"] == f"the agent serves /metrics on port {host.port}"


@pytest.mark.slow
@pytest.mark.root
def test_an_agent_that_cannot_trace_says_why(host: Host) -> None:
    """Its reason, which is not in the way of this command."""
    host.watch(**NO_LIBBPF)
    _, checks = host.doctor()

    assert checks["watching"]["status"] == "warn"
    reason = namespace_problem(KernelFs()) or "/nowhere/libbpf.so.1 cannot be loaded"
    assert f"at poll level: {reason}" in checks["watching"]["text"]
    assert "tracing works for this command" in checks["watching"]["fix"] or checks["trace"]["status"] != "ok"


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("pids", [(), pytest.param(OWN_PIDS, marks=pytest.mark.namespaces)])
def test_a_container_is_to_be_started_otherwise(host: Host, pids: tuple[str, ...]) -> None:
    """With what it lacks: nothing that is typed inside, by root neither, mends that."""
    host.watch(before=(*pids, *BOUNDED))
    _, checks = host.doctor(before=(*pids, *BOUNDED))
    host.agents[0].kill() if pids else None  # unshare keeps signals from itself; its end is the agent's

    assert " at poll level: " in checks["watching"]["text"]
    own = pids or namespace_problem(KernelFs())
    assert checks["watching"]["fix"] == (levels.SHARE_PIDS_AND_CAPABILITIES if own else levels.ADD_CAPABILITIES)
    assert checks["trace-privileges"]["fix"] == levels.ADD_CAPABILITIES


@pytest.mark.slow
@pytest.mark.bpf
def test_an_agent_that_traces_is_ok(host: Host) -> None:
    """And nothing more is to be said of it."""
    host.watch()
    _, checks = host.doctor()

    assert checks["watching"]["status"] == "ok"
    assert checks["watching"]["text"].endswith("monitors this host at trace level")


@pytest.mark.slow
def test_an_agent_that_serves_nothing_is_known_by_its_database(host: Host) -> None:
    """Its level, and not its reason."""
    host.watch("--level", "poll", "--no-metrics")
    checks = wait_until(lambda: found if "at poll level" in (found := host.doctor()[1])["watching"]["text"] else None)

    assert checks["watching"]["status"] == "warn"
    assert checks["watching"]["text"] == "an agent writes to this database at poll level"
    assert "start it with `--level auto`" in checks["watching"]["fix"] or checks["trace"]["status"] != "ok"


def test_nobody_watches(host: Host) -> None:
    """With what would."""
    _, checks = host.doctor()

    assert checks["watching"]["status"] == "note"
    assert checks["watching"]["fix"] == remedies.start_recording()


@pytest.mark.parametrize("body", [b"{}", b"<html>", b'{"program": "other"}', b"\xff"])
def test_another_program_at_the_port_is_nobody(body: bytes) -> None:
    """Whatever it answers."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = trace_checks.query_agent("127.0.0.1", server.server_port)
        server.shutdown()

    assert found is None


@pytest.mark.parametrize("guarded", [False, True])
def test_a_page_that_requires_a_certificate_is_said_to_be_there(tmp_path: Path, *, guarded: bool) -> None:
    """Any other is asked."""
    tls = None
    if guarded:
        certificates.all_of(tmp_path)
        tls = Tls(tmp_path / "server.crt", tmp_path / "server.key", tmp_path / "ca.crt")
    pages = Pages(Metrics(), status=lambda: msgspec.json.encode(standing()), in_clear=not guarded)
    page = MetricsServer(pages, port=0, tls=tls)
    page.start()
    try:
        found = trace_checks.query_agent("127.0.0.1", page.port)
    finally:
        page.close()
    (check,) = trace_checks.check_recorder(found, None, WORKS, is_written=False)

    assert isinstance(found, trace_checks.CertificateRequired) is guarded
    assert guarded or found == standing()
    assert ("(its page requires a client certificate: not queried)" in check.text) is guarded


@pytest.mark.parametrize(
    ("settings", "fix"), [('level = "poll"\n', 'set level = "auto" in '), ("#level = 1\n", "systemctl edit ckptprof")]
)
def test_the_remedy_names_where_the_service_has_its_level_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, fix: str
) -> None:
    """Its file of settings, if that has one."""
    (tmp_path / "config.toml").write_text(settings)
    monkeypatch.setattr(remedies, "SETTINGS", tmp_path / "config.toml")
    monkeypatch.setattr(trace_checks, "is_service_running", lambda: True)
    (check,) = trace_checks.check_recorder(standing(requested_level="poll"), None, WORKS, is_written=False)

    assert fix in (check.fix or "")


def standing(**changes: Any) -> AgentStatus:
    """Return an agent that polls and does not want to."""
    values: dict[str, Any] = {"requested_level": "auto", "level": "poll", "reasons": ("no libbpf",), "denied": False}
    return AgentStatus(version="0", pid=7, **{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "own", "fix"),
    [
        ({}, WORKS, remedies.restart),
        ({}, BROKEN, lambda: "as `trace-libbpf` says: install it"),
        ({"denied": True, "reasons": ("lacks CAP_BPF",)}, WORKS, remedies.privileges),
        ({"reasons": ("the trace failed, only polling since: x",)}, BROKEN, remedies.restart),
    ],
    ids=["restart", "own", "privileges", "failed"],
)
def test_each_reason_has_one_remedy(changes: dict[str, Any], own: list[Check], fix: Callable[[], str]) -> None:
    """That of the check which is not met here either, or that of what was in its way alone."""
    (check,) = trace_checks.check_recorder(standing(**changes), None, own, is_written=False)

    assert (check.status, check.fix) == ("warn", fix())
    assert check.text.endswith(f"at poll level: {standing(**changes).reasons[0]}")


@pytest.mark.parametrize("level", ["trace", "poll"])
def test_a_recorder_that_is_behind_is_a_warning(level: str) -> None:
    """Whatever its level: its checkpoints come late."""
    late = standing(level=level, health="17 s behind: checkpoints are reported late")
    (check,) = trace_checks.check_recorder(late, None, WORKS, is_written=False)

    assert check.status == "warn"
    assert check.text.endswith(f"at {level} level, 17 s behind: checkpoints are reported late")
    assert check.fix


def test_an_ordinary_user_is_sent_to_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """That this user may not trace says nothing of the agent's reason."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    own = [Check("trace-privileges", "warn", "lacks CAP_BPF", "nothing by this user"), *WORKS]
    (check,) = trace_checks.check_recorder(standing(), None, own, is_written=False)

    assert "ckptprof doctor" in (check.fix or "")


def test_what_a_tracing_agent_does_not_see_has_its_own_remedies() -> None:
    """A line for each remedy."""
    reasons = ("not monitored: pages (the kernel tells of them since 6.12): no tracepoint", "not monitored: x: refused")
    found = trace_checks.check_recorder(standing(level="trace", reasons=reasons), None, WORKS, is_written=False)

    assert [check.fix for check in found] == [None, "boot a kernel of 6.12 or newer", trace_checks.NEWER]


def test_a_session_of_the_past_is_nobody() -> None:
    """A database that nobody writes to tells nothing of now."""
    past = Session(
        uid="s", host="h", boot_id="b", kernel="k", version="0", level="poll", start_ns=1, end_ns=2, clean=True
    )
    (check,) = trace_checks.check_recorder(None, past, WORKS, is_written=False)

    assert check.status == "note"


class Systemd:
    """What systemd answers of the service; None: it cannot be asked."""

    def __init__(self, state: dict[str, str] | None) -> None:
        """Answer this."""
        self._state = state

    def properties(self) -> dict[str, str]:
        """Return its properties."""
        if self._state is None:
            raise CkptprofError("systemctl: no bus")
        return self._state


POLLS = "watching at poll level: libbpf.so.1 cannot be loaded"


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize(
    ("state", "status", "text", "level"),
    [
        ({"StatusText": POLLS}, "warn", f"the service reports: {POLLS} (", "poll"),
        ({"StatusText": "watching at trace level"}, "ok", "the service reports: watching at trace level (", "trace"),
        ({"StatusText": "job at poll level ends"}, "ok", "the service reports: job at poll level ends (", None),
        ({}, "note", "the service runs: its level is unknown (", None),
        (None, "note", "the service runs: its level is unknown (", None),
    ],
    ids=["polls", "traces", "other-words", "silent", "no-bus"],
)
def test_a_service_behind_a_certificate_is_asked_of_systemd(
    monkeypatch: pytest.MonkeyPatch,
    *,
    state: dict[str, str] | None,
    status: str,
    text: str,
    level: str | None,
    uid: int,
) -> None:
    """No remedy is invented for it, least of all one that this command only guesses; its level is not ours."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(trace_checks, "is_service_running", lambda: True)
    monkeypatch.setattr(remedies, "is_service_running", lambda: True)
    monkeypatch.setattr(trace_checks, "ServiceHost", lambda: Systemd(state))

    found = trace_checks.check_recorder(trace_checks.CertificateRequired(), None, WORKS, is_written=False)
    (check,) = found

    assert (check.status, check.text) == (status, f"{text}its page requires a client certificate: not queried)")
    assert check.level == level
    assert "restart" not in (check.fix or "")
    assert ("journalctl -u ckptprof" in (check.fix or "")) is (status != "ok")
    assert [one.status for one in trace_checks.qualify_own_trace(found, WORKS)] == [
        "ok",
        "note" if level == "poll" else "ok",
    ]


@pytest.mark.parametrize(("level", "trace_status"), [("poll", "note"), ("trace", "ok")])
def test_a_trace_that_works_here_is_no_ok_beside_who_polls(level: str, trace_status: str) -> None:
    """It is not what watches."""
    found = trace_checks.check_recorder(standing(level=level, reasons=()), None, WORKS, is_written=False)

    assert [one.level for one in found] == [level]
    assert [one.status for one in trace_checks.qualify_own_trace(found, WORKS)] == ["ok", trace_status]


@pytest.mark.root
@pytest.mark.parametrize("width", [80, 120])
def test_an_ordinary_user_reads_it_without_scrolling(width: int) -> None:
    """Each remedy once, on a terminal of 24 lines; who can use `run` lacks nothing."""
    env = {**os.environ, "COLUMNS": str(width), "CKPTPROF_LISTEN": "127.0.0.1:1"}
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    command = [*nobody, *COMMAND, "doctor", "--db", "/nonexistent/none.db", "--no-color"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if "Permission denied" in done.stderr:
        pytest.skip("nobody may not execute this environment")
    typed = done.stdout.split("How to fix")[1]

    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) <= 24, done.stdout
    assert done.stdout.count("/opt/ckptprof/bin/ckptprof") <= 1
    assert len(set(re.findall(r"(?m)^  \d  (.*)$", typed))) == len(re.findall(r"(?m)^  \d  ", typed))
    assert "`ckptprof run --db" in " ".join(done.stdout.split())
