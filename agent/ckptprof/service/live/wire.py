"""How the agent tells what goes on: JSON lines from a local socket, one a second; nothing is ever asked by it."""

from __future__ import annotations

import grp
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ckptprof.encoding import all_encodable
from ckptprof.report.live.state import State
from ckptprof.store.location import SERVICE_DATABASE

VERSION = 1
GROUP = "ckptprof"
SERVICE_SOCKET = Path("/run/ckptprof/live.sock")
MAX_LINE_BYTES = 1 << 20


class Line(msgspec.Struct, frozen=True):
    """One line; who reads it looks at the version first."""

    version: int
    state: msgspec.Raw


def socket_of(database: Path) -> Path:
    """Return the socket of who records to a database: the service's, or one beside it."""
    return SERVICE_SOCKET if database == SERVICE_DATABASE else database.with_name(f"{database.name}.live.sock")


def encode(state: State) -> bytes:
    """Return the line of a state; surrogates in names are escaped."""
    try:
        told = msgspec.json.encode(state)
    except UnicodeEncodeError:
        told = msgspec.json.encode(all_encodable(msgspec.to_builtins(state)))
    return msgspec.json.encode(Line(VERSION, msgspec.Raw(told))) + b"\n"


def decode(line: bytes) -> State | None:
    """Return the state of a line; None for one of another version, or that is none."""
    try:
        found = msgspec.json.decode(line, type=Line)
        return msgspec.json.decode(found.state, type=State) if found.version == VERSION else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def mode_of(path: Path) -> tuple[int, int | None]:
    """Return the mode of a socket, and the group that may read it; None: its owner alone."""
    if path != SERVICE_SOCKET:
        return stat.S_IRUSR | stat.S_IWUSR, None
    try:
        return 0o660, grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return stat.S_IRUSR | stat.S_IWUSR, None


@contextmanager
def short(path: Path) -> Iterator[str]:
    """Give a name of a socket that fits into an address (108 bytes), whatever its folder is called. Raises OSError."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
