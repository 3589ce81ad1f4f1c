"""The attacks that no program of a user is: files, servers and folders. Each returns the harm."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import psutil

from livecommand import CKPTPROF  # isort: skip - found by `proofs`

if TYPE_CHECKING:
    from proofs.attacks import Host

SCRAPE_SECONDS = 2.0
MEMORY_BYTES = 256 << 20  # recorder and sampler together, or one command
WINDOW_SECONDS = 6.0
USER = 65534


_SLOW = "(length(replace(hex(zeroblob(60000000)), '0', 'ab')) = 1)"
_DATABASES = {
    "a computed column": "ALTER TABLE checkpoints RENAME COLUMN path TO path_; ALTER TABLE checkpoints ADD COLUMN "
    f"path TEXT GENERATED ALWAYS AS (CASE WHEN {_SLOW} THEN 'x' ELSE path_ END) VIRTUAL",
    "a cell of 100 MB": "UPDATE checkpoints SET path = replace(hex(zeroblob(100000000)), '00', 'x') "
    "WHERE id = (SELECT min(id) FROM checkpoints)",
    "an endless view": "ALTER TABLE checkpoints RENAME TO c2; CREATE VIEW checkpoints AS WITH RECURSIVE n(i) AS "
    "(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT c2.* FROM c2, n",
    "300,000 rows": "",
}


def databases(host: Host) -> str:
    """Have each crafted database reported."""
    found = []
    for name, script in _DATABASES.items():
        path = host.database()
        with contextlib.closing(sqlite3.connect(path)) as made:
            made.executescript(script or _copies(made))
        seconds, used, said = _measured(host, "report", "--db", str(path))
        if seconds >= REPORT_SECONDS or used > MEMORY_BYTES or "Traceback" in said:
            found.append(
                f"{name}: {seconds:.0f} s, {used >> 20} MiB" + (", a traceback" if "Traceback" in said else "")
            )
    return "; ".join(found)


REPORT_SECONDS = 15.0


def _copies(database: sqlite3.Connection) -> str:
    names = ",".join(f'"{row[1]}"' for row in database.execute("PRAGMA table_info(checkpoints)")
                     if row[1] not in ("id", "uid"))  # fmt: skip
    return (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) INSERT INTO checkpoints "  # noqa: S608 - ours
        f"(id, uid, {names}) SELECT 1000000 + i, uid || i, {names} FROM (SELECT * FROM checkpoints LIMIT 1), n"
    )


def _measured(host: Host, *arguments: str) -> tuple[float, int, str]:
    """Return how long a command took, at most REPORT_SECONDS, its largest memory in bytes, and what it said."""
    began, log = time.monotonic(), host.work / "said"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*CKPTPROF, *arguments], stdout=file, stderr=file, env=host.agents["poll"].environment
        )
    most = 0
    while process.poll() is None and time.monotonic() - began < REPORT_SECONDS:
        with contextlib.suppress(psutil.Error):
            most = max(most, psutil.Process(process.pid).memory_info().rss)
        time.sleep(0.05)
    seconds = time.monotonic() - began
    process.kill()
    process.wait()
    return seconds, most, log.read_text(errors="replace")


_ANSWERS = (
    b"HTTP/1.1 503 Later\r\nRetry-After: " + b"9" * 4000 + b"\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 302 There\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"[" * (1 << 20),
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    b"\xff\x00" * 40000,
    b'HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n{"partialSuccess":{"rejectedLogRecords":"'
    + b"9" * 3900 + b'"}}' + b" " * 60,
)  # fmt: skip


def collectors(host: Host) -> str:
    """Ship to collectors that answer with malice, and then to one that takes all: nothing is to stay behind."""
    path, found, requests = host.database(), [], []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client, contextlib.suppress(OSError):
                        client.settimeout(1)
                        head = client.recv(1 << 16)
                        with contextlib.suppress(TimeoutError):
                            while len(client.recv(1 << 20)) == 1 << 20:
                                pass
                        requests.append(head)
                        client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        for answer in (*_ANSWERS, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"):
            asked = len(requests)
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            seconds, used, said = _measured(host, "ship", "--once", "--to", url, "--db", str(path))
            if seconds >= REPORT_SECONDS or used > MEMORY_BYTES or "Traceback" in said:
                found.append(f"{answer[:40]!r}: {seconds:.0f} s, {used >> 20} MiB, {said[-200:]}")
            if answer is _ANSWERS[0] and len(requests) == asked:
                raise RuntimeError(f"the collector was not asked: {said[-300:]}")
    return "; ".join(found)


def shared_folder(host: Host) -> str:
    """Run a command in a folder like /tmp in which another user has put links and files where ours may go."""
    folder, secret = host.work / "shared", host.work / "secret"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o1777)
    secret.write_text("mine")
    for name in ("x.db", "x.db-wal", "x.db-shm", "x.db.lock", "x.json", "ckptprof.db"):
        (folder / name).symlink_to(secret)
        os.chown(folder / name, USER, USER, follow_symlinks=False)
    found = []
    for options in (("--db", "x.db"), ("--output", "x.json"), ("--db", "y.db", "--output", "x.json"), ()):
        ran = folder / "ran"
        done = subprocess.run(
            [*CKPTPROF, "run", "--level", "poll", *options, "--", "sh", "-c", "echo ran >ran"], cwd=folder, check=False,
            capture_output=True, text=True, env={**host.agents["poll"].environment, "TMPDIR": str(folder)},
        )  # fmt: skip
        if secret.read_text() != "mine":
            found.append(f"written through a link with {' '.join(options)}")
        if "Traceback" in done.stderr or (not options and not ran.exists()):
            found.append(f"{' '.join(options)}: {done.stderr[-200:]}")
        ran.unlink(missing_ok=True)
    return "; ".join(found)
