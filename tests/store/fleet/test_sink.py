"""A real server takes what a node's database has: once, the newest of it, and from the node itself alone."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.postgres import Server

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, Session
from ckptprof.store.fleet import outbox as outboxes
from ckptprof.store.fleet.outbox import Outbox, ShippedPosition
from ckptprof.store.fleet.server_connection import connected, translated_server_errors
from ckptprof.store.fleet.server_migrations import STEPS, migrate
from ckptprof.store.fleet.sink import ServerSink
from ckptprof.store.fleet.target import ServerUnreachableError, parse_target
from ckptprof.store.writer import Retention, StoreWriter

pytestmark = pytest.mark.postgres
DAY_NS = 86_400_000_000_000
HOST = "node-1"


@contextlib.contextmanager
def sink(
    server: Server, fleet: str, node: str = HOST, role: str = "postgres", secret: Path | None = None
) -> Iterator[ServerSink]:
    """Give a sink of a node's database."""
    target = parse_target(server.url(fleet, role))
    with connected(target, secret) as connection, translated_server_errors(target):
        yield ServerSink(connection, node, "s1")


def ship(server: Server, fleet: str, db: Path) -> ShippedPosition:
    """Send all that there is."""
    with Outbox(db) as outbox, sink(server, fleet) as open_sink:
        taken = open_sink.shipped_position(outbox.sessions(), outbox.newest_change())
        while True:
            batch = outbox.next_batch(taken.change, newest_known_id=taken.last_id)
            taken = open_sink.put_batch(batch)
            if batch.is_last:
                return taken


@pytest.fixture
def node(writer: StoreWriter, session: Callable[..., Session]) -> StoreWriter:
    """Return the writer of a node's database."""
    writer.start_session(session(host=HOST))
    return writer


def kept(server: Server, fleet: str, columns: str = "uid, revision, step") -> list[tuple[object, ...]]:
    """Return what the server has of all checkpoints."""
    return server.ask(f"SELECT {columns} FROM ckptprof.checkpoints ORDER BY uid", fleet)  # noqa: S608 # our own


def test_the_newest_of_each_checkpoint_is_there_once(
    server: Server, fleet: str, node: StoreWriter, db: Path, checkpoint: Callable[..., Checkpoint]
) -> None:
    """However often it is sent, and in whatever order."""
    node.add_checkpoints([checkpoint(uid="a", step=1), checkpoint(uid="b", step=2)])
    with Outbox(db) as outbox:
        old = outbox.next_batch(0, newest_known_id=0)
    ship(server, fleet, db)
    node.add_checkpoints([checkpoint(uid="a", step=3)])

    assert ship(server, fleet, db) == ShippedPosition(change=3, last_id=2, lost=0)

    newest = [("a", 2, 3), ("b", 1, 2)]
    assert kept(server, fleet) == newest
    with sink(server, fleet) as again:
        assert again.put_batch(old) == ShippedPosition(change=3, last_id=2)
        server.ask("UPDATE ckptprof.nodes SET change = 0", fleet)
        again.put_batch(old)
    assert kept(server, fleet) == newest
    assert server.ask("SELECT host, level FROM ckptprof.sessions", fleet) == [(HOST, "poll")]


def test_the_server_derives_what_people_ask_for(
    server: Server, fleet: str, node: StoreWriter, db: Path, checkpoint: Callable[..., Checkpoint]
) -> None:
    """Out of what the node has of it, to the last digit."""
    made = checkpoint(uid="a")
    node.add_checkpoints([made])

    ship(server, fleet, db)

    columns = "number, kind, job, step, start_ns, bytes, \"limit\", gpu_seconds, (detail->>'confidence')::float8"
    assert made.cost is not None
    assert kept(server, fleet, columns) == [
        (1, "save", "train", 1000, made.start_ns, made.bytes, "flush", made.cost.gpu_seconds, made.confidence)
    ]


def test_what_the_server_refuses_is_put_aside_and_holds_up_nothing(
    server: Server,
    fleet: str,
    node: StoreWriter,
    db: Path,
    *,
    checkpoint: Callable[..., Checkpoint],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A NUL, a number beyond its range, what is too large, a row that is no JSON; surrogates are stored escaped."""
    monkeypatch.setattr(outboxes, "MAX_EVENT_BYTES", 1 << 20)
    node.add_checkpoints([checkpoint(uid=f"good-{number}") for number in range(5)])
    node.add_checkpoints(
        [
            checkpoint(uid="nul", job="a\0b"), checkpoint(uid="large", path="/" * (2 << 20)),
            checkpoint(uid="json"), checkpoint(uid="number"), checkpoint(uid="good-5"),
        ]
    )  # fmt: skip
    with contextlib.closing(sqlite3.connect(db)) as raw:
        raw.execute("UPDATE checkpoints SET moments = '{' WHERE uid = 'json'")
        raw.execute("UPDATE checkpoints SET bytes = 1e300 WHERE uid = 'number'")
        raw.commit()

    taken = ship(server, fleet, db)

    assert [uid for (uid,) in kept(server, fleet, "uid")] == [f"good-{number}" for number in range(6)]
    assert (taken.change, taken.lost) == (10, 0)
    aside = dict(server.ask("SELECT uid, reason FROM ckptprof.quarantine", fleet))
    assert sorted(map(str, aside)) == ["json", "large", "nul", "number"]
    assert "malformed" in str(aside["json"])


def test_a_uid_that_fits_into_no_index_holds_up_nothing(
    server: Server, fleet: str, node: StoreWriter, db: Path, checkpoint: Callable[..., Checkpoint]
) -> None:
    """It is put aside under its first characters."""
    dice = random.Random(20)  # noqa: S311 # no secret
    wild = "".join(chr(dice.randrange(0x4E00, 0x9FFF)) for _ in range(9000))  # which does not compress
    node.add_checkpoints([checkpoint(uid=wild), checkpoint(uid="good")])

    assert ship(server, fleet, db).change == 2

    assert kept(server, fleet, "uid") == [("good",)]
    assert server.ask("SELECT uid FROM ckptprof.quarantine", fleet) == [(wild[:200],)]


def test_what_was_gone_before_it_was_sent_is_counted(
    server: Server, fleet: str, db: Path, session: Callable[..., Session], checkpoint: Callable[..., Checkpoint]
) -> None:
    """The database was full meanwhile; what is left is there."""
    with contextlib.closing(StoreWriter(db, retention=Retention(max_bytes=1), ballast_bytes=0)) as writer:
        writer.start_session(session(host=HOST))
        writer.add_checkpoints([checkpoint(uid="sent")])
        ship(server, fleet, db)
        writer.add_checkpoints([checkpoint(uid=f"gone-{number}") for number in range(3)])
        writer.maintain(0)
        writer.add_checkpoints([checkpoint(uid="left")])

        assert ship(server, fleet, db).lost == 3

    assert [uid for (uid,) in kept(server, fleet, "uid")] == ["left", "sent"]


def test_each_day_has_a_partition_and_a_wild_clock_none(
    server: Server, fleet: str, node: StoreWriter, db: Path, checkpoint: Callable[..., Checkpoint]
) -> None:
    """1970 is in that for all other times; what is there of a day that comes moves out; days are dropped."""
    now = int(server.ask("SELECT extract(epoch FROM now())::bigint")[0][0]) * 10**9  # type: ignore[call-overload]
    today, tomorrow = now // DAY_NS * DAY_NS, (now // DAY_NS + 1) * DAY_NS
    node.add_checkpoints([checkpoint(uid="wild", start_ns=5), checkpoint(uid="today", start_ns=today)])
    ship(server, fleet, db)
    server.ask(
        "INSERT INTO ckptprof.checkpoints_other (first_start_ns, node, uid, revision, detail)"  # noqa: S608 # our own
        f" VALUES ({tomorrow}, 'x', 'early', 1, '{{}}')",
        fleet,
    )
    node.add_checkpoints([checkpoint(uid="tomorrow", start_ns=tomorrow)])

    ship(server, fleet, db)

    of = dict(kept(server, fleet, "uid, tableoid::regclass::text"))
    assert of["wild"] == "ckptprof.checkpoints_other"
    assert of["early"] == of["tomorrow"] != of["today"]
    assert server.ask(f"SELECT ckptprof.drop_before(to_timestamp({tomorrow / 1e9}))", fleet) == [(1,)]
    assert sorted(dict(kept(server, fleet, "uid, node"))) == ["early", "tomorrow", "wild"]


def test_a_start_that_is_told_earlier_later_is_the_same_checkpoint(
    server: Server, fleet: str, node: StoreWriter, db: Path, checkpoint: Callable[..., Checkpoint]
) -> None:
    """Even on another day."""
    made = checkpoint(uid="a")
    node.add_checkpoints([made])
    ship(server, fleet, db)
    node.add_checkpoints([msgspec.structs.replace(made, start_ns=made.start_ns - 2 * DAY_NS)])

    ship(server, fleet, db)

    assert kept(server, fleet, "uid, revision, start_ns") == [("a", 2, made.start_ns - 2 * DAY_NS)]


def test_a_node_writes_as_itself_alone(
    server: Server,
    fleet: str,
    node: StoreWriter,
    db: Path,
    *,
    checkpoint: Callable[..., Checkpoint],
    tmp_path: Path,
) -> None:
    """By whom it logged in as; it reads nothing of others, and changes no table."""
    node.add_checkpoints([checkpoint(uid="a")])
    secret = tmp_path / "password"
    roles = [server.role(name, "ckptprof_node") for name in (HOST, "node-2")]
    with Outbox(db) as outbox:
        batch = outbox.next_batch(0, newest_known_id=0)
    for role in roles:
        secret.write_text(role)
        secret.chmod(0o600)
        with sink(server, fleet, node=role, role=role, secret=secret) as own:
            own.put_batch(batch)
        other = next(one for one in roles if one != role)

        with pytest.raises(StoreError, match="row-level security"), sink(server, fleet, other, role, secret) as foreign:
            foreign.put_batch(batch)

    assert kept(server, fleet, "node, uid") == [(HOST, "a"), ("node-2", "a")]
    mine = "SELECT node FROM ckptprof.checkpoints UNION ALL SELECT node FROM ckptprof.nodes"
    assert set(server.ask(mine, fleet, "node-2")) == {("node-2",)}
    assert server.ask("UPDATE ckptprof.checkpoints SET revision = 99 RETURNING node", fleet, "node-2") == [("node-2",)]
    for forbidden in (
        "DELETE FROM ckptprof.checkpoints",
        "DROP TABLE ckptprof.nodes",
        "TABLE ckptprof.checkpoints_other",
    ):
        with pytest.raises(Exception, match=r"permission denied|must be owner"):
            server.ask(forbidden, fleet, "node-2")
    reader = server.role("reader", "ckptprof_reader")
    assert len(server.ask("SELECT node FROM ckptprof.checkpoints", fleet, reader)) == 2
    with pytest.raises(Exception, match="permission denied"):
        server.ask("UPDATE ckptprof.nodes SET change = 0", fleet, reader)


def test_what_is_gone_or_cannot_be_read_for_now_is_not_put_aside(
    server: Server,
    fleet: str,
    node: StoreWriter,
    db: Path,
    *,
    checkpoint: Callable[..., Checkpoint],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row without its checkpoint is passed; an error of the disk is tried again, and then all is there."""
    node.add_checkpoints([checkpoint(uid=uid) for uid in "abc"])
    with contextlib.closing(sqlite3.connect(db)) as raw:
        raw.execute("DELETE FROM checkpoints WHERE uid = 'b'")
        raw.commit()
    with monkeypatch.context() as patched:
        # What a disk says cannot be made here: a statement that fails otherwise stands for it
        patched.setattr(outboxes, "_SELECT_CHANGED", "SELECT abs(-9223372036854775808) WHERE :changed")
        with pytest.raises(StoreError, match="integer overflow"):
            ship(server, fleet, db)

    assert ship(server, fleet, db).change == 3

    assert kept(server, fleet, "uid") == [("a",), ("c",)]
    assert server.ask("SELECT * FROM ckptprof.quarantine", fleet) == []


def test_a_session_that_the_client_refuses_holds_up_nothing(
    server: Server, fleet: str, db: Path, session: Callable[..., Session], checkpoint: Callable[..., Checkpoint]
) -> None:
    """A NUL in the name of a kernel never gets as far as the server."""
    with contextlib.closing(StoreWriter(db, ballast_bytes=0)) as writer:
        writer.start_session(session(host=HOST, kernel="6\0"))
        writer.add_checkpoints([checkpoint(uid="a")])

        assert ship(server, fleet, db).change == 1


def test_who_reads_for_long_holds_up_no_node(
    server: Server, fleet: str, node: StoreWriter, db: Path, checkpoint: Callable[..., Checkpoint]
) -> None:
    """The first save of a day goes into the partition for all other times, and out of it with the next turn."""
    now = int(server.ask("SELECT extract(epoch FROM now())::bigint")[0][0]) * 10**9  # type: ignore[call-overload]
    node.add_checkpoints([checkpoint(uid="a", start_ns=now)])
    with connected(parse_target(server.url(fleet))) as reader, reader.begin():
        reader.exec_driver_sql("SELECT FROM ckptprof.checkpoints")
        assert ship(server, fleet, db).change == 1
        assert kept(server, fleet, "uid, tableoid::regclass::text") == [("a", "ckptprof.checkpoints_other")]
    node.add_checkpoints([checkpoint(uid="b", start_ns=now)])

    ship(server, fleet, db)

    places = {place for _, place in kept(server, fleet, "uid, tableoid::regclass::text")}
    assert len(places) == 1
    assert places != {"ckptprof.checkpoints_other"}


def test_a_server_is_believed_by_its_certificate_alone(
    server: Server, fleet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the host's authorities do not know is refused, by what name it is asked for matters, too."""
    secret = tmp_path / "password"
    role = server.role(HOST, "ckptprof_node")
    secret.write_text(role)
    secret.chmod(0o600)
    url = server.url(fleet, role, "localhost")
    with connected(parse_target(f"{url}?sslrootcert={server.certificate}"), secret) as connection:
        ServerSink(connection, role, "s1").shipped_position((), 0)

    for unknown in (url, f"{server.url(fleet, role, '127.0.0.1')}?sslrootcert={server.certificate}"):
        with pytest.raises(ServerUnreachableError, match="certificate"), connected(parse_target(unknown), secret):
            pass
    known = SimpleNamespace(cafile=str(server.certificate))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: known)  # as if the host knew it
    with connected(parse_target(url), secret) as connection:
        ServerSink(connection, role, "s1").shipped_position((), 0)


def test_a_server_that_is_not_prepared_or_away_says_so(server: Server, tmp_path: Path) -> None:
    """And what to do; preparing twice changes nothing."""
    with pytest.raises(StoreError, match="is not prepared") as caught, sink(server, "postgres"):
        pass
    assert "ship --prepare" in (caught.value.hint or "")
    with pytest.raises(ServerUnreachableError), connected(parse_target(f"postgresql+psycopg:///x?host={tmp_path}")):
        pass
    with connected(parse_target(server.url(server.database()))) as connection:
        assert migrate(connection) == len(STEPS)
