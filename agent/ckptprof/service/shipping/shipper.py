"""One run of `ckptprof ship`: batches of changes to a fleet, each one file, and the state of the recorder.

It may be killed at any instant. A batch is written to a local file before it is uploaded, together with its range, so
that the next run uploads the same bytes under the same name; how far the database is shipped moves after the upload.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from ckptprof.cluster.model import NodeState
from ckptprof.errors import CkptprofError, StoreError
from ckptprof.fleet import files, schema
from ckptprof.model import Checkpoint
from ckptprof.service.recorder.pending import is_writing
from ckptprof.store.checkpoint_rows import decode_checkpoint
from ckptprof.store.location import default_path
from ckptprof.store.lock import WriterLock, is_writer_alive
from ckptprof.store.outbox import ChangeBatch, Outbox
from ckptprof.store.recorded_time import summarize_recorded

MAX_DELAY_NS = 3_600_000_000_000  # since the last upload, for saves that follow each other without a pause


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """How far a database is shipped."""

    change: int = 0
    last_id: int = 0
    lost: int = 0  # checkpoints deleted before they were shipped, or that cannot be read


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """A batch in a local file, which may have been uploaded already."""

    name: str  # in the fleet
    range: Range  # once it is uploaded
    rows: int


class ShippingState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the shipping of a database, in a file of its own."""

    database: str
    range: Range = Range()
    ends: dict[str, int] = {}  # of the sessions that it had then
    staged: Staged | None = None
    shipped_ns: int | None = None  # last successful run; epoch nanoseconds
    error: str | None = None  # of the last run; None: it was successful


class Target(Protocol):
    """Takes files; every method raises CkptprofError."""

    def put(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all."""
        ...


class Shipper:
    """Ships one database to one target."""

    def __init__(
        self, db: Path, url: str, target: Callable[[], Target], hashed: Callable[[Checkpoint], Checkpoint]
    ) -> None:
        """`target` is opened when there is something to upload; `hashed` replaces names."""
        self._db, self._url, self._open, self._hashed = db, url, target, hashed

    def ship(self, now_ns: int) -> tuple[ShippingState | None, int | None]:
        """Upload what changed; return the state (None: nothing is recorded), and the number of rows.

        None: it waits, because a checkpoint is written on this node. Raises CkptprofError, after it is noted in the
        state.
        """
        with Outbox(self._db) as outbox:
            key = outbox.database_key()
            if key is None:
                return None, 0
            with self._locked(key[1]) as place:
                state = self._checked(place.read(key[1]), outbox)
                if self._is_writing(outbox) and now_ns - (state.shipped_ns or 0) < MAX_DELAY_NS:
                    return state, None
                try:
                    state, rows = self._upload(outbox, key, state, place, now_ns)
                except CkptprofError as error:
                    place.write(msgspec.structs.replace(place.read(key[1]), error=str(error)))
                    raise
                state = msgspec.structs.replace(state, shipped_ns=now_ns, error=None)
                place.write(state)
                return state, rows

    def status(self) -> tuple[ShippingState | None, int]:
        """Return the state, and how many checkpoints changed since the last upload; raises StoreError."""
        with Outbox(self._db) as outbox:
            key = outbox.database_key()
            if key is None:
                return None, 0
            state = self._checked(_StateFile(self._url, key[1]).read(key[1]), outbox)
            return state, outbox.count_changed(state.range.change)

    @contextmanager
    def _locked(self, database: str) -> Iterator[_StateFile]:
        place = _StateFile(self._url, database)
        try:
            place.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = WriterLock(place.path)
        except OSError as error:
            raise StoreError(f"{place.path}: {error.strerror}", hint="set StateDirectory= of the unit") from error
        try:
            yield place
        finally:
            lock.close()

    def _is_writing(self, outbox: Outbox) -> bool:
        return is_writer_alive(self._db) is not False and is_writing(outbox.pending().values(), time.time_ns())

    def _checked(self, state: ShippingState, outbox: Outbox) -> ShippingState:
        """Start again with a database that was set back to a copy, or made again in the place of a damaged one."""
        ends = {one.uid: one.end_ns for one in outbox.sessions()}
        is_back = state.range.change > outbox.newest_change() or any(
            ends.get(uid, 0) < end_ns for uid, end_ns in state.ends.items()
        )
        state = msgspec.structs.replace(state, ends=ends)
        if not is_back:
            return state
        staged = state.staged  # it is uploaded, but moves nothing
        return msgspec.structs.replace(
            state,
            range=msgspec.structs.replace(state.range, change=0),
            staged=None
            if staged is None
            else msgspec.structs.replace(staged, range=msgspec.structs.replace(staged.range, change=0)),
        )

    def _upload(
        self, outbox: Outbox, key: tuple[str, str], state: ShippingState, place: _StateFile, now_ns: int
    ) -> tuple[ShippingState, int]:
        target, rows, is_last = self._open(), 0, False
        while state.staged is not None or not is_last:
            if state.staged is None:
                batch = outbox.next_batch(state.range.change, newest_known_id=state.range.last_id)
                is_last = batch.is_last
                state = self._stage(batch, key, state, place, now_ns)
            if state.staged is not None:
                target.put(state.staged.name, place.staged.read_bytes())
                rows += state.staged.rows
                state = msgspec.structs.replace(state, range=state.staged.range, staged=None)
                place.write(state)
        beat = msgspec.json.encode(_node_state(outbox, key, state.range))
        target.put(files.heartbeat_name(*key), beat)
        return state, rows

    def _stage(
        self, batch: ChangeBatch, key: tuple[str, str], state: ShippingState, place: _StateFile, now_ns: int
    ) -> ShippingState:
        """Write a batch to its local file; one without rows only moves how far the database is shipped."""
        host, database = key
        before = state.range
        rows = []
        for one in batch.events:
            checkpoint = None if one.event is None else _decoded(one.event)
            if checkpoint is not None:
                more = {"database": database, "first_start_ns": one.first_start_ns, "lost": 0, "revision": one.revision}
                rows.append({**msgspec.structs.asdict(self._hashed(checkpoint)), **more})
        lost = max(0, batch.newest_id - before.last_id - batch.remaining_ids) + len(batch.events) - len(rows)
        name = f"{files.inbox_folder(host)}/{database}-{before.change}-{batch.last_change}.parquet"
        if lost:
            uid = f"lost-{before.change}-{batch.last_change}"
            rows.append({"database": database, "uid": uid, "first_start_ns": now_ns, "lost": lost, "revision": 1})
        after = Range(change=batch.last_change, last_id=max(before.last_id, batch.newest_id), lost=before.lost + lost)
        if not rows:
            return msgspec.structs.replace(state, range=after)
        place.write_staged(files.to_parquet(schema.table_of(rows, schema.ShippedRow)))
        state = msgspec.structs.replace(state, staged=Staged(name=name, range=after, rows=len(rows)))
        place.write(state)
        return state


def _decoded(event: str) -> Checkpoint | None:
    try:
        return decode_checkpoint(event)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return None


def _node_state(outbox: Outbox, key: tuple[str, str], shipped: Range) -> NodeState:
    sessions = outbox.sessions()
    last, number = outbox.last_clock()
    return NodeState(
        host=key[0],
        database=key[1],
        version=sessions[-1].version if sessions else None,
        level=sessions[-1].level if sessions else None,
        kernel=sessions[-1].kernel if sessions else None,
        clock=last,
        watched=summarize_recorded(sessions, None, None),
        checkpoints=number,
        change=shipped.change,
        lost=shipped.lost,
    )


class _StateFile:
    """The state, and a staged batch beside it: in the state directory of the unit, else beside one's own database."""

    def __init__(self, url: str, database: str) -> None:
        given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
        folder = Path(given) if given else default_path().parent
        name = hashlib.sha256(f"{url}\0{database}".encode()).hexdigest()[:12]
        self.path, self.staged = folder / f"shipped-{name}.json", folder / f"shipped-{name}.parquet"

    def read(self, database: str) -> ShippingState:
        """Return the state; that of a database that was never shipped if there is none."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=ShippingState)
        except FileNotFoundError:
            return ShippingState(database=database)
        except (OSError, msgspec.MsgspecError) as error:
            raise StoreError(f"{self.path}: {error}", hint="remove it to ship everything again") from error

    def write(self, state: ShippingState) -> None:
        """Write the state, whole or not at all."""
        self._put(self.path, msgspec.json.encode(state))

    def write_staged(self, data: bytes) -> None:
        """Write a batch, whole or not at all."""
        self._put(self.staged, data)

    def _put(self, path: Path, data: bytes) -> None:
        try:
            files.put_locally(path, data)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
