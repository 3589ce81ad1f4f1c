"""Death, damage and full disks: nothing that was committed is lost, nothing ends in a traceback."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from grounds import LOG_LOST, ground
from tests.machine import need

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, CheckpointQuery
from ckptprof.store.reader import StoreReader
from ckptprof.store.timeline import WINDOW_NS, TimelineBuilder, Window
from ckptprof.store.writer import Retention, StoreFullError, StoreWriter
from ckptprof_collectors.samples import Frame

_Make = Callable[..., Checkpoint]
_FLIPS = 120
_COMMITTER = Path(__file__).with_name("committer.py")


@pytest.mark.slow
def test_a_dozen_kills_lose_nothing_that_was_acknowledged(db: Path) -> None:
    """Each by kill -9 at random moments of committing; the database is whole, and the next writer goes on at once."""
    chance = random.Random(3)  # noqa: S311 # data for a test
    acknowledged = 0
    for _ in range(12):
        command = [sys.executable, str(_COMMITTER), str(db), str(acknowledged)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(chance.randrange(1, 12)):
                acknowledged = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
        with StoreReader(db) as reader:
            steps = [one.step for one in reader.report(CheckpointQuery()).checkpoints]

            assert steps[:acknowledged] == list(range(1, acknowledged + 1))
            assert len(steps) <= acknowledged + 1
            last = reader.checkpoint(acknowledged)
            assert last is not None
            assert len(last.streams) == 20
        acknowledged = max(acknowledged, len(steps))
    with sqlite3.connect(db) as plain:
        assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    plain.close()


@pytest.mark.root
@pytest.mark.loop
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_file_system_that_goes_down_loses_nothing_that_was_acknowledged(tmp_path: Path, kind: str) -> None:
    """As if its power had gone, its log in memory lost, in the middle of storing; afterwards the database is whole."""
    with ground(tmp_path, kind, tmp_path / "fs") as disk:
        db = disk.at / "x.db"
        acknowledged = 0
        for _ in range(3):
            command = [sys.executable, str(_COMMITTER), str(db), str(acknowledged)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                for _ in range(20):
                    acknowledged = int(process.stdout.readline())
                disk.shut_down(LOG_LOST)
                process.stdout.read()  # what it says while that happens is no power loss any more
                assert process.wait() != 0  # it can store no more, and says so
            disk.unmount()
            disk.mount()
            with contextlib.closing(sqlite3.connect(db)) as plain:
                assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                stored = {int(uid) for (uid,) in plain.execute("SELECT uid FROM checkpoints")}
            assert set(range(1, acknowledged + 1)) <= stored
            acknowledged = max(stored)


def _use(path: Path) -> None:
    with StoreReader(path) as reader:
        for one in reader.report(CheckpointQuery()).checkpoints:
            reader.checkpoint(one.id)
        reader.sessions()
        reader.recent_paths(9)
        for entity in reader.entities():
            reader.series(entity, 0, 1 << 62)
            reader.series(entity, 0, 1 << 62, step_seconds=60)


@pytest.mark.slow
def test_flipped_bytes_end_in_a_clear_error_or_in_an_answer(
    db: Path, tmp_path: Path, start_ns: int, checkpoint: _Make, disk_frame: Callable[..., Frame]
) -> None:
    """At many places, and cut short: reader and writer raise StoreError or work, and never anything else."""
    chance = random.Random(5)  # noqa: S311 # data for a test
    writer = StoreWriter(db)
    writer.add_checkpoints([checkpoint(uid=str(number)) for number in range(20)])
    builder = TimelineBuilder()
    for second in range(0, 5000, 5):
        builder.feed(disk_frame(start_ns + second * 10**9, second * second))
    writer.add_windows(builder.consume(before_wall_ns=None))
    writer.maintain(start_ns + 4000 * 10**9)
    writer.close()
    whole = db.read_bytes()
    broken = tmp_path / "broken.db"
    told: list[str] = []
    for number in range(_FLIPS):
        content = bytearray(whole)
        for _ in range(1 + number % 3):
            content[chance.randrange(len(content)) if number % 2 else chance.randrange(4096)] ^= 1 << chance.randrange(
                8
            )
        if number % 10 == 0:
            del content[chance.randrange(1000, len(content)) :]
        broken.write_bytes(content)
        try:
            _use(broken)
            again = StoreWriter(broken, ballast_bytes=0)
            again.maintain(start_ns + 7300 * 10**9)
            again.close()
        except StoreError as error:
            told.append(str(error))
        for name in ("broken.db-wal", "broken.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)

    assert 10 < len(told) < _FLIPS
    assert not any("\n" in line for line in told)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of 24 MiB."""
    need("mount")
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "ckptprof-test", str(mount)], check=True)
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def _fill(mount: Path) -> Path:
    filler = mount / "filler"
    with filler.open("ab", buffering=0) as stream:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while stream.write(os.urandom(size)) == size:
                    pass
    return filler


@pytest.mark.root
def test_a_full_disk_stops_recording_and_loses_nothing(small_disk: Path, checkpoint: _Make) -> None:
    """StoreFullError, every time, while readers go on; once there is room the same call works."""
    db = small_disk / "x.db"
    writer = StoreWriter(db)
    writer.add_checkpoints([checkpoint(uid="before")])
    filler = _fill(small_disk)
    stored: list[str] = []

    def store_more() -> None:
        for number in range(20_000):
            writer.add_checkpoints([checkpoint(uid=f"full-{number}", path="p" * 4000)])
            stored.append(str(number))

    with pytest.raises(StoreFullError, match="no space left on the disk") as caught:
        store_more()
    for _ in range(3):
        with pytest.raises(StoreFullError):
            writer.add_checkpoints([checkpoint(uid="late", path="p" * 4000_000)])
    with StoreReader(db) as reader:
        assert len(reader.report(CheckpointQuery()).checkpoints) == 1 + len(stored)
    filler.unlink()
    writer.add_checkpoints([checkpoint(uid="after")])
    writer.close()
    with StoreReader(db) as reader:
        assert len(reader.report(CheckpointQuery()).checkpoints) == 2 + len(stored)
    assert caught.value.exit_code == 6
    assert caught.value.hint


@pytest.mark.root
def test_ballast_lets_a_full_disk_record_on(
    small_disk: Path, start_ns: int, checkpoint: _Make, noise: Callable[..., Window]
) -> None:
    """The oldest timelines go, events stay, new ones are taken; the ballast comes back when there is room."""
    db = small_disk / "x.db"
    writer = StoreWriter(db, retention=Retention(), ballast_bytes=512 << 10)
    hour_ns = 3600 * 10**9
    for hour in range(16):
        writer.add_windows([noise(start_ns + hour * hour_ns + minute * WINDOW_NS) for minute in range(40)])
        writer.maintain(start_ns + (hour + 2) * hour_ns)
    ballast = small_disk / "x.db.ballast"
    assert ballast.stat().st_blocks * 512 == 512 << 10

    filler = _fill(small_disk)
    for number in range(200):
        writer.add_checkpoints([checkpoint(uid=f"full-{number}")])
    assert not ballast.exists()
    filler.unlink()
    writer.maintain(start_ns + 20 * hour_ns)
    writer.close()

    assert ballast.exists()
    with StoreReader(db) as reader:
        assert len(reader.report(CheckpointQuery()).checkpoints) == 200
        times = reader.series("disk:vda", 0, 1 << 62).times_ns
    assert start_ns < times[0] < times[-1]


@pytest.mark.root
@pytest.mark.mount
def test_a_read_only_file_system_can_be_read(tmp_path: Path, checkpoint: _Make) -> None:
    """A database carried away on read-only media; with a log that was not brought in it is refused, not misread."""
    source = tmp_path / "source"
    source.mkdir()
    writer = StoreWriter(source / "x.db")
    writer.add_checkpoints([checkpoint()])
    shutil.copy(source / "x.db", source / "torn.db")
    shutil.copy(source / "x.db-wal", source / "torn.db-wal")
    writer.close()
    mount = tmp_path / "media"
    mount.mkdir()
    subprocess.run(["mount", "--bind", str(source), str(mount)], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", str(mount)], check=True)
    try:
        with StoreReader(mount / "x.db") as reader:
            assert len(reader.report(CheckpointQuery()).checkpoints) == 1
        with pytest.raises(StoreError, match="cannot be opened"):
            StoreReader(mount / "torn.db")
        with pytest.raises(StoreError, match=r"[Rr]ead-only"):
            StoreWriter(mount / "x.db")
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)
