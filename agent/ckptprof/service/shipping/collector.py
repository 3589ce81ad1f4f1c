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
from ckptprof.service.shipping.shipper import Taker, Way
from ckptprof.store.fleet.outbox import Batch, Changed, Taken
from ckptprof.store.fleet.target import LOOPBACK, ServerAwayError, password
from ckptprof.store.location import default_path
from ckptprof.store.lock import WriterLock
from ckptprof.store.rows import checkpoint_of

_PATH = "/v1/logs"
_ANSWER_SECONDS = 30.0
_LONGEST_ANSWER = 64 << 10  # bytes
_LATER = (429, 502, 503, 504)
_OF_DATA = (400, 413, 422)
_FORM = "give https://HOST:PORT, and /v1/logs if it is elsewhere"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """How far a database was taken, as its file says."""

    database: str
    taken: Taken
    ends: dict[str, int]  # of the sessions that it had then


def is_collector(url: str) -> bool:
    """Return whether a URL is one of a collector."""
    return url.partition("://")[0] in ("http", "https")


def to_collector(url: str, password_file: Path | None = None) -> Way:
    """Return the way to a collector; raises UsageError for a URL that is not safe."""
    _checked(url)

    @contextmanager
    def opened(node: str, database: str) -> Iterator[Taker]:
        place = _place(url, database)
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = WriterLock(place)
        except OSError as error:
            raise StoreError(
                f"{place}: {error.strerror}", hint="this file records the shipping position: set StateDirectory="
            ) from error
        try:
            yield Collector(url, password(password_file), place, (node, database))
        finally:
            lock.close()

    return opened


def _checked(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # whose text has what stands after a colon, which may be a secret
        raise UsageError("this is not the URL of a collector", hint=_FORM) from None
    if "@" in url or parts.query or parts.fragment:
        raise UsageError("every user of this host can read a secret in a URL", hint=_FORM)
    if not parts.hostname:
        raise UsageError(f"{url} names no host", hint=_FORM)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise UsageError(f"{url} does not authenticate the server", hint="use https; http only for this host")


def _place(url: str, database: str) -> Path:
    """Return the file of a database at a collector: in the unit's state directory, else beside one's own database."""
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    folder = Path(given) if given else default_path().parent
    name = hashlib.sha256(f"{url}\0{database}".encode()).hexdigest()[:12]
    return folder / f"shipped-{name}.json"


class Collector:
    """Takes one database of a node."""

    def __init__(self, url: str, token: str | None, place: Path, key: tuple[str, str]) -> None:
        """`key`: the node, and the uid of the first session of its database. Raises StoreError for a wrong token."""
        if token is not None and not (token.isascii() and token.isprintable()):
            raise StoreError("the token has characters not allowed in a header", hint="use printable ASCII only")
        self._url = url
        self._token = token
        self._place = place
        self._node, self._database = key

    def taken(self, told: Sequence[Session], newest: int) -> Taken:
        """Return how far the database was taken; one that was set back, or made anew, is taken from its begin."""
        try:
            kept = msgspec.json.decode(self._place.read_bytes(), type=Kept)
        except FileNotFoundError:
            return Taken()
        except (OSError, msgspec.MsgspecError) as error:
            raise StoreError(f"{self._place}: {error}", hint="remove it to send everything again") from error
        ends = {one.uid: one.end_ns for one in told}
        if kept.database != self._database:
            return Taken()
        if kept.taken.change > newest or any(ends.get(uid, 0) < end_ns for uid, end_ns in kept.ends.items()):
            return msgspec.structs.replace(kept.taken, change=0)
        return kept.taken

    def put(self, batch: Batch) -> Taken:
        """Send a batch, and note how far that is."""
        known = self.taken(batch.sessions, batch.until)
        version = batch.sessions[-1].version if batch.sessions else ""
        told = [one for one in map(_revision, batch.events) if one is not None]
        answered, refused = self._post(told, version)
        if refused and not answered and (len(told) > 1 or batch.is_last):
            raise StoreError(
                f"{self._url} rejects all records",
                hint="check its address; a single rejected record is retried with the next one",
            )
        refused += len(batch.events) - len(told)
        taken = Taken(
            change=batch.until,
            last_id=max(known.last_id, batch.last_id),
            lost=known.lost + max(0, batch.last_id - known.last_id - batch.kept_ids) + refused,
        )
        ends = {one.uid: one.end_ns for one in batch.sessions}
        self._write(msgspec.json.encode(Kept(database=self._database, taken=taken, ends=ends)))
        return taken

    def _write(self, data: bytes) -> None:
        new = self._place.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._place)
        except OSError as error:
            raise StoreError(f"{self._place}: {error.strerror}") from error

    def _post(self, told: Sequence[Revision], version: str) -> tuple[int, int]:
        """Send records; return how many were in requests that were taken, and how many were refused for good."""
        if not told:
            return 0, 0
        made = document(told, host=self._node, version=version, now_ns=time.time_ns())
        status, later_seconds, answer = self._asked(msgspec.json.encode(made))
        if 200 <= status < 300:
            return len(told), min(_rejected(answer), len(told))
        if status in _LATER:
            raise ServerAwayError(f"{self._url} answers {status}", later_seconds=later_seconds)
        if status not in _OF_DATA:
            raise StoreError(f"{self._url} answers {status}", hint="check its address and the token")
        if len(told) == 1:
            return 0, 1
        middle = len(told) // 2
        first, second = self._post(told[:middle], version), self._post(told[middle:], version)
        return first[0] + second[0], first[1] + second[1]

    def _asked(self, body: bytes) -> tuple[int, float, bytes]:
        parts = urlsplit(self._url)
        host = parts.hostname or ""
        connection = (
            http.client.HTTPSConnection(host, parts.port, timeout=_ANSWER_SECONDS, context=ssl.create_default_context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, parts.port, timeout=_ANSWER_SECONDS)
        )
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            connection.request("POST", parts.path.rstrip("/") or _PATH, body, headers)
            answer = connection.getresponse()
            return answer.status, _seconds(answer.getheader("Retry-After")), answer.read(_LONGEST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise ServerAwayError(f"{self._url}: {error}") from error
        except ValueError:  # whose text may have the token
            raise StoreError(f"{self._url} cannot be reached by HTTP", hint=_FORM) from None
        finally:
            connection.close()


def _revision(one: Changed) -> Revision | None:
    try:
        return None if one.event is None else Revision(revision=one.revision, checkpoint=checkpoint_of(one.event))
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return None


def _rejected(answer: bytes) -> int:
    """Return how many records a collector says that it has not taken; it is not to be asked again."""
    try:
        told = msgspec.json.decode(answer, type=dict[str, dict[str, int | str]])
        return max(0, int(told.get("partialSuccess", {}).get("rejectedLogRecords", 0)))
    except (msgspec.MsgspecError, ValueError):
        return 0


def _seconds(header: str | None) -> float:
    return float(header) if header is not None and header.isascii() and header.isdigit() else 0.0
