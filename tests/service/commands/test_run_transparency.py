"""`ckptprof run` is in nobody's way: streams, descriptors, masks and limits of the command are what they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from livecommand import CKPTPROF, Ckptprof

pytestmark = pytest.mark.slow

STATE = """
import os, resource, signal
print(sorted(os.listdir("/proc/self/fd")))
print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
print([n for n in range(1, 32) if signal.getsignal(n) == signal.SIG_IGN])
print(resource.getrlimit(resource.RLIMIT_NOFILE), os.nice(0), os.getcwd(), os.getpgid(0) == os.getpgid(os.getppid()))
print(open("/proc/self/oom_score_adj").read(), sorted(os.environ))
"""


def test_the_command_inherits_what_it_would_without_us(ckptprof: Ckptprof) -> None:
    """Descriptors, blocked and ignored signals, limits, priority, folder, group and environment: all the same."""
    command = [sys.executable, "-c", STATE]

    alone = subprocess.run(command, capture_output=True, check=True, env=ckptprof.environment, cwd=ckptprof.work)
    watched = ckptprof.run(*command)

    assert alone.stdout == watched.stdout


def test_a_blocked_signal_stays_blocked(ckptprof: Ckptprof) -> None:
    """The command gets the signal mask of who started us, not an empty one and not ours."""
    program = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])\n"
    program += "os.execv(sys.argv[1], sys.argv[1:])"
    arguments = ["run", "-q", "--db", str(ckptprof.database), "--", sys.executable, "-c", STATE]

    result = subprocess.run(
        [sys.executable, "-c", program, *CKPTPROF, *arguments], capture_output=True, check=True, cwd=ckptprof.work
    )

    assert str([signal.SIGUSR2]) in result.stdout.decode()


def test_an_ignored_sigchld_does_not_lose_the_exit_code(ckptprof: Ckptprof) -> None:
    """Who ignores SIGCHLD has the kernel throw the exit codes of children away, and we inherit that."""
    program = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    arguments = ["run", "-q", "--db", str(ckptprof.database), "--", "sh", "-c", "exit 6"]

    result = subprocess.run([sys.executable, "-c", program, *CKPTPROF, *arguments], check=False, cwd=ckptprof.work)

    assert result.returncode == 6


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_stay_closed_and_break_nothing(ckptprof: Ckptprof, closed: str) -> None:
    """No file of ours lands on the number of a closed stream; the command finds it closed, and its code passes."""
    report, seen, script = (ckptprof.work / name for name in ("report.json", "seen", "script.py"))
    script.write_text(
        "import os, pathlib; there = [str(n) for n in range(3) if os.path.exists(f'/proc/self/fd/{n}')]\n"
        f"pathlib.Path({str(seen)!r}).write_text(''.join(there)); raise SystemExit(4)\n"
    )
    arguments = f"run --db {ckptprof.database} --json -o {report} -- {sys.executable} {script}"

    result = subprocess.run(
        ["sh", "-c", f"exec {' '.join(CKPTPROF)} {arguments} {closed}"], check=False, cwd=ckptprof.work
    )

    expected = "".join(
        number for number, how in (("0", "<&-"), ("1", ">&-"), ("2", "2>&-")) if how not in closed.split()
    )
    assert result.returncode == 4
    assert expected == seen.read_text()
    assert report.read_text().startswith("{")


def test_a_script_without_a_first_line_runs_as_in_a_shell(ckptprof: Ckptprof) -> None:
    """execvp(3) hands such a file to /bin/sh, and so do we; a foreign binary is 126."""
    script, binary = ckptprof.work / "script", ckptprof.work / "binary"
    script.write_text('echo "got $1"; exit 3')
    binary.write_bytes(b"\x7fELF\0\0\0" + bytes(100))
    for path in (script, binary):
        path.chmod(0o755)

    ran, refused = ckptprof.run(str(script), "it"), ckptprof.run(str(binary))

    assert (ran.returncode, ran.stdout) == (3, b"got it\n")
    assert refused.returncode == 126


@pytest.mark.parametrize("name", [b"", b"no-\xff\x1b[31m"], ids=["empty", "bytes"])
def test_hostile_command_names_are_127(ckptprof: Ckptprof, name: bytes) -> None:
    """An empty name, bytes that are no text and escape codes: one clean line."""
    result = ckptprof.run(os.fsdecode(name))

    assert result.returncode == 127
    assert b"no such command" in result.stderr
    assert b"\x1b" not in result.stderr
    assert b"dcff" not in result.stderr


def test_a_missing_interpreter_is_named(ckptprof: Ckptprof) -> None:
    """The kernel says ENOENT for it, as for a missing command; the file is there, so say what is not."""
    script = ckptprof.work / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)

    result = ckptprof.run(str(script))

    assert result.returncode == 127
    assert b"interpreter" in result.stderr


def test_decoys_in_the_working_directory_are_not_imported(ckptprof: Ckptprof) -> None:
    """A msgspec.py beside the training script is the script's, not the sampler's."""
    for name in ("msgspec", "typing", "json", "signal", "ckptprof"):
        (ckptprof.work / f"{name}.py").write_text("open('decoyed', 'w').close(); raise SystemExit(99)\n")

    result = ckptprof.run("sh", "-c", "exit 6")

    assert result.returncode == 6
    assert not (ckptprof.work / "decoyed").exists()
    assert b"unwatched" not in result.stderr


def test_a_deleted_working_directory_is_no_obstacle(ckptprof: Ckptprof) -> None:
    """The command runs there as it would alone; only a relative --db cannot be meant."""
    gone = ckptprof.work / "gone"
    command = f"mkdir {gone}; cd {gone}; rmdir {gone}; exec {' '.join(CKPTPROF)} run -q --db"

    absolute = subprocess.run(["sh", "-c", f"{command} {ckptprof.database} sh -c 'exit 6'"], check=False)
    relative = subprocess.run(["sh", "-c", f"{command} x.db sh -c 'exit 6'"], check=False, capture_output=True)

    assert absolute.returncode == 6
    assert relative.returncode == 6  # the code of a database that cannot be
    assert b"--db" in relative.stderr


@pytest.mark.parametrize(("target", "code"), [("/dev/full", 7), (".", 1), ("no/such/folder", 1)])
def test_a_report_that_cannot_be_written(ckptprof: Ckptprof, target: str, code: int) -> None:
    """A path that can never be one is refused before the command starts; a full disk costs no exit code."""
    result = ckptprof.call(
        "run", "-o", target, "--db", str(ckptprof.database), "--", "sh", "-c", "echo ran > ran; exit 7"
    )

    assert code == result.returncode
    assert (code == 7) == (ckptprof.work / "ran").exists()
    level = (b"ckptprof: recorded at poll level", b"ckptprof: no trace level: ")  # what root is told without a trace
    assert 1 <= len([line for line in result.stderr.splitlines() if not line.startswith(level)]) <= 2


def test_a_report_stays_until_the_next_one_is_there(ckptprof: Ckptprof) -> None:
    """-o keeps the old file when the command cannot be started, and replaces all of it otherwise."""
    report = Path(ckptprof.work / "report.json")
    report.write_text("old" * 10_000)
    arguments = ("run", "--json", "-o", str(report), "--db", str(ckptprof.database), "--")

    ckptprof.call(*arguments, "no-such-command")
    after_failure = report.read_text()
    ckptprof.call(*arguments, "true")

    assert after_failure == "old" * 10_000
    assert report.read_text().startswith("{")
    assert "old" not in report.read_text()


def test_a_pipe_that_nobody_reads_is_refused(ckptprof: Ckptprof) -> None:
    """At once, and nothing has run; one that is read takes the report."""
    pipe = ckptprof.work / "pipe"
    os.mkfifo(pipe)
    arguments = ("run", "-o", str(pipe), "--db", str(ckptprof.database), "--", "touch", "ran")
    refused = ckptprof.call(*arguments)
    ran = (ckptprof.work / "ran").exists()
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    done = ckptprof.call(*arguments)
    report = os.read(reader, 1 << 16)
    os.close(reader)

    assert (refused.returncode, ran) == (1, False)
    assert b"no process reads this pipe\nhint: " in refused.stderr
    assert done.returncode == 0
    assert b"Found no checkpoint. `ckptprof doctor --db " in b" ".join(report.split())


@pytest.mark.parametrize("db", ["/proc/nowhere/x.db", "~no-such-user/x.db"])
def test_a_database_that_cannot_be_is_said_before_the_command_starts(ckptprof: Ckptprof, db: str) -> None:
    """One line that names --db, exit code 6, and nothing has run."""
    result = ckptprof.call("run", "--db", db, "--", "sh", "-c", "echo ran > ran")

    assert result.returncode == 6
    assert b"--db" in result.stderr
    assert not (ckptprof.work / "ran").exists()
