"""`ckptprof export`, as it is typed: what is written is read back by the programs that it is for."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
import stat
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from tests.cli.recorded import BEGIN_NS, HOSTILE, SECOND, recorded

from ckptprof.cli.main import main
from ckptprof.store import records
from ckptprof.store.reader import StoreReader


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Return a database of three saves."""
    return recorded(tmp_path / "ckptprof.db")


def test_csv_goes_to_standard_output(db: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A line of names and one for each checkpoint."""
    assert main(["export", "--db", db]) == 0

    rows = list(csv.DictReader(io.StringIO(capfdbinary.readouterr().out.decode(), newline="")))
    assert [row["step"] for row in rows] == ["0", "1", "2"]
    assert rows[0]["durable_time"] == "2023-11-14 22:13:25.000"
    assert rows[0]["stall_seconds"] == "3.0"
    assert rows[2]["durable_time"] == ""
    assert rows[2]["path"] == HOSTILE


def test_a_raw_table_comes_on_request(db: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """As the database holds it: times in nanoseconds."""
    assert main(["export", "--db", db, "--table", "checkpoints"]) == 0

    rows = list(csv.DictReader(io.StringIO(capfdbinary.readouterr().out.decode(), newline="")))
    assert rows[0]["durable_ns"] == str(BEGIN_NS + 5 * SECOND)
    assert json.loads(rows[0]["pattern"])["class"] == "sequential-large"


def test_filters_are_those_of_report(db: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """One writer's row for each rank of the newest."""
    assert main(["export", "--db", db, "--table", "writers", "-f", "jsonl", "--limit", "1"]) == 0

    rows = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [(row["checkpoint_id"], row["rank"]) for row in rows] == [(3, 0), (3, 1)]


def test_a_name_says_the_format(db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its path is printed, it is for its owner alone, and it is not written over."""
    path = tmp_path / "out.jsonl"
    assert main(["export", "--db", db, "-o", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert json.loads(path.read_text().splitlines()[2])["path"] == HOSTILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert main(["export", "--db", db, "-o", str(path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["export", "--db", db, "-o", str(path), "--force"]) == 0


@pytest.mark.parametrize("name", ["out.xlsx", "out.csv.gz", "out.2026"])
def test_a_suffix_of_no_format_is_refused(
    db: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A spreadsheet would not open CSV of that name; with --format it is what the user wants."""
    path = tmp_path / name
    assert main(["export", "--db", db, "-o", str(path)]) == 2
    told = capsys.readouterr().err
    assert f"no format has the suffix {path.suffix!r}" in told
    assert "known: .csv, .jsonl, .parquet, .arrow, .perfetto-trace" in told
    assert not path.exists()
    assert main(["export", "--db", db, "-o", str(path), "--format", "csv"]) == 0
    assert main(["export", "--db", db, "-o", str(tmp_path / "plain")]) == 0


def test_a_folder_gets_every_view(db: str, tmp_path: Path) -> None:
    """And no raw table: their series may be a month of every device."""
    folder = tmp_path / "out"
    folder.mkdir()
    assert main(["export", "--db", db, "-o", str(folder)]) == 0

    assert sorted(path.name for path in folder.iterdir()) == [
        "v_accounts.csv", "v_checkpoints.csv", "v_devices.csv", "v_ranks.csv", "v_sessions.csv",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--table", "nope"], 2, "there is no table 'nope'"),
        (["--table", "writers", "-f", "perfetto", "-o", "x"], 2, "--table does not apply to perfetto"),
        (["--table", "writers", "-f", "tensorboard", "-o", "x"], 2, "--table does not apply to tensorboard"),
        (["-f", "tensorboard"], 2, "tensorboard reads a folder"),
        (["--until", "2001-01-01"], 3, "no recorded checkpoint matches"),
        (["-o", "/nowhere/x.csv"], 1, "No such file or directory"),
        (["-o", "x" * 300], 1, "File name too long"),
    ],
)
def test_mistakes_are_told(
    db: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, told: str
) -> None:
    """In one line with a hint, before anything is written."""
    assert main(["export", "--db", db, *arguments]) == code
    streams = capsys.readouterr()
    assert told in streams.err
    assert "hint: " in streams.err


def test_half_a_file_is_not_left(db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a row cannot be read."""
    with sqlite3.connect(db) as raw:
        raw.execute("UPDATE checkpoints SET timeline = x'00ff00'")
    path = tmp_path / "timeline.csv"

    assert main(["export", "--db", db, "--table", "timeline", "-o", str(path)]) == 6
    assert "is damaged" in capsys.readouterr().err
    assert not path.exists()


def test_without_pyarrow_the_extra_is_named(
    db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that brings it, and no file is left."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "out.parquet"

    assert main(["export", "--db", db, "-o", str(path)]) == 1
    assert "pip install 'ckptprof[parquet]'" in capsys.readouterr().err
    assert not path.exists()


def test_one_checkpoint_tells_that_there_are_some(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a long record would take seconds, and be read again."""
    asked = []
    report = StoreReader.report
    monkeypatch.setattr(StoreReader, "report", lambda own, query: (asked.append(query.limit), report(own, query))[1])

    assert main(["export", "--db", db]) == 0
    assert asked == [1]


def test_a_closed_pipe_is_no_error(db: str) -> None:
    """As of `| head`: the exit code is that of a closed pipe, and nothing is told."""
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(
        [sys.executable, "-m", "ckptprof", "export", "--db", db], stdout=write, stderr=PIPE, check=False
    )
    os.close(write)
    assert (ran.returncode, ran.stderr) == (141, b"")


@pytest.mark.readers
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_columnar_files_are_what_the_database_holds(db: str, tmp_path: Path, suffix: str) -> None:
    """Every view and raw table, column and row, read by pyarrow; times are timestamps."""
    from pyarrow import ipc, parquet  # noqa: PLC0415 # needs the marker

    kinds: dict[str, str] = {}
    for name in (*records.VIEW_NAMES, "checkpoints", "writers", "devices", "streams", "evidence", "sessions"):
        path = tmp_path / f"{name}.{suffix}"
        assert main(["export", "--db", db, "--table", name, "-o", str(path)]) == 0
        read = parquet.read_table(path) if suffix == "parquet" else ipc.open_file(path).read_all()
        assert _plain(read) == _stored(db, name), path
        assert read.schema.metadata[b"ckptprof.host"] == b"node-1"
        kinds |= {f"{name}.{field.name}": str(field.type) for field in read.schema}
    assert (kinds["checkpoints.start_ns"], kinds["checkpoints.stall_ns"]) == ("timestamp[ns, tz=UTC]", "duration[ns]")
    assert (kinds["v_checkpoints.start_time"], kinds["v_checkpoints.stall_seconds"]) == (
        "timestamp[us, tz=UTC]", "double",
    )  # fmt: skip
    assert (kinds["v_accounts.text"], kinds["v_sessions.clean"], kinds["v_ranks.rank"]) == ("string", "bool", "int64")


@pytest.mark.readers
def test_duckdb_reads_a_folder(db: str, tmp_path: Path) -> None:
    """Times are moments for it, with which it counts."""
    import duckdb  # noqa: PLC0415 # needs the marker

    assert main(["export", "--db", db, "-f", "parquet", "-o", str(tmp_path)]) == 0
    found = duckdb.sql(
        f"SELECT step, epoch(end_time - start_time), durable_time FROM '{tmp_path}/v_checkpoints.parquet'"  # noqa: S608
    ).fetchall()
    assert [row[:2] for row in found] == [(0, 3.0), (1, 3.0), (2, 3.0)]
    assert found[2][2] is None


def _stored(db: str, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table as SQLite tells them."""
    with sqlite3.connect(db) as raw:
        raw.row_factory = sqlite3.Row
        rows = [dict(row) for row in raw.execute(f"SELECT * FROM {table}")]  # noqa: S608 # a table of ours
    return [{key: value for key, value in row.items() if key not in ("timeline", "progress")} for row in rows]


def _plain(table: Any) -> list[dict[str, Any]]:
    """Return the rows with the numbers of SQLite: nanoseconds, or the seconds of a view, which has microseconds."""
    rows = []
    for row in table.to_pylist():
        for name, value in row.items():
            if isinstance(value, datetime) and name.endswith("_time"):
                row[name] = value.timestamp()
        rows.append(row)
    for name in table.column_names:
        if name.endswith("_ns"):
            for row, number in zip(rows, table[name].cast("int64").to_pylist(), strict=True):
                row[name] = number
    return rows


@pytest.mark.frames
def test_tensorboard_reads_scalars_by_step(
    db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run for each job, within the folder whatever its name; neither a point nor a step is made up."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415 # as above

    with sqlite3.connect(db) as raw:
        raw.execute("UPDATE checkpoints SET job = '../up', durable_ns = NULL WHERE step = 1")
        raw.execute("UPDATE checkpoints SET step = NULL WHERE step = 2")
    monkeypatch.chdir(tmp_path)
    command = ["export", "--db", db, "--format", "tensorboard", "-o", "runs"]
    assert main(command) == 0

    streams = capsys.readouterr()
    assert (streams.out, streams.err) == ("runs\n", "1 checkpoint without a step omitted\n")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["__up", "train"]
    first, second = (EventAccumulator(str(tmp_path / "runs" / name)) for name in ("train", "__up"))
    for one in (first, second):
        one.Reload()
    assert sorted(first.Tags()["scalars"]) == [
        "save/at_risk_seconds", "save/bytes", "save/bytes_per_second", "save/duration_seconds", "save/stall_seconds",
    ]  # fmt: skip
    (blocked,), (size,) = first.Scalars("save/stall_seconds"), second.Scalars("save/bytes")
    assert (blocked.wall_time, blocked.step, blocked.value) == (BEGIN_NS / SECOND, 0, 3.0)
    assert (size.wall_time, size.step, size.value) == (BEGIN_NS / SECOND + 10, 1, float(1 << 28))
    assert "save/at_risk_seconds" not in second.Tags()["scalars"]
    assert main(command) == 2
    assert "runs is not empty" in capsys.readouterr().err
    with sqlite3.connect(db) as raw:
        raw.execute("UPDATE checkpoints SET step = id, job = printf('%60s%d', 'train', id)")
    assert main([*command[:-1], "alike"]) == 0
    assert len(list((tmp_path / "alike").iterdir())) == 3  # runs of three jobs whose names begin alike


def test_without_tensorboard_the_extra_is_named(
    db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that brings it."""
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)

    assert main(["export", "--db", db, "-f", "tensorboard", "-o", str(tmp_path / "runs")]) == 1
    assert "pip install 'ckptprof[tensorboard]'" in capsys.readouterr().err


@pytest.mark.readers
def test_a_trace_is_read_by_the_official_protos(db: str, tmp_path: Path) -> None:
    """Known fields only; each track is described before its events; slices are closed and nested; flows end."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent  # noqa: PLC0415 # as above

    path = tmp_path / "run.perfetto-trace"
    assert main(["export", "--db", db, "-o", str(path)]) == 0
    trace = Trace.FromString(path.read_bytes())
    trace.DiscardUnknownFields()
    assert trace.ByteSize() == path.stat().st_size

    described: dict[int, Any] = {}
    opened: dict[int, list[tuple[str, int]]] = {}
    slices: list[tuple[str, str, int, int]] = []
    begun, ended = [], []
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in described
            assert not track.parent_uuid or track.parent_uuid in described
            described[track.uuid] = track
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        stack = opened.setdefault(event.track_uuid, [])
        begun += event.flow_ids
        ended += event.terminating_flow_ids
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append((event.name, packet.timestamp))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            name, start_ns = stack.pop()
            slices.append((described[event.track_uuid].name, name, start_ns, packet.timestamp))
    assert not any(opened.values())
    first = [one for one in slices if BEGIN_NS <= one[2] < BEGIN_NS + 9 * SECOND]
    assert sorted((track, name, (a - BEGIN_NS) / SECOND, (b - BEGIN_NS) / SECOND) for track, name, a, b in first) == [
        ("at risk", "complete, not yet durable", 3.0, 5.0),
        ("checkpoints", "commit", 2.0, 3.0),
        ("checkpoints", "data", 1.0, 2.0),
        ("checkpoints", "save of step 0", 0.0, 3.0),
        ("rank 0", "save of step 0", 1.0, 2.0),
        ("rank 1", "save of step 0", 1.0, 2.0),
        ("training blocked", "blocked", 0.0, 3.0),
    ]
    assert sorted(begun) == sorted(ended) == [1, 2]
    assert trace.packet[0].clock_snapshot.clocks[0].timestamp == trace.packet[0].clock_snapshot.clocks[1].timestamp
