"""What doctor says of trees, of this host, and of databases that are none."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.patience import LIFETIME
from tests.silentfuse import silent

from ckptprof.cli.checks import host, kernel
from ckptprof.cli.checks import kernel as checks
from ckptprof.cli.main import main
from ckptprof.errors import StoreError
from ckptprof.report.doctor import Check, degraded, groups
from ckptprof.service.probing.isolated import END_THE_MOUNT
from ckptprof.store.writer import StoreWriter
from ckptprof_collectors.gpus.nvml import NvmlGpus
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.processes.python_stacks import find_program

FULL = "000001ffffffffff"
NONE = "0000000000000000"
ZEROS = "0 " * 16  # of /proc/net/dev
BOTH = f"{1 << 19 | 1 << 2:016x}"


@pytest.mark.parametrize(
    ("mask", "uid", "status"),
    [(FULL, 0, "ok"), (BOTH, 999, "ok"), (NONE, 1000, "warn"), (f"{1 << 19:016x}", 999, "warn")],
)
def test_capabilities(mask: str, uid: int, status: str, tree: Callable[..., KernelFs]) -> None:
    """Both capabilities are needed; root without them is told so too."""
    check = checks.capabilities(tree(proc__self__status=f"Name:\tx\nCapEff:\t{mask}\n"), uid=uid)

    assert check.status == status
    assert (check.fix is None) == (status == "ok")


def test_an_empty_tree_breaks_no_check(tree: Callable[..., KernelFs], tmp_path: Path) -> None:
    """Where nothing can be read every check says so, and none raises."""
    fs = tree()
    found = [
        checks.capabilities(fs, uid=1000), checks.other_processes(fs, uid=1000), checks.io_accounting(fs),
        checks.hidepid(fs), checks.block_devices(fs), checks.network(fs), checks.pressure(fs),
        checks.delay_accounting(fs), checks.udev(tmp_path), kernel.ptrace_scope(fs),
    ]  # fmt: skip

    assert [c.status for c in found] == ["warn", "note", "fail", "ok", "warn", "warn", "note", "note", "note", "ok"]
    assert degraded(found)


def test_a_whole_tree_is_fine(tree: Callable[..., KernelFs], tmp_path: Path) -> None:
    """And where all is there nothing is wrong."""
    fs = tree(
        proc__self__status=f"CapEff:\t{FULL}\n", proc__self__io="rchar: 1\n",
        proc__diskstats="8 0 sda 5 0 0 0\n7 0 loop0 0\n",
        proc__self__mounts="proc /proc proc rw,nosuid 0 0\n",
        proc__net__dev=f"Inter-| Receive\n face |bytes\n lo: {ZEROS}\n eth0: {ZEROS}\n", proc__pressure__io="some\n",
        proc__sys__kernel__task_delayacct="1\n", run__udev__control="",
    )  # fmt: skip
    found = [
        checks.capabilities(fs, uid=0), checks.io_accounting(fs), checks.hidepid(fs), checks.block_devices(fs),
        checks.network(fs), checks.pressure(fs), checks.delay_accounting(fs), checks.udev(tmp_path / "run"),
    ]  # fmt: skip

    assert {c.status for c in found} == {"ok"}
    assert checks.block_devices(fs).text == "2 block devices, 1 in use"


@pytest.mark.parametrize(
    ("options", "mask", "status"),
    [
        ("rw", NONE, "ok"),
        ("rw,hidepid=0", NONE, "ok"),
        ("rw,hidepid=2", NONE, "warn"),
        ("rw,hidepid=invisible", FULL, "ok"),
    ],
)
def test_hidepid(options: str, mask: str, status: str, tree: Callable[..., KernelFs]) -> None:
    """Hidden processes matter only to who has not the capability that sees them."""
    fs = tree(proc__self__status=f"CapEff:\t{mask}\n", proc__self__mounts=f"proc /proc proc {options} 0 0\n")

    assert checks.hidepid(fs).status == status


@pytest.mark.parametrize(
    ("scope", "mask", "status"),
    [
        ("0", NONE, "ok"),
        ("1", NONE, "warn"),
        ("1", FULL, "ok"),
        ("2", NONE, "warn"),
        ("2", FULL, "ok"),
        ("3", FULL, "warn"),
    ],
)
def test_ptrace_scope(scope: str, mask: str, status: str, tree: Callable[..., KernelFs]) -> None:
    """The capability sees through all but the strictest."""
    fs = tree(proc__self__status=f"CapEff:\t{mask}\n", proc__sys__kernel__yama__ptrace_scope=f"{scope}\n")
    check = kernel.ptrace_scope(fs)

    assert check.status == status
    assert (check.fix is None) == (status == "ok")


def test_stacks_are_tried(tmp_path: Path) -> None:
    """py-spy reads our own; without it, or with one that does not work, less is known."""
    broken = tmp_path / "py-spy"
    broken.write_text("#!/bin/sh\necho 'Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    found = [kernel.stacks(program) for program in (find_program(), None, "/nowhere/py-spy", str(broken))]

    assert [check.status for check in found] == ["ok", "warn", "warn", "warn"]
    assert "ptrace_scope" in found[3].text
    assert all(check.fix for check in found[1:])


class _Driver(NvmlGpus):
    def __init__(self, number: int | None, reason: str | None = None) -> None:
        super().__init__()
        self._number = number
        self.has_library = number is not None or reason is not None
        self.reason = reason

    def count(self) -> int | None:
        return self._number


def test_gpus(tree: Callable[..., KernelFs]) -> None:
    """A host without any lacks nothing; one whose driver does not answer does."""
    fs = tree()
    found = [kernel.gpus(fs, one) for one in (_Driver(8), _Driver(None), _Driver(None, "NVML: Unknown Error"))]
    hidden = kernel.gpus(tree(proc__driver__nvidia__version="NVRM"), _Driver(None))

    assert [check.status for check in (*found, hidden)] == ["ok", "note", "warn", "warn"]
    assert found[0].text == "NVML reports the utilisation of 8 GPUs"


def test_a_gpu_driver_that_hangs_is_said_to(tree: Callable[..., KernelFs], monkeypatch: pytest.MonkeyPatch) -> None:
    """By a command that ends, for the question is asked by a process that is left behind."""
    monkeypatch.setattr(kernel, "_GPUS_SECONDS", 0.2)
    driver = _Driver(8)
    monkeypatch.setattr(driver, "count", lambda: time.sleep(float(LIFETIME)))
    found = kernel.gpus(tree(), driver)

    assert (found.status, "NVML has not answered for 0.2 s" in found.text) == ("warn", True)


def test_what_was_killed_and_does_not_end_is_named(tree: Callable[..., KernelFs]) -> None:
    """Samplers and py-spy, with what ends them; not who was not killed, nor others."""
    killed, alive = "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n", "SigPnd:\t0\nShdPnd:\t0\n"
    fs = tree(
        proc__9__status=f"Name:\tpy-spy\nState:\tD (disk sleep)\nThreads:\t1\n{killed}",
        proc__10__status=f"Name:\tckptprof:sampler\nState:\tZ (zombie)\nThreads:\t2\n{alive}",
        proc__11__status=f"Name:\tpy-spy\nState:\tD (disk sleep)\nThreads:\t1\n{alive}",
        proc__12__status=f"Name:\tpython\nState:\tD (disk sleep)\nThreads:\t1\n{killed}",
    )
    (found,) = host.check_killed_samplers(fs)

    assert found.text.endswith("does not respond: py-spy 9, sampler 10")
    assert END_THE_MOUNT in (found.fix or "")
    alone = tree(**{f"proc__{pid}__status": f"Name:\tpy-spy\nState:\tS\n{alive}" for pid in (9, 10, 11, 12)})
    assert host.check_killed_samplers(alone) == []


def test_private_network_is_noticed(tree: Callable[..., KernelFs]) -> None:
    """/proc/net/dev reads well there, and is wrong."""
    assert checks.network(tree(proc__net__dev=f"h\nh\n    lo: {ZEROS}\n")).status == "warn"


def test_tcp_is_asked_of_the_kernel(tree: Callable[..., KernelFs], monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be read here, by anybody; what a kernel lacks is told with what that costs."""

    class Lacking:
        def __init__(self, _: object) -> None:
            raise UnavailableError("TCP sockets: this kernel has no tcp_diag (CONFIG_INET_TCP_DIAG)")

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        assert checks.tcp(KernelFs()).status == "ok"
    assert checks.tcp(tree()).status == "note"
    monkeypatch.setattr(checks, "TcpTable", Lacking)
    found = checks.tcp(KernelFs())
    assert (found.status, "only links show" in found.text) == ("note", True)
    assert found.fix is not None


def test_processes_of_others_are_tried(tree: Callable[..., KernelFs], tmp_path: Path) -> None:
    """A process of another user counts as seen only if its counters and files can be read."""
    counters = "rchar: 1\nwchar: 1\nsyscr: 1\nsyscw: 1\nread_bytes: 1\nwrite_bytes: 1\n"
    fs = tree(
        proc__77__io=counters, proc__77__stat="77 (x) S 1 " + "0 " * 48, proc__77__cmdline="x\0",
        proc__77__status="Uid:\t7\t7\t7\t7\n",
    )  # fmt: skip

    assert checks.other_processes(fs, uid=7).status == "note"  # ours: proves nothing
    assert checks.other_processes(fs, uid=8).status == "note"  # without fd it is as if it had ended
    (tmp_path / "proc/77/fd").mkdir()
    assert checks.other_processes(fs, uid=8).status == "ok"


@pytest.mark.parametrize(
    ("sleep", "told"), [(b"1 2 3", ("warn", "process 78 blocks")), (None, ("note", "process 78 was not read within"))]
)
def test_a_process_that_holds_whoever_reads_of_it_is_named(
    tree: Callable[..., KernelFs],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sleep: bytes | None,
    told: tuple[str, str],
) -> None:
    """If the reader is in state D, as behind an exec on a dead file server; else the host may be too busy.

    A pipe for its arguments, into which nobody writes, holds the reader here.
    """
    monkeypatch.setattr("ckptprof.service.probing.isolated.uninterruptible_sleep", lambda _: sleep)
    fs = tree(proc__78__stat="78 (x) S 1 " + "0 " * 48, proc__78__status="Uid:\t7\t7\t7\t7\n")
    os.mkfifo(tmp_path / "proc/78/cmdline")

    found = checks.other_processes(fs, uid=8, patience_seconds=0.3)

    assert (found.status, found.text[: len(told[1])]) == told
    with contextlib.suppress(OSError):  # ENXIO: the reader is gone already; else it goes on
        os.close(os.open(tmp_path / "proc/78/cmdline", os.O_WRONLY | os.O_NONBLOCK))


def test_processes_that_each_take_their_time_do_not_add_up(
    tree: Callable[..., KernelFs], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the reader has said something: once the time is over, no more are read, and nothing is claimed."""
    read: list[str] = []
    monkeypatch.setattr("ckptprof.cli.checks.kernel.run_isolated", lambda work, *_, **__: work(read.append))

    found = checks.other_processes(tree(proc__78__cmdline="x"), uid=8, patience_seconds=-1.0)

    assert read == []
    assert (found.status, found.text) == (
        "note",
        "a process was not read within -1 s: this host is too busy for the test",
    )


@pytest.mark.parametrize(("free", "status"), [(1 << 20, "fail"), (500 << 20, "warn"), (50 << 30, "ok")])
def test_room(free: int, status: str) -> None:
    """A disk that is nearly full is told before it is."""
    assert checks.disk_free(Path("/x"), free_bytes=free, total_bytes=100 << 30).status == status


@pytest.mark.parametrize(
    ("now_s", "newest_s", "status"),
    [
        (1_774_000_800, None, "ok"),
        (1_774_000_800, 1_774_000_700, "ok"),
        (86_400, None, "warn"),
        (1_774_000_800, 1_774_009_999, "warn"),
    ],
)
def test_clock(now_s: int, newest_s: int | None, status: str) -> None:
    """A clock of 1970 or one that jumped back is told."""
    newest_ns = None if newest_s is None else newest_s * 10**9

    assert checks.clock(now_ns=now_s * 10**9, newest_ns=newest_ns).status == status


@pytest.mark.parametrize(
    ("version", "warns"),
    [((3, 40, 1), True), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 52, 0), True), ((3, 53, 0), False)],
)
def test_sqlite(version: tuple[int, ...], *, warns: bool) -> None:
    """Versions without the fix get a word, not an alarm: one writer is safe."""
    check = host.sqlite(version)
    assert (check.status, "no program but ckptprof" in check.text) == ("ok", warns)


def test_python() -> None:
    """Our floor."""
    assert host.python((3, 9, 2)).status == "fail"
    assert host.python((3, 10, 0)).status == "ok"


def test_metrics_port() -> None:
    """A taken port is a word: it may be our own agent's."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]

        assert host.metrics_port(port).status == "note"
        assert host.metrics_port(port, mine=True).status == "ok"
    assert host.metrics_port(port).status in ("ok", "note")


def test_database_that_is_none(tmp_path: Path) -> None:
    """Missing is a note, anything that is not ours a failure with the reason."""
    foreign = tmp_path / "foreign.db"
    foreign.write_text("this is no database, but it is long enough to look at\n" * 20)
    found = [host.database(path)[1] for path in (tmp_path / "none.db", foreign, tmp_path, "postgresql://h/d")]

    assert [check.status for check in found] == ["note", "fail", "fail", "fail"]
    assert all(check.text for check in found)


def test_a_large_log_names_who_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that does not end its transaction lets the log grow."""
    monkeypatch.setattr(host, "_LARGE_LOG_BYTES", 1000)
    db = tmp_path / "x.db"
    with closing(StoreWriter(db)), closing(sqlite3.connect(db, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sessions").fetchone()
        reader.execute("INSERT INTO layouts (fields) VALUES (hex(zeroblob(5000)))")
        _, check = host.database(db)

    assert check.status == "warn"
    assert f"pid {os.getpid()}, " in str(check.fix)


@pytest.mark.root
@pytest.mark.fuse
def test_a_database_behind_a_server_that_hangs_is_told_so(tmp_path: Path) -> None:
    """Whoever asked for it is left behind."""
    program = [sys.executable, "-c", "from ckptprof.cli.main import entry; entry()"]
    with silent(tmp_path / "place") as made:
        done = subprocess.run(
            [*program, "doctor", "--json", "--db", made.place / "x.db"], capture_output=True, check=False
        )
    found = {check["id"]: check for check in json.loads(done.stdout)["checks"]}

    assert (done.returncode, found["database"]["status"]) == (4, "fail")
    assert f"{made.place}/x.db: its file system has not answered" in found["database"]["text"]
    assert "disk-free" not in found


def test_a_user_without_a_home_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do, from the process that looked."""

    def homeless() -> Path:
        raise StoreError("no home", hint="name one")

    monkeypatch.setattr(host, "path_to_read", homeless)
    with pytest.raises(StoreError, match="no home") as told:
        host.inspect_database(None)

    assert told.value.hint == "name one"


@pytest.mark.root
@pytest.mark.fuse
def test_a_mount_that_hangs_is_not_asked_by_any_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless the database is there."""
    with silent(tmp_path / "place") as made:
        main(["doctor", "--db", str(tmp_path / "x.db"), "--json"])

    assert json.loads(capsys.readouterr().out)["checks"]
    assert made.asked == 0


def test_each_remedy_stands_once() -> None:
    """In three groups, with the checks that it mends; what an ordinary user lacks is no fault of `run`."""
    root = "run the agent (`ckptprof agent`)"
    found = [
        Check("python", "ok", "Python 3"), Check("udev", "note", "no udev daemon"),
        Check("capabilities", "warn", "only your own", root), Check("processes", "warn", "not others", root),
        Check("trace", "warn", "no trace", f"as `capabilities` says: {root}, and with it what `trace-btf` names"),
        Check("delay", "note", "not counted", "`sysctl a=1`"),
    ]  # fmt: skip
    text = groups(found, width=80, colour=False, is_root=False)

    assert text == (
        "Works\n  python\n  Not applicable: udev\n\nSuggestions\n"
        "  1  capabilities: only your own (also processes, trace)\n  2  delay: not counted\n\n"
        "How to fix\n  1  run the agent (`ckptprof agent`)\n  2  `sysctl a=1`\n\n"
        "`ckptprof run -- CMD` can record your own jobs. `ckptprof doctor --all` lists\nevery check.\n"
    )
    assert not degraded(found, is_root=False)
    assert degraded(found)
    assert degraded([Check("io", "fail", "none")], is_root=False)


def test_doctor_on_this_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both forms say the same, and the exit code follows from it."""
    db = str(tmp_path / "deep/er/ckptprof.db")
    code = main(["doctor", "--db", db, "--json"])
    body = json.loads(capsys.readouterr().out)
    again = main(["doctor", "--db", db, "--no-color"])
    short = capsys.readouterr().out
    main(["doctor", "--db", db, "--no-color", "--all"])
    text = capsys.readouterr().out

    assert {"ptrace-scope", "py-spy", "gpus"} <= {check["id"] for check in body["checks"]}
    assert code == again == {"ok": 0, "degraded": 4}[body["status"]]
    assert [check["id"] for check in body["checks"] if f" {check['id']} " not in text] == []
    assert [check["id"] for check in body["checks"] if check["id"] not in short] == []
    assert not (tmp_path / "deep").exists()
