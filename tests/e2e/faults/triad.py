"""The triad of a save over TCP: the path is slow beyond this host, the server is, or nothing but the job itself.

A real SFTP mount (FUSE) over real namespaces; each job is observed by `ckptprof run`, as root or as an ordinary user.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fault_grounds import sshfs
from recorder import check_job, ckptprof_command
from tests.leftovers import own

SAVER = Path(__file__).with_name("saver.py")
NEEDED = ("sshfs", "socat", "tc", "ip", "setpriv")
NOBODY = 65534
# The checkout may be where nobody else may look; seeing files is no privilege that sockets need
MAY_READ = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")


@dataclass(frozen=True)
class Planted:
    """What is slow, the limit that it is, and what is done to have it so."""

    name: str
    limit: str
    ground: Callable[..., AbstractContextManager[Path]]
    way: str
    size_mb: int


TRIAD = (
    Planted("path", "network", partial(sshfs, 160, routed=True), "raw", 28),
    Planted("server", "server", partial(sshfs, server_bytes=20_000_000, routed=True), "raw", 28),
    Planted("sender", "serialize", partial(sshfs, routed=True), "packed", 28),
)


def missing() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in NEEDED if shutil.which(name) is None]


def verdicts(planted: Planted, *, saves: int, level: str, user: int | None = None) -> list[dict[str, Any]]:
    """Return what is told of the saves of one job, as `show --json` has it."""
    work = Path(tempfile.mkdtemp(prefix=own("triad-")))
    prefix: list[str] = []
    if user is not None:
        shutil.chown(work, user, user)
        prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *MAY_READ, "--"]
    try:
        with planted.ground(user=user) as place:
            database = ["--db", str(work / "triad.db")]
            job = [ckptprof_command()[0], str(SAVER), str(place), str(planted.size_mb), str(saves), planted.way]
            _call([*prefix, *ckptprof_command(), "run", *database, "--level", level, "--", *job], work)
        report = json.loads(_call([*ckptprof_command(), "report", "--json", *database], work))
        ids = [str(one["id"]) for one in report["checkpoints"] if one["kind"] == "save"]
        shown = [_call([*ckptprof_command(), "show", one, "--json", *database], work) for one in ids]
        return [json.loads(one)["checkpoint"] for one in shown]
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _call(command: list[str], work: Path) -> bytes:
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(work), "OMP_NUM_THREADS": "1", "TMPDIR": "/tmp"}
    done = subprocess.run(command, capture_output=True, check=False, cwd=work, env=environment)
    check_job(done)
    return done.stdout
