"""The metrics server against real sockets: what it answers, and whom it never waits for."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof.errors import CkptprofError
from ckptprof.export import http as http_module
from ckptprof.export import request as request_module
from ckptprof.export.http import MAX_CONNECTIONS, MetricsServer
from ckptprof.export.request import MAX_HEAD_BYTES, parse

TEXT = "text/plain; version=0.0.4; charset=utf-8"
PAGE = b"# HELP x y\n# TYPE x gauge\nx 1\n" * 100


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    """Return a server on a free port."""
    server = MetricsServer(lambda _: (PAGE, TEXT), port=0)
    server.start()
    yield server
    server.close()


def ask(server: MetricsServer, request: bytes) -> bytes:
    """Send bytes as they are and return everything that comes back."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(request)
        received = b""
        while data := sock.recv(65536):
            received += data
    return received


def get(server: MetricsServer, path: str = "/metrics", method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    """Ask as a well-behaved client does."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    response.body = response.read()  # type: ignore[attr-defined]
    connection.close()
    return response


def test_metrics_are_served(server: MetricsServer) -> None:
    """GET gives the page with its type and length, HEAD the same without the page, and a query changes nothing."""
    response = get(server)
    assert (response.status, response.body) == (200, PAGE)  # type: ignore[attr-defined]
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    head = get(server, method="HEAD")
    assert (head.status, head.headers["Content-Length"]) == (200, str(len(PAGE)))
    assert ask(server, b"HEAD /metrics HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")
    assert get(server, "/metrics?collect[]=x").status == 200


def test_the_level_is_served_to_who_asks_from_here() -> None:
    """As JSON; by a name with a dot a page of another site may ask."""
    server = MetricsServer(lambda _: (PAGE, TEXT), status=lambda: b'{"level":"poll"}', port=0)
    server.start()
    try:
        response = get(server, "/status")
        foreign = get(server, "/status", Host="evil.example:80")
    finally:
        server.close()

    assert (response.status, response.body) == (200, b'{"level":"poll"}')  # type: ignore[attr-defined]
    assert response.headers["Content-Type"] == "application/json"
    assert foreign.status == 421


def test_no_header_names_a_program_or_a_version(server: MetricsServer) -> None:
    """Neither a good nor a bad answer tells who serves."""
    for path in ("/metrics", "/", "/nothing"):
        text = str(get(server, path).headers).lower()
        assert "python" not in text
        assert "server:" not in text
        assert "ckptprof" not in text


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("br", False),
        ("", False),
    ],
)
def test_it_is_compressed_only_if_asked_for(server: MetricsServer, accepted: str, *, compressed: bool) -> None:
    """Accept-Encoding is honoured, a weight of zero too."""
    response = get(server, **{"Accept-Encoding": accepted})
    body: bytes = response.body  # type: ignore[attr-defined]
    assert (response.headers["Content-Encoding"] == "gzip") is compressed
    assert (gzip.decompress(body) if compressed else body) == PAGE


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"GET /etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET /%6detrics HTTP/1.1\r\n\r\n", 404),
        (b"GET //metrics HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"get /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n", 431),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 200_000, 431),
    ],
)
def test_what_is_asked_gets_its_status(server: MetricsServer, request_bytes: bytes, status: int) -> None:
    """Unknown paths, methods, versions and oversized heads each get their own refusal; the server goes on."""
    assert ask(server, request_bytes).startswith(b"HTTP/1.1 %d " % status)
    assert get(server).status == 200


def test_a_refused_method_is_told_which_are_allowed(server: MetricsServer) -> None:
    """405 comes with Allow, as RFC 9110 asks."""
    assert get(server, method="PUT").headers["Allow"] == "GET, HEAD"


def test_a_request_in_pieces_is_understood(server: MetricsServer) -> None:
    """The end of the head may be split anywhere."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as sock:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n":
            sock.sendall(bytes([byte]))
        assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_slow_requests_end_with_408(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that drips bytes has one limit for all of them, not a new one with each byte."""
    monkeypatch.setattr(http_module, "READ_SECONDS", 0.3)
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n")
        sock.settimeout(0.05)

        def drip() -> bytes:
            answer = b""
            with contextlib.suppress(TimeoutError):
                answer = sock.recv(4096)
            with contextlib.suppress(OSError):
                sock.sendall(b"X")
            return answer

        answer = wait_until(drip)  # with a limit for each byte it would go on
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - begin > 0.2


def test_slowloris_keeps_nobody_out(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 half-open connections: never more than the cap is held, and a scrape beside them waits for none of them."""
    monkeypatch.setattr(http_module, "READ_SECONDS", 10 * PATIENCE_SECONDS)  # none of them ends by itself
    monkeypatch.setattr(http_module, "threading", None)  # no thread is begun for any of them
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS))
            with contextlib.suppress(OSError):
                sock.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        for _ in range(10):
            assert get(server).status == 200
        assert len(server._connections) <= MAX_CONNECTIONS


def test_who_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks for a large page and never reads it loses its place after the limit."""
    monkeypatch.setattr(http_module, "WRITE_SECONDS", 0.2)
    server = MetricsServer(lambda _: (b"x" * (32 << 20), TEXT), port=0)
    server.start()
    dropped = []
    drop = server._drop
    monkeypatch.setattr(server, "_drop", lambda connection: (dropped.append(connection), drop(connection)))
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            wait_until(lambda: dropped)
            assert dropped[0].out  # not all of it was taken
    finally:
        server.close()


def test_a_large_page_arrives_whole() -> None:
    """What does not fit into the socket's buffer follows when there is room."""
    page = b"0123456789abcdef" * (1 << 19)
    server = MetricsServer(lambda _: (page, TEXT), port=0)
    server.start()
    try:
        assert get(server).body == page  # type: ignore[attr-defined]
    finally:
        server.close()


def test_a_failing_page_is_a_500_and_the_next_one_is_served() -> None:
    """One scrape that fails ends neither the thread nor the agent, and says nothing of its inside."""
    pages = iter([None, PAGE])

    def render(accept: str) -> tuple[bytes, str]:
        page = next(pages)
        if page is None:
            raise RuntimeError("secret")
        return page, TEXT

    server = MetricsServer(render, port=0)
    server.start()
    try:
        failed = get(server)
        assert (failed.status, failed.body) == (500, b"500 Internal Server Error\n")  # type: ignore[attr-defined]
        assert get(server).status == 200
    finally:
        server.close()


def test_a_port_in_use_is_told_with_what_to_do(server: MetricsServer) -> None:
    """The error names address and port, the hint how to find who has it."""
    second = MetricsServer(lambda _: (PAGE, TEXT), port=server.port)
    with pytest.raises(CkptprofError, match=f"port {server.port}: Address already in use") as caught:
        second.start()
    second.close()
    assert f"sport = :{server.port}" in str(caught.value.hint)


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("not a host", 0), ("127.0.0.1", 70_000), ("::g", 0)])
def test_an_address_that_cannot_be_had_is_an_error(host: str, port: int) -> None:
    """Foreign addresses, names that are none and ports that do not exist are one clear error each."""
    server = MetricsServer(lambda _: (PAGE, TEXT), host=host, port=port)
    with pytest.raises(CkptprofError, match="cannot serve metrics"):
        server.start()
    server.close()


def test_closing_gives_the_port_back() -> None:
    """After `close` nobody listens, half-open clients are gone, and a second `close` does nothing."""
    server = MetricsServer(lambda _: (PAGE, TEXT), port=0)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as sock:
        sock.sendall(b"GET ")
        server.close()
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(10) == b""
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)


def test_ipv6_is_served_in_brackets() -> None:
    """`::1` works and its address is written as a URL wants it."""
    server = MetricsServer(lambda _: (PAGE, TEXT), host="::1", port=0)
    try:
        server.start()
    except CkptprofError as error:
        pytest.skip(f"no IPv6 here: {error}")
    try:
        with socket.create_connection(("::1", server.port), timeout=PATIENCE_SECONDS) as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert server.url == f"http://[::1]:{server.port}/metrics"
    finally:
        server.close()


def test_only_the_exact_form_of_a_request_line_is_read() -> None:
    """The parser takes the query away and nothing else."""
    request = parse(b"GET /metrics?x=/metrics HTTP/1.1\r\nAccept-Encoding: GZIP")
    assert request is not None
    assert (request.method, request.path, request.accepts_gzip) == ("GET", "/metrics", True)
    assert parse(b"GET /metrics HTTP/1.1\nHost: x") is None


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example:12578", 421),
        ("127.0.0.1.evil.example", 421),
        ("127.0.0.1:12578", 200),
        ("[::1]:12578", 200),
        ("LocalHost", 200),
        ("node1:12578", 200),  # a name without a dot is of this network
        (socket.gethostname(), 200),
        ("", 200),
    ],
)
def test_a_foreign_name_for_loopback_gets_no_metrics(server: MetricsServer, host: str, status: int) -> None:
    """A site whose name points at 127.0.0.1 cannot read the page through a browser on this host."""
    assert get(server, Host=host).status == status
    assert get(server, "/healthz", Host=host).status == 200


def test_what_listens_beyond_loopback_answers_to_any_name_from_beyond_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prometheus asks by name; through loopback a browser may have been led here, unless root gave that name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this host has no address beyond loopback")
        address = probe.getsockname()[0]
    (tmp_path / "hosts").write_text("127.0.1.1 Full.Name.example full  # evil.example\n")
    monkeypatch.setattr(request_module, "HOSTS", tmp_path / "hosts")
    server = MetricsServer(lambda _: (PAGE, TEXT), host="0.0.0.0", port=0)  # noqa: S104 - that is the case
    server.start()

    def status(at: str, name: str) -> bytes:
        with socket.create_connection((at, server.port), timeout=PATIENCE_SECONDS) as client:
            client.sendall(f"GET /metrics HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            return client.recv(100).split()[1]

    try:
        assert status(address, "node1.cluster.example") == b"200"
        assert status("127.0.0.1", "evil.example") == b"421"
        assert status("127.0.0.1", "full.name.example") == b"200"
    finally:
        server.close()
