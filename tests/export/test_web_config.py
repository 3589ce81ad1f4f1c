"""TLS and passwords before the metrics, by the exporter toolkit's web.yml: with curl and with a real Prometheus."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import bcrypt
import pytest
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof.errors import CkptprofError
from ckptprof.export import http as http_module
from ckptprof.export import passwords, web_config
from ckptprof.export.guard import Guard
from ckptprof.export.http import MetricsServer
from ckptprof.export.passwords import Access, Passwords

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "dashboards")]

from prometheus_harness import scraping  # noqa: E402 - found by the line above

TEXT = "text/plain; version=0.0.4; charset=utf-8"
PAGE = b"# HELP x y\n# TYPE x gauge\nx 1\n"
SECRET = "correct horse"  # noqa: S105 - of these tests
HASH = bcrypt.hashpw(SECRET.encode(), bcrypt.gensalt(4)).decode()
OTHER = bcrypt.hashpw(b"another", bcrypt.gensalt(4)).decode()
BOTH = f"tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\nbasic_auth_users:\n  prometheus: {HASH}\n"


def certificate(folder: Path, name: str = "web") -> None:
    """Make a certificate for this host's loopback and its key, signed by itself."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt"), "-days", "2"]
    command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)


@dataclass
class Served:
    """A server with its folder of certificates."""

    folder: Path
    server: MetricsServer
    told: list[str] = field(default_factory=list)

    def curl(self, *arguments: str) -> tuple[int, str]:
        """Return curl's exit code, and the status and body that it got."""
        command = ["curl", "--silent", "--max-time", "10", "--write-out", "%{http_code}", *arguments, self.server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return what starts a server on a free port by a web.yml, and ends it."""
    started: list[MetricsServer] = []

    def start(text: str, page: bytes = PAGE) -> Served:
        certificate(tmp_path)
        (tmp_path / "web.yml").write_text(text)
        told: list[str] = []
        guard = Guard(tmp_path / "web.yml", told.append)
        started.append(MetricsServer(lambda _: (page, TEXT), port=0, guard=guard))
        started[-1].start()
        return Served(tmp_path, started[-1], told)

    yield start
    for server in started:
        server.close()


@pytest.mark.programs("curl")
def test_curl_needs_the_certificate_and_the_password(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page goes to who knows both; the health page is guarded as well."""
    monkeypatch.setattr(passwords, "_CHECK_SECONDS", 0.0)
    served = serve(BOTH)
    trusting = ("--cacert", str(served.folder / "web.crt"))

    assert served.server.url.startswith("https://127.0.0.1:")
    assert served.curl(*trusting, "--user", f"prometheus:{SECRET}") == (0, PAGE.decode() + "200")
    assert served.curl(*trusting, "--user", "prometheus:wrong")[1].endswith("401")
    assert served.curl(*trusting, "--user", f"other:{SECRET}")[1].endswith("401")
    assert served.curl(*trusting) == (0, "401 Unauthorized\n401")
    assert served.curl("--user", f"prometheus:{SECRET}")[0] == 60  # curl: the certificate is not known
    assert served.curl(*trusting, "--tls-max", "1.1", "--user", f"prometheus:{SECRET}")[0] == 35  # no handshake


@pytest.mark.programs("curl")
def test_a_page_of_megabytes_arrives_whole_over_tls(serve: Serve) -> None:
    """It goes out in as many records as the client takes."""
    page = os.urandom(3 << 20).hex().encode()
    served = serve("tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\n", page)

    assert served.curl("--cacert", str(served.folder / "web.crt")) == (0, page.decode() + "200")


@pytest.mark.slow
@pytest.mark.prometheus
def test_a_real_prometheus_scrapes_over_tls(serve: Serve, tmp_path: Path) -> None:
    """With the certificate and the password in its scrape configuration."""
    served = serve(BOTH)
    access = {
        "tls_config": {"ca_file": str(served.folder / "web.crt")},
        "basic_auth": {"username": "prometheus", "password": SECRET},
    }
    with scraping(served.server.url, tmp_path, access=access) as prometheus:
        prometheus.wait_for_scrapes(2)

        series = wait_until(lambda: prometheus.query("x"))  # a scrape may have come too late for an answer
        assert [one["value"][1] for one in series] == ["1"]


@pytest.mark.programs("curl")
def test_a_client_without_its_certificate_is_turned_away(serve: Serve, tmp_path: Path) -> None:
    """Where the file asks for one (`RequireAndVerifyClientCert`)."""
    certificate(tmp_path, "client")
    more = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: client.crt\n  min_version: TLS13\n"
    served = serve("tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\n" + more)
    trusting = ("--cacert", str(tmp_path / "web.crt"))
    mine = ("--cert", str(tmp_path / "client.crt"), "--key", str(tmp_path / "client.key"))

    assert served.curl(*trusting, *mine) == (0, PAGE.decode() + "200")
    assert served.curl(*trusting)[0] != 0


@pytest.mark.programs("curl")
def test_passwords_work_without_tls(serve: Serve) -> None:
    """As the convention has it; whoever listens on the way reads them."""
    served = serve(f"basic_auth_users:\n  prometheus: {HASH}\n")

    assert served.server.url.startswith("http://")
    assert served.curl("--user", f"prometheus:{SECRET}") == (0, PAGE.decode() + "200")


@pytest.mark.programs("curl")
def test_who_may_not_ask_cannot_end_the_server(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no ASCII in the place of a password are refused, and a fault of ours is a 500; it serves on."""
    served = serve(f"basic_auth_users:\n  prometheus: {HASH}\n")

    assert served.curl("--header", "Authorization: Basic \udc80")[1].endswith("401")
    with monkeypatch.context() as patched:
        patched.setattr(Guard, "refusal", lambda *_: 1 / 0)
        assert served.curl()[1].endswith("500")
    assert served.curl("--user", f"prometheus:{SECRET}") == (0, PAGE.decode() + "200")


@pytest.mark.programs("curl")
def test_a_renewed_certificate_counts_at_once(serve: Serve) -> None:
    """Without a restart; a broken one changes nothing and is told once."""
    served = serve("tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\n")
    old = served.folder / "old.crt"
    old.write_bytes((served.folder / "web.crt").read_bytes())
    (served.folder / "web.crt").write_text("no certificate\n")

    assert served.curl("--cacert", str(old))[0] == 0
    assert served.curl("--cacert", str(old))[0] == 0
    told = (
        "they are no PEM files of a certificate and of the key that belongs to it; what was read before stays in force"
    )
    assert [line.partition(" used: ")[2] for line in served.told] == [told]
    certificate(served.folder)
    assert served.curl("--cacert", str(old))[0] == 60
    assert served.curl("--cacert", str(served.folder / "web.crt"))[0] == 0


@pytest.mark.programs("curl")
def test_who_only_connects_keeps_nobody_out(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that never begins its handshake, or says no TLS, loses its place as any other."""
    monkeypatch.setattr(http_module, "READ_SECONDS", 10 * PATIENCE_SECONDS)  # who asks properly may be slow
    served = serve("tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\n")
    idle = [socket.create_connection(("127.0.0.1", served.server.port), timeout=PATIENCE_SECONDS) for _ in range(20)]
    idle[-1].sendall(b"GET /metrics HTTP/1.1\r\n\r\n")

    assert served.curl("--cacert", str(served.folder / "web.crt"))[0] == 0
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 11 * PATIENCE_SECONDS, sleep=time.sleep)
    monkeypatch.setattr(http_module, "time", later)  # their time is over
    socket.create_connection(("127.0.0.1", served.server.port)).close()  # wakes the server
    for sock in idle:
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in sock.recv(100)  # the end, or an alert of TLS
        sock.close()


def test_guessing_costs_two_hashes_a_second_and_who_is_known_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody guesses, who was let in before is let in still."""
    calls: list[bytes] = []
    check = bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", lambda word, stored: calls.append(word) or check(word, stored))
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    known = Passwords()
    users = {"prometheus": HASH}
    good = "Basic cHJvbWV0aGV1czpjb3JyZWN0IGhvcnNl"

    assert known.check(users, good) is Access.GRANTED
    assert known.check(users, "Basic cHJvbWV0aGV1czp4") is Access.LATER
    assert known.check(users, good) is Access.GRANTED
    now[0] += 0.6
    assert known.check(users, "Basic cHJvbWV0aGV1czp4") is Access.REFUSED
    assert len(calls) == 2
    now[0] += 0.6
    assert known.check({"prometheus": OTHER}, good) is Access.REFUSED  # another password since


@pytest.mark.parametrize(
    "authorization", ["", "Basic", "Basic %%%", "Basic eA==", "Bearer x", "Basic /w==", "basic Og==", "Basic \x80"]
)
def test_what_is_no_password_is_refused(authorization: str) -> None:
    """Without an error."""
    assert Passwords().check({"prometheus": HASH}, authorization) is Access.REFUSED


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tls_server_confg: {}\n", "line 1: 'tls_server_confg' is not supported"),
        ("http_server_config:\n  http2: true\n", "line 1: 'http_server_config' is not supported"),
        ("tls_server_config:\n  cert_file: web.crt\n", "tls_server_config has no key_file"),
        ("\ntls_server_config:\n  cert_file: web.crt\n  key: x\n", "line 4: 'key' is not supported"),
        ("basic_auth_users:\n  me: secret\n", "line 2: basic_auth_users.me is no bcrypt hash"),
        ("basic_auth_users:\n  me: $2b$31$" + "." * 53, "line 2: basic_auth_users.me is no bcrypt hash of a cost"),
        ("basic_auth_users:\n  me: [1]\n", "line 2: basic_auth_users.me is not a text"),
        ("basic_auth_users:\n- me\n", "line 2: names with values belong here, as in `a: b`"),
        ("tls_server_config:\n  min_version: TLS10\n", "line 2: tls_server_config.min_version is 'TLS10'"),
        ("a: [\n", "line 2: "),
        (
            "tls_server_config:\n  cert_file: no.crt\n  key_file: web.key\n",
            "certificate and key cannot be used: No such file or directory",
        ),
        (
            "tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\n  client_ca_file: web.crt\n",
            "client_ca_file and a client_auth_type that verifies need each other",
        ),
    ],
)
def test_a_fault_is_told_with_its_line(text: str, told: str, tmp_path: Path) -> None:
    """A setting that is not understood protects nobody, so nothing is served by it."""
    certificate(tmp_path)
    (tmp_path / "web.yml").write_text(text)
    with pytest.raises(CkptprofError) as caught:
        web_config.load(tmp_path / "web.yml")

    assert told in str(caught.value)
