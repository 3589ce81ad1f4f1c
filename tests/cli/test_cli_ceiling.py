"""`ckptprof ceiling` as a person runs it: asked, interrupted, killed, piped."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil
import pytest
from tests.kernel.filesystems import call
from tests.leftovers import own
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.report.schemas import validate
from tests.silentfuse import silent

from ckptprof.cli import ceiling as cli
from ckptprof.cli.main import main
from ckptprof.diagnose.ceilings import FULL, READ, WRITE, Ceilings, Measure
from ckptprof.errors import UsageError
from ckptprof.report import ceiling as rendering
from ckptprof.service.probing import stored_ceilings
from ckptprof.service.probing.isolated import StopEvents
from ckptprof.service.probing.probe import ROWS
from ckptprof.service.probing.probe_plan import plan_probe
from ckptprof_collectors.kernelfs import KernelFs

PROGRAM = [sys.executable, "-c", "from ckptprof.cli.main import entry; entry()"]
SHORT = ("--size", "32M", "--seconds", "0.02")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give a directory to probe."""
    made = tmp_path / "place"
    made.mkdir()
    return made


def run(*arguments: str, db: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, without a terminal."""
    return subprocess.run(
        [*PROGRAM, "ceiling", "--db", str(db), *arguments],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


def test_a_table_in_a_pipe_is_plain(place: Path, tmp_path: Path) -> None:
    """No escapes, no progress; what was found is kept beside the database."""
    done = run(str(place), *SHORT, db=tmp_path / "state" / "x.db")

    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "write direct" in done.stdout or "keeps files in memory" in done.stdout
    assert "Fastest write: " in done.stdout
    (found,) = stored_ceilings.load_ceilings(tmp_path / "state")
    assert found.path == str(place)
    assert list(place.iterdir()) == []


def test_the_document_fits_its_schema(place: Path, tmp_path: Path) -> None:
    """And names the file that is kept."""
    done = run(str(place), *SHORT, "--json", db=tmp_path / "x.db")
    said = json.loads(done.stdout)
    validate("ceiling", said)

    assert Path(said["saved_to"]).parent == tmp_path / stored_ceilings.FOLDER
    assert [one["id"] for one in said["measures"]] == [row.id for row in ROWS]


def test_nobody_to_ask_is_a_refusal(place: Path, tmp_path: Path) -> None:
    """With what to do, and without a byte written."""
    done = run(str(place), "--size", "257M", db=tmp_path / "x.db")

    assert done.returncode == 2
    assert "no terminal to confirm it" in done.stderr
    assert "--yes" in done.stderr
    assert list(place.iterdir()) == []
    assert stored_ceilings.load_ceilings(tmp_path) == ()


# A process that is nobody's from the moment on when it has imported what it needs: the interpreter may be root's alone
NOBODY = """
import os, sys
from ckptprof.cli import ceiling
from ckptprof.cli.main import main
from ckptprof.service.probing import isolated, probe, probe_plan, stored_ceilings
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


def as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user without any right."""
    command = [sys.executable, "-c", NOBODY, "ceiling", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)


@pytest.mark.root
def test_no_root_is_needed() -> None:
    """Anybody may probe what is theirs; what is not is refused."""
    with tempfile.TemporaryDirectory(
        prefix=own("ceiling-"), dir="/var/tmp"
    ) as base:  # above pytest's own only root may pass
        place, state = Path(base, "place"), Path(base, "state")
        place.mkdir()
        state.mkdir()
        Path(base).chmod(0o755)
        os.chown(state, 65534, 65534)
        arguments = (str(place), *SHORT, "--db", str(state / "x.db"))
        refused = as_nobody(*arguments)
        os.chown(place, 65534, 65534)
        done = as_nobody(*arguments)
        left, ceilings = list(place.iterdir()), stored_ceilings.load_ceilings(state)

    assert refused.returncode == 5, refused.stderr
    assert "not writable" in refused.stderr
    assert done.returncode == 0, done.stderr
    assert len(ceilings) == 1
    assert left == []


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.loop
def test_a_quota_is_respected_and_told(tmp_path: Path) -> None:
    """The kernel ends what may not be written; the rows that it ended say so, and the others are measured."""
    place, image = tmp_path / "quota", tmp_path / "image"
    place.mkdir()
    with image.open("wb") as made:
        made.truncate(3 << 30)
    call("mkfs.btrfs", "-q", image)
    call("mount", "-o", "loop", image, place)
    try:
        call("btrfs", "subvolume", "create", place / "limited")
        call("btrfs", "quota", "enable", place)
        call("btrfs", "qgroup", "limit", "4M", place / "limited")
        done = run(str(place / "limited"), "--size", "250M", "--seconds", "5", "--json", db=tmp_path / "x.db")
        left = list((place / "limited").iterdir())
    finally:
        call("umount", "-l", place)  # others that look at files may hold it for a moment
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    rows = {one["id"]: one for one in said["measures"]}

    assert not said["complete"]
    assert rows["write-direct-many"]["ended"] == "full"  # without a byte, while Btrfs still counts a deleted file
    assert all((row["transferred_bytes"] or 0) <= 4 << 20 for row in rows.values() if row["ended"] == "full")
    assert "the quota is exceeded" in {one["missing"] for one in said["measures"]}
    assert left == []


def in_a_terminal(answer: bytes, arguments: Sequence[str]) -> tuple[int, str]:
    """Run the command with a terminal for all its streams, answer when asked, and return its code and what it said."""
    pid, fd = pty.fork()
    if pid == 0:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}
        try:
            os.execve(PROGRAM[0], [*PROGRAM, "ceiling", *arguments], environment)  # noqa: S606 # no shell
        finally:
            os._exit(127)  # else it would run the other tests, too
    said = b""
    while True:
        try:
            more = os.read(fd, 4096)
        except OSError:  # the terminal's other side is closed
            break
        said += more
        if answer and b"[y/N] " in said:
            os.write(fd, answer)
            answer = b""
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    return os.waitstatus_to_exitcode(status), said.decode()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # pytest-xdist has threads; the child only execs
def test_a_person_is_asked(place: Path, tmp_path: Path) -> None:
    """And may say no, which Return alone does."""
    for answer in (b"n\n", b"\n"):
        code, said = in_a_terminal(answer, (str(place), "--size", "300M", "--seconds", "0.01", "--db", f"{tmp_path}/x"))

        assert code == 1
        assert "up to 315 MB into" in said
        assert "nothing was written" in said
    assert stored_ceilings.load_ceilings(tmp_path) == ()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_person_sees_progress(place: Path, tmp_path: Path) -> None:
    """On one line that is wiped before the table."""
    code, said = in_a_terminal(b"y\n", (str(place), "--size", "300M", "--seconds", "0.01", "--db", f"{tmp_path}/x"))

    assert code == 0
    assert f"\r\x1b[K1/{len(ROWS)} write direct" in said
    assert "Fastest write:" in said.rpartition("\x1b[K")[2]
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_nothing(number: int, code: int, place: Path, tmp_path: Path) -> None:
    """Neither in the directory nor in the state directory."""
    process = started(place, tmp_path)
    process.send_signal(number)
    _, told = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == code
    assert b"interrupted" in told
    assert list(place.iterdir()) == []
    assert stored_ceilings.load_ceilings(tmp_path) == ()


def test_who_signals_again_later_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes with the first signal is no second one."""
    times = iter((10.0, 10.1, 10.0 + 2 * cli.REPEAT_SECONDS))
    monkeypatch.setattr(cli, "time", SimpleNamespace(monotonic=lambda: next(times)))
    stop = StopEvents()
    with cli._signals(stop) as signalled:
        gave_up = []
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
            gave_up.append(stop.give_up.is_set())

    assert (stop.halt.is_set(), signalled[0], gave_up) == (True, signal.SIGTERM, [False, False, True])


def test_what_kill_left_is_removed_by_the_next(place: Path, tmp_path: Path) -> None:
    """Nobody can clean up after a SIGKILL but the next probe."""
    process = started(place, tmp_path)
    process.kill()
    process.communicate()
    done = run(str(place), *SHORT, db=tmp_path / "x.db")

    assert done.returncode == 0, done.stderr
    assert list(place.iterdir()) == []


@pytest.mark.root
@pytest.mark.fuse
def test_a_mount_that_hangs_is_said_to(tmp_path: Path) -> None:
    """In one line, by a command that ends although a call to that mount does not."""
    impatient = "from ckptprof.cli import ceiling\nfrom ckptprof.cli.main import entry\n"
    impatient += "ceiling.FIRST_ANSWER_SECONDS = 3.0\nentry()"
    with silent(tmp_path / "place", user=0) as mount:
        done = subprocess.run(
            [sys.executable, "-c", impatient, "ceiling", "--db", tmp_path / "x.db", mount.place / "checkpoints"],
            capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        asked = mount.asked

    assert (done.returncode, asked > 0) == (1, True)
    assert "place/checkpoints: its file system has not answered for 3 s" in done.stderr


def started(place: Path, state: Path) -> subprocess.Popen[bytes]:
    """Return a long probe that is at work."""
    process = subprocess.Popen(
        [*PROGRAM, "ceiling", "--db", f"{state}/x.db", "--size", "200M", "--seconds", "60", str(place)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_until(lambda: list(place.iterdir()) or any(map(nameless_files, psutil.Process(process.pid).children())))
    return process


def nameless_files(process: psutil.Process) -> list[str]:
    """Return the files without a name that a process has open in a directory to probe."""
    links = [os.path.realpath(fd) for fd in Path(f"/proc/{process.pid}/fd").iterdir()]  # one may just be closed
    return [link for link in links if "/place/" in link and link.endswith(" (deleted)")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--size", "many"), "is not a size"), (("--size", "1K"), "too little"), (("--size", "-1G"), "is not a size"),
        (("--seconds", "0"), "must be a number from 0.001 to 60"), (("--seconds", "nan"), "must be a number from"),
        (("--seconds", "1e9"), "must be a number from"),
    ],
)  # fmt: skip
def test_impossible_options(
    arguments: tuple[str, ...], said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is refused with its reason."""
    assert main(["ceiling", str(place), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_sizes() -> None:
    """In the units that people write."""
    read = cli._parse_size  # the one place that reads sizes
    assert [read(text) for text in ("256M", "1G", "1.5GiB", "20 gb", "16777216")] == [
        256 << 20, 1 << 30, 3 << 29, 20 << 30, 16 << 20,
    ]  # fmt: skip
    for text in ("", "1X", "1e9", "١G"):  # noqa: RUF001 # an Arabic digit
        with pytest.raises(UsageError):
            read(text)


def test_a_state_directory_that_takes_nothing_is_told(place: Path, tmp_path: Path) -> None:
    """What was found is printed all the same."""
    (tmp_path / "file").touch()
    for db, why in ((tmp_path / "file" / "x.db", "Not a directory"), (Path("/proc/q/x.db"), "/proc/q: No such file")):
        done = run(str(place), *SHORT, db=db)

        assert done.returncode == 0
        assert f"could not be stored: {'/'.join(db.parts[:2])[1:]}" in done.stderr
        assert why in done.stderr
        assert "Fastest write: " in done.stdout


def found(**changes: object) -> Ceilings:
    """Return what a probe may have found on hostile names."""
    rows = (
        Measure(id="a", work=WRITE, operation_bytes=1 << 20, workers=4, direct=True, bytes_per_second=2e9,
                transferred_bytes=1 << 30, spent_ns=10**9),
        Measure(id="b", work=WRITE, operation_bytes=1 << 20, direct=False, bytes_per_second=5e8,
                transferred_bytes=1 << 28, spent_ns=10**9),
        Measure(id="c", work=READ, operation_bytes=1 << 20, direct=False, missing="no\x1b[2J reason"),
        Measure(id="d", work=READ, operation_bytes=1 << 20, workers=4, direct=True, missing="the quota is exceeded",
                ended=FULL),
    )  # fmt: skip
    values: dict[str, object] = {
        "version": "0", "host": "h\x1b]0;x\x07", "at_ns": 1, "spent_ns": 10**9, "path": "/a\nb\u202e",
        "mount_point": "/a", "fs_type": "ext4", "source": "/dev/sda1", "device": "sda1", "server": None,
        "size_bytes": 1 << 30, "phase_seconds": 2.0, "busy_before": 0.0, "complete": True, "measures": rows,
    }  # fmt: skip
    return Ceilings(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_table_fits_and_is_safe(width: int) -> None:
    """However wide the terminal is, and whatever names hold."""
    text = rendering.render(found(), width=width, colour=False)

    assert max(map(len, text.splitlines())) <= width
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "2.00 GB/s" in text


def test_what_it_comes_to() -> None:
    """The best, what a common writer gets of it, and what was not measured, each reason once."""
    assert rendering.conclusions(found()) == [
        "Fastest write: 2.00 GB/s (write direct, 4 workers).",
        "One buffered writer reaches 25 % of that.",
    ]
    assert rendering.notes(found(busy_before=0.5, complete=False)) == [
        "Not fully measured (no\\x1b[2J reason): read buffered, cold.",
        "Not fully measured (the quota is exceeded): read direct x4.",
        "The disk was already 50 % busy before the probe: the figures may be too low.",
        "Some measurements are missing: a later probe replaces this one.",
    ]


def test_a_busy_device_is_warned_of(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is written: the probe disturbs what is at work there."""
    what = plan_probe(place, size_bytes=16 << 20, phase_seconds=1.0, fs=KernelFs())
    warn = cli._warn  # what a person is told of it
    warn(msgspec.structs.replace(what, device="sd\x1bx", busy=0.42))
    warn(msgspec.structs.replace(what, busy=None))
    warn(msgspec.structs.replace(what, busy=0.01))

    warning = "ckptprof: sd\\x1bx is already 42 % busy: this will skew the result and slow other jobs\n"
    assert capsys.readouterr().err == warning
