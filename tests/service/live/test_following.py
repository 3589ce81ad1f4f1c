"""What `ckptprof live` shows of a database, and whom it asks first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.cli.recorded import BEGIN_NS, SECOND, recorded, save
from tests.patience import wait_until

from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.deferred import Pending
from ckptprof.detect.events.past_events import PastEvent
from ckptprof.model import CUT_AT_END, Checkpoint, Evidence, Status
from ckptprof.report.live.state import Device, State, underway
from ckptprof.service.live import wire
from ckptprof.service.live.following import FOLLOWS, NOBODY, OLDEST_NS, Follower, device
from ckptprof.service.live.server import LiveServer
from ckptprof.service.live.watching import OTHER, SILENT, Watching
from ckptprof.service.recorder.pending import encoded
from ckptprof.store.reader import StoreReader
from ckptprof.store.series import Series
from ckptprof.store.writer import StoreWriter

NOW = BEGIN_NS + 100 * SECOND
STATE = State(
    at_ns=NOW, host="node-1", level="trace", since_ns=BEGIN_NS, source="agent",
    underway=(underway(msgspec.structs.replace(save(3), id=0, uid="now")),),
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database of three saves."""
    return Path(recorded(tmp_path / "x.db"))


@pytest.fixture
def reader(path: Path) -> Iterator[StoreReader]:
    """Open it."""
    with StoreReader(path) as found:
        yield found


def going_on(number: int, if_alone: Hypothesis | None = None) -> Pending:
    """Return a save in whose midst the recorder looked."""
    cut = (Evidence(name=CUT_AT_END, weight=0.0, text="it goes on"),)
    one: Checkpoint = msgspec.structs.replace(save(number), id=0, evidence=cut, status=Status.INCOMPLETE)
    event = PastEvent(start_ns=1, end_ns=2, bytes=3, shapes=frozenset(), paths=frozenset(),
                      processes=frozenset(), programs=frozenset())  # fmt: skip
    return Pending(one, event, "", "b", if_alone)


def test_what_goes_on_is_shown_while_somebody_records(path: Path, reader: StoreReader) -> None:
    """Only that of which it is sure; its progress is told by the save before it. A dead recorder's is not."""
    with closing(StoreWriter(path)) as writer:
        sure, unsure = going_on(7), going_on(8, Hypothesis.SAVE)
        writer.add_checkpoints([], {one.checkpoint.uid: encoded(one) for one in (sure, unsure)} | {"x": b"\xc1"}, ())

        state = Follower(reader).state(NOW)

    assert [one.uid for one in state.underway] == ["uid-7"]
    assert state.underway[0].usual_bytes == save(2).bytes
    assert state.underway[0].ranks_done is None
    assert state.underway[0].so_far is not None
    assert (state.source, state.notes, state.level) == ("database", (FOLLOWS,), "poll")
    assert [one.id for one in state.last] == [3, 2, 1]
    over = Follower(reader).state(NOW)
    assert (over.underway, over.notes, over.level) == ((), (NOBODY,), None)


def test_a_rate_is_a_mean_over_the_last_counters() -> None:
    """Of what was stored in the last minutes; what went back, or was not read, has none."""
    times = [NOW - after * SECOND for after in (60, 30, 20, 10)]
    columns: dict[str, list[int | None]] = {
        "read_sectors": [9, 8, 7, 0], "write_sectors": [0, 0, 2000, 4000], "io_ms": [0, 0, 1000, 3000]
    }  # fmt: skip
    series = Series(entity="disk:vda", times_ns=times, columns=columns)

    assert device(series, NOW) == Device(
        name="vda", kind="disk", read_bytes_per_second=None, written_bytes_per_second=102_400.0, busy_share=0.2,
        at_ns=times[-1],
    )  # fmt: skip
    assert device(series, NOW + OLDEST_NS) is None
    assert device(Series(entity="nic:eth0", times_ns=times[:1], columns={"rx_bytes": [1]}), NOW) is None


def test_the_agent_is_asked_first(path: Path, reader: StoreReader) -> None:
    """What goes on is its word, the last checkpoints the database's; when it goes, the database is followed."""
    server = LiveServer(wire.socket_of(path))
    server.start()
    watching = Watching(Follower(reader))
    assert not watching.is_told
    wait_until(lambda: server.is_wanted)
    server.put(STATE)
    wait_until(lambda: watching.is_told)

    state = watching.state(NOW)
    old = watching.state(NOW + 60 * SECOND)
    server.close()
    alone = wait_until(lambda: (found := watching.state(NOW)).source == "database" and found)

    assert [one.uid for one in state.underway] == ["now"]
    assert state.underway[0].usual_bytes == save(2).bytes
    assert [one.id for one in state.last] == [3, 2, 1]
    assert (state.notes, old.notes) == ((), (SILENT,))
    assert alone.underway == ()
    watching.close()


def test_an_agent_of_another_version_is_not_understood(
    path: Path, reader: StoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its database is followed, and that is told."""
    server = LiveServer(wire.socket_of(path))
    server.start()
    watching = Watching(Follower(reader))
    wait_until(lambda: server.is_wanted)
    with monkeypatch.context() as other:
        other.setattr(wire, "VERSION", 2)
        line = wire.encode(STATE)
    monkeypatch.setattr(wire, "encode", lambda _: line)
    server.put(STATE)

    assert wait_until(lambda: (found := watching.state(NOW)).notes == (OTHER,) and found).source == "database"
    watching.close()
    server.close()


@pytest.mark.parametrize(("job", "shown"), [("tra*", 1), ("train", 1), ("other", 0)])
def test_one_job_is_shown(path: Path, reader: StoreReader, job: str, shown: int) -> None:
    """By its name, or a pattern: of what goes on, and of what was."""
    server = LiveServer(wire.socket_of(path))
    server.start()
    watching = Watching(Follower(reader, job=job), job=job)
    wait_until(lambda: server.is_wanted)
    server.put(STATE)
    wait_until(lambda: watching.is_told)

    state = watching.state(NOW)

    assert (len(state.underway), len(state.last)) == (shown, 3 * shown)
    watching.close()
    server.close()
