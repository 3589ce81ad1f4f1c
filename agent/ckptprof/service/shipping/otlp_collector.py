"""A collector of OpenTelemetry to ship to: logs over HTTP (OTLP 1, JSON), by POST.

It does not keep how far a node was taken. That stands in a file here, which is written once the collector has taken a
batch: what is killed in between is sent again. A batch that it takes only in part is taken; what it will never take is
counted, and what it cannot take now is tried again (https://opentelemetry.io/docs/specs/otlp/#failures-1).
"""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ckptprof.errors import StoreError, UsageError
from ckptprof.export.otlplogs import Revision, document
from ckptprof.model import Session
from ckptprof.service.shipping.shipper import OpenTarget, ShippingTarget
from ckptprof.store.checkpoint_rows import decode_checkpoint
from ckptprof.store.fleet.outbox import ChangeBatch, ChangedCheckpoint, ShippedPosition
from ckptprof.store.fleet.target import LOOPBACK, ServerUnreachableError, read_password
from ckptprof.store.location import default_path
from ckptprof.store.lock import WriterLock

_PATH = "/v1/logs"
_TIMEOUT_SECONDS = 30.0
_MAX_ANSWER_BYTES = 64 << 10  # bytes
_RETRY_STATUSES = (429, 502, 503, 504)
_DATA_STATUSES = (400, 413, 422)
_URL_HINT = "give https://HOST:PORT, and /v1/logs if it is elsewhere"


class PositionFile(msgspec.Struct, frozen=True, kw_only=True):
    """How far a database was taken, as its file says."""

    database: str
    taken: ShippedPosition
    ends: dict[str, int]  # of the sessions that it had then


def is_collector(url: str) -> bool:
    """Return whether a URL is one of a collector."""
    return url.partition("://")[0] in ("http", "https")


def to_collector(url: str, password_file: Path | None = None) -> OpenTarget:
    """Return the way to a collector; raises UsageError for a URL that is not safe."""
    _check_url(url)

    @contextmanager
    def opened(node: str, database: str) -> Iterator[ShippingTarget]:
        place = _position_file(url, database)
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = WriterLock(place)
        except OSError as error:
            raise StoreError(
                f"{place}: {error.strerror}", hint="this file records the shipping position: set StateDirectory="
            ) from error
        try:
            yield CollectorSink(url, read_password(password_file), place, (node, database))
        finally:
            lock.close()

    return opened


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # whose text has what stands after a colon, which may be a secret
        raise UsageError("this is not the URL of a collector", hint=_URL_HINT) from None
    if "@" in url or parts.query or parts.fragment:
        raise UsageError("every user of this host can read a secret in a URL", hint=_URL_HINT)
    if not parts.hostname:
        raise UsageError(f"{url} names no host", hint=_URL_HINT)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise UsageError(f"{url} does not authenticate the server", hint="use https; http only for this host")


def _position_file(url: str, database: str) -> Path:
    """Return the file of a database at a collector: in the unit's state directory, else beside one's own database."""
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    folder = Path(given) if given else default_path().parent
    name = hashlib.sha256(f"{url}\0{database}".encode()).hexdigest()[:12]
    return folder / f"shipped-{name}.json"


class CollectorSink:
    """Takes one database of a node."""

    def __init__(self, url: str, token: str | None, place: Path, key: tuple[str, str]) -> None:
        """`key`: the node, and the uid of the first session of its database. Raises StoreError for a wrong token."""
        if token is not None and not (token.isascii() and token.isprintable()):
            raise StoreError("the token has characters not allowed in a header", hint="use printable ASCII only")
        self._url = url
        self._token = token
        self._position_file = place
        self._node, self._database = key

    def shipped_position(self, sessions: Sequence[Session], newest: int) -> ShippedPosition:
        """Return how far the database was taken; one that was set back, or made anew, is taken from its begin."""
        try:
            stored = msgspec.json.decode(self._position_file.read_bytes(), type=PositionFile)
        except FileNotFoundError:
            return ShippedPosition()
        except (OSError, msgspec.MsgspecError) as error:
            raise StoreError(f"{self._position_file}: {error}", hint="remove it to send everything again") from error
        ends = {one.uid: one.end_ns for one in sessions}
        if stored.database != self._database:
            return ShippedPosition()
        if stored.taken.change > newest or any(ends.get(uid, 0) < end_ns for uid, end_ns in stored.ends.items()):
            return msgspec.structs.replace(stored.taken, change=0)
        return stored.taken

    def put_batch(self, batch: ChangeBatch) -> ShippedPosition:
        """Send a batch, and note how far that is."""
        before = self.shipped_position(batch.sessions, batch.last_change)
        version = batch.sessions[-1].version if batch.sessions else ""
        revisions = [one for one in map(_revision, batch.events) if one is not None]
        answered, refused = self._post(revisions, version)
        if refused and not answered and (len(revisions) > 1 or batch.is_last):
            raise StoreError(
                f"{self._url} rejects all records",
                hint="check its address; a single rejected record is retried with the next one",
            )
        refused += len(batch.events) - len(revisions)
        position = ShippedPosition(
            change=batch.last_change,
            last_id=max(before.last_id, batch.newest_id),
            lost=before.lost + max(0, batch.newest_id - before.last_id - batch.remaining_ids) + refused,
        )
        ends = {one.uid: one.end_ns for one in batch.sessions}
        self._write(msgspec.json.encode(PositionFile(database=self._database, taken=position, ends=ends)))
        return position

    def _write(self, data: bytes) -> None:
        new = self._position_file.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._position_file)
        except OSError as error:
            raise StoreError(f"{self._position_file}: {error.strerror}") from error

    def _post(self, revisions: Sequence[Revision], version: str) -> tuple[int, int]:
        """Send records; return how many were in requests that were taken, and how many were refused for good."""
        if not revisions:
            return 0, 0
        made = document(revisions, host=self._node, version=version, now_ns=time.time_ns())
        status, later_seconds, answer = self._request(msgspec.json.encode(made))
        if 200 <= status < 300:
            return len(revisions), min(_rejected_count(answer), len(revisions))
        if status in _RETRY_STATUSES:
            raise ServerUnreachableError(f"{self._url} answers {status}", retry_after_seconds=later_seconds)
        if status not in _DATA_STATUSES:
            raise StoreError(f"{self._url} answers {status}", hint="check its address and the token")
        if len(revisions) == 1:
            return 0, 1
        middle = len(revisions) // 2
        first, second = self._post(revisions[:middle], version), self._post(revisions[middle:], version)
        return first[0] + second[0], first[1] + second[1]

    def _request(self, body: bytes) -> tuple[int, float, bytes]:
        parts = urlsplit(self._url)
        host = parts.hostname or ""
        connection = (
            http.client.HTTPSConnection(
                host, parts.port, timeout=_TIMEOUT_SECONDS, context=ssl.create_default_context()
            )
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, parts.port, timeout=_TIMEOUT_SECONDS)
        )
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            connection.request("POST", parts.path.rstrip("/") or _PATH, body, headers)
            answer = connection.getresponse()
            return answer.status, _retry_after_seconds(answer.getheader("Retry-After")), answer.read(_MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise ServerUnreachableError(f"{self._url}: {error}") from error
        except ValueError:  # whose text may have the token
            raise StoreError(f"{self._url} cannot be reached by HTTP", hint=_URL_HINT) from None
        finally:
            connection.close()


def _revision(one: ChangedCheckpoint) -> Revision | None:
    try:
        return None if one.event is None else Revision(revision=one.revision, checkpoint=decode_checkpoint(one.event))
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return None


def _rejected_count(answer: bytes) -> int:
    """Return how many records a collector says that it has not taken; it is not to be asked again."""
    try:
        response = msgspec.json.decode(answer, type=dict[str, dict[str, int | str]])
        return max(0, int(response.get("partialSuccess", {}).get("rejectedLogRecords", 0)))
    except (msgspec.MsgspecError, ValueError):
        return 0


def _retry_after_seconds(header: str | None) -> float:
    return float(header) if header is not None and header.isascii() and header.isdigit() else 0.0
