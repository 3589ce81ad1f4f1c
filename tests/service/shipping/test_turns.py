"""The turns of a shipper, by a clock of our own: when it sends, beside what, and what it says when it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckptprof.errors import StoreError
from ckptprof.service.shipping import shipper as shipping
from ckptprof.service.shipping.shipper import (
    HEARTBEAT_SECONDS,
    MAX_RETRY_SECONDS,
    SPREAD_SECONDS,
    Shipment,
    Shipper,
    ShippingTarget,
)
from ckptprof.store.fleet.outbox import ShippedPosition
from ckptprof.store.fleet.target import ServerUnreachableError


@contextmanager
def _nowhere(node: str, database: str) -> Iterator[ShippingTarget]:
    raise AssertionError((node, database))
    yield


class OverError(Exception):
    """The time of a test is over."""


class Played(Shipper):
    """A shipper whose node and server are played by time; it takes note of when it sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, until: float) -> None:
        """Begin at 0."""
        super().__init__(Path("/nowhere.db"), _nowhere, names=True)
        self.now = 0.0
        self.until = until
        self.sent: list[float] = []
        self.said: list[str] = []
        self.beats: list[float] = []
        self.change: Callable[[float], int] = lambda _: 1
        self.writes: Callable[[float], bool] = lambda _: False
        self.is_away: Callable[[float], bool] = lambda _: False
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._pass, strftime=str)
        monkeypatch.setattr(shipping, "time", clock)

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self.until:
            raise OverError

    def newest(self) -> int:
        """Return the last change."""
        return self.change(self.now)

    def is_writing(self) -> bool:
        """Return whether a checkpoint is being written."""
        return self.writes(self.now)

    def send(self, may_go_on: Callable[[], bool] = lambda: True) -> Shipment:
        """Take note."""
        if self.is_away(self.now):
            raise ServerUnreachableError("db is away")
        self.sent.append(self.now)
        is_done = may_go_on()
        return Shipment(taken=ShippedPosition(change=self.change(self.now)), events=1, is_done=is_done)

    def play(self) -> None:
        """Run until the time is over."""
        with pytest.raises(OverError):
            self.run(on_status=lambda _: None, warn=self.said.append, beat=lambda: self.beats.append(self.now))


def test_what_changes_is_sent_soon_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within two minutes, and a look; then nothing but that the node is there."""
    played = Played(monkeypatch, until=4000)
    played.change = lambda now: 2 if now >= 1000 else 1
    played.play()

    before = [at for at in played.sent if at < 1000]
    assert before[0] <= SPREAD_SECONDS + 5
    assert 1000 <= next(at for at in played.sent if at >= 1000) <= 1000 + SPREAD_SECONDS + 5
    waits = [later - sooner for sooner, later in zip(played.sent, played.sent[1:], strict=False)]
    assert len([wait for wait in waits if wait < 0.8 * HEARTBEAT_SECONDS]) <= 1
    assert played.said == []


def test_nothing_is_sent_while_a_checkpoint_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at first nor between two batches; the rest goes when that is over."""
    played = Played(monkeypatch, until=3000)
    played.writes = lambda now: now < 700 or 701 < now < 1500
    played.play()

    assert 700 <= played.sent[0] <= 701 or played.sent[0] >= 1500
    assert not [at for at in played.sent if played.writes(at)]


def test_a_server_that_is_away_is_told_once_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day long, ever later; when it is back all goes on."""
    day = 86_400.0
    played = Played(monkeypatch, until=day + 2 * MAX_RETRY_SECONDS)
    tries: list[float] = []

    def is_away(now: float) -> bool:
        tries.append(now)
        return now < day

    played.is_away = is_away
    played.play()

    assert played.said == ["not shipping for now: db is away"]
    assert day <= played.sent[0] <= day + MAX_RETRY_SECONDS + 5
    assert 100 < len([at for at in tries if at < day]) < 400


def test_each_turn_and_each_batch_shows_that_it_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the server is away; one that never answers keeps it from that."""
    played = Played(monkeypatch, until=4000)
    played.is_away = lambda now: now < 1000
    played.play()

    assert sorted(set(played.beats)) == [5.0 * turn for turn in range(801)]
    assert len(played.beats) >= 801 + 2 * len(played.sent)


def test_a_database_that_is_not_there_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent makes it when it begins."""
    played = Played(monkeypatch, until=4000)

    def newest(now: float) -> int:
        if now < 1000:
            raise StoreError("no database at /nowhere.db", hint="record one")
        return 1

    played.change = newest
    played.play()

    assert played.said == ["not shipping for now: no database at /nowhere.db (record one)"]
    assert played.sent[0] >= 1000
