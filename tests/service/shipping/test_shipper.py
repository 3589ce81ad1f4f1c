"""The shipper and a folder: killed at any instant, and with a store that is full, gone or refuses."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyarrow import parquet
from tests.cluster.nodes import Job
from tests.fleet.bucket import Policy, served

from ckptprof.cli.main import main
from ckptprof.cluster.model import NodeState
from ckptprof.errors import StoreError
from ckptprof.fleet import files
from ckptprof.fleet.compaction import compact
from ckptprof.fleet.files import FleetFiles
from ckptprof.model import Session
from ckptprof.service.shipping import shipper as shipping
from ckptprof.service.shipping.shipper import Shipper, ShippingState, Target
from ckptprof.store.writer import Retention, StoreWriter

SAVE = Job(saves=1).seen()[0][0].checkpoints[0]
KILLS = 50


@pytest.fixture(autouse=True)
def _unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ship as the unit does."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    before = os.umask(0o077)
    yield
    os.umask(before)


def _session(writer: StoreWriter, uid: str = "s", end_ns: int = SAVE.end_ns) -> None:
    writer.start_session(
        Session(
            uid=uid, host="node-1", boot_id="b", kernel="6.1", version="0", level="poll",
            start_ns=SAVE.start_ns, end_ns=end_ns, clean=False,
        )
    )  # fmt: skip


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StoreWriter]:
    """Return the writer of a node's database, in which there are three checkpoints."""
    with closing(StoreWriter(tmp_path / "node.db", ballast_bytes=0)) as writer:
        _session(writer)
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid=uid) for uid in "abc"])
        yield writer


def _shipper(folder: Path, target: Target | None = None, db: str = "node.db") -> Shipper:
    url = str(folder / "fleet")
    return Shipper(folder / db, url, lambda: target or FleetFiles(url), lambda one: one)


def _ship(folder: Path, db: str = "node.db") -> tuple[ShippingState | None, int | None]:
    return _shipper(folder, db=db).ship(SAVE.end_ns)


def _whole(folder: Path) -> list[Path]:
    return [path for path in sorted((folder / "fleet").rglob("*.parquet")) if not path.name.startswith("_")]


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [row for path in _whole(folder) for row in parquet.read_table(path, partitioning=None).to_pylist()]


@pytest.fixture(params=["folder", "bucket"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of a fleet."""
    if request.param == "folder":
        yield str(tmp_path / "fleet")
        return
    with served() as bucket:
        bucket.policies["node"] = Policy(put="", read="")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "node")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield bucket.url


def _read(store: FleetFiles, folder: str, known: dict[str, Any]) -> None:
    """Read the tables of a fleet that were not read before: none may be half a file."""
    for name in files.parquet_files(store.names(folder)):
        if name not in known:
            known[name] = parquet.read_table(pa.BufferReader(store.read(name)), partitioning=None)


def test_fifty_kills_lose_nothing_and_put_nothing_twice(tmp_path: Path, fleet: str) -> None:
    """While checkpoints come and change: no half file is ever read, and in the end there is the newest of each."""
    db, store = tmp_path / "node.db", FleetFiles(fleet)
    inbox: dict[str, Any] = {}
    days: dict[str, Any] = {}
    dice = random.Random(19)  # noqa: S311 # no secret
    made = {"first": msgspec.structs.replace(SAVE, uid="first")}
    program = [sys.executable, Path(__file__).with_name("killed.py"), db, fleet]
    with closing(StoreWriter(db, ballast_bytes=0)) as writer:
        _session(writer)
        writer.add_checkpoints([*made.values()])
    with (
        closing(StoreWriter(db, ballast_bytes=0)) as writer,
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as killer,
    ):
        assert killer.stdin is not None
        assert killer.stdout is not None
        assert killer.stdout.readline() == "ready\n"  # the first one is shipped
        for _ in range(KILLS):
            uids = [f"u{len(made) + number}" for number in range(20)]
            uids += dice.sample(sorted(made), min(len(made), 10))
            changed = [msgspec.structs.replace(SAVE, uid=uid, step=dice.randrange(1 << 40)) for uid in uids]
            writer.add_checkpoints(changed)
            made |= {one.uid: one for one in changed}
            killer.stdin.write(f"{dice.uniform(0, 16)}\n")
            assert killer.stdout.readline() == "killed\n"  # it would have gone on
            _read(store, files.INBOX, inbox)
        killer.stdin.close()
    assert len(inbox) > 1  # they were at work

    Shipper(db, fleet, lambda: store, lambda one: one).ship(SAVE.end_ns)
    compact(store, keep_days=None, now_ns=0, progress=lambda _: None)

    _read(store, files.DAYS, days)
    (table,) = days.values()
    kept = table.to_pylist()
    assert sorted((row["uid"], row["step"]) for row in kept) == sorted((one.uid, one.step) for one in made.values())
    assert [row for row in kept if row["lost"]] == []


class Fails:
    """A fleet that fails before a file is there, or after; then it takes all."""

    def __init__(self, folder: Path, *, after: bool) -> None:
        self.store, self.after, self.is_down = FleetFiles(str(folder / "fleet")), after, True
        self.written: list[tuple[str, bytes]] = []

    def put(self, name: str, data: bytes) -> None:
        """Write a file."""
        self.written.append((name, data))
        if self.after or not self.is_down:
            self.store.put(name, data)
        if self.is_down:
            raise StoreError("the store is away")


@pytest.mark.parametrize("after", [False, True], ids=["before it was there", "after it was there"])
def test_a_retry_writes_the_same_bytes_under_the_same_name(tmp_path: Path, node: StoreWriter, *, after: bool) -> None:
    """Whatever changed since then: that is in the next file."""
    target = Fails(tmp_path, after=after)
    with pytest.raises(StoreError, match="away"):
        _shipper(tmp_path, target).ship(1)
    node.add_checkpoints([msgspec.structs.replace(SAVE, uid=uid, step=7) for uid in "cd"])
    with pytest.raises(StoreError, match="away"):
        _shipper(tmp_path, target).ship(2)
    target.is_down = False

    state, rows = _shipper(tmp_path, target).ship(3)

    first, second, third, fourth, beat = target.written
    assert first == second == third
    assert first[0].endswith("/node=node-1/s-0-3.parquet")
    assert fourth[0].endswith("/node=node-1/s-3-5.parquet")
    assert beat[0].endswith("/node=node-1/_heartbeat-s.json")
    assert rows == 5
    assert sorted((row["uid"], row["revision"]) for row in _rows(tmp_path)) == [
        ("a", 1), ("b", 1), ("c", 1), ("c", 2), ("d", 1)
    ]  # fmt: skip
    assert state is not None
    assert (state.range.change, state.range.lost, state.error, state.shipped_ns) == (5, 0, None, 3)


def test_a_heartbeat_says_how_the_recorder_is(tmp_path: Path, node: StoreWriter) -> None:
    """Replaced each time, without a change as well."""
    for _ in range(2):
        _ship(tmp_path)

    store = FleetFiles(str(tmp_path / "fleet"))
    state = msgspec.json.decode(store.read(files.heartbeat_name("node-1", "s")), type=NodeState)
    assert (state.host, state.database, state.version, state.kernel, state.change) == ("node-1", "s", "0", "6.1", 3)
    assert (state.watched.end_ns, state.checkpoints, state.clock) == (SAVE.end_ns, 3, SAVE.clock)
    assert len(_rows(tmp_path)) == 3


@pytest.mark.parametrize("fault", ["full", "gone", "refuses"])
def test_a_store_that_fails_loses_nothing_and_is_reported(
    fault: str, tmp_path: Path, node: StoreWriter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the exit code, on stderr and in --status; the next run ships all of it."""
    words = ["ship", "--to", str(tmp_path / "fleet"), "--db", str(tmp_path / "node.db")]
    metrics = [*words, "--textfile", str(tmp_path)]
    (tmp_path / "state").mkdir()
    with monkeypatch.context() as broken:
        if fault == "gone":
            (tmp_path / "fleet").write_text("no folder")
        else:
            code = {"full": errno.ENOSPC, "refuses": errno.EACCES}[fault]
            put = files.put_locally

            def fails(path: Path, data: bytes) -> None:
                if path.suffix == ".parquet" and path.is_relative_to(tmp_path / "fleet"):
                    raise OSError(code, os.strerror(code))
                put(path, data)

            broken.setattr(files, "put_locally", fails)
        assert main(metrics) == 6
        complaint = capsys.readouterr().err
        assert main([*words, "--status"]) == 6
    status = capsys.readouterr().out
    reason = {"full": "No space left", "gone": "Not a directory", "refuses": "Permission denied"}[fault]
    assert reason in complaint
    assert f"last error: {tmp_path}/fleet: {reason}" in status
    assert status.startswith(f"target: {tmp_path}/fleet\n")
    assert "last success: never\nnot shipped yet: 3 checkpoints\n" in status
    (tmp_path / "fleet").unlink() if fault == "gone" else None

    metrics_file = tmp_path / "ckptprof-ship.prom"
    text = metrics_file.read_text()
    assert "ckptprof_ship_waiting_checkpoints 3.0\n" in text
    assert "last_success" not in text
    assert metrics_file.stat().st_mode & 0o777 == 0o644  # node_exporter is another user

    assert main(metrics) == 0
    assert capsys.readouterr().out == "3 checkpoint updates shipped\n"
    text = metrics_file.read_text()
    assert [one.name for one in text_string_to_metric_families(text)] == [
        "ckptprof_ship_last_success_timestamp_seconds", "ckptprof_ship_waiting_checkpoints",
        "ckptprof_ship_lost_checkpoints",
    ]  # fmt: skip
    assert "ckptprof_ship_waiting_checkpoints 0.0\n" in text
    assert "ckptprof_ship_lost_checkpoints_total 0.0\n" in text
    assert "ckptprof_ship_last_success_timestamp_seconds 1." in text
    assert main([*words, "--status"]) == 0
    assert (
        "not shipped yet: 0 checkpoints\ndeleted before they were shipped: 0 checkpoints\n" in capsys.readouterr().out
    )
    assert [row["uid"] for row in _rows(tmp_path)] == ["a", "b", "c"]


def test_a_run_that_does_not_end_is_reported(
    tmp_path: Path, node: StoreWriter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a store that accepts and never answers, until systemd ends it; the next run ships all of it."""
    words = ["ship", "--to", str(tmp_path / "fleet"), "--db", str(tmp_path / "node.db"), "--textfile", str(tmp_path)]
    with monkeypatch.context() as broken:
        broken.setattr(FleetFiles, "put", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(words) not in (0, 6)
    assert main([*words, "--status"]) == 6

    assert "not shipped yet: 3 checkpoints\n" in (status := capsys.readouterr().out)
    assert f"last error: {shipping.UNFINISHED}\n" in status
    assert "ckptprof_ship_waiting_checkpoints 3.0\n" in (tmp_path / "ckptprof-ship.prom").read_text()
    assert main(words) == main([*words, "--status"]) == 0
    assert [row["uid"] for row in _rows(tmp_path)] == ["a", "b", "c"]


def test_a_write_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither half of one, nor one that nobody knows of."""
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))

    with pytest.raises(StoreError, match="No space left"):
        FleetFiles(str(tmp_path)).put("a/b.parquet", b"x" * 100)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_was_deleted_before_it_was_shipped_is_a_row(tmp_path: Path) -> None:
    """With the number of them, of which the state and the heartbeat have the sum."""
    db = tmp_path / "node.db"
    with closing(StoreWriter(db, retention=Retention(max_bytes=1), ballast_bytes=0)) as writer:
        _session(writer)
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid=uid) for uid in "ab"])
        writer.maintain(0)
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid="c")])

        state, _ = _ship(tmp_path)

    assert state is not None
    assert state.range.lost == 2
    assert [(row["uid"], row["lost"], row["kind"]) for row in _rows(tmp_path)] == [
        ("c", 0, "save"), ("lost-0-3", 2, None)
    ]  # fmt: skip


@pytest.mark.parametrize("more", ["e", "efghi"], ids=["fewer changes than before", "more changes than before"])
def test_a_database_that_was_set_back_is_shipped_from_its_begin(tmp_path: Path, more: str) -> None:
    """However much it has by then; what the fleet has of it stays."""
    db, copy = tmp_path / "node.db", tmp_path / "copy.db"
    with closing(StoreWriter(db, ballast_bytes=0)) as writer:
        _session(writer)
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid="a")])
    copy.write_bytes(db.read_bytes())
    with closing(StoreWriter(db, ballast_bytes=0)) as writer:
        _session(writer, end_ns=SAVE.end_ns + 1)
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid=uid) for uid in "bcd"])
    _ship(tmp_path)
    with closing(StoreWriter(copy, ballast_bytes=0)) as writer:
        _session(writer, "later")
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid=uid) for uid in more])

    assert [_ship(tmp_path, "copy.db")[1] for _ in range(2)] == [1 + len(more), 0]

    assert {row["uid"] for row in _rows(tmp_path)} == {*"abcd", *more}
    assert [row for row in _rows(tmp_path) if row["lost"]] == []


def test_a_node_without_anything_recorded_has_nothing_to_ship(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And makes no file."""
    with closing(StoreWriter(tmp_path / "node.db", ballast_bytes=0)):
        assert main(["ship", "--to", str(tmp_path / "fleet"), "--db", str(tmp_path / "node.db")]) == 0
        assert main(["ship", "--to", str(tmp_path / "fleet"), "--db", str(tmp_path / "node.db"), "--status"]) == 3

    assert capsys.readouterr().out == "0 checkpoint updates shipped\n"
    assert not (tmp_path / "fleet").exists()


@pytest.mark.parametrize(
    "url", ["s3://key:secret@bucket/x", "ftp://host/x", "postgresql://host/x", "http://collector.example:4318", ""]
)
def test_a_url_that_is_not_safe_is_refused(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a secret, of another kind, or without a server that can be trusted; before the database is read."""
    assert main(["ship", "--to", url, "--db", str(tmp_path / "missing.db")]) == 2

    complaint = capsys.readouterr().err
    assert "key:secret" not in complaint.replace(url, "")
    assert "missing.db" not in complaint


def test_the_status_of_each_target_is_shown(
    tmp_path: Path, node: StoreWriter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --to; what the unit ships of the service's database, too."""
    unit, own = tmp_path / "unit", tmp_path / "own"
    status = ["ship", "--status", "--db", str(tmp_path / "node.db")]
    monkeypatch.setattr(shipping, "SHIPPING_DIRECTORY", unit)
    monkeypatch.setattr(shipping, "SERVICE_DIRECTORY", tmp_path)
    monkeypatch.setattr(shipping, "default_path", lambda: own / "node.db")
    monkeypatch.delenv("STATE_DIRECTORY")

    def targets(*more: str) -> list[str]:
        assert main([*status, *more]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith(("target", "not shipped"))]

    assert main(status) == 3
    assert "nothing was shipped yet" in capsys.readouterr().err
    with monkeypatch.context() as of_unit:
        of_unit.setenv("STATE_DIRECTORY", str(unit))
        _ship(tmp_path)
    fleet = ["not shipped yet: 0 checkpoints", f"target: {tmp_path}/fleet"][::-1]
    assert targets() == fleet
    other = Shipper(
        tmp_path / "node.db", str(tmp_path / "other"), lambda: FleetFiles(str(tmp_path / "other")), lambda one: one
    )
    other.ship(SAVE.end_ns)
    node.add_checkpoints([msgspec.structs.replace(SAVE, uid="d")])
    fleet[1] = "not shipped yet: 1 checkpoint"
    assert targets() == [f"target: {tmp_path}/other", "not shipped yet: 1 checkpoint", *fleet]
    assert targets("--to", str(tmp_path / "fleet")) == fleet
    assert targets("--to", "s3://new/x") == ["target: s3://new/x", "not shipped yet: 4 checkpoints"]


def test_a_target_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """But for --status."""
    assert main(["ship"]) == 2
    assert "--to is missing" in capsys.readouterr().err
