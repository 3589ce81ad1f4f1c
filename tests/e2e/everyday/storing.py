"""Databases, logs, mail, benchmarks of disks, core dumps."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from everyday.task import Place, Task, python, shell

_CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")


def _postgres_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def _postgres(place: Place) -> None:
    """Load a table of 60 MB and more into a fresh cluster, update, vacuum, dump and drop it."""
    programs = _postgres_programs()
    if programs is None:
        raise FileNotFoundError("no PostgreSQL server is installed")
    place.folder.chmod(0o755)
    data = place.folder / "cluster"
    data.mkdir()
    shutil.chown(data, "postgres", "postgres")
    as_postgres: list[str | Path] = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
    place.run(*as_postgres, programs / "initdb", "-D", data, "-A", "trust", "--no-sync")
    options = f"-k {data} -c listen_addresses= -c max_wal_size=64MB"
    start: list[str | Path] = ["-D", data, "-o", options, "-l", data / "log", "-w"]
    place.run(*as_postgres, programs / "pg_ctl", *start, "start")
    try:
        client = [*as_postgres, programs / "psql", "-h", data, "-q", "postgres", "-c"]
        place.run(
            *client,
            "create table t as select n, md5(n::text) a, repeat(md5(n::text), 3) b from generate_series(1, 300000) n",
        )
        place.run(*client, "update t set a = b where n % 3 = 0")
        place.run(*client, f"copy t to '{data}/weights.bin' (format binary)")
        place.run(*client, "create index on t (a)")
        place.run(*client, "vacuum full t")
        place.run(*client, "checkpoint")
    finally:
        place.run(*as_postgres, programs / "pg_ctl", "-D", data, "-m", "fast", "-w", "stop")


@contextlib.contextmanager
def _cores_in_files() -> Iterator[None]:
    """Let cores go to files if a program takes them, and give it back; needs root only then."""
    before = _CORE_PATTERN.read_text()
    if not before.startswith("|"):
        yield
        return
    _CORE_PATTERN.write_text("core.%p")
    try:
        yield
    finally:
        _CORE_PATTERN.write_text(before)


def _core_dump(place: Place) -> None:
    with _cores_in_files():
        place.python("crash.py", "200")
    if not any(place.folder.glob("core*")) and os.geteuid() == 0:
        raise FileNotFoundError(f"no core was dumped: {_CORE_PATTERN.read_text()!r}")


_FIO = "--filename=fio.dat --size=128M --runtime=2 --time_based --group_reporting --output=fio.log"

TASKS = (
    Task("PostgreSQL", _postgres, ("setpriv",)),
    python("SQLite", "stores.py", "sqlite"),
    python("LMDB-like maps", "stores.py", "mapped"),
    python("fast log", "stores.py", "log"),
    python("journal", "stores.py", "journal"),
    python("mail", "stores.py", "mail"),
    python("video", "stores.py", "video"),
    python("logs in a checkpoint's name", "stores.py", "imitate"),
    shell("log rotation", "for i in 1 2 3; do { yes 'a line of a log that says very little' || true; "
    "} | head -c 30M > app.log; "
          "mv app.log app.log.$i; gzip -1 app.log.$i; done"),
    shell("logrotate", "{ yes 'GET / 200' || true; } | head -c 40M > access.log; "
    "printf '%s/access.log {\\n rotate 2\\n compress\\n copytruncate\\n}\\n' $PWD > c; "
          "chmod 644 c; /usr/sbin/logrotate -f -s state c", "/usr/sbin/logrotate"),
    shell("swap file", "fallocate -l 128M swapfile; chmod 600 swapfile; "
    "dd if=/dev/zero of=swapfile bs=1M count=128 conv=notrunc status=none; "
          "/sbin/mkswap -q swapfile", "/sbin/mkswap"),
    shell("fio random writes", f"fio --name=r --rw=randwrite --bs=16k --ioengine=psync --fsync=64 {_FIO}", "fio"),
    shell("fio direct", f"fio --name=d --rw=randrw --bs=64k --ioengine=libaio --iodepth=8 --direct=1 {_FIO}", "fio"),
    shell("fio sequential", f"fio --name=s --rw=write --bs=1M --ioengine=psync {_FIO}", "fio"),
    Task("core dump", _core_dump),
)  # fmt: skip
