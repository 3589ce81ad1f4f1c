"""`capture` and `replay`: what is written survives a kill, what is read may be anything at all."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from livecommand import PATH_FIELD, SAVE, Ckptprof, sampler_of, wait_until
from tests.leftovers import own
from tests.patience import LIFETIME, PATIENCE_SECONDS

from ckptprof.errors import RecordingError
from ckptprof.recording import FileWriter, Header
from ckptprof.service.commands.replaying import replay
from ckptprof.store.migrations import APPLICATION_ID
from ckptprof_collectors.samples import Frame

STREAMS = Path(__file__).resolve().parents[2] / "fixtures" / "streams"
HEADER = Header(
    uid="u", host="h", boot_id="b", kernel="k", ckptprof="1", level="poll", at_ns=0, wall_ns=10**18,
    ticks_per_second=100, page_size=4096,
)  # fmt: skip


def recorded(path: Path, header: Header = HEADER, frames: int = 5) -> Path:
    """Write a recording in which nothing happens."""
    with path.open("wb") as stream:
        writer = FileWriter(stream, header)
        for number in range(frames):
            writer.write(Frame(at_ns=number, wall_ns=10**18 + number, read=("memory",), samples=()))
        writer.close()
    return path


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of a recording."""
    with gzip.open(path) as stream:
        return stream.read().splitlines()


def packed(path: Path, *lines: bytes) -> Path:
    """Write these lines as if they were a recording."""
    with gzip.open(path, "wb") as stream:
        stream.write(b"\n".join(lines) + b"\n")
    return path


@pytest.mark.parametrize("content", [bytes(5000), gzip.compress(bytes(50 << 20), mtime=0)], ids=["zeros", "bomb"])
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    """One line, and no memory to speak of."""
    path = tmp_path / "x.gz"
    path.write_bytes(content)

    with pytest.raises(RecordingError, match=r"x\.gz"):
        replay(path, None)


AS_NOBODY = """
import os, sys
from ckptprof.cli import replay
from ckptprof.cli.main import main
from ckptprof.service.commands import replaying
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.root
def test_a_recording_that_may_not_be_read_exits_with_its_own_code() -> None:
    """Which is neither that of wrong options nor that of a damaged file."""
    with tempfile.TemporaryDirectory(prefix=own("replay-")) as base:  # above pytest's own only root may pass
        Path(base).chmod(0o755)
        path = recorded(Path(base, "x.gz"))
        path.chmod(0o600)
        command = [sys.executable, "-c", AS_NOBODY, "replay", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)

    assert done.returncode == 5
    assert done.stderr == f"ckptprof: {path}: Permission denied\nhint: ask its owner for it, or read it as root\n"


@pytest.mark.parametrize(
    "bad",
    [b"{}", b"[]", b"null", b"[" * 100_000, b'{"at_ns": 1e400}', b'["x", "y", [], [["disk"]]]', b"\xff\xfe"],
    ids=["object", "array", "null", "deep", "infinite", "types", "bytes"],
)
def test_a_damaged_line_ends_the_replay_with_its_number(tmp_path: Path, bad: bytes) -> None:
    """What came before it counts; the damage is told with the line."""
    whole = lines_of(recorded(tmp_path / "whole.gz"))
    path = packed(tmp_path / "x.gz", *whole[:4], bad, *whole[4:])

    replayed = replay(path, None)

    assert replayed.report.watched.end_ns == 10**18 + 2
    assert replayed.damage is not None
    assert "line 5" in str(replayed.damage)


@pytest.mark.parametrize("db", [None, "x.db"])
def test_impossible_counters_end_the_replay_with_their_line(tmp_path: Path, db: str | None) -> None:
    """Detection may stumble over what no kernel counts; who reads the recording is told where, and what to do."""
    lines = lines_of(STREAMS / "torch-save.ckptrec.gz")
    number = next(number for number, line in enumerate(lines) if b'["stat",' in line and number > 300)
    frame = json.loads(lines[number])
    frame[3] = [[*sample[:4], *(-1 for _ in sample[4:])] if sample[0] == "stat" else sample for sample in frame[3]]
    path = packed(tmp_path / "x.gz", *lines[:number], json.dumps(frame).encode(), *lines[number + 1 :])

    replayed = replay(path, None if db is None else str(tmp_path / db))

    assert replayed.damage is not None
    assert f"line {number + 1} cannot be processed: " in str(replayed.damage)
    assert "the part before that was used; " in (replayed.damage.hint or "")


def test_a_database_that_is_kept_aside_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of a version between releases: its checkpoints are where the line says."""
    db = tmp_path / "x.db"
    with contextlib.closing(sqlite3.connect(db)) as made:
        made.executescript(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 5")

    replay(recorded(tmp_path / "x.gz"), str(db))

    (kept,) = tmp_path.glob("x.db.damaged-*")
    assert f"retained as {kept}, starting a new database" in capsys.readouterr().err


@pytest.mark.parametrize("value", [0, -1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63)])
def test_times_of_any_size_are_survived(tmp_path: Path, value: int) -> None:
    """A clock that jumped, or a liar: no endless loop, no memory, an answer or a line."""
    header = msgspec.structs.replace(HEADER, at_ns=value, wall_ns=value)
    path = tmp_path / "x.gz"
    with path.open("wb") as stream:
        writer = FileWriter(stream, header)
        for at_ns in (0, value, 5, value // 2, -value):
            writer.write(Frame(at_ns=at_ns, wall_ns=at_ns, read=("memory",), samples=()))
        writer.close()

    assert replay(path, None).report.checkpoints == ()


@pytest.mark.xdist_group("live")
@pytest.mark.slow
def test_a_capture_tells_what_the_agent_told(ckptprof: Ckptprof) -> None:
    """The same job seen by both at once: the same checkpoints; replayed twice into a database, they are there once."""
    recording = ckptprof.work / "x.gz"
    agent = ckptprof.start("agent", "--no-metrics", "--db", str(ckptprof.database))
    capture = ckptprof.start("capture", str(recording))
    wait_until(lambda: recording.exists() and recording.stat().st_size)
    ckptprof.await_sight()
    subprocess.run([sys.executable, "-c", f"{SAVE}time.sleep(1)", "3"], check=True, cwd=ckptprof.work)
    wait_until(lambda: {f"ckpt_{number}.npy" for number in range(3)} <= {*ckptprof.steps()})
    for process in (agent, capture):
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)

    other = str(ckptprof.work / "replayed.db")
    results = [ckptprof.call("replay", str(recording), "--db", other, "--json") for _ in range(2)]
    found = [json.loads(result.stdout)["checkpoints"] for result in results]
    listed = ckptprof.call("list", "--db", other).stdout
    live_listed = ckptprof.call("list", "--db", str(ckptprof.database)).stdout

    def mine(paths: list[str]) -> list[str]:
        return [path for path in paths if str(ckptprof.work) in path]

    live = [line.split("\t")[PATH_FIELD] for line in live_listed.decode().splitlines()]
    expected = [str(ckptprof.work / f"ckpt_{number}.npy") for number in range(3)]
    assert expected == mine(live)
    assert [expected, expected] == [mine([one["path"] for one in checkpoints]) for checkpoints in found]
    assert expected == mine([line.split("\t")[PATH_FIELD] for line in listed.decode().splitlines()])
    assert [process.returncode for process in (agent, capture)] == [0, 0]


@pytest.mark.slow
def test_a_killed_capture_can_be_replayed(ckptprof: Ckptprof) -> None:
    """Kill -9 costs the last second, not all of it; the code and a line say that it breaks off."""
    recording = ckptprof.work / "x.gz"
    process = ckptprof.start("capture", str(recording))
    begun = wait_until(lambda: recording.exists() and recording.stat().st_size)
    wait_until(lambda: recording.stat().st_size > begun)

    process.kill()
    process.wait()
    result = ckptprof.call("replay", str(recording), "--json")

    assert result.returncode == 1
    assert b"truncated\nhint: the part before that was used; the recorder was killed" in result.stderr
    assert json.loads(result.stdout)["watched"]["end_ns"] is not None


@pytest.mark.slow
def test_a_capture_whose_sampler_ends_is_a_failure(ckptprof: Ckptprof) -> None:
    """Half a recording must not pass for a whole one."""
    recording = ckptprof.work / "x.gz"
    process = ckptprof.start("capture", str(recording), "--seconds", LIFETIME)
    wait_until(lambda: recording.exists() and recording.stat().st_size)

    sampler_of(process).kill()
    _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 1
    assert b"the sampler ended early" in err
    assert ckptprof.call("replay", str(recording)).returncode in (0, 3)  # whole, as far as it goes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("there.gz",), 1, b"--force"),
        (("--force", "/dev/full"), 1, b"No space left"),
        (("no/such/folder.gz",), 1, b"No such file"),
        (("--force", "."), 1, b"Is a directory"),
        (("full",), 1, b"Is a directory\nhint: give the path"),
        (("--force", "pipe"), 1, b"no process reads this pipe"),
        (("x.gz", "--seconds", "nan"), 2, b"--seconds must be a number from 0.1, not 'nan'"),
        (("x.gz", "--rate", "inf"), 2, b"--rate must be a number from 0.5 to 100, not 'inf'"),
        (("--force", "there.gz", "--note", os.fsdecode(b"\x1b[31m\xff\n")), 0, b"frames"),
    ],
    ids=["exists", "full", "no-folder", "here", "folder", "pipe", "nan", "inf", "hostile-note"],
)
def test_capture_says_what_it_cannot_write(ckptprof: Ckptprof, arguments: Any, code: int, said: bytes) -> None:
    """And touches no file that is there, unless told to."""
    (ckptprof.work / "there.gz").write_bytes(b"old")
    (ckptprof.work / "full").mkdir()
    os.mkfifo(ckptprof.work / "pipe")

    result = ckptprof.call("capture", "--seconds", "1.5", *arguments)

    assert result.returncode == code
    assert said in result.stderr
    assert b"Traceback" not in result.stderr
    assert ((ckptprof.work / "there.gz").read_bytes() == b"old") is (code != 0)
