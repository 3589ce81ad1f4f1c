"""One run of `ckptprof ship`: batches of changes to a fleet, each one file, and the state of the recorder.

It may be killed at any instant. A batch is written to a local file before it is uploaded, together with its range, so
that the next run uploads the same bytes under the same name; how far the database is shipped moves after the upload.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from ckptprof.cluster.model import NodeState
from ckptprof.errors import CkptprofError, StoreError
from ckptprof.fleet import files, schema
from ckptprof.model import Checkpoint
from ckptprof.store.checkpoint_rows import decode_checkpoint
from ckptprof.store.location import SERVICE_DIRECTORY, default_path
from ckptprof.store.lock import WriterLock
from ckptprof.store.outbox import ChangeBatch, Outbox
from ckptprof.store.recorded_time import summarize_recorded

UNFINISHED = "a run has not ended: it is at work, was killed, or the store does not answer"
SHIPPING_DIRECTORY = Path("/var/lib/ckptprof-ship")  # StateDirectory= of the unit


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
    url: str = ""  # of the target
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

    def ship(self, now_ns: int) -> tuple[ShippingState | None, int]:
        """Upload what changed; return the state (None: nothing recorded) and number of rows; raises CkptprofError."""
        with Outbox(self._db) as outbox:
            key = outbox.database_key()
            if key is None:
                return None, 0
            with self._locked(key[1]) as place:
                state = _checked(place.read() or ShippingState(database=key[1], url=self._url), outbox)
                state = msgspec.structs.replace(state, error=UNFINISHED)  # until it ends, by whatever
                place.write(state)
                try:
                    state, rows = self._upload(outbox, key, state, place, now_ns)
                except CkptprofError as error:
                    place.write(msgspec.structs.replace(place.read() or state, error=str(error)))
                    raise
                state = msgspec.structs.replace(state, shipped_ns=now_ns, error=None)
                place.write(state)
                return state, rows

    @contextmanager
    def _locked(self, database: str) -> Iterator[_StateFile]:
        name = hashlib.sha256(f"{self._url}\0{database}".encode()).hexdigest()[:12]
        place = _StateFile(_state_folders(self._db)[0] / f"shipped-{name}.json")
        try:
            place.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = WriterLock(place.path)
        except OSError as error:
            raise StoreError(f"{place.path}: {error.strerror}", hint="set StateDirectory= of the unit") from error
        try:
            yield place
        finally:
            lock.close()

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
        place.put(place.staged, files.to_parquet(schema.table_of(rows, schema.ShippedRow)))
        state = msgspec.structs.replace(state, staged=Staged(name=name, range=after, rows=len(rows)))
        place.write(state)
        return state


def read_status(db: Path, url: str | None) -> list[tuple[ShippingState, int]]:
    """Return the state of each target, or of that of a URL, and how many checkpoints wait; raises StoreError."""
    with Outbox(db) as outbox:
        key = outbox.database_key()
        if key is None:
            return []
        paths = [path for folder in _state_folders(db) for path in sorted(folder.glob("shipped-*.json"))]
        states = [state for state in (_StateFile(path).read() for path in paths) if state and state.database == key[1]]
        if url is not None:
            new = ShippingState(database=key[1], url=url)
            states = [state for state in states if state.url == url] or [new]
        return [
            (state, outbox.count_changed(state.range.change)) for state in (_checked(one, outbox) for one in states)
        ]


def _checked(state: ShippingState, outbox: Outbox) -> ShippingState:
    """Start again with a database that was set back to a copy, or made again in the place of a damaged one."""
    ends = {one.uid: one.end_ns for one in outbox.sessions()}
    is_same = all(ends.get(uid, 0) >= end_ns for uid, end_ns in state.ends.items())
    state = msgspec.structs.replace(state, ends=ends)
    if is_same and state.range.change <= outbox.newest_change():
        return state
    staged = state.staged  # it is uploaded, but moves nothing
    if staged is not None:
        staged = msgspec.structs.replace(staged, range=msgspec.structs.replace(staged.range, change=0))
    return msgspec.structs.replace(state, range=msgspec.structs.replace(state.range, change=0), staged=staged)


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


def _state_folders(db: Path) -> list[Path]:
    """Return the folder of this process, then those of others that ship a database: the unit's for the service's."""
    if given := os.environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return [Path(given)]
    return [default_path().parent, *[SHIPPING_DIRECTORY] * (db.parent == SERVICE_DIRECTORY)]


class _StateFile:
    """The state of a target, and a staged batch beside it; every method raises StoreError."""

    def __init__(self, path: Path) -> None:
        self.path, self.staged = path, path.with_suffix(".parquet")

    def read(self) -> ShippingState | None:
        """Return the state; None: nothing was shipped yet."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=ShippingState)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise StoreError(f"{self.path}: {error}", hint="remove it to ship everything again") from error

    def write(self, state: ShippingState) -> None:
        """Write the state."""
        self.put(self.path, msgspec.json.encode(state))

    def put(self, path: Path, data: bytes) -> None:
        """Write the state or the batch, whole or not at all."""
        try:
            files.put_locally(path, data)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
