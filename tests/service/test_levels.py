"""--level on the real command: what is taken, what is refused before anything runs, and what is said of it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import Any

import pytest
from livecommand import CKPTPROF, Ckptprof, sampler_of, wait_until
from tests.patience import PATIENCE_SECONDS

from ckptprof.errors import PermissionDeniedError
from ckptprof.recording import Header, read_file
from ckptprof.service.commands import levels
from ckptprof.service.sampler.tracing import namespace_problem
from ckptprof.store.reader import StoreReader
from ckptprof_collectors.kernelfs import KernelFs

HEADER: dict[str, Any] = {
    "uid": "u", "host": "h", "boot_id": "b", "kernel": "k", "ckptprof": "0", "at_ns": 1, "wall_ns": 2,
    "ticks_per_second": 100, "page_size": 4096,
}  # fmt: skip
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
# The checkout may be where nobody else may look; seeing files is no privilege that tracing takes
MAY_READ = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]


def header(level: str, reason: str = "", *, denied: bool = False) -> Header:
    """Return the header of a sampler."""
    return Header(level=level, level_reason=reason, level_denied=denied, **HEADER)


@pytest.mark.parametrize("wish", ["auto", "poll"])
def test_only_who_asks_for_the_trace_is_refused(wish: Any) -> None:
    """Whatever the sampler says, and if it says nothing."""
    assert [levels.level_error(wish, one) for one in (header("poll", "no BTF"), header("trace"), None)] == [None] * 3


def test_a_refusal_names_the_reason_and_what_to_do() -> None:
    """A missing privilege exits with 5, anything else with 1; a trace that works is no reason to refuse."""
    denied = levels.level_error("trace", header("poll", "lacks CAP_BPF", denied=True))
    broken = levels.level_error("trace", header("poll", "no BTF"))

    assert levels.level_error("trace", header("trace", "something is out of sight")) is None
    assert isinstance(denied, PermissionDeniedError)
    assert [error.exit_code for error in (denied, broken) if error] == [5, 1]
    assert all(error and error.hint and "--level poll" in error.hint for error in (denied, broken))
    assert str(broken) == "the trace level is not available: no BTF"


@pytest.mark.parametrize(
    ("reason", "bounded", "hint"),
    [
        ("lacks CAP_BPF", False, "run it as root or with CAP_BPF and CAP_PERFMON"),
        ("lacks CAP_BPF", True, levels.ADD_CAPABILITIES),
        ("the pids of this container are not the host's: share them (--pid=host)", False, levels.SHARE_PIDS),
        (
            "the pids of this container are not the host's: share them (--pid=host)",
            True,
            levels.SHARE_PIDS_AND_CAPABILITIES,
        ),
    ],
)
def test_a_container_is_told_how_it_is_to_be_started(
    reason: str, hint: str, monkeypatch: pytest.MonkeyPatch, *, bounded: bool
) -> None:
    """Its root has nothing to gain by being root."""
    monkeypatch.setattr(levels, "are_in_bounding_set", lambda *_: not bounded)
    error = levels.level_error("trace", header("poll", reason, denied=True))

    assert error is not None
    assert (error.hint or "").startswith(f"{hint}; `--level poll`")


def test_a_sampler_that_says_nothing_refuses_nothing() -> None:
    """It is a fault of ours: the command runs, unwatched."""
    assert levels.level_error("trace", None) is None


@pytest.mark.parametrize("setting", [("--level", "best"), ("--level", ""), ("--level", "TRACE")])
@pytest.mark.parametrize("command", ["run", "agent", "capture"])
def test_a_level_that_there_is_not_is_a_usage_error(ckptprof: Ckptprof, command: str, setting: tuple[str, str]) -> None:
    """On every command that takes one."""
    result = ckptprof.call(command, *setting, "x")

    assert result.returncode == 2
    assert b"'auto', 'trace', 'poll'" in result.stderr


def test_the_environment_sets_it_too_and_may_be_wrong_too(ckptprof: Ckptprof) -> None:
    """CKPTPROF_LEVEL is told as the culprit; an empty one is none; the option beats it."""
    ckptprof.environment["CKPTPROF_LEVEL"] = "best"
    wrong = ckptprof.run("touch", "ran")
    ran = (ckptprof.work / "ran").exists()
    beaten = ckptprof.call("run", "--level", "poll", "--db", str(ckptprof.database), "--", "true")
    ckptprof.environment["CKPTPROF_LEVEL"] = ""
    empty = ckptprof.run("true")

    assert (wrong.returncode, ran) == (2, False)
    assert b"CKPTPROF_LEVEL" in wrong.stderr
    assert (beaten.returncode, empty.returncode) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("command", [("run", "-q"), ("agent", "--no-metrics"), ("capture",)])
def test_a_trace_that_cannot_be_had_runs_nothing(ckptprof: Ckptprof, command: tuple[str, ...]) -> None:
    """Without libbpf, or the host's pids: a line has the reason, one says what to do, and the command has not run."""
    ckptprof.environment["CKPTPROF_LIBBPF"] = "/nowhere/libbpf.so.1"
    where = ("--db", str(ckptprof.database)) if command[0] != "capture" else ()
    arguments = [*command, "--level", "trace", *where, *(("touch", "ran") if command[0] == "run" else ()),
                 *(("file.gz",) if command[0] == "capture" else ())]  # fmt: skip
    result = subprocess.run(
        [*CKPTPROF, *arguments], capture_output=True, check=False, cwd=ckptprof.work, env=ckptprof.environment
    )

    assert result.returncode == 1
    reason = re.escape(namespace_problem(KernelFs()) or "/nowhere/libbpf.so.1")
    expected = rf"ckptprof: the trace level is not available: .*{reason}.*\nhint: .*--level poll.*\n"
    assert re.fullmatch(expected, result.stderr.decode())
    assert {path.name for path in ckptprof.work.iterdir()} <= {"state", ".local"}


def test_a_capture_that_is_refused_leaves_what_is_there(ckptprof: Ckptprof) -> None:
    """Even with --force; what it made itself it takes away."""
    ckptprof.environment["CKPTPROF_LIBBPF"] = "/nowhere/libbpf.so.1"
    (ckptprof.work / "old.gz").write_bytes(b"old")
    os.mkfifo(ckptprof.work / "pipe")
    reader = os.open(ckptprof.work / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    codes = [
        subprocess.run(
            [*CKPTPROF, "capture", "--level", "trace", "--force", name],
            capture_output=True,
            check=False,
            cwd=ckptprof.work,
            env=ckptprof.environment,
        ).returncode
        for name in ("old.gz", "pipe", "new.gz")
    ]
    os.close(reader)

    assert codes == [1, 1, 1]
    assert (ckptprof.work / "old.gz").read_bytes() == b"old"
    assert (ckptprof.work / "pipe").is_fifo()
    assert not (ckptprof.work / "new.gz").exists()


@pytest.mark.root
@pytest.mark.bpf
def test_a_missing_privilege_exits_with_its_own_code(ckptprof: Ckptprof) -> None:
    """Nobody is told which capabilities are missing, and that root has them; the command does not run."""
    ckptprof.work.chmod(0o777)
    arguments = ["run", "--level", "trace", "--db", str(ckptprof.work / "n.db"), "--", "touch", "ran"]
    command = [*AS_NOBODY, *MAY_READ, *CKPTPROF, *arguments]
    result = subprocess.run(command, capture_output=True, check=False, cwd=ckptprof.work, env=ckptprof.environment)

    assert result.returncode == 5, result.stderr
    assert b"CAP_BPF" in result.stderr
    assert len(result.stderr.splitlines()) == 2
    assert not (ckptprof.work / "ran").exists()


@pytest.mark.slow
@pytest.mark.root
def test_root_is_told_that_it_only_polls(ckptprof: Ckptprof) -> None:
    """It could have more: why it has not is a line for each reason; who asked for poll is told nothing."""
    ckptprof.environment["CKPTPROF_LIBBPF"] = "/nowhere/libbpf.so.1"
    command = [*CKPTPROF, "run", "-q", "--db", str(ckptprof.database), "--", "true"]
    auto = subprocess.run(command, capture_output=True, check=False, cwd=ckptprof.work, env=ckptprof.environment)
    poll = ckptprof.call("run", "-q", "--level", "poll", "--db", str(ckptprof.database), "--", "true")

    assert auto.returncode == poll.returncode == 0
    first, *reasons = auto.stderr.splitlines()
    assert first == b"ckptprof: recorded at poll level"
    assert reasons
    assert all(line.startswith(b"ckptprof: no trace level: ") for line in reasons)
    assert poll.stderr == b""


@pytest.mark.slow
@pytest.mark.xdist_group("live")
@pytest.mark.root
@pytest.mark.bpf
def test_auto_traces_where_it_can(ckptprof: Ckptprof) -> None:
    """The recording says so; a command that is traced from its first byte is in it with all of them."""
    file = ckptprof.work / "node.ckptrec.gz"
    process = ckptprof.start("capture", "--seconds", "3", str(file))
    sampler_of(process)
    while process.poll() is None:  # on a busy host it may take seconds until it traces
        (ckptprof.work / "short.bin").write_bytes(bytes(3 << 20))
        time.sleep(0.5)
    process.communicate(timeout=PATIENCE_SECONDS)
    found, frames = read_file(file)
    told = [s for one in frames for s in one.samples if type(s).__name__ == "FileActivity"]

    assert found.level == "trace"
    # Another ckptprof on this host may read its first bytes
    mine = [sample for sample in told if sample.path == str(ckptprof.work / "short.bin") and sample.writes]
    whole, rest = divmod(max(sample.bytes for sample in mine), 3 << 20)  # a late look may tell of two at once
    assert whole >= 1
    assert rest == 0
    assert {sample.pid for sample in mine} == {os.getpid()}


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.bpf
def test_an_agent_says_at_which_level_it_watches(ckptprof: Ckptprof) -> None:
    """In its first line, for either level; what is out of sight, the database and metrics have lines of their own."""
    lines = []
    for level in ("auto", "poll"):
        agent = ckptprof.start("agent", "--no-metrics", "--level", level, "--db", str(ckptprof.database))
        assert agent.stderr is not None
        lines.append([agent.stderr.readline().decode()])
        while "storing in" not in lines[-1][-1]:
            lines[-1].append(agent.stderr.readline().decode())
        agent.terminate()
        agent.communicate(timeout=PATIENCE_SECONDS)

    traced, polled = lines
    stored = f"ckptprof: storing in {ckptprof.database}\n"
    assert (traced[0], traced[-1]) == ("ckptprof: watching this host at trace level\n", stored)
    assert all(line.startswith("ckptprof: not monitored: ") for line in traced[1:-1])
    assert polled == ["ckptprof: watching this host at poll level\n", stored]


@pytest.mark.root
@pytest.mark.bpf
@pytest.mark.slow
def test_a_sampler_that_is_lost_may_poll_from_then_on(ckptprof: Ckptprof) -> None:
    """Even an agent that was to trace: killed, its sampler is replaced by one that traces too."""
    agent = ckptprof.start("agent", "--no-metrics", "--level", "trace", "--db", str(ckptprof.database))
    assert agent.stderr is not None
    first = agent.stderr.readline()
    old = sampler_of(agent)
    old.kill()
    new = wait_until(lambda: found if (found := sampler_of(agent)).pid != old.pid else None)

    def sessions() -> int:
        with StoreReader(ckptprof.database) as reader:
            return len(reader.sessions())

    wait_until(lambda: sessions() == 2)  # the new one has said what it can
    agent.terminate()
    _, err = agent.communicate(timeout=PATIENCE_SECONDS)

    assert first.startswith(b"ckptprof: watching this host at trace level")
    assert new.pid != old.pid
    assert b"restarting the sampler" in err
    assert b"now watching at" not in err
