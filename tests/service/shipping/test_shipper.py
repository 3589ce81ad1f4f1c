"""The shipper against a real server: killed at any instant, and beside an agent that sees a save."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.cluster.nodes import Job
from tests.postgres import Server

from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.deferred import PendingEvent
from ckptprof.detect.events.event_history import HistoryEvent
from ckptprof.model import Checkpoint, Session
from ckptprof.service.recorder.pending import encode, is_writing
from ckptprof.service.shipping.shipper import Shipper, to_server
from ckptprof.store.fleet.target import parse_target
from ckptprof.store.writer import StoreWriter

SAVE = Job(saves=1).seen()[0][0].checkpoints[0]
KILLS = 50


def _session(writer: StoreWriter, uid: str = "s", end_ns: int = SAVE.end_ns) -> None:
    writer.start_session(
        Session(
            uid=uid, host="node-1", boot_id="b", kernel="6.1", version="0", level="poll",
            start_ns=SAVE.start_ns, end_ns=end_ns, clean=False,
        )
    )  # fmt: skip


@pytest.mark.postgres
def test_fifty_kills_lose_nothing_and_put_nothing_twice(server: Server, fleet: str, tmp_path: Path) -> None:
    """While checkpoints come and change; in the end the server has the newest of each."""
    db, url = tmp_path / "node.db", server.url(fleet)
    dice = random.Random(19)  # noqa: S311 # no secret
    made: dict[str, Checkpoint] = {}
    program = [sys.executable, Path(__file__).with_name("killed.py"), db, url]
    with closing(StoreWriter(db, ballast_bytes=0)) as writer:
        _session(writer)
    with (
        closing(StoreWriter(db, ballast_bytes=0)) as writer,
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as killer,
    ):
        assert killer.stdin is not None
        assert killer.stdout is not None
        assert killer.stdout.readline() == "ready\n"  # nothing was there to be sent
        for _ in range(KILLS):
            uids = [f"u{len(made) + number}" for number in range(20)]
            uids += dice.sample(sorted(made), min(len(made), 10))
            changed = [msgspec.structs.replace(SAVE, uid=uid, step=dice.randrange(1 << 40)) for uid in uids]
            writer.add_checkpoints(changed)
            made |= {one.uid: one for one in changed}
            killer.stdin.write(f"{dice.uniform(0, 8)}\n")
            assert killer.stdout.readline() == "killed\n"  # it would have gone on
        killer.stdin.close()
    assert server.ask("SELECT change > 0 FROM ckptprof.nodes", fleet) == [(True,)]  # they were at work

    Shipper(db, to_server(parse_target(url)), names=True).send()

    kept = server.ask("SELECT uid, step FROM ckptprof.checkpoints", fleet)
    assert len(kept) == len(made)
    assert dict(kept) == {uid: one.step for uid, one in made.items()}
    assert server.ask("SELECT lost FROM ckptprof.nodes", fleet) == [(0,)]
    assert server.ask("SELECT * FROM ckptprof.quarantine", fleet) == []


@pytest.mark.postgres
@pytest.mark.parametrize("more", ["e", "efghi"], ids=["fewer changes than before", "more changes than before"])
def test_a_database_that_was_set_back_is_taken_from_its_begin(
    server: Server, fleet: str, tmp_path: Path, more: str
) -> None:
    """However much it has by then; what the server has of it stays."""
    db, copy, target = tmp_path / "node.db", tmp_path / "copy.db", parse_target(server.url(fleet))
    with closing(StoreWriter(db, ballast_bytes=0)) as writer:
        _session(writer)
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid="a")])
    copy.write_bytes(db.read_bytes())
    with closing(StoreWriter(db, ballast_bytes=0)) as writer:
        _session(writer, end_ns=SAVE.end_ns + 1)
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid=uid) for uid in "bcd"])
    Shipper(db, to_server(target), names=True).send()
    with closing(StoreWriter(copy, ballast_bytes=0)) as writer:
        _session(writer, "later")
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid=uid) for uid in more])

    assert [Shipper(copy, to_server(target), names=True).send().events for _ in range(2)] == [1 + len(more), 0]

    kept = server.ask("SELECT uid FROM ckptprof.checkpoints ORDER BY uid", fleet)
    assert "".join(str(uid) for (uid,) in kept) == "abcd" + more
    assert server.ask("SELECT lost FROM ckptprof.nodes", fleet) == [(0,)]


@pytest.mark.postgres
def test_a_database_that_was_made_anew_is_taken_from_its_begin(server: Server, fleet: str, tmp_path: Path) -> None:
    """In the place of a damaged one, by the same session: its changes begin at 1 again."""
    db, target = tmp_path / "node.db", parse_target(server.url(fleet))
    for number, uids in enumerate(["abc", "de"]):
        for old in tmp_path.glob("node.db*"):
            old.unlink()
        with closing(StoreWriter(db, ballast_bytes=0)) as writer:
            _session(writer, end_ns=SAVE.end_ns + number)
            writer.add_checkpoints([msgspec.structs.replace(SAVE, uid=uid) for uid in uids])

        Shipper(db, to_server(target), names=True).send()

    kept = server.ask("SELECT uid FROM ckptprof.checkpoints ORDER BY uid", fleet)
    assert "".join(str(uid) for (uid,) in kept) == "abcde"


@pytest.mark.postgres
def test_the_command_prepares_and_ships(server: Server, tmp_path: Path) -> None:
    """As it is typed; a node without anything recorded has nothing to send."""
    name = f"typed_{tmp_path.stat().st_ino}"
    server.ask(f"CREATE DATABASE {name}")
    db, url = tmp_path / "node.db", server.url(name)
    with closing(StoreWriter(db, ballast_bytes=0)) as writer:
        _session(writer)
        writer.add_checkpoints([SAVE])

    def call(*words: str) -> str:
        command = [sys.executable, "-m", "ckptprof", "ship", "--to", url, "--db", str(db), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert call("--prepare").endswith("is ready for nodes: schema 2\n")
    assert call("--once") == "1 checkpoint updates sent\n"
    assert call("--once") == "0 checkpoint updates sent\n"
    ((detail,),) = server.ask("SELECT detail::text FROM ckptprof.checkpoints", name)
    assert json.loads(str(detail))["uid"] == SAVE.uid


@pytest.mark.parametrize(
    ("if_alone", "quiet_s", "expected"),
    [(None, 60.0, True), (Hypothesis.SAVE, 60.0, False), (Hypothesis.SAVE, 1.0, True)],
    ids=["goes on", "over, and not sure", "not sure, just now"],
)
def test_a_save_that_goes_on_is_seen_in_the_database(
    if_alone: Hypothesis | None, quiet_s: float, *, expected: bool
) -> None:
    """By what the agent keeps there of what it has not told; what cannot be read holds up nothing."""
    event = HistoryEvent(0, 1, 1, frozenset(), frozenset(), frozenset(), frozenset())
    one = PendingEvent(checkpoint=SAVE, event=event, directory="/", boot_id="b", if_alone=if_alone)

    assert is_writing([b"x", encode(one)], SAVE.end_ns + round(quiet_s * 1e9)) is expected
