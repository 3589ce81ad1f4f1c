"""The process of `ckptprof ship`. It may be killed at any instant: how far it got is kept where it ships to.

Unless names are to be sent, a name is replaced by a hash, which is the same wherever the name is the same; paths and
keys by one of each part, so that nodes still have one run, and folders one file system. It hides a name from who reads,
not from who guesses it.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, Run, Sent, Session
from ckptprof.service.recorder.pending import is_writing
from ckptprof.store.checkpoint_rows import decode_checkpoint
from ckptprof.store.fleet.outbox import ChangeBatch, ChangedCheckpoint, Outbox, ShippedPosition
from ckptprof.store.fleet.target import ServerTarget, ServerUnreachableError
from ckptprof.store.lock import is_writer_alive
from ckptprof.verdicts import Verdict

_DIGITS = 12  # hexadecimal
_PART = re.compile(r"[^:/@+]+")
_KIND = re.compile(r"[a-z0-9.]+")
_NUMBER = re.compile(r"\d+(\.\d+)?")  # of a job and its step, a port, an inode
_Text = TypeVar("_Text", str, str | None)
SPREAD_SECONDS = 120.0  # after something changed: a job of thousands of nodes ends a save on all of them at once
HEARTBEAT_SECONDS = 300.0  # without a change: that the node is watched
MAX_DELAY_SECONDS = 3600.0  # at most, for saves that follow each other without a pause
FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 900.0
_DOUBLINGS = 10  # until the longest
POLL_SECONDS = 5.0


def redact_batch(batch: ChangeBatch) -> ChangeBatch:
    """Return a batch with hashes in the place of names; what cannot be read goes on without its text."""
    return msgspec.structs.replace(batch, events=tuple(map(_redact_change, batch.events)))


def _redact_change(one: ChangedCheckpoint) -> ChangedCheckpoint:
    if one.event is None:
        return one
    try:
        checkpoint = redact(decode_checkpoint(one.event))
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return msgspec.structs.replace(one, event=None, problem="not a checkpoint")
    return msgspec.structs.replace(one, event=msgspec.json.encode(checkpoint).decode())


def redact(one: Checkpoint) -> Checkpoint:
    """Return a checkpoint with hashes in the place of names, and no sentence."""
    return msgspec.structs.replace(
        one,
        job=_hash_name(one.job),
        path=_hash_name(one.path),
        run=None if one.run is None else _redact_run(one.run),
        place=None if one.place is None else msgspec.structs.replace(one.place, key=_hash_key(one.place.key)),
        sent=None if one.sent is None else Sent(
            destinations=(), connections=one.sent.connections, parts=one.sent.parts, part_bytes=one.sent.part_bytes
        ),
        writers=tuple(msgspec.structs.replace(writer, comm="") for writer in one.writers),
        overheads=tuple(msgspec.structs.replace(overhead, text="") for overhead in one.overheads),
        evidence=tuple(msgspec.structs.replace(evidence, text="") for evidence in one.evidence),
        verdict=None if one.verdict is None else _redact_verdict(one.verdict),
        cost=one.cost,
        limitations=(),
        measures=None,
        streams=(),
        devices=(),
    )  # fmt: skip


def _redact_run(run: Run) -> Run:
    return Run(
        key=_hash_key(run.key), scheduler=run.scheduler, job=_hash_name(run.job), restart=run.restart, ranks=run.ranks,
        nodes=run.nodes, node=run.node, user=_hash_name(run.user), account=_hash_name(run.account),
        partition=_hash_name(run.partition),
    )  # fmt: skip


def _redact_verdict(verdict: Verdict) -> Verdict:
    return msgspec.structs.replace(
        verdict,
        sentence="",
        accounts=tuple(msgspec.structs.replace(account, text="") for account in verdict.accounts),
        evidence=(),
        excluded=(),
        missing=(),
        capped_by=None,
        remedy=None,
        reference=None,
        alternative=None,
    )


def _hash_name(name: _Text) -> _Text:
    return name if name is None else _PART.sub(_hash_part, name)


def _hash_key(key: str) -> str:
    """Return a key whose first word, which tells what kind of key it is, stays."""
    kind, _, rest = key.partition(":")
    return f"{kind}:{_hash_name(rest)}" if rest and _KIND.fullmatch(kind) else _hash_name(key)


def _hash_part(found: re.Match[str]) -> str:
    part = found[0]
    if _NUMBER.fullmatch(part):
        return part
    return hashlib.sha256(part.encode("utf-8", "backslashreplace")).hexdigest()[:_DIGITS]


class ShippingPace:
    """All times are CLOCK_MONOTONIC, in seconds."""

    def __init__(self, now: float, dice: random.Random) -> None:
        """Begin as if something had changed: what there is was perhaps never sent."""
        self._dice = dice
        self._failures = 0
        self._is_changed = True
        self._due = now + dice.uniform(0, SPREAD_SECONDS)
        self._delayed_since: float | None = None

    def record_change(self, now: float) -> None:
        """Take note that there is something to send; what is waited for already stays when it was."""
        if not self._is_changed:
            self._is_changed = True
            if not self._failures:
                self._due = min(self._due, now + self._dice.uniform(0, SPREAD_SECONDS))

    def is_due(self, now: float) -> bool:
        """Return whether it is time to send, if nothing is being written."""
        return now >= self._due

    def may_send(self, now: float, *, is_writing: bool) -> bool:
        """Return whether what is due may be sent beside what is going on."""
        if not is_writing:
            self._delayed_since = None
            return True
        self._delayed_since = now if self._delayed_since is None else self._delayed_since
        return now - self._delayed_since >= MAX_DELAY_SECONDS

    def record_success(self, now: float) -> None:
        """Take note that all was sent."""
        self._failures, self._is_changed, self._delayed_since = 0, False, None
        self._due = now + HEARTBEAT_SECONDS * self._dice.uniform(0.8, 1.2)

    def record_failure(self, now: float, at_least: float = 0.0) -> None:
        """Take note that it was not; `at_least`: for so long the server is not to be asked."""
        max_seconds = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(self._failures, _DOUBLINGS))
        self._failures += 1
        self._due = now + min(at_least, MAX_RETRY_SECONDS) + self._dice.uniform(0, max_seconds)


class ShippingTarget(Protocol):
    """Takes what one database of a node has; every method raises StoreError."""

    def shipped_position(self, sessions: Sequence[Session], newest: int) -> ShippedPosition:
        """Return how far the database was taken, which has these sessions, and this as its last change."""
        ...

    def put_batch(self, batch: ChangeBatch) -> ShippedPosition:
        """Take a batch; return how far the database is taken then."""
        ...


OpenTarget = Callable[
    [str, str], AbstractContextManager[ShippingTarget]
]  # of a node, and the uid of the first session of its database


class Shipment(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one connection."""

    taken: ShippedPosition
    events: int  # that were sent
    is_done: bool  # nothing is left; else a save began meanwhile


class Shipper:
    """Takes one database one way."""

    def __init__(self, db: Path, open_target: OpenTarget, *, names: bool) -> None:
        """`names`: what people chose is sent as it is. Nothing is opened yet."""
        self._db = db
        self._open_target = open_target
        self._names = names

    def send(self, may_go_on: Callable[[], bool] = lambda: True) -> Shipment:
        """Send what there is, in batches, as long as it may go on; raises StoreError."""
        with Outbox(self._db) as outbox:
            key = outbox.database_key()
            if key is None:
                return Shipment(taken=ShippedPosition(), events=0, is_done=True)
            with self._open_target(*key) as sink:
                position, sent = sink.shipped_position(outbox.sessions(), outbox.newest_change()), 0
                while True:
                    batch = outbox.next_batch(position.change, newest_known_id=position.last_id)
                    position = sink.put_batch(batch if self._names else redact_batch(batch))
                    if position.change != batch.last_change:  # another one ships this database, too
                        continue
                    sent += len(batch.events)
                    if batch.is_last or not may_go_on():
                        return Shipment(taken=position, events=sent, is_done=batch.is_last)

    def newest(self) -> int:
        """Return the last change of the database; raises StoreError."""
        with Outbox(self._db) as outbox:
            return outbox.newest_change()

    def is_writing(self) -> bool:
        """Return whether a checkpoint is being written on this node, as the agent tells; raises StoreError."""
        if is_writer_alive(self._db) is False:
            return False
        with Outbox(self._db) as outbox:
            return is_writing(outbox.pending().values(), time.time_ns())

    def run(
        self, *, on_status: Callable[[str], object], warn: Callable[[str], object], beat: Callable[[], object]
    ) -> None:
        """Send for ever: soon after something changes, not while a checkpoint is written.

        `tell` is for a status; `beat` is called in each turn and after each batch: a server that takes one and never
        answers is waited for without end.
        """

        def may_send() -> bool:
            beat()
            return pace.may_send(time.monotonic(), is_writing=self.is_writing())

        pace = ShippingPace(time.monotonic(), random.Random())  # noqa: S311 # no secret
        done, last_complaint, events = -1, "", 0
        while True:
            beat()
            try:
                if self.newest() != done:
                    pace.record_change(time.monotonic())
                if pace.is_due(time.monotonic()) and may_send():
                    found = self.send(may_send)
                    done, last_complaint, events = found.taken.change, "", events + found.events
                    if found.is_done:
                        pace.record_success(time.monotonic())
                    on_status(_status_line(events, found.taken))
            except StoreError as error:
                pace.record_failure(
                    time.monotonic(), error.retry_after_seconds if isinstance(error, ServerUnreachableError) else 0.0
                )
                line = f"{error} ({error.hint})" if error.hint else str(error)
                if line != last_complaint:
                    warn(f"not shipping for now: {line}")
                last_complaint = line
            time.sleep(POLL_SECONDS)


def _status_line(events: int, position: ShippedPosition) -> str:
    lost = f"; {position.lost} were deleted before they were sent" if position.lost else ""
    return f"{events} checkpoint updates sent, up to date at {time.strftime('%H:%M:%S')}{lost}"


def to_server(target: ServerTarget, password_file: Path | None = None) -> OpenTarget:
    """Return the way to a PostgreSQL server."""
    from ckptprof.store.fleet.server_connection import connected, translated_server_errors  # noqa: PLC0415 # a collector needs none
    from ckptprof.store.fleet.sink import ServerSink  # noqa: PLC0415 # likewise

    @contextmanager
    def opened(node: str, database: str) -> Iterator[ShippingTarget]:
        with connected(target, password_file) as connection, translated_server_errors(target):
            yield ServerSink(connection, node, database)

    return opened
