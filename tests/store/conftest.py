"""What the tests of the store share: events as they come from detection, and a database of their own."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ckptprof.measures import DeviceMeasure, Measures, MountMeasure, ThreadMeasure
from ckptprof.model import (
    Checkpoint,
    DeviceShare,
    Evidence,
    Interval,
    Kind,
    Level,
    Metadata,
    Mode,
    Moments,
    Overhead,
    Pattern,
    PatternClass,
    Point,
    Progress,
    Session,
    Status,
    Stream,
    Succession,
    Writer,
)
from ckptprof.store.timeline import WINDOW_NS, Window
from ckptprof.store.writer import StoreWriter
from ckptprof.verdicts import Account, Cost, Limit, Verdict
from ckptprof_collectors.samples import DiskSample, Frame

sys.path[:0] = [str(Path(__file__).resolve().parent)]  # the tests' own module `grounds` is in no package

HOUR_NS = 3600_000_000_000
START_NS = 1_700_000_000_000_000_000 // HOUR_NS * HOUR_NS

_CHECKPOINT = Checkpoint(
    uid="boot/1/2",
    kind=Kind.SAVE,
    job="train",
    framework="torch",
    step=1000,
    ranks=8,
    start_ns=START_NS,
    end_ns=START_NS + 12_345_678_901,
    durable_ns=START_NS + 20_000_000_001,
    bytes=(1 << 53) + 1,
    files=2,
    path="/ckpt/step-1000",
    writers=(
        Writer(pid=1, comm="python", bytes=1 << 52, rank=0, start_ns=START_NS, end_ns=START_NS + 7, role="thread"),
        Writer(pid=2, comm="python", bytes=1),
    ),
    mode=Mode.SYNC,
    stall_ns=9,
    blocked=(Interval(1, 5), Interval(7, 12)),
    status=Status.INCOMPLETE,
    moments=Moments(first_data_ns=START_NS + 1, committed_ns=START_NS + 10_000_000_001),
    metadata=Metadata(created=2, renamed=2, unlinked=0, synced=None, at_least=True, data_call_ns=(1 << 53) + 1),
    written_bytes=(1 << 54) + 2,
    unique_bytes=(1 << 53) + 1,
    overheads=(Overhead(reason="staging", bytes=(1 << 53) + 1, text="staged in /tmp"),),
    storage_bytes=(1 << 53) + 3,
    cache="partly",
    pattern=Pattern(
        class_=PatternClass.SEQUENTIAL_LARGE,
        sequential_share_bytes=1 / 3,
        size_histogram={"1048576": [7, 7 << 20]},
        operations=7,
    ),
    measures=Measures(
        threads=(
            ThreadMeasure(pid=1, tid=2, comm="python", start_ns=START_NS, end_ns=START_NS + 7, bytes=(1 << 53) + 1),
            ThreadMeasure(
                pid=1, tid=3, comm="w", start_ns=1, end_ns=2, user_ns=0, samples=3, samples_by_state={"sync": 3}
            ),
        ),
        devices=(
            DeviceMeasure(
                device="vda", countable=True, seconds=1 / 3, read_bytes=0, written_bytes=9, reads=0, writes=1, flushes=0
            ),
        ),
        mount=MountMeasure(mount_point="/ckpt", fs_type="ext4", source="/dev/vda", remote=False),
        cores=2,
    ),
    verdict=Verdict(
        limit=Limit.FLUSH,
        sentence="12 s, of which 11 s in fsync.",
        confidence=0.1 + 0.2,
        seconds=34 / 3,
        accounts=(
            Account(limit=Limit.FLUSH, seconds=34 / 3, text="in fsync"),
            Account(limit=None, seconds=1.0, text="asleep"),
        ),
        evidence=("11 s in 9 calls of fsync",),
        excluded=("device: 3 % busy",),
        missing=("the server",),
        candidates=(Limit.DEVICE,),
        expected_seconds=1 / 3,
        cause="sync-per-piece",
    ),
    cost=Cost(stall_seconds=1 / 7, gpus=8, gpus_from="given", gpu_seconds=8 / 7, tier="light"),
    level=Level.POLL,
    limitations=("Sizes of single writes were not seen.",),
    evidence=(Evidence(name="format", weight=0.1 + 0.2, text="zip"), Evidence(name="cp", weight=-1.0, text="none")),
    confidence=2 / 3,
    streams=(
        Stream(pid=1, comm="python", path="/ckpt/a", bytes=5, size=None, start_ns=1, end_ns=2),
        Stream(
            pid=1,
            comm="python",
            path="/b",
            bytes=6,
            size=6,
            start_ns=3,
            end_ns=4,
            class_=PatternClass.RANDOM,
            progress=(
                Progress(START_NS, START_NS + 5, 1 << 40, 0, (1 << 41) + 1, Succession.ON, 17),
                Progress(START_NS + 1, START_NS + 7, 9, 3, 12, Succession.NEXT, 18),
                Progress(START_NS + 9, START_NS + 9, None, 12, 12),
            ),
        ),
    ),
    progress_left_out=3,
    timeline=(Point(START_NS, START_NS + 1, 5), Point(START_NS + 7, START_NS + 9, 0)),
    devices=(
        DeviceShare(device="vda", kind="block", read_bytes=0, written_bytes=9, busy_seconds=0.1, under="/"),
        DeviceShare(
            device="vdb",
            kind="block",
            read_bytes=0,
            written_bytes=9,
            busy_seconds=0.1,
            under="/",
            requests=(1 << 53) + 1,
            mean_request_bytes=1e6 / 3,
            sequential_share_bytes=1 / 3,
            latency_p50_seconds=2**16.5 / 1e9,
            latency_p99_seconds=2**20.5 / 1e9,
            max_in_flight=64,
        ),
        DeviceShare(device="eth0", kind="nic", read_bytes=1, written_bytes=2, busy_seconds=None, under=None),
    ),
)
_SESSION = Session(
    uid="s1",
    host="node-1",
    boot_id="boot",
    kernel="6.1.0",
    version="0.1",
    level="poll",
    start_ns=START_NS,
    end_ns=START_NS,
    clean=False,
)


@pytest.fixture
def start_ns() -> int:
    """Return the start of an hour."""
    return START_NS


@pytest.fixture
def checkpoint() -> Callable[..., Checkpoint]:
    """Return a maker of checkpoints with every field filled; arguments replace fields."""
    return lambda **fields: msgspec.structs.replace(_CHECKPOINT, **fields)


@pytest.fixture
def session() -> Callable[..., Session]:
    """Return a maker of sessions."""
    return lambda **fields: msgspec.structs.replace(_SESSION, **fields)


@pytest.fixture
def disk_frame() -> Callable[..., Frame]:
    """Return a maker of frames with one disk, whose counters all have one value, or with none."""

    def make(at_ns: int, value: int | None, *, device: str = "vda", **others: Any) -> Frame:
        samples = () if value is None else (DiskSample(device, *[value] * 11),)
        return Frame(at_ns=at_ns, wall_ns=at_ns, read=("disks",), samples=samples, **others)

    return make


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Return the path of a database that does not exist yet."""
    return tmp_path / "ckptprof.db"


@pytest.fixture
def writer(db: Path) -> Iterator[StoreWriter]:
    """Return a writer of a new database."""
    opened = StoreWriter(db)
    yield opened
    opened.close()


@pytest.fixture
def noise() -> Callable[..., Window]:
    """Return a maker of minutes that cannot be compressed: 1,000 points in about 8 KB."""

    def make(start_ns: int, *, entity: str = "disk:vda") -> Window:
        values = array("Q", [value >> 8 for value in array("Q", os.urandom(8000))])
        times = array("q", range(start_ns, start_ns + 1000 * 10**6, 10**6))
        return Window(entity, start_ns // WINDOW_NS * WINDOW_NS, ("a",), times, (values,))

    return make
