"""A collector of OpenTelemetry as it answers, and does not: nothing is lost, and what it refuses holds up nothing."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cluster.nodes import Job
from tests.postgres import made_certificate

from ckptprof.cli.main import main
from ckptprof.errors import StoreError, UsageError
from ckptprof.model import Session
from ckptprof.service.shipping.otlp_collector import to_collector
from ckptprof.service.shipping.shipper import Shipper
from ckptprof.store.fleet.outbox import ShippedPosition
from ckptprof.store.fleet.target import ServerUnreachableError
from ckptprof.store.writer import StoreWriter

SAVE = Job(saves=1).seen()[0][0].checkpoints[0]


class Stub:
    """Takes what `answer` says: for the uids of a request a status, headers and a body."""

    def __init__(self) -> None:
        """Take all."""
        self.answer: Callable[[list[str]], tuple[int, dict[str, str], bytes]] = lambda _: (200, {}, b"{}")
        self.requests: list[list[tuple[str, int]]] = []  # uids and revisions
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.serve_tls: Callable[[Path], None] = lambda _: None  # from then on, with the certificate of a folder

    @property
    def taken(self) -> list[tuple[str, int]]:
        """What came, of all requests."""
        return [one for request in self.requests for one in request]


@pytest.fixture
def stub() -> Iterator[Stub]:
    """Return a collector on loopback."""
    made = Stub()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            records = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
            told = [_of(record) for record in records]
            status, headers, answer = made.answer([uid for uid, _ in told])
            made.headers.append({"path": self.path, **dict(self.headers)})
            if status == 200:
                made.requests.append(told)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(answer))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_address[1]}"

        def serve_tls(folder: Path) -> None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "server.crt", folder / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)

        made.serve_tls = serve_tls
        yield made
        server.shutdown()
        thread.join()


def _of(record: dict[str, Any]) -> tuple[str, int]:
    told = {one["key"]: one["value"] for one in record["attributes"]}
    return told["ckptprof.uid"]["stringValue"], int(told["ckptprof.revision"]["intValue"])


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreWriter]:
    """Return the writer of a node's database, which has three checkpoints; how far it was sent is beside it."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    with closing(StoreWriter(tmp_path / "node.db", ballast_bytes=0)) as writer:
        writer.start_session(
            Session(
                uid="s", host="node-1", boot_id="b", kernel="6.1", version="0", level="poll",
                start_ns=SAVE.start_ns, end_ns=SAVE.end_ns, clean=False,
            )
        )  # fmt: skip
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid=uid) for uid in "abc"])
        yield writer


def ship(node: StoreWriter, stub: Stub) -> ShippedPosition:
    """Send all that there is."""
    return Shipper(node.path, to_collector(stub.url), names=True).send().taken


def test_each_revision_is_a_record_and_comes_once(node: StoreWriter, stub: Stub) -> None:
    """Posted where OTLP says; of a checkpoint that changes the next revision."""
    ship(node, stub)
    ship(node, stub)
    node.add_checkpoints([msgspec.structs.replace(SAVE, uid="b", step=7)])

    assert ship(node, stub) == ShippedPosition(change=4, last_id=3, lost=0)

    assert stub.taken == [("a", 1), ("b", 1), ("c", 1), ("b", 2)]
    assert stub.headers[0]["path"] == "/v1/logs"
    assert "Authorization" not in stub.headers[0]


def test_what_it_cannot_take_now_is_sent_again(node: StoreWriter, stub: Stub) -> None:
    """When it wants to be asked; a wrong token loses nothing either."""
    stub.answer = lambda _: (503, {"Retry-After": "77"}, b"")
    with pytest.raises(ServerUnreachableError) as caught:
        ship(node, stub)
    assert caught.value.retry_after_seconds == 77
    stub.answer = lambda _: (401, {}, b"")
    with pytest.raises(StoreError, match="answers 401"):
        ship(node, stub)
    stub.answer = lambda _: (200, {}, b"{}")

    assert ship(node, stub).lost == 0

    assert [uid for uid, _ in stub.taken] == ["a", "b", "c"]


def test_what_it_will_never_take_holds_up_nothing(node: StoreWriter, stub: Stub) -> None:
    """It is found by halving, and counted; so is what a collector says that it left out."""
    stub.answer = lambda uids: (400, {}, b"") if "b" in uids else (200, {}, b"{}")
    assert ship(node, stub).lost == 1
    assert [uid for uid, _ in stub.taken] == ["a", "c"]
    stub.answer = lambda _: (200, {}, b'{"partialSuccess": {"rejectedLogRecords": "1", "errorMessage": "too old"}}')
    node.add_checkpoints([msgspec.structs.replace(SAVE, uid=uid) for uid in "de"])

    assert ship(node, stub) == ShippedPosition(change=5, last_id=5, lost=2)


@pytest.mark.parametrize(("claimed", "counted"), [("9" * 4000, 3), ("-7", 0)])
def test_a_collector_cannot_refuse_more_than_it_was_sent(
    node: StoreWriter, stub: Stub, claimed: str, counted: int
) -> None:
    """A number of any length is counted as what was sent, so the file that holds the position stays readable."""
    stub.answer = lambda _: (200, {}, b'{"partialSuccess": {"rejectedLogRecords": "%s"}}' % claimed.encode())

    assert ship(node, stub).lost == counted
    assert ship(node, stub).lost == counted


def test_a_collector_that_refuses_all_is_not_believed(node: StoreWriter, stub: Stub) -> None:
    """Its address is wrong, or a proxy is in between: nothing is taken for sent, a single record neither."""
    stub.answer = lambda _: (400, {}, b"")
    with pytest.raises(StoreError, match="rejects all records"):
        ship(node, stub)
    stub.answer = lambda _: (200, {}, b"{}")
    assert ship(node, stub) == ShippedPosition(change=3, last_id=3, lost=0)
    stub.answer = lambda uids: (400, {}, b"") if "d" in uids else (200, {}, b"{}")
    node.add_checkpoints([msgspec.structs.replace(SAVE, uid="d")])
    with pytest.raises(StoreError, match="rejects all records"):
        ship(node, stub)
    node.add_checkpoints([msgspec.structs.replace(SAVE, uid="e")])

    assert ship(node, stub).lost == 1

    assert [uid for uid, _ in stub.taken] == [*"abce"]


def test_a_clock_that_began_in_1970_sends_nothing_again(node: StoreWriter, stub: Stub) -> None:
    """The database is told by the session that was begun first, whatever its clock said."""
    ship(node, stub)
    node.start_session(
        Session(
            uid="r", host="node-1", boot_id="c", kernel="6.1", version="0", level="poll", start_ns=5, end_ns=6,
            clean=False,
        )
    )  # fmt: skip

    ship(node, stub)

    assert [uid for uid, _ in stub.taken] == [*"abc"]


@pytest.mark.parametrize("token", [b"t0k\ren\n", b"t0k\x7fen", "t0k\u20acen".encode()])
def test_a_token_that_no_header_may_have_is_not_told(
    token: bytes, node: StoreWriter, stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The journal says that it is wrong, and nothing of it."""
    file = tmp_path / "token"
    file.write_bytes(token)
    file.chmod(0o600)
    words = ["ship", "--once", "--to", stub.url, "--db", str(node.path), "--password-file", str(file)]

    assert main(words) == 6

    told = capsys.readouterr().err
    assert "not allowed in a header" in told
    assert "t0k" not in told


def test_a_token_comes_from_a_file(node: StoreWriter, stub: Stub, tmp_path: Path) -> None:
    """And goes into the header that collectors look at."""
    file = tmp_path / "token"
    file.write_bytes(b"t0ken\r\n")
    file.chmod(0o600)

    Shipper(node.path, to_collector(stub.url + "/otlp/v1/logs", file), names=True).send()

    assert (stub.headers[0]["path"], stub.headers[0]["Authorization"]) == ("/otlp/v1/logs", "Bearer t0ken")


def test_killed_between_sending_and_noting_sends_again(
    node: StoreWriter, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least once: nothing is skipped."""
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "no room")))
        with pytest.raises(StoreError, match="no room"):
            ship(node, stub)

    ship(node, stub)

    assert [uid for uid, _ in stub.taken] == [*"abcabc"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://user:secret@otel", "can read a secret"), ("https://otel?token=secret", "can read a secret"),
        ("http://otel:4318", "does not authenticate"), ("https://", "names no host"),
        ("https://user:se/secret@otel", "not the URL"), ("https://user/secret@otel", "can read a secret"),
        ("https://otel:secret", "not the URL of a collector"),
    ],
)  # fmt: skip
def test_what_is_not_safe_is_refused(url: str, why: str) -> None:
    """Before anything is opened, without the secret."""
    with pytest.raises(UsageError, match=why) as caught:
        to_collector(url)

    assert "secret" not in str(caught.value).removesuffix("a secret in a URL")


def test_who_is_not_known_is_not_believed(
    node: StoreWriter, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without TLS is none that is asked by https, and a certificate needs somebody who knows it."""
    url = stub.url.replace("http:", "https:").replace("127.0.0.1", "localhost")
    with pytest.raises(ServerUnreachableError):
        Shipper(node.path, to_collector(url), names=True).send()
    stub.serve_tls(made_certificate(tmp_path))
    with pytest.raises(ServerUnreachableError, match="certificate verify failed"):
        Shipper(node.path, to_collector(url), names=True).send()
    assert stub.taken == []
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.crt"))

    Shipper(node.path, to_collector(url), names=True).send()

    assert [uid for uid, _ in stub.taken] == [*"abc"]
    with pytest.raises(ServerUnreachableError, match="certificate verify failed"):
        Shipper(node.path, to_collector(url.replace("localhost", "127.0.0.1")), names=True).send()
