"""The files of a fleet: a folder, or a prefix of an object store, by pyarrow.fs.

    v1/inbox/node=N/DATABASE-FROM-TO.parquet   what a node shipped: changes after FROM up to TO
    v1/inbox/node=N/_heartbeat-DATABASE.json   the state of its recorder, replaced each time
    v1/days/day=D/*.parquet                    the same rows by UTC day, compacted
    v1/cluster_checkpoints/day=D/*.parquet     checkpoints joined across nodes
    v1/cluster_nodes/day=D/*.parquet           a row for each node of them

A file appears whole or not at all, and is never changed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs, parquet

from ckptprof.errors import StoreError, UsageError
from ckptprof.store.location import FLEET_SCHEMES

REQUESTS_AT_ONCE = 16  # an object store answers one in some 30 ms
_VERSION = "v1"
INBOX, DAYS = f"{_VERSION}/inbox", f"{_VERSION}/days"
CLUSTER_CHECKPOINTS, CLUSTER_NODES = f"{_VERSION}/cluster_checkpoints", f"{_VERSION}/cluster_nodes"
_HEARTBEAT = "_heartbeat-"  # readers of Parquet folders ignore names that start with _


def inbox_folder(node: str) -> str:
    """Return the folder of a node, which may have any name."""
    return f"{INBOX}/node={quote(node, safe='')}"


def heartbeat_name(node: str, database: str) -> str:
    """Return the file with the state of a recorder."""
    return f"{inbox_folder(node)}/{_HEARTBEAT}{quote(database, safe='')}.json"


def partition_of(name: str) -> str:
    """Return the node or day of a file, from its folder."""
    return unquote(name.rsplit("/", 2)[-2].partition("=")[2])


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, empty for a folder; raises UsageError for one that is neither, or has a secret."""
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme and scheme not in FLEET_SCHEMES:
        hint = "give a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
        raise UsageError(f"{scheme}:// is not a store of a fleet", hint=hint)
    if scheme and "@" in urlsplit(url).netloc:
        raise UsageError("a secret in a URL can be read by every user of this host", hint="see docs/cluster.md")
    return scheme


class FleetFiles:
    """Reads and writes whole files; every method raises StoreError."""

    def __init__(self, url: str) -> None:
        """Open a folder or a URL; raises UsageError as `scheme_of`."""
        self.url = url
        scheme = scheme_of(url)
        with self._translated():
            if scheme:
                one_put = f"{'&' if '?' in url else '?'}allow_delayed_open=true" if scheme == "s3" else ""
                self.filesystem, self._root = fs.FileSystem.from_uri(url + one_put)
            else:
                self.filesystem, self._root = fs.LocalFileSystem(), str(Path(url).expanduser().absolute())
        self.is_local = isinstance(self.filesystem, fs.LocalFileSystem)

    def path(self, name: str) -> str:
        """Return the path of a file for `filesystem`."""
        return f"{self._root.rstrip('/')}/{name}"

    def put(self, name: str, data: bytes) -> None:
        """Write a file; it appears whole or not at all, and is on stable storage then."""
        path = self.path(name)
        with self._translated():
            if self.is_local:
                put_locally(Path(path), data)
                return
            stream = self.filesystem.open_output_stream(path)
            stream.write(data)  # buffered: what fails here is never completed
            stream.close()

    def read(self, name: str) -> bytes:
        """Read a file."""
        with self._translated(), self.filesystem.open_input_stream(self.path(name)) as stream:
            return bytes(stream.readall())

    def names(self, folder: str) -> dict[str, int]:
        """Return the files below a folder with their sizes in bytes, sorted; empty if there is none."""
        selector = fs.FileSelector(self.path(folder), allow_not_found=True, recursive=True)
        with self._translated():
            found = self.filesystem.get_file_info(selector)
        start = len(self.path(""))
        return {one.path[start:]: one.size for one in sorted(found, key=lambda one: one.path) if one.is_file}

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, several at once; one that is gone is no error."""
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as deleting:
            for _ in deleting.map(self._delete, names):
                pass

    def _delete(self, name: str) -> None:
        with self._translated(), contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(self.path(name))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, NotImplementedError) as error:  # as pyarrow raises of a store
            raise StoreError(f"{self.url}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).partition("\n")[0]


def put_locally(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all, to stable storage; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f"_{path.name}.new")
    try:
        with staging.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        staging.replace(path)
    except BaseException:
        staging.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def parquet_files(names: dict[str, int]) -> list[str]:
    """Return the tables among files: neither staging files nor heartbeats."""
    return [name for name in names if name.endswith(".parquet") and not name.rpartition("/")[2].startswith("_")]


def heartbeat_files(names: dict[str, int]) -> list[str]:
    """Return the heartbeats among files."""
    return [name for name in names if name.rpartition("/")[2].startswith(_HEARTBEAT) and name.endswith(".json")]


def to_parquet(table: Any) -> bytes:
    """Return a table as a Parquet file."""
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())
