"""Merge inboxes into days, and join the checkpoints of each day across nodes.

Whatever is killed when, and if two run at once: files appear whole, those that they replace go last, and rows that are
there twice count once, by the highest revision. Each join names the files that it is made of: where a day has others,
the next run joins it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import parquet

from ckptprof.cluster.merging import merge
from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord, NodeState
from ckptprof.errors import NothingFoundError, StoreError
from ckptprof.fleet import files, schema
from ckptprof.fleet.files import FleetFiles
from ckptprof.fleet.questions import FleetDatabase, translated_errors
from ckptprof.model import Watched
from ckptprof.units import DAY_SECONDS, NS

FILE_BYTES = 128 << 20  # about, of a day's files
MAX_INBOX_FILE_BYTES = 64 << 20  # a node writes a thousandth of it
_FILES_AT_ONCE = 512
_STAGED_ROWS = 100_000
_ROWS_PER_FETCH = 2000
JOINED = b"ckptprof.joined"  # in the metadata of cluster_checkpoints: the files of days that it is made of
JOIN_KEY = 'coalesce(run."key", place."key", node)'  # what is joined has the same
_NEWEST = 'SELECT * FROM {0} QUALIFY row_number() OVER (PARTITION BY node, "database", uid ORDER BY revision DESC) = 1'


class DayRow(schema.ShippedRow, frozen=True, gc=False, kw_only=True):
    """A row of a day."""

    node: str  # whose inbox it was in


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of `compact` did."""

    files: int  # of inboxes
    rows: int  # in them
    days: tuple[str, ...]  # that were written again
    expired: tuple[str, ...]  # days that were deleted
    unread: tuple[str, ...]  # why files could not be read; they stay where they are


def day_of(at_ns: int) -> str:
    """Return the UTC day of a time; that of 1970-01-01 or 2262-01-01 if it is before or after."""
    seconds = min(max(at_ns // 1_000_000_000, 0), 9_214_646_400)
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d")


def read_states(store: FleetFiles, names: Iterable[str]) -> tuple[list[NodeState], list[str]]:
    """Return the heartbeats, and why others could not be read. The node is the one whose inbox it is in."""

    def read(name: str) -> NodeState | str:
        try:
            state = msgspec.json.decode(store.read(name), type=NodeState)
        except (StoreError, msgspec.MsgspecError, RecursionError) as error:
            return f"{name}: {error}"
        return msgspec.structs.replace(state, host=files.partition_of(name))

    with ThreadPoolExecutor(files.REQUESTS_AT_ONCE) as readers:
        found = [*readers.map(read, names)]
    return [one for one in found if isinstance(one, NodeState)], [one for one in found if isinstance(one, str)]


def read_inbox(store: FleetFiles, names: dict[str, int], unread: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the name and rows of each readable file; why others are not is added to `unread`."""
    columns = schema.table_schema(schema.ShippedRow)

    def read(name: str) -> Any:
        if names[name] > MAX_INBOX_FILE_BYTES:
            return f"{name}: it has {names[name]:,} bytes"
        try:
            table = parquet.read_table(pa.BufferReader(store.read(name)), partitioning=None)
            rows = conform(table, columns)
        except (StoreError, pa.ArrowException, OSError, ValueError) as error:
            return f"{name}: {str(error).partition(chr(10))[0]}"
        return rows.append_column("node", pa.array([files.partition_of(name)] * len(rows), pa.string()))

    inbox = files.parquet_files(names)
    with ThreadPoolExecutor(files.REQUESTS_AT_ONCE) as readers:
        for first in range(0, len(inbox), _FILES_AT_ONCE):
            some = inbox[first : first + _FILES_AT_ONCE]
            for name, rows in zip(some, readers.map(read, some), strict=True):
                if isinstance(rows, str):
                    unread.append(rows)
                else:
                    yield name, rows


def conform(table: Any, columns: Any) -> Any:
    """Return a table with exactly these columns: null where it has none. Raises pyarrow's errors for other types."""
    found = [
        table.column(one.name).cast(one.type) if one.name in table.column_names else pa.nulls(len(table), one.type)
        for one in columns
    ]
    return pa.Table.from_arrays(found, schema=columns)


class Joiner:
    """Joins rows of days across nodes; `temporary` is for what does not fit in memory."""

    def __init__(self, states: Sequence[NodeState], temporary: Path) -> None:
        self._watched = {(one.host, one.database): one.watched for one in states}
        self.database = FleetDatabase(temporary)
        self.connection = self.database.connection
        self._decode = msgspec.json.Decoder(DayRow).decode
        self.invalid = 0  # rows that are no checkpoints

    def join(self, rows: str, day: str, keys: str) -> Iterator[tuple[str, list[ClusterCheckpoint]]]:
        """Yield the checkpoints of a day by key, from `rows` of that day and those next to it; `keys`: a query."""
        found = self.connection.execute(
            f"SELECT {JOIN_KEY} AS join_key, to_json(one)"  # noqa: S608 # our own names
            f" FROM ({_NEWEST.format(f'{rows} WHERE {JOIN_KEY} IN ({keys})')}) AS one"
            " WHERE coalesce(lost, 0) = 0 ORDER BY join_key"
        )
        for key, pairs in groupby(_fetched(found), key=lambda row: row[0]):
            events = [one for one in map(self._event, (text for _, text in pairs)) if one is not None]
            firsts = {one.uid: one.first_start_ns for one in events}
            merged = merge(self._records(events))
            # Its day must not depend on which days are joined: that of the first part, by its own clock
            mine = [one for one in merged if day_of(min(firsts.get(part.uid, 0) for part in one.nodes)) == day]
            if mine:
                yield key, mine

    def _event(self, text: str) -> DayRow | None:
        try:
            return self._decode(text)
        except msgspec.MsgspecError:
            self.invalid += 1
            return None

    def _records(self, events: Iterable[DayRow]) -> list[NodeRecord]:
        by_database: dict[tuple[str, str], list[DayRow]] = {}
        for one in events:
            by_database.setdefault((one.node, one.database), []).append(one)
        return [
            NodeRecord(
                database=database,
                host=node,
                watched=self._watched.get((node, database), Watched(start_ns=None, end_ns=None)),
                checkpoints=tuple(sorted(mine, key=lambda one: one.start_ns)),
            )
            for (node, database), mine in by_database.items()
        ]


def _fetched(found: Any) -> Iterator[tuple[str, str]]:
    while rows := found.fetchmany(_ROWS_PER_FETCH):
        yield from rows


def neighbours(day: str) -> list[str]:
    """Return the day before, the day and the day after."""
    middle = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=timezone.utc)
    return [(middle + timedelta(days=apart)).strftime("%Y-%m-%d") for apart in (-1, 0, 1)]


@translated_errors()
def compact(store: FleetFiles, *, keep_days: int | None, now_ns: int, progress: Callable[[str], object]) -> Compacted:
    """Merge all inboxes; raises StoreError, NothingFoundError. Of two runs at once one may fail, and loses nothing."""
    oldest = None if keep_days is None else day_of(now_ns - keep_days * DAY_SECONDS * NS)
    with TemporaryDirectory(prefix="ckptprof-compact-") as folder:
        return _Compaction(store, Path(folder), oldest, progress).run()


class _Compaction:
    def __init__(
        self, store: FleetFiles, temporary: Path, oldest: str | None, progress: Callable[[str], object]
    ) -> None:
        self._store, self._temporary, self._oldest, self._progress = store, temporary, oldest, progress
        self._unread: list[str] = []

    def run(self) -> Compacted:
        inbox = self._store.names(files.INBOX)
        expired = self._expire()
        days = _by_day(self._store.names(files.DAYS))
        if not (inbox or days or expired):
            raise NothingFoundError(
                f"nothing was shipped to {self._store.url}",
                hint="give the folder or URL that the nodes ship to (their --to)",
            )
        staged, read, rows = self._stage(inbox)
        states, unread = read_states(self._store, files.heartbeat_files(inbox))
        self._unread += unread
        joiner = Joiner(states, self._temporary)
        try:
            replaced: list[str] = []
            for number, day in enumerate(sorted(staged), start=1):
                self._progress(f"merging day {day}: {number} of {len(staged)}")
                old = days.get(day, [])
                days[day] = self._merge_day(joiner, day, staged[day], old)
                replaced += old
            affected = self._stale(days)
            for number, day in enumerate(affected, start=1):
                self._progress(f"joining day {day}: {number} of {len(affected)}")
                self._join_day(joiner, day, days)
            if joiner.invalid:
                are = "row is not a checkpoint" if joiner.invalid == 1 else "rows are not checkpoints"
                self._unread.append(f"{joiner.invalid} {are}")
        finally:
            joiner.database.close()
        self._store.delete(replaced)
        self._store.delete(read)
        return Compacted(
            files=len(read), rows=rows, days=tuple(affected), expired=tuple(expired), unread=tuple(self._unread)
        )

    def _expire(self) -> list[str]:
        """Delete the days that are too old; return them."""
        found: set[str] = set()
        for folder in (files.CLUSTER_CHECKPOINTS, files.CLUSTER_NODES, files.DAYS):
            by_day = _by_day(self._store.names(folder))
            old = [day for day in by_day if self._oldest is not None and day < self._oldest]
            self._store.delete(name for day in old for name in by_day[day])
            found.update(old)
        return sorted(found)

    def _stage(self, inbox: dict[str, int]) -> tuple[dict[str, list[Path]], list[str], int]:
        """Sort the rows of all inboxes into local files by day; return these, the files read, and the rows in them."""
        staged: dict[str, list[Path]] = {}
        read: list[str] = []
        waiting: list[Any] = []
        rows = waiting_rows = 0
        for name, table in read_inbox(self._store, inbox, self._unread):
            read.append(name)
            waiting.append(table)
            rows += len(table)
            waiting_rows += len(table)
            if waiting_rows >= _STAGED_ROWS:
                self._progress(f"reading inboxes: {rows:,} rows")
                self._write_staged(waiting, staged)
                waiting, waiting_rows = [], 0
        self._write_staged(waiting, staged)
        return staged, read, rows

    def _write_staged(self, tables: Sequence[Any], staged: dict[str, list[Path]]) -> None:
        if not tables:
            return
        table = pa.concat_tables(tables)
        found = [day_of(at_ns or 0) for at_ns in table.column("first_start_ns").to_pylist()]
        for day in set(found):
            if self._oldest is not None and day < self._oldest:
                continue
            paths = staged.setdefault(day, [])
            paths.append(self._temporary / f"{day}-{len(paths)}.parquet")
            parquet.write_table(table.filter(pa.array([one == day for one in found])), paths[-1], compression="zstd")

    def _merge_day(self, joiner: Joiner, day: str, staged: Sequence[Path], old: Sequence[str]) -> list[str]:
        """Write the rows of a day again, with those staged; return the new files."""
        joiner.database.add_files("old", self._store, old, DayRow)
        parts = ", ".join(f"'{path}'" for path in staged)
        everything = f"(FROM read_parquet([{parts}]) UNION ALL BY NAME FROM old)"
        out = self._temporary / f"day-{day}"
        joiner.connection.execute(
            f"COPY ({_NEWEST.format(everything)} ORDER BY {JOIN_KEY}, step NULLS FIRST, start_ns)"
            f" TO '{out}' (FORMAT parquet, COMPRESSION zstd, FILE_SIZE_BYTES {FILE_BYTES})"
        )
        made = time.time_ns()
        written = []
        for number, path in enumerate(sorted(out.rglob("*.parquet")) if out.is_dir() else [out]):
            written.append(f"{files.DAYS}/day={day}/{made:x}-{number}.parquet")
            self._store.put(written[-1], path.read_bytes())
            path.unlink()
        for path in staged:
            path.unlink()
        return written

    def _stale(self, days: dict[str, list[str]]) -> list[str]:
        """Return the days whose join lacks a file: merged now, or by a run that was killed or ran at the same time."""

        def is_stale(day: str) -> bool:
            try:
                path = self._store.path(_table(files.CLUSTER_CHECKPOINTS, day))
                found = parquet.read_schema(path, filesystem=self._store.filesystem).metadata[JOINED]
                joined = msgspec.json.decode(found, type=set[str])
            except (OSError, pa.ArrowException, KeyError, TypeError, msgspec.MsgspecError):  # none yet, or damaged
                return True
            return not joined.issuperset(_near(day, days))

        every = sorted(days)
        with ThreadPoolExecutor(files.REQUESTS_AT_ONCE) as readers:
            return [day for day, stale in zip(every, readers.map(is_stale, every), strict=True) if stale]

    def _join_day(self, joiner: Joiner, day: str, days: dict[str, list[str]]) -> None:
        near = _near(day, days)
        joiner.database.add_files("day_rows", self._store, days[day], DayRow)
        joiner.database.add_files("near", self._store, near, DayRow)
        checkpoints = _TableFile(schema.FleetCheckpoint, {JOINED: msgspec.json.encode(near)})
        nodes = _TableFile(schema.FleetNode)
        for key, merged in joiner.join("near", day, f"SELECT {JOIN_KEY} FROM day_rows"):  # noqa: S608 # our own names
            of_key, of_nodes = schema.cluster_tables(merged, day, key)
            checkpoints.add(of_key)
            nodes.add(of_nodes)
        # In this order: rows of nodes without their checkpoint are in no answer
        self._store.put(_table(files.CLUSTER_NODES, day), nodes.close())
        self._store.put(_table(files.CLUSTER_CHECKPOINTS, day), checkpoints.close())


class _TableFile:
    """A Parquet file in memory; rows are gathered into large groups."""

    def __init__(self, row: type, metadata: dict[bytes, bytes] | None = None) -> None:
        self._sink = pa.BufferOutputStream()
        columns = schema.table_schema(row).with_metadata(metadata)
        self._writer = parquet.ParquetWriter(self._sink, columns, compression="zstd")
        self._waiting: list[Any] = []

    def add(self, table: Any) -> None:
        self._waiting.append(table)
        if sum(map(len, self._waiting)) >= _STAGED_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting = []

    def close(self) -> bytes:
        self._flush()
        self._writer.close()
        return bytes(self._sink.getvalue())


def _table(folder: str, day: str) -> str:
    return f"{folder}/day={day}/{folder.rpartition('/')[2]}.parquet"


def _near(day: str, days: dict[str, list[str]]) -> list[str]:
    return [name for near in neighbours(day) for name in days.get(near, ())]


def _by_day(names: dict[str, int]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in files.parquet_files(names):
        found.setdefault(files.partition_of(name), []).append(name)
    return found
