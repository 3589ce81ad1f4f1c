"""The attacks that no program of a user is: files, servers, folders and a booted machine. Each returns the harm."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psutil

from ckptprof_collectors.processes.python_stacks import run_py_spy

from bootedmachine import Machine  # isort: skip - found by `proofs`
from livecommand import CKPTPROF  # isort: skip
from silentfuse import silent  # isort: skip

if TYPE_CHECKING:
    from proofs.attacks import Host

SCRAPE_SECONDS = 2.0
MEMORY_BYTES = 256 << 20  # recorder and sampler together, or one command
WINDOW_SECONDS = 6.0
USER = 65534


class NotHereError(Exception):
    """This host lacks what the row needs."""


def locks(host: Host) -> str:
    """Restart the service while a reader of its group has locked each file that he may open."""
    with _reader(host.booted(), _LOCKS.replace("KIND", "flock")) as count:
        machine = host.booted()
        machine.call("systemctl", "restart", "ckptprof")
        limit = time.monotonic() + 45
        while (state := machine.property("ActiveState")) != "active" and time.monotonic() < limit:
            time.sleep(0.5)
    if state != "active":
        machine.call("systemctl", "reset-failed", "ckptprof")
        machine.run("systemctl", "restart", "ckptprof")
        return f"the unit is {state} while a reader locks {count} files"
    return ""


def readers(host: Host) -> str:
    """Let a reader lock bytes and hold back a SELECT while a job saves."""
    machine = host.booted()
    before = machine.journal().count("not storing for now")
    with _reader(machine, _LOCKS.replace("KIND", "posix")) as count:
        known = len(machine.steps())
        machine.train("--steps=2", wait=True)
        limit = time.monotonic() + 15
        while len(machine.steps()) < known + 1 and time.monotonic() < limit:
            time.sleep(1)
        stored = len(machine.steps()) > known
    failed = machine.journal().count("not storing for now") > before
    return "" if stored and not failed else f"nothing is stored while a reader holds locks on {count} files"


_LOCKS = """
import fcntl, glob, os, sqlite3, sys, time
held = []
for path in glob.glob("/var/lib/ckptprof/**", recursive=True):
    try: fd = os.open(path, os.O_RDONLY)
    except OSError: continue
    held.append(fd)
    try: fcntl.flock(fd, fcntl.LOCK_SH) if "KIND" == "flock" else fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 0)
    except OSError: pass
    if "KIND" == "posix" and path.endswith(".db"):
        try:
            one = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None); one.execute("BEGIN")
            one.execute("SELECT count(*) FROM sessions").fetchone(); held.append(one)
        except sqlite3.Error: pass
print(len(held), flush=True); time.sleep(600)
"""


@contextlib.contextmanager
def _reader(machine: Machine, program: str) -> Iterator[int]:
    """Run a program as a member of the group; yields how much it holds. RuntimeError if it opens nothing at all."""
    entered = ("nsenter", f"--target={machine._init}", "--all")  # noqa: SLF001 - of the tests' own
    command = (*entered, "runuser", "-u", "reader", "--", "python3", "-c", program)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if (count := int(process.stdout.readline() or 0)) < 2:  # the folder, and what readers are to read
                raise RuntimeError("the reader could open nothing: the attack did not run")
            yield count
        finally:
            process.kill()


def rights(host: Host) -> str:
    """Ask for the effective capabilities of recorder and sampler."""
    machine = host.booted()
    found = {one: machine.capabilities(pid)["Eff"].lstrip("0") for one, pid in
             zip(("recorder", "sampler"), machine.pids(), strict=True)}  # fmt: skip
    held = [f"{one} {value}" for one, value in found.items() if value]
    return f"effective all the time: {', '.join(held)}" if held else ""


def hung_child(host: Host) -> str:
    """Let py-spy open a file of a mount that never answers: SIGKILL does not end it."""
    place = host.work / "silent"
    place.mkdir(exist_ok=True)
    spy = host.work / "py-spy"
    spy.write_text(f"#!/bin/sh\nexec cat {place}/x/y\n")
    spy.chmod(0o755)
    with silent(place, USER) as mount:
        look = threading.Thread(target=run_py_spy, args=(str(spy), os.getpid()), daemon=True)
        look.start()
        look.join(15)
        if not mount.asked:
            raise RuntimeError("the mount was not asked")
        hangs = look.is_alive()
    look.join(10)
    return "a look of 2 s at the stacks of a process does not end in 15 s" if hangs else ""


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
            seconds, used, said = _measured(host, "ship", "--to", url, "--db", str(path))
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
