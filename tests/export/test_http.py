"""The server of /metrics by real sockets: what it answers, who may read it, and that no client holds up another."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import exposition
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from tests.export import certificates
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof.errors import CkptprofError, UsageError
from ckptprof.export import http as http_module
from ckptprof.export import textfile as textfile_module
from ckptprof.export import wsgi_pages as pages_module
from ckptprof.export.http import MAX_CLIENTS, MAX_FIELD_BYTES, MAX_HEAD_BYTES, MetricsServer, answer
from ckptprof.export.listening import Tls, guarded
from ckptprof.export.metrics import Metrics, RecorderHealth
from ckptprof.export.textfile import Textfile
from ckptprof.export.wsgi_pages import Pages

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "dashboards")]

from prometheus_harness import scraping  # noqa: E402 - found by the line above

TEXT = "text/plain; version=0.0.4; charset=utf-8"
PAGE = b"# HELP x y\n# TYPE x gauge\nx 1.0\n"


class Counted(Collector):
    """One gauge, `x`, and how often it was collected."""

    def __init__(self, text: str = "y") -> None:
        """Its help is `text`."""
        self.collected = 0
        self._text = text

    def collect(self) -> Iterable[Metric]:
        """Return the gauge."""
        self.collected += 1
        family = GaugeMetricFamily("x", self._text)
        family.add_metric([], 1)
        return [family]


Serve = Callable[..., MetricsServer]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return what starts a server on a free port, of this gauge if no other application is given, and ends it."""
    monkeypatch.setattr(http_module, "MAX_PER_SECOND", 10_000)  # the rate has a test of its own
    started: list[MetricsServer] = []

    def start(app: Any = None, **options: Any) -> MetricsServer:
        clear = options.get("tls") is None
        started.append(MetricsServer(app or Pages(Counted(), in_clear=clear), port=0, **options))
        started[-1].start()
        return started[-1]

    yield start
    for server in started:
        server.close()


def connected(server: MetricsServer) -> socket.socket:
    """Return a connection to it."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)


def ask(server: MetricsServer, request: bytes) -> bytes:
    """Send bytes as they are and return everything that comes back."""
    with connected(server) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(request)
        received = b""
        with contextlib.suppress(ConnectionError):  # it refuses more than it reads
            while data := sock.recv(65536):
                received += data
    return received


def get(server: MetricsServer, path: str = "/metrics", method: str = "GET", **headers: str) -> Any:
    """Ask as a well-behaved client does; return status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    found = SimpleNamespace(status=response.status, headers=response.headers, body=response.read())
    connection.close()
    return found


def test_metrics_are_served(serve: Serve) -> None:
    """GET gives the page with its type and length, HEAD the same without the page, and a query changes nothing."""
    server = serve()
    found = get(server)
    assert (found.status, found.body, found.headers["Content-Type"]) == (200, PAGE, TEXT)
    head = get(server, method="HEAD")
    assert (head.status, head.headers["Content-Length"]) == (200, str(len(PAGE)))
    assert ask(server, b"HEAD /metrics HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")
    assert get(server, "/metrics?name[]=none").body == PAGE
    assert gzip.decompress(get(server, **{"Accept-Encoding": "deflate, gzip"}).body) == PAGE


def test_the_level_is_served_to_who_asks_from_here(serve: Serve) -> None:
    """As JSON; by a name with a dot a page of another site may ask."""
    server = serve(Pages(Counted(), status=lambda: b'{"level":"poll"}', in_clear=True))
    found = get(server, "/status")

    assert (found.status, found.body) == (200, b'{"level":"poll"}')
    assert found.headers["Content-Type"] == "application/json"
    assert get(server, "/status", Host="evil.example:80").status == 421


def test_health_is_text_with_the_same_status_however_far_the_recorder_is_behind(serve: Serve) -> None:
    """A probe that restarted it would only lose what it has."""
    texts = iter(["ok", "17 s behind"])
    server = serve(Pages(Counted(), health=lambda: next(texts), in_clear=True))
    found = [get(server, "/healthz") for _ in range(2)]

    assert [(one.status, one.body) for one in found] == [(200, b"ok\n"), (200, b"17 s behind\n")]


def test_no_header_names_a_program_or_a_version(serve: Serve) -> None:
    """Neither a good nor a bad answer shows who serves."""
    server = serve()
    for path in ("/metrics", "/", "/nothing"):
        text = str(get(server, path).headers).lower()
        assert "python" not in text
        assert "wsgi" not in text
        assert "ckptprof" not in text


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
        (b"get /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\nHost: x\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", 404),
        (b"GET /" + b"a" * MAX_FIELD_BYTES + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 4096 + b"\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip" + b" " * 8000 + b"x\r\n\r\n", 200),
    ],
)
def test_each_request_gets_its_status(serve: Serve, request_bytes: bytes, status: int) -> None:
    """Unknown paths, methods and versions each get their own refusal; the server goes on."""
    server = serve()
    assert ask(server, request_bytes).startswith(b"HTTP/1.0 %d " % status)
    assert get(server).status == 200


def test_a_refused_method_names_those_that_are_allowed(serve: Serve) -> None:
    """405 comes with Allow, as RFC 9110 asks."""
    assert get(serve(), method="PUT").headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("head", [b"X: " + b"a" * MAX_HEAD_BYTES, b"X: y\r\n" * 200_000])
def test_a_head_without_an_end_is_not_read_on(serve: Serve, head: bytes) -> None:
    """It is refused, or reset while it is still sent, and the next request is served."""
    server = serve()
    assert ask(server, b"GET /metrics HTTP/1.1\r\n" + head)[:13] in {b"", b"HTTP/1.0 400 "}
    assert get(server).status == 200


@pytest.mark.parametrize("size", [256, 4096, 8000])
def test_fields_are_cut_before_they_are_parsed(size: int) -> None:
    """Whatever is sent, the application sees three fields of at most 256 bytes with their names."""
    seen: list[dict[str, str]] = []

    def app(environ: dict[str, str], start_response: Any) -> list[bytes]:
        seen.append({key: value for key, value in environ.items() if key.startswith("HTTP_") and key not in os.environ})
        start_response("200 OK", [])
        return [b""]

    for name in (b"Accept-Encoding", b"Accept", b"Host", b"Authorization", b"Content-Length"):
        answer(b"GET / HTTP/1.1\r\n" + name + b": gzip" + b" " * size + b"x\r\n\r\n", app)
    assert all(len(value) <= MAX_FIELD_BYTES for one in seen for value in one.values())
    assert [list(one) for one in seen] == [["HTTP_ACCEPT_ENCODING"], ["HTTP_ACCEPT"], ["HTTP_HOST"], [], []]


class Pieces:
    """A client whose request comes in pieces, two seconds apart; `limits` are the timeouts of each read."""

    def __init__(self, request: bytes, size: int, now: list[float]) -> None:
        """Each piece has `size` bytes; `now` is the clock."""
        self._pieces = [request[at : at + size] for at in range(0, len(request), size)]
        self._now = now
        self.limits: list[float] = []

    def settimeout(self, seconds: float) -> None:
        """Take the timeout of the next read."""
        self.limits.append(seconds)

    def recv(self, _: int) -> bytes:
        """Return the next piece."""
        self._now[0] += 2.0
        if self.limits[-1] < 2.0:
            raise TimeoutError
        return self._pieces.pop(0)


def test_a_request_in_pieces_is_understood_unless_they_are_very_many(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece wakes a thread, so a request may have a bounded number of them."""
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    monkeypatch.setattr(http_module, "CLIENT_SECONDS", 1000.0)
    assert http_module._head(Pieces(request, 2, [0.0])) == request  # type: ignore[arg-type]
    assert http_module._head(Pieces(request, 1, [0.0])) is None  # type: ignore[arg-type]
    with connected(serve()) as sock:
        for piece in (request[:9], request[9:]):
            sock.sendall(piece)
        assert sock.recv(4096).startswith(b"HTTP/1.0 200 ")


def test_a_slow_client_has_one_limit_for_all_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a new one with each byte."""
    now = [0.0]
    monkeypatch.setattr(http_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    client = Pieces(b"GET /metrics HTTP/1.1\r\n\r\n", 1, now)
    with pytest.raises(TimeoutError):
        http_module._head(client)  # type: ignore[arg-type]
    assert client.limits == [5.0, 3.0, 1.0]


def test_half_open_connections_keep_no_scraper_out(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 no more than the limit are kept, and a scrape waits for none of them."""
    monkeypatch.setattr(http_module, "CLIENT_SECONDS", 10 * PATIENCE_SECONDS)  # none of them ends by itself
    server = serve()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            sock = stack.enter_context(connected(server))
            with contextlib.suppress(OSError):
                sock.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        for _ in range(10):
            assert get(server).status == 200
        assert len(server._clients) <= MAX_CLIENTS
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("ckptprof-scrape") <= MAX_CLIENTS


def test_connections_are_accepted_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """One, then a wait: whatever comes, the recorder pays for so many requests a second; a rare one needs no wait."""
    accepted = iter((100.0, 101.0, 101.01, 101.03, 102.0))
    monkeypatch.setattr(http_module, "time", SimpleNamespace(monotonic=lambda: next(accepted)))
    events: list[object] = []
    server = MetricsServer(Pages(Counted(), in_clear=True))
    server._listener = SimpleNamespace(accept=lambda: ("client", None))  # type: ignore[assignment]
    server._closing = SimpleNamespace(is_set=lambda: len(events) >= 10, wait=events.append)  # type: ignore[assignment]
    server._admit = events.append  # type: ignore[method-assign, assignment]
    server._serve()

    assert events[::2] == ["client"] * 5
    assert events[1::2] == [0.0, 0.0, 0.02, 0.02, 0.0]


def test_a_page_is_rendered_once_a_second_however_many_ask(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each format; a client that asks later gets a new one."""
    now = [100.0]
    monkeypatch.setattr(pages_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    counted = Counted()
    server = serve(Pages(counted, in_clear=True))
    threads = [threading.Thread(target=lambda: [get(server) for _ in range(5)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.collected == 1
    for version in ("1.0.0", "0.0.1", "7", "x"):  # a client cannot invent formats
        assert get(server, Accept=f"application/openmetrics-text;version={version};escaping=x").body.endswith(
            b"# EOF\n"
        )
    assert counted.collected == 2
    now[0] += pages_module.FRESH_SECONDS
    get(server)
    assert counted.collected == 3


def test_rendering_does_not_hold_up_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a page is rendered, the recorder's state can be changed."""
    rendering, gate = threading.Event(), threading.Event()

    def slow(registry: Collector) -> bytes:
        text = exposition_text(registry)
        if text:
            rendering.set()
            gate.wait()
        return text

    exposition_text = exposition.generate_latest
    monkeypatch.setattr(exposition, "generate_latest", slow)
    metrics = Metrics()
    thread = threading.Thread(target=Pages(metrics, in_clear=True).metrics)
    thread.start()
    rendering.wait()
    metrics.recorder(RecorderHealth(frames=1))  # waits for ever, if the lock is held
    gate.set()
    thread.join()


def test_a_client_that_does_not_read_loses_its_place(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the limit; a page of megabytes arrives whole at one that reads."""
    page = "0123456789abcdef" * (1 << 20)
    server = serve(Pages(Counted(page), in_clear=True))
    assert page.encode() in get(server).body
    monkeypatch.setattr(http_module, "CLIENT_SECONDS", 0.2)
    monkeypatch.setattr(http_module, "LINGER_SECONDS", 0.1)
    with connected(server) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        wait_until(lambda: server._clients)
        wait_until(lambda: not server._clients)


def test_a_fault_is_a_500_and_the_next_request_is_served(serve: Serve) -> None:
    """It ends neither the thread nor the agent, and shows nothing of its inside."""
    status = iter([None, b"{}"])

    def failing() -> bytes:
        if (found := next(status)) is None:
            raise RuntimeError("secret")
        return found

    server = serve(Pages(Counted(), status=failing, in_clear=True))
    failed = get(server, "/status")
    assert (failed.status, b"secret" in failed.body) == (500, False)
    assert get(server, "/status").status == 200


def test_a_port_in_use_is_reported_with_what_to_do(serve: Serve) -> None:
    """The error names address and port, the hint how to find who has it."""
    server = serve()
    with pytest.raises(CkptprofError, match=f"port {server.port}: Address already in use") as caught:
        MetricsServer(Pages(Counted(), in_clear=True), port=server.port).start()
    assert f"sport = :{server.port}" in str(caught.value.hint)


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("not a host", 0), ("127.0.0.1", 70_000), ("::g", 0)])
def test_an_address_that_is_not_available_is_an_error(host: str, port: int) -> None:
    """Foreign addresses, names that are none and ports that do not exist are one clear error each."""
    server = MetricsServer(Pages(Counted(), in_clear=True), host=host, port=port)
    with pytest.raises(CkptprofError, match="cannot serve metrics"):
        server.start()
    server.close()


def test_closing_releases_the_port(serve: Serve) -> None:
    """After `close` no socket listens, half-open clients are gone, and a second `close` does nothing."""
    server = serve()
    with connected(server) as sock:
        sock.sendall(b"GET ")
        wait_until(lambda: server._clients)
        server.close()
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(10) == b""
    server.close()
    with pytest.raises(ConnectionRefusedError):
        connected(server)


def test_ipv6_is_served_in_brackets(serve: Serve) -> None:
    """`::1` works and its address is written as a URL wants it."""
    try:
        server = serve(host="::1")
    except CkptprofError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with socket.create_connection(("::1", server.port), timeout=PATIENCE_SECONDS) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.0 200 ")
    assert server.url == f"http://[::1]:{server.port}/metrics"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example:12578", 421),
        ("127.0.0.1.evil.example", 421),
        ("a" * 64 + ".evil.example" * 16 + ".evil", 421),
        ("127.0.0.1:12578", 200),
        ("[::1]:12578", 200),
        ("LocalHost", 200),
        ("node1:12578", 200),  # a name without a dot is of this network
        ("full.name.example:12578", 200),
        (socket.gethostname(), 200),
        ("", 200),
    ],
)
def test_a_foreign_name_for_loopback_gets_no_metrics(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, status: int
) -> None:
    """A site whose name points at 127.0.0.1 cannot read the page through a browser on this host."""
    (tmp_path / "hosts").write_text("127.0.1.1 Full.Name.example full  # evil.example\n")
    monkeypatch.setattr(pages_module, "HOSTS", tmp_path / "hosts")
    server = serve()
    assert get(server, Host=host).status == status
    assert get(server, "/healthz", Host=host).status == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_is_served_in_the_clear(host: str) -> None:
    """No certificate is asked for."""
    assert guarded(host, None, None, None) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "node17", "localhost.evil.example", "::ffff:7f00:1"])  # noqa: S104 - that is the case
def test_other_addresses_require_client_certificates(host: str) -> None:
    """All three files; without them the refusal names each way that there is."""
    files = Path("a"), Path("b"), Path("c")
    assert guarded(host, *files) == Tls(*files)
    with pytest.raises(UsageError, match="beyond loopback") as caught:
        guarded(host, None, None, None)
    assert all(one in str(caught.value.hint) for one in ("--client-ca", "a proxy", "--textfile"))
    with pytest.raises(UsageError, match="belong together") as caught:
        guarded(host, files[0], files[1], None)
    assert caught.value.hint == "set client_ca as well"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an authority, a server and a client of it, and a client of another authority."""
    folder = tmp_path_factory.mktemp("tls")
    certificates.all_of(folder)
    certificates.authority(folder, "other")
    certificates.signed(folder, "stranger", "other")
    return folder


def tls_of(folder: Path) -> Tls:
    """Return the server's files."""
    return Tls(folder / "server.crt", folder / "server.key", folder / "ca.crt")


def get_by_tls(server: MetricsServer, folder: Path, client: str | None) -> int:
    """Return the status that a client with this certificate gets; raises OSError."""
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    if client is not None:
        context.load_cert_chain(folder / f"{client}.crt", folder / f"{client}.key")
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS, context=context)
    try:
        connection.request("GET", "/metrics", headers={"Host": "node17.cluster.example"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_client_certificate_is_required(serve: Serve, made: Path) -> None:
    """Of the authority; by any name of the host, because a web site has none. Without one there is no answer."""
    server = serve(tls=tls_of(made))
    assert server.url.startswith("https://127.0.0.1:")
    assert get_by_tls(server, made, "client") == 200
    for client in (None, "stranger"):
        with pytest.raises(ssl.SSLError, match=r"CERTIFICATE_REQUIRED|UNKNOWN_CA"):
            get_by_tls(server, made, client)
    assert b"HTTP" not in ask(server, b"GET /metrics HTTP/1.1\r\n\r\n")


def test_silent_clients_do_not_stop_tls(serve: Serve, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handshake is in the thread of each connection: one that never begins it holds up no other."""
    monkeypatch.setattr(http_module, "CLIENT_SECONDS", 10 * PATIENCE_SECONDS)  # none of them ends by itself
    server = serve(tls=tls_of(made))
    with contextlib.ExitStack() as stack:
        for _ in range(2 * MAX_CLIENTS):
            stack.enter_context(connected(server))
        assert get_by_tls(server, made, "client") == 200
        assert len(server._clients) <= MAX_CLIENTS


def test_no_read_comes_before_its_timeout(serve: Serve, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a client that says nothing, the handshake has a limit as well."""
    monkeypatch.setattr(http_module, "CLIENT_SECONDS", 0.2)
    monkeypatch.setattr(http_module, "LINGER_SECONDS", 0.1)
    with connected(serve(tls=tls_of(made))) as sock:
        assert sock.recv(10) == b""  # the server has ended it


def test_a_renewed_certificate_counts_at_once(serve: Serve, made: Path, tmp_path: Path) -> None:
    """Without a restart; a broken one changes nothing and is reported once."""
    said: list[str] = []
    for file in made.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    server = serve(tls=tls_of(tmp_path), complain=said.append)
    (tmp_path / "server.crt").write_text("no certificate\n")
    assert [get_by_tls(server, made, "client") for _ in range(2)] == [200, 200]
    assert [line.rpartition("; ")[2] for line in said] == ["keeping the current certificate"]

    certificates.signed(tmp_path, "server", "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        get_by_tls(server, made, "client")
    assert len(said) == 1


@pytest.mark.parametrize("broken", ["server.crt", "server.key", "ca.crt"])
def test_files_that_cannot_be_used_are_named(made: Path, tmp_path: Path, broken: str) -> None:
    """One that is missing, that is no PEM, and a key with a passphrase, which is not asked for."""
    for file in made.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / broken).write_text("nothing\n")
    with pytest.raises(CkptprofError, match="PEM files"):
        tls_of(tmp_path).context()
    (tmp_path / broken).unlink()
    with pytest.raises(CkptprofError, match=f"{broken}: No such file"):
        tls_of(tmp_path).context()


@pytest.mark.slow
@pytest.mark.prometheus
def test_a_real_prometheus_scrapes_over_tls(serve: Serve, made: Path, tmp_path: Path) -> None:
    """With its client certificate in its scrape configuration."""
    files = {"ca_file": "ca.crt", "cert_file": "client.crt", "key_file": "client.key"}
    server = serve(tls=tls_of(made))
    access = {"tls_config": {key: str(made / name) for key, name in files.items()}}
    with scraping(server.url, tmp_path, access=access) as prometheus:
        prometheus.wait_for_scrapes(2)
        series = wait_until(lambda: prometheus.query("x"))  # a scrape may have come too late for an answer
        assert [one["value"][1] for one in series] == ["1"]


def test_a_textfile_is_replaced_whole_and_goes_with_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for all to read whatever the umask is, and nothing else is left in the folder."""
    monkeypatch.setattr(textfile_module, "TEXTFILE_SECONDS", 0.01)
    monkeypatch.setattr(pages_module, "FRESH_SECONDS", 0.0)
    counted, mask = Counted(), os.umask(0o077)
    textfile = Textfile(tmp_path, Pages(counted, in_clear=True), pytest.fail)
    try:
        (tmp_path / "ckptprof.new").symlink_to(tmp_path / "elsewhere")  # what a kill left, or somebody put there
        textfile.start()
        file = tmp_path / "ckptprof.prom"
        assert (file.read_bytes(), file.stat().st_mode & 0o7777) == (PAGE, 0o644)
        wait_until(lambda: counted.collected > 3)
    finally:
        os.umask(mask)
        textfile.close()
    assert list(tmp_path.iterdir()) == []


def test_a_textfile_that_cannot_be_written_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent goes on, and so does the file as soon as it can; at the start it is an error."""
    monkeypatch.setattr(textfile_module, "TEXTFILE_SECONDS", 0.01)
    monkeypatch.setattr(pages_module, "FRESH_SECONDS", 0.0)
    folder, counted, said, tries = tmp_path / "textfile", Counted(), [], []
    with pytest.raises(CkptprofError, match=f"--textfile {folder}: No such file"):
        Textfile(folder, Pages(counted, in_clear=True), said.append).start()
    folder.mkdir()
    textfile = Textfile(folder, Pages(counted, in_clear=True), said.append)
    write = textfile.write
    monkeypatch.setattr(textfile, "write", lambda: (tries.append(1), write()))
    textfile.start()
    moved = folder.rename(tmp_path / "moved")
    done = len(tries)
    wait_until(lambda: len(tries) > done + 2)
    (moved / "ckptprof.prom").unlink()
    moved.rename(folder)
    wait_until((folder / "ckptprof.prom").exists)
    textfile.close()
    assert [line.rpartition(": ")[2] for line in said] == ["No such file or directory"]


def test_a_hanging_text_file_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more is done in a folder that does not answer."""
    monkeypatch.setattr(textfile_module, "TEXTFILE_SECONDS", 0.01)
    monkeypatch.setattr(textfile_module, "_END_SECONDS", 0.01)
    textfile, hangs, gate = (
        Textfile(tmp_path, Pages(Counted(), in_clear=True), pytest.fail),
        threading.Event(),
        threading.Event(),
    )
    textfile.start()
    monkeypatch.setattr(textfile, "write", lambda: (hangs.set(), gate.wait()))
    hangs.wait()
    textfile.close()
    assert (tmp_path / "ckptprof.prom").exists()  # it was not waited for
    gate.set()
    textfile._thread.join()
