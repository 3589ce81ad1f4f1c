"""What is kept, and what goes first."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptprof.model import Checkpoint, CheckpointQuery
from ckptprof.store.reader import StoreReader
from ckptprof.store.timeline import WINDOW_NS, Window
from ckptprof.store.writer import Retention, StoreWriter

_HOUR_NS = 3600 * 10**9
_DAY_NS = 24 * _HOUR_NS
_Noise = Callable[..., Window]


def _rows(db: Path, table: str) -> int:
    with sqlite3.connect(db) as plain:
        (count,) = plain.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 # the test's own word
    plain.close()
    return int(count)


def test_minutes_become_an_hour_and_a_roll_up_once_it_is_over(
    writer: StoreWriter, db: Path, start_ns: int, noise: _Noise
) -> None:
    """Not before, and a second time does nothing."""
    writer.add_windows([noise(start_ns + minute * WINDOW_NS) for minute in range(60)])
    writer.maintain(start_ns + _HOUR_NS + WINDOW_NS)
    assert (_rows(db, "minutes"), _rows(db, "hours")) == (60, 0)

    for _ in range(2):
        writer.maintain(start_ns + _HOUR_NS + 3 * WINDOW_NS)
        assert (_rows(db, "minutes"), _rows(db, "hours"), _rows(db, "rollups")) == (0, 1, 1)


def test_compaction_leaves_off_for_who_waits_and_goes_on_later(
    writer: StoreWriter, db: Path, start_ns: int, noise: _Noise
) -> None:
    """A few hours of entities at a time; nothing is lost in between, and each is compacted once."""
    entities = [f"disk:d{number}" for number in range(20)]
    for minute in range(3):
        writer.add_windows([noise(start_ns + minute * WINDOW_NS, entity=entity) for entity in entities])
    with StoreReader(db) as reader:
        before = [reader.series(entity, 0, 1 << 62) for entity in entities]
    left = []
    while not writer.maintain(start_ns + 2 * _HOUR_NS, lambda: True):
        left.append((_rows(db, "minutes") // 3, _rows(db, "hours")))
        with StoreReader(db) as reader:
            assert [reader.series(entity, 0, 1 << 62) for entity in entities] == before

    assert left == [(12, 8), (4, 16), (0, 20)]
    assert _rows(db, "rollups") == 20


def test_hours_of_one_entity_share_the_roll_up_of_their_day(
    writer: StoreWriter, db: Path, start_ns: int, noise: _Noise
) -> None:
    """However many of them are compacted at once, and across midnight."""
    for hour in range(30):
        writer.add_windows([noise(start_ns + hour * _HOUR_NS)])
    writer.maintain(start_ns + 31 * _HOUR_NS)
    days = {(start_ns + hour * _HOUR_NS) // _DAY_NS for hour in range(30)}

    assert (_rows(db, "hours"), _rows(db, "rollups")) == (30, len(days))
    with StoreReader(db) as reader:
        times = reader.series("disk:vda", start_ns, start_ns + 30 * _HOUR_NS, step_seconds=3600).times_ns
    assert len(times) >= 29


def test_a_late_window_joins_its_hour(writer: StoreWriter, db: Path, start_ns: int, noise: _Noise) -> None:
    """A clock set back by an hour writes into an hour that is compacted already."""
    for minute in (1, 0):
        writer.add_windows([noise(start_ns + minute * WINDOW_NS)])
        writer.maintain(start_ns + 2 * _HOUR_NS)
    with StoreReader(db) as reader:
        series = reader.series("disk:vda", start_ns, start_ns + _HOUR_NS)

    assert len(series.times_ns) == 2000
    assert series.times_ns == sorted(series.times_ns)
    assert _rows(db, "hours") == 1


def test_timelines_expire_by_age_and_events_do_not(
    writer: StoreWriter, db: Path, start_ns: int, noise: _Noise, checkpoint: Callable[..., Checkpoint]
) -> None:
    """After 30 days the counters, their entity and the measures are gone; the checkpoint and its verdict are not."""
    writer.add_checkpoints([checkpoint()])
    writer.add_windows([noise(start_ns), noise(start_ns, entity="disk:old")])
    writer.maintain(start_ns + _DAY_NS)
    writer.add_windows([noise(start_ns + 31 * _DAY_NS)])
    writer.maintain(start_ns + 31 * _DAY_NS + 2 * _HOUR_NS)
    writer.maintain(start_ns + 32 * _DAY_NS + _HOUR_NS)
    with StoreReader(db) as reader:
        assert reader.entities() == ["disk:vda"]
        assert len(reader.series("disk:vda", 0, 1 << 62).times_ns) == 1000
        assert len(reader.report(CheckpointQuery()).checkpoints) == 1
        found = reader.checkpoint(1)
    assert found is not None
    assert (found.measures, found.verdict) == (None, checkpoint().verdict)


def test_an_entity_that_comes_back_has_a_number_again(
    writer: StoreWriter, db: Path, start_ns: int, noise: _Noise
) -> None:
    """The writer does not remember numbers that expiry took away."""
    later_ns = start_ns + 40 * _DAY_NS
    writer.add_windows([noise(start_ns)])
    writer.maintain(later_ns)
    writer.add_windows([noise(later_ns)])
    with StoreReader(db) as reader:
        assert len(reader.series("disk:vda", 0, 1 << 62).times_ns) == 1000


def test_the_size_is_capped_oldest_first_and_events_last(
    db: Path, start_ns: int, noise: _Noise, checkpoint: Callable[..., Checkpoint]
) -> None:
    """The file stays near its cap whatever comes; what is left is the newest."""
    cap = 1 << 20
    writer = StoreWriter(db, retention=Retention(max_bytes=cap), ballast_bytes=0)
    writer.add_checkpoints([checkpoint()])
    for hour in range(30):
        writer.add_windows([noise(start_ns + hour * _HOUR_NS + minute * WINDOW_NS) for minute in range(10)])
        writer.maintain(start_ns + (hour + 1) * _HOUR_NS + 3 * WINDOW_NS)
    with StoreReader(db) as reader:
        times = reader.series("disk:vda", 0, 1 << 62).times_ns
        events = len(reader.report(CheckpointQuery()).checkpoints)
    writer.close()

    assert db.stat().st_size < 2 * cap
    assert times[-1] > start_ns + 29 * _HOUR_NS
    assert times[0] > start_ns + 10 * _HOUR_NS
    assert events == 1


def test_events_go_when_nothing_else_is_left(
    db: Path, start_ns: int, noise: _Noise, checkpoint: Callable[..., Checkpoint]
) -> None:
    """A flood of checkpoints does not break the cap; the newest stay, with their verdicts but without the measures."""
    writer = StoreWriter(db, retention=Retention(max_bytes=700_000), ballast_bytes=0)
    writer.add_checkpoints([checkpoint(uid=str(number), start_ns=number) for number in range(1000)])
    writer.maintain(start_ns)
    writer.close()
    with StoreReader(db) as reader:
        kept = [int(one.uid) for one in reader.report(CheckpointQuery()).checkpoints]

        newest = reader.checkpoint(1000)

    assert 0 < len(kept) < 1000
    assert kept == list(range(1000 - len(kept), 1000))
    assert newest is not None
    assert (newest.measures, newest.verdict is not None) == (None, True)


@pytest.mark.slow
def test_unused_pages_go_back_to_the_file_system(db: Path, start_ns: int, noise: _Noise) -> None:
    """After a cap was lowered the file shrinks, bit by bit."""
    writer = StoreWriter(db, ballast_bytes=0)
    for hour in range(60):
        start = start_ns + hour * _HOUR_NS
        writer.add_windows([noise(start + minute * WINDOW_NS) for minute in range(30)])
    writer.close()
    before = db.stat().st_size
    writer = StoreWriter(db, retention=Retention(max_bytes=1 << 20), ballast_bytes=0)
    for _ in range(10):
        writer.maintain(start_ns + 60 * _HOUR_NS)
    writer.close()

    assert before > 12 << 20
    assert db.stat().st_size < before * 0.7


def test_a_damaged_block_is_counted_and_stops_nothing(
    writer: StoreWriter, db: Path, start_ns: int, noise: _Noise
) -> None:
    """The other minutes of the hour are compacted."""
    writer.add_windows([noise(start_ns), noise(start_ns + WINDOW_NS)])
    writer._connection.execute("UPDATE minutes SET data = x'00' WHERE id = (SELECT min(id) FROM minutes)")
    writer.maintain(start_ns + 2 * _HOUR_NS)
    with StoreReader(db) as reader:
        assert len(reader.series("disk:vda", 0, 1 << 62).times_ns) == 1000
    assert writer.damaged_blocks == 1
