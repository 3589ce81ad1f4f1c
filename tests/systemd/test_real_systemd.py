"""The unit under a real systemd: installed as its README says, killed, hung, starved, asked what it has recorded."""

from __future__ import annotations

import errno
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bootedmachine import DATABASE, PROGRAM, STATE, Machine, booted, copy_of_tree, install, until
from tests.patience import PATIENCE_SECONDS

SCRAPE = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:12578/metrics').read().decode())"
pytestmark = [
    pytest.mark.root,
    pytest.mark.nspawn,
    pytest.mark.registry,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # the first of them makes a Debian and installs into it
    pytest.mark.xdist_group("systemd"),
]

# capabilities(7): CAP_SYS_PTRACE is 19, CAP_DAC_READ_SEARCH is 2, CAP_PERFMON is 38, CAP_BPF is 39
NONE = f"{0:016x}"
TO_SEE = f"{1 << 19 | 1 << 2:016x}"
TO_TRACE_TOO = f"{1 << 39 | 1 << 38 | 1 << 19 | 1 << 2:016x}"


# The trace itself, which `attach` would refuse here because the container has pids of its own
PROBE = f"""
import json, os, time
from ckptprof_collectors import privileges
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.ebpf.trace import EbpfTrace
trace = EbpfTrace(KernelFs())
before = privileges.read_capabilities().effective
dropped = privileges.drop_tracing(trace.read)
with open("/var/lib/ckptprof/probe", "wb") as file:
    file.write(bytes(3 << 20))
deadline = time.monotonic() + {PATIENCE_SECONDS}
sizes = []
while not sizes and time.monotonic() < deadline:
    sizes = [s.bytes for s in trace.read() if type(s).__name__ == "FileActivity" and s.bytes == 3 << 20]
permitted = privileges.read_capabilities().permitted
print(json.dumps([bin(before).count("1"), dropped, f"{{permitted:016x}}", sizes, trace.programs]))
trace.close()
"""

ASK_AND_SET = """
import ctypes, json, platform, struct
from ckptprof_collectors.devices.wall_clock import SYSCALL_NUMBERS, query_kernel
print(json.dumps(["asked", query_kernel()[1] > 0]))
to_set = struct.pack("@Il", 1, 0) + bytes(240)
call = ctypes.CDLL(None, use_errno=True).syscall
print(json.dumps(["set", call(SYSCALL_NUMBERS[platform.machine()], to_set), ctypes.get_errno()]))
"""


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Return a tree in which the commands of the README were run, as they stand there, and what they printed."""
    work = tmp_path_factory.mktemp("systemd")
    root = copy_of_tree(work)
    printed = install(root)
    yield root, printed
    shutil.rmtree(work)


@pytest.fixture
def machine(installation: tuple[Path, str]) -> Iterator[Machine]:
    """Return a freshly booted machine on which the service has started by itself."""
    with booted(installation[0]) as machine:
        until("the service", lambda: machine.property("ActiveState") == "active")
        yield machine
    assert machine.leftovers() == []


def test_the_commands_of_the_readme_start_the_service(installation: tuple[Path, str]) -> None:
    """Typed as they stand there they end with a service that runs and says that it watches."""
    root, printed = installation

    assert "Active: active (running)" in printed
    assert re.search(r'Status: "watching at (trace|poll) level', printed)
    assert re.search(r"\nckptprof:.*:/var/lib/ckptprof:/usr/sbin/nologin\n", (root / "etc/passwd").read_text())


def test_the_service_is_put_in_place_once_and_taken_away_again(machine: Machine) -> None:
    """A second time there is nothing to do; the record stays; no user but root can, and each may ask what it takes."""

    def service(*arguments: str, user: str | None = None) -> tuple[int, dict[str, Any]]:
        done = machine.call(PROGRAM, "service", *arguments, "--json", user=user)
        return done.returncode, json.loads(done.stdout or "{}")

    code, told = service("status", user="trainer")
    assert (code, told["service"]["active"], told["service"]["readable"]) == (0, True, False)
    titles = machine.run("cat", *(f"/proc/{pid}/comm" for pid in machine.pids()))
    assert titles.split() == ["ckptprof:record", "ckptprof:sample"]
    assert told["service"]["runs"] == f"/opt/ckptprof/bin/python3 -I {PROGRAM} agent --config /etc/ckptprof/config.toml"
    assert service("install")[1]["steps"] == []
    pids = machine.pids()
    assert machine.call(PROGRAM, "service", "uninstall", user="trainer").returncode == 5
    planned = service("uninstall", "--dry-run", user="trainer")[1]["steps"]
    assert machine.pids() == pids
    code, told = service("uninstall")
    assert (code, told["steps"]) == (0, planned)
    assert service("status")[0] == 3
    assert machine.call("ls", DATABASE).returncode == 0
    assert service("uninstall")[1]["steps"] == []
    assert service("install")[1]["service"]["active"] is True
    (machine.root / "etc/systemd/system/ckptprof.service").write_text("[Service]\nExecStart=/bin/true\n")
    assert [step.split()[:2] for step in service("install")[1]["steps"]] == [
        ["replace", "/etc/systemd/system/ckptprof.service"], ["systemctl", "daemon-reload"], ["systemctl", "restart"]
    ]  # fmt: skip


def test_what_attaching_takes_is_given_up(machine: Machine) -> None:
    """Both run as the service's user; none is effective but in an operation; the recorder keeps two more to hand on."""
    uid = machine.run("id", "-u", "ckptprof").strip()
    recorder, sampler = machine.pids()

    for pid in (recorder, sampler):
        status = dict(
            line.split(":\t", 1) for line in machine.run("cat", f"/proc/{pid}/status").splitlines() if ":\t" in line
        )
        assert status["Uid"].split() == [uid] * 4
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert machine.run("cat", f"/proc/{pid}/oom_score_adj") == "500\n"
    kept = {pid: machine.capabilities(pid) for pid in (recorder, sampler)}
    assert kept[recorder].pop("Eff") == NONE
    assert kept[sampler].pop("Eff") in (NONE, TO_SEE)
    assert kept[recorder] == {"Prm": TO_TRACE_TOO, "Inh": TO_TRACE_TOO, "Amb": TO_TRACE_TOO, "Bnd": TO_TRACE_TOO}
    assert kept[sampler] == {"Prm": TO_SEE, "Inh": TO_SEE, "Amb": TO_SEE, "Bnd": TO_TRACE_TOO}
    effective = f"grep -h CapEff /proc/{sampler}/task/*/status"
    until("all threads at rest", lambda: set(machine.run("sh", "-c", effective).split()) == {"CapEff:", NONE})


def test_where_ebpf_is_not_to_be_had_it_polls(installation: tuple[Path, str]) -> None:
    """In a container without those capabilities the same unit starts, sees saves, and says why it does not trace."""
    with booted(installation[0], ebpf=False) as machine:
        assert machine.property("ActiveState") == "active"
        status = machine.property("StatusText")
        assert status.startswith("watching at poll level: the pids of this container are not the host's")
        held = [machine.capabilities(pid) for pid in machine.pids()]
        assert {one.pop("Eff") for one in held} <= {NONE, TO_SEE}
        assert {mask for one in held for mask in one.values()} == {TO_SEE}
        assert "watching this host at poll level\n" in machine.journal()
        assert "no trace level: " in machine.journal()
        machine.train("--saves=2", "--interval=1.5", wait=True)
        until("saves seen by polling", lambda: len(machine.steps()) == 2)


def within_the_unit(machine: Machine, program: str) -> list[str]:
    """Run a program in the place of the agent, and return what the unit has said."""
    (machine.root / "opt/probe.py").write_text(program, encoding="utf-8")
    once = "Type=oneshot\nRestart=no\nTimeoutStartSec=infinity\nExecStart=\n"
    machine.drop_in(f"{once}ExecStart=/opt/ckptprof/bin/python3 -I /opt/probe.py")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "stop", "ckptprof")
    machine.run("systemctl", "start", "ckptprof")
    return machine.journal().splitlines()


def test_the_clock_may_be_asked_and_not_set(machine: Machine) -> None:
    """By the one call that does both: the kernel refuses it without CAP_SYS_TIME, unless it sets nothing."""
    said = within_the_unit(machine, ASK_AND_SET)

    assert '["asked", true]' in said
    assert f'["set", -1, {errno.EPERM}]' in said


@pytest.mark.bpf
def test_nothing_in_the_unit_keeps_ebpf_from_attaching_and_reading(
    machine: Machine, record_property: Callable[[str, object], None]
) -> None:
    """Within the whole sandbox, as its user, the programs attach, and go on counting when the capabilities are gone."""
    line = next(line for line in within_the_unit(machine, PROBE) if line.startswith("[4, "))
    held, dropped, left, sizes, programs = json.loads(line)

    record_property("figure", f"real systemd: eBPF within the unit's sandbox: {programs}")
    assert (held, dropped, left) == (4, True, TO_SEE)
    assert sizes[-1] == 3 << 20
    assert "calls" in programs


def test_the_record_is_for_its_owner_and_group(machine: Machine) -> None:
    """Nobody else reads it; who was added to the group does, also while nothing runs and with nothing to write to."""
    modes = machine.run("sh", "-c", f"stat -c '%a %U %G' {STATE} {STATE}/*").splitlines()
    question = (PROGRAM, "report", "--json", "--db", DATABASE)

    assert modes[0] == "750 ckptprof ckptprof"
    assert set(modes[1:]) == {"640 ckptprof ckptprof", "600 ckptprof ckptprof"}  # what a reader could lock is its own
    shared = machine.run("sh", "-c", f"find {STATE} -type f -perm 640 -printf '%f\\n'").split()
    assert sorted(shared) == ["ckptprof.db", "ckptprof.db.published"]
    refused = machine.call(*question, user="trainer")
    assert refused.returncode in (5, 6)
    assert "Permission denied" in refused.stderr
    assert machine.call(*question, user="reader").returncode == 3
    assert machine.call(*question[:3], user="reader").returncode == 3  # having no database of one's own
    own = machine.call(*question[:3], user="trainer").stderr
    assert "no database at /home/trainer/" in own
    assert "group ckptprof" in own
    machine.run("systemctl", "stop", "ckptprof")
    assert machine.call(*question, user="reader").returncode == 3


def test_the_group_watches_and_nobody_else(machine: Machine) -> None:
    """By the database; another user is refused in one line that says why."""
    question = (PROGRAM, "live", "--json", "--db", DATABASE)

    def shown() -> Any:
        return json.loads(machine.run(*question, user="reader"))

    until("the session in a copy", lambda: shown()["level"] is not None)  # it is renewed every five seconds
    refused = machine.call(*question, user="trainer")

    assert shown()["notes"] == []
    assert refused.returncode in (5, 6)
    assert "Permission denied" in refused.stderr
    assert refused.stderr.count("\n") <= 2
    machine.run("systemctl", "stop", "ckptprof")
    assert shown()["level"] is None


def test_a_job_of_another_user_is_seen_and_told(machine: Machine) -> None:
    """Each save is in the report, in the journal under the service's name and in the metrics, none is invented."""
    machine.train("--saves=3", "--interval=1.5", wait=True)
    saves = machine.truth()
    until("all saves reported", lambda: len(machine.steps()) >= len(saves))
    seen = machine.report()["checkpoints"]
    told = machine.run("journalctl", "--boot", "--identifier=ckptprof", "--output=cat", "--no-pager")
    metrics = machine.run("python3", "-c", SCRAPE)

    assert [(one["kind"], one["step"], one["path"]) for one in seen] == [("save", s["step"], s["path"]) for s in saves]
    assert [one["bytes"] for one in seen] == [pytest.approx(save["bytes"], rel=0.02) for save in saves]
    assert {one["pattern"]["class"] for one in seen} == {"sequential-large"}
    assert [f"save of step {save['step']} by" in told for save in saves] == [True] * 3
    series = re.findall(r"\nckptprof_checkpoints_total(\{[^}]*\}) 3\b", metrics)
    assert ['kind="save"' in one and 'pattern="sequential-large"' in one for one in series] == [True]


def test_kill_9_loses_nothing_that_was_stored(machine: Machine) -> None:
    """It is started again; earlier saves are kept, later ones of the same job are seen, the gap is told."""
    machine.train("--saves=30", "--interval=1", wait=False)
    before = until("two saves reported", lambda: steps if len(steps := machine.steps()) >= 2 else None)
    old = machine.pids()
    machine.run("systemctl", "kill", "--signal=KILL", "--kill-who=main", "ckptprof")
    between = machine.report()  # as root: what this reader leaves must not be in the service's way
    until("a second life", lambda: machine.property("ActiveState") == "active" and all(machine.pids()))
    after = until("two more saves", lambda: steps if len(steps := machine.steps()) >= len(before) + 2 else None)

    assert not {*old} & {*machine.pids()}
    assert machine.property("NRestarts") == "1"
    assert [one["step"] for one in between["checkpoints"]][: len(before)] == before
    assert after[: len(before)] == before
    report = machine.report()
    unnamed = [one["status"] for one in report["checkpoints"] if one["step"] is None]  # the kill came before its rename
    assert unnamed in ([], ["incomplete"])
    assert {*after} - {None} <= {save["step"] for save in machine.truth()}
    assert len(report["watched"]["gaps"]) == 1


def test_a_sampler_that_hangs_is_replaced(machine: Machine, record_property: Callable[[str, object], None]) -> None:
    """The recorder notices the silence, ends it and starts another; systemd has nothing to do."""
    recorder, sampler = machine.pids()
    began = time.monotonic()
    machine.run("sh", "-c", f"kill -STOP {sampler}")
    until("another sampler", lambda: machine.pids()[1] not in (0, sampler))
    record_property("figure", f"real systemd: a hung sampler is replaced after {time.monotonic() - began:.0f} s")

    assert machine.pids()[0] == recorder
    assert "no message from the sampler for" in machine.journal()
    assert (machine.property("NRestarts"), machine.property("ActiveState")) == ("0", "active")
    machine.train("--saves=2", "--interval=1.5", wait=True)
    until("saves seen by the new one", lambda: len(machine.steps()) == 2)


def test_a_recorder_that_hangs_is_ended_by_the_watchdog(machine: Machine) -> None:
    """The silence of one ends both processes, and the service is started again."""
    machine.restart_with("WatchdogSec=10\nRestartSec=1")  # 30 and 5 seconds in the unit: the same, with less patience
    old = machine.pids()

    def fed_after_the_limit() -> bool:
        begun, fed = (int(machine.property(f"{name}TimestampMonotonic")) for name in ("ActiveEnter", "Watchdog"))
        return fed > begun + 10_000_000

    until("a sign of life later than the limit", fed_after_the_limit)
    assert machine.pids() == old
    assert machine.property("NRestarts") == "0"
    machine.run("systemctl", "kill", "--signal=STOP", "--kill-who=main", "ckptprof")
    until("a second life", lambda: machine.property("NRestarts") == "1" and all(machine.pids()))
    until("readiness", lambda: machine.property("ActiveState") == "active")

    assert "Watchdog timeout (limit 10s)!" in machine.journal()
    assert not {*old} & {*machine.pids()}
    assert machine.report()["watched"]["start_ns"] is not None


def test_stopping_stores_the_last_save(machine: Machine, record_property: Callable[[str, object], None]) -> None:
    """Stopped at the moment in which a job has saved, it ends by itself, cleanly, and with that save recorded."""
    machine.train("--saves=30", "--interval=1", wait=False)
    saves = until("a second save", lambda: saves if len(saves := machine.truth()) >= 2 else None)
    began = time.monotonic()
    machine.run("systemctl", "stop", "ckptprof")
    took_seconds = time.monotonic() - began
    record_property("figure", f"real systemd: stopped {took_seconds:.2f} s after `systemctl stop` began")

    states = {name: machine.property(name) for name in ("ActiveState", "Result", "ExecMainStatus", "NRestarts")}
    assert states == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0", "NRestarts": "0"}
    assert {save["step"] for save in saves} <= {*machine.steps()}
    assert "ckptprof" not in machine.call("sh", "-c", "stat -c %U /proc/[0-9]*").stdout


def test_a_damaged_database_ends_nothing(machine: Machine) -> None:
    """Whatever is in its place is kept beside a new one, the service starts at once, and all of it is said."""
    machine.run("systemctl", "stop", "ckptprof")
    machine.run("sh", "-euc", f"rm {STATE}/*; head -c 100000 /dev/urandom >{DATABASE}; cksum <{DATABASE} >/tmp/sum")
    machine.run("systemctl", "start", "ckptprof")
    machine.train("--saves=1", wait=True)
    until("the save reported", machine.steps)

    assert machine.property("NRestarts") == "0"
    assert machine.run("sh", "-c", f"cat {DATABASE}.damaged-* | cksum") == machine.run("cat", "/tmp/sum")
    assert "is not a database: retained as" in machine.journal()
    assert f"kept as {DATABASE}.damaged-" in " ".join(machine.run(PROGRAM, "report", "--db", DATABASE).split())
    assert "ckptprof_store_damaged_total 1" in machine.run("python3", "-c", SCRAPE)


def test_it_comes_to_its_turn_and_cannot_be_looked_into(machine: Machine) -> None:
    """Recorder and sampler have the nice value of the unit, and what is theirs in /proc is root's."""
    for pid in machine.pids():
        nice = machine.run("cat", f"/proc/{pid}/stat").rpartition(")")[2].split()[16]
        assert nice == "-5"
        assert machine.run("stat", "-c", "%u", f"/proc/{pid}/environ").strip() == "0"
    assert machine.property("CPUWeight") == "500"
    limits = machine.run("cat", f"/proc/{machine.pids()[1]}/limits")
    if re.search(r"^Max realtime priority +1 ", limits, re.MULTILINE):  # a root without CAP_SYS_RESOURCE cannot give it
        # The loop of the sampler alone; after a long tick it is an ordinary thread for ten seconds
        until("a real-time class", lambda: "SCHED_RR" in machine.run("chrt", "--pid", str(machine.pids()[1])))
    assert "SCHED_OTHER" in machine.run("chrt", "--pid", str(machine.pids()[0]))


def let_pass(machine: Machine, seconds: int) -> None:
    """Wait for a timer of systemd that is set now: one that was set before, as for a restart, would be over, too."""
    after = ("systemd-run", "--quiet", f"--on-active={seconds}", "--timer-property=AccuracySec=1ms")
    machine.run(*after, "touch", "/run/passed")
    until("the end of a timer", lambda: machine.call("test", "-e", "/run/passed").returncode == 0)


def test_a_mistake_in_the_settings_is_said_once(machine: Machine) -> None:
    """It would be the same the next time: systemd does not try again."""
    machine.run("systemctl", "stop", "ckptprof")
    machine.run("sh", "-euc", "cp /etc/ckptprof/config.toml /tmp/; echo 'levle = \"poll\"' >/etc/ckptprof/config.toml")
    machine.call("systemctl", "start", "ckptprof")
    until("given up", lambda: machine.property("ActiveState") == "failed")
    let_pass(machine, 16)  # RestartSec= is 15

    assert (machine.property("ActiveState"), machine.property("NRestarts")) == ("failed", "0")
    assert "did you mean 'level'?" in machine.journal()
    assert "the service has failed" in " ".join(machine.call(PROGRAM, "doctor").stdout.split())
    machine.run("sh", "-euc", "cp /tmp/config.toml /etc/ckptprof/")
    machine.run("systemctl", "start", "ckptprof")


MOUNT = "mount -t tmpfs -o {},uid=ckptprof,gid=ckptprof,mode=750 none " + str(STATE)


def test_a_full_disk_is_waited_for(machine: Machine) -> None:
    """The journal has a clear line, and the service runs on; once there is room, it records."""
    machine.run("systemctl", "stop", "ckptprof")
    machine.run("sh", "-euc", f"rm {STATE}/*; {MOUNT.format('size=16k')}")
    machine.run("systemctl", "start", "ckptprof")
    until("said", lambda: "no space left on the disk" in machine.journal())

    assert machine.property("ActiveState") == "active"
    machine.run("mount", "-o", "remount,size=64m", STATE)
    until("recorded", lambda: machine.call("test", "-s", DATABASE).returncode == 0)
    assert (machine.property("ActiveState"), machine.property("NRestarts")) == ("active", "0")
    machine.run("systemctl", "stop", "ckptprof")
    machine.run("umount", STATE)
    machine.run("systemctl", "start", "ckptprof")


UNWRITABLE = {
    "a folder in the place of the database": (f"mkdir {DATABASE}", "ckptprof.db", f"rmdir {DATABASE}"),
    "a state directory that is read-only": (
        MOUNT.format("ro"), "Read-only file system", f"mount -o remount,rw {STATE}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("trouble", UNWRITABLE)
def test_what_cannot_be_recorded_to_is_said_and_tried_again(machine: Machine, trouble: str) -> None:
    """The journal has a clear line, the unit never fails, and once the trouble has passed, it runs."""
    command, line, mended = UNWRITABLE[trouble]
    patience = machine.property("RestartUSec"), machine.property("StartLimitIntervalUSec")
    machine.run("systemctl", "stop", "ckptprof")
    machine.run("sh", "-euc", f"rm {STATE}/*; {command}")
    found = machine.call("sh", "-c", f"ls -la {DATABASE}; cksum {DATABASE}").stdout
    machine.drop_in("RestartSec=100ms")
    machine.run("systemctl", "daemon-reload")
    machine.call("systemctl", "start", "ckptprof")
    until("seven tries", lambda: int(machine.property("NRestarts")) >= 7)

    assert patience == ("15s", "0")
    assert machine.property("ActiveState") == "activating"
    journal = machine.journal()
    assert line in journal
    assert "Traceback" not in journal
    assert not found or machine.call("sh", "-c", f"ls -la {DATABASE}; cksum {DATABASE}").stdout == found
    machine.run("sh", "-euc", mended)
    until("its start", lambda: machine.property("ActiveState") == "active")
    until("recorded", lambda: machine.call("test", "-s", DATABASE).returncode == 0)
    machine.run("systemctl", "stop", "ckptprof")
    machine.run("sh", "-euc", f"! mountpoint -q {STATE} || umount {STATE}")
    machine.run("systemctl", "start", "ckptprof")
