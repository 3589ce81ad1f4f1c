"""The process of `ckptprof ship`. It may be killed at any instant: how far it got is kept where it ships to."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ckptprof.errors import StoreError
from ckptprof.service.recorder.pending import is_writing
from ckptprof.service.shipping.names import without_names
from ckptprof.service.shipping.pace import Pace
from ckptprof.service.shipping.sinks import Way
from ckptprof.store.fleet.outbox import Outbox, Taken
from ckptprof.store.fleet.target import ServerAwayError
from ckptprof.store.lock import writer_is_alive

LOOK_SECONDS = 5.0


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one connection."""

    taken: Taken
    events: int  # that were sent
    is_done: bool  # nothing is left; else a save began meanwhile


class Shipper:
    """Takes one database one way."""

    def __init__(self, db: Path, way: Way, *, names: bool) -> None:
        """`names`: what people chose is sent as it is. Nothing is opened yet."""
        self._db = db
        self._way = way
        self._names = names

    def send(self, may_go_on: Callable[[], bool] = lambda: True) -> Round:
        """Send what there is, in batches, as long as it may go on; raises StoreError."""
        with Outbox(self._db) as outbox:
            key = outbox.key()
            if key is None:
                return Round(taken=Taken(), events=0, is_done=True)
            with self._way(*key) as sink:
                taken, sent = sink.taken(outbox.sessions(), outbox.newest()), 0
                while True:
                    batch = outbox.batch(taken.change, known_id=taken.last_id)
                    taken = sink.put(batch if self._names else without_names(batch))
                    if taken.change != batch.until:  # another one ships this database, too
                        continue
                    sent += len(batch.events)
                    if batch.is_last or not may_go_on():
                        return Round(taken=taken, events=sent, is_done=batch.is_last)

    def newest(self) -> int:
        """Return the last change of the database; raises StoreError."""
        with Outbox(self._db) as outbox:
            return outbox.newest()

    def is_writing(self) -> bool:
        """Return whether a checkpoint is being written on this node, as the agent tells; raises StoreError."""
        if writer_is_alive(self._db) is False:
            return False
        with Outbox(self._db) as outbox:
            return is_writing(outbox.pending().values(), time.time_ns())

    def run(
        self, *, tell: Callable[[str], object], complain: Callable[[str], object], beat: Callable[[], object]
    ) -> None:
        """Send for ever: soon after something changes, not while a checkpoint is written.

        `tell` is for a status; `beat` is called in each turn and after each batch: a server that takes one and never
        answers is waited for without end.
        """

        def may_send() -> bool:
            beat()
            return pace.may_send(time.monotonic(), is_writing=self.is_writing())

        pace = Pace(time.monotonic(), random.Random())  # noqa: S311 # no secret
        done, last_complaint, events = -1, "", 0
        while True:
            beat()
            try:
                if self.newest() != done:
                    pace.changed(time.monotonic())
                if pace.is_due(time.monotonic()) and may_send():
                    found = self.send(may_send)
                    done, last_complaint, events = found.taken.change, "", events + found.events
                    if found.is_done:
                        pace.sent(time.monotonic())
                    tell(_status(events, found.taken))
            except StoreError as error:
                pace.failed(time.monotonic(), error.later_seconds if isinstance(error, ServerAwayError) else 0.0)
                line = f"{error} ({error.hint})" if error.hint else str(error)
                if line != last_complaint:
                    complain(f"not shipping for now: {line}")
                last_complaint = line
            time.sleep(LOOK_SECONDS)


def _status(events: int, taken: Taken) -> str:
    lost = f"; {taken.lost} were gone before they were sent" if taken.lost else ""
    return f"{events} changes of checkpoints sent, all that there are at {time.strftime('%H:%M:%S')}{lost}"
