"""A PostgreSQL server of one's own, on a socket and on loopback with TLS, gone when the block ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.machine import need, postgres_programs
from tests.patience import wait_until

from ckptprof.store.fleet.server_connection import connected
from ckptprof.store.fleet.server_migrations import migrate
from ckptprof.store.fleet.target import parse_target

_HBA = """local all postgres trust
local all all scram-sha-256
hostssl all all 127.0.0.1/32 scram-sha-256
"""


_TRIES = 5


class Server:
    """Whoever has the socket may be its owner; every other role has a password, which is its name."""

    def __init__(self, folder: Path, port: int) -> None:
        """Where its socket and its certificate are."""
        self.folder = folder
        self.port = port
        self.certificate = folder / "server.crt"
        self._number = 0

    def url(self, database: str, role: str = "postgres", host: str | None = None) -> str:
        """Return the URL of a database, over the socket unless another host is given."""
        where = f"{role}@{host or ''}:{self.port}/{database}"
        return f"postgresql+psycopg://{where}" + ("" if host else f"?host={self.folder}")

    def ask(self, statement: str, database: str = "postgres", role: str = "postgres") -> list[tuple[object, ...]]:
        """Return what a statement finds, nothing for one that finds nothing."""
        import psycopg  # noqa: PLC0415 # an extra

        where = {"host": str(self.folder), "port": self.port, "dbname": database, "user": role, "password": role}
        with psycopg.connect(**where, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def answers(self) -> bool:
        """Return whether it can be asked."""
        import psycopg  # noqa: PLC0415 # an extra

        try:
            return bool(self.ask("SELECT 1"))
        except psycopg.OperationalError:
            return False

    def database(self) -> str:
        """Make a database that is ready for nodes; return its name."""
        self._number += 1
        name = f"fleet{self._number}"
        self.ask(f"CREATE DATABASE {name}")
        with connected(parse_target(self.url(name))) as connection:
            migrate(connection)
        return name

    def role(self, name: str, group: str) -> str:
        """Make a role that is in a group; return its name."""
        if not self.ask(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'"):  # noqa: S608 # our own names
            self.ask(f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{name}' IN ROLE {group}")
        return name


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def made_certificate(folder: Path) -> Path:
    """Make server.crt and server.key for localhost, signed by itself, in a folder; return the folder."""
    certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "server.key", "-out", folder / "server.crt"]
    subprocess.run([*certificate, *names], check=True, capture_output=True)
    return folder


@contextlib.contextmanager
def served(within: Sequence[str] = ()) -> Iterator[Server]:
    """Start one for a while, by a command that leads elsewhere; as root it runs as the user postgres."""
    programs = postgres_programs()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="ckpt-pg-"))
    data = folder / "data"
    data.mkdir()
    made_certificate(folder)
    own: list[str] = []
    if os.geteuid() == 0:
        own = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        for path in (folder, data, folder / "server.key", folder / "server.crt"):
            shutil.chown(path, "postgres", "postgres")
        folder.chmod(0o755)

    def call(*command: str | Path) -> None:
        subprocess.run([*own, *command], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=folder)

    try:
        call(programs / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8")
        (data / "pg_hba.conf").write_text(_HBA)
        settings = {
            "unix_socket_directories": folder, "listen_addresses": "localhost", "fsync": "off",
            "ssl": "on", "ssl_cert_file": folder / "server.crt", "ssl_key_file": folder / "server.key",
        }  # fmt: skip
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        dying = ["setpriv", "--pdeathsig=INT", *(own[1:] or ["--"])]  # with whoever started it, however that ends
        command = [*within, *dying, programs / "postgres", "-D", data, *options]
        for tries_left in reversed(range(_TRIES)):
            started = Server(folder, _free_port())
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen([*command, "-c", f"port={started.port}"], stderr=log, cwd=folder)
            try:
                wait_until(lambda p=process, s=started: p.poll() is not None or s.answers(), "PostgreSQL is silent")
            except BaseException:
                process.kill()
                raise
            if process.poll() is None or not tries_left:  # else somebody took the port meanwhile
                break
        try:
            yield started
        finally:
            process.send_signal(signal.SIGQUIT)  # at once
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def bounced(server: Server, *roles: str) -> Iterator[Server]:
    """Put pgbouncer before a server for a while, in transaction mode, with a single connection for each role."""
    folder = Path(tempfile.mkdtemp(prefix="ckpt-pgb-"))
    started = Server(folder, _free_port())
    settings = {
        "unix_socket_dir": folder, "listen_port": started.port, "pool_mode": "transaction", "default_pool_size": 1,
        "auth_type": "trust", "auth_file": folder / "users",
    }  # fmt: skip
    lines = [f"{name}={value}" for name, value in settings.items()]
    where = f"*=host={server.folder} port={server.port}"
    (folder / "ini").write_text("\n".join(["[databases]", where, "[pgbouncer]", *lines, ""]))
    (folder / "users").write_text("".join(f'"{role}" "{role}"\n' for role in ("postgres", *roles)))
    command = ["setpriv", "--pdeathsig=INT"]
    if os.geteuid() == 0:
        command += ["--reuid=postgres", "--regid=postgres", "--clear-groups"]
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "postgres", "postgres")
        folder.chmod(0o755)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--", "pgbouncer", folder / "ini"], stderr=log, cwd=folder)
    try:
        wait_until(lambda: process.poll() is not None or started.answers(), "pgbouncer is silent")
        assert process.poll() is None, (folder / "log").read_text()
        yield started
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Return a server for all tests of a room; whatever is in it is gone in the end."""
    need("postgres")
    with served() as started:
        yield started


@pytest.fixture
def fleet(server: Server) -> str:
    """Return the name of a database that is ready for nodes, for one test."""
    return server.database()
