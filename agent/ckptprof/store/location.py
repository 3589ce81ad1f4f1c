"""Where the database is: a path, or an SQLAlchemy URL. Imports nothing slow."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote

from ckptprof.errors import StoreError

SERVICE_DIRECTORY = Path("/var/lib/ckptprof")
FILE_NAME = "ckptprof.db"
SERVICE_DATABASE = SERVICE_DIRECTORY / FILE_NAME
RUNNING = Path("/run/systemd/units/invocation:ckptprof.service")  # systemd keeps it while the unit is active
SYSTEMD = Path("/run/systemd/system")  # sd_booted(3)
_SQLITE = "sqlite:///"
_GROUP = "only root and the group ckptprof may read the service's database: `usermod -aG ckptprof USER` as root"
_URL_OPTIONS = re.compile(r"\?\w+=[^/]*$")


def default_path() -> Path:
    """Default database: the service's for root, else the user's own; raises StoreError without a home directory."""
    if os.geteuid() == 0:
        return SERVICE_DATABASE
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        home = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    except RuntimeError:  # no HOME, and no such user in /etc/passwd: a container's made-up uid
        raise StoreError(
            "this user has no home directory for a database", hint="give a path with --db or CKPTPROF_DB"
        ) from None
    return home / "ckptprof" / FILE_NAME


def path_to_read() -> Path:
    """Database to read if none is named: the user's own, else the service's if it is readable.

    Raises StoreError for a user without a home who may not read the service's.
    """
    readable = os.access(SERVICE_DATABASE, os.R_OK)
    try:
        own = default_path()
    except StoreError:
        if readable:
            return SERVICE_DATABASE
        raise
    return SERVICE_DATABASE if readable and not os.path.lexists(own) else own


def service_runs() -> bool:
    """Test whether systemd runs the service on this host; needs no privilege."""
    return os.path.lexists(RUNNING)


def where_to_get_data(path: Path) -> str:
    """Hint for a missing or empty database at `path`."""
    if not service_runs():
        whole = "ckptprof service install" if SYSTEMD.is_dir() else "ckptprof agent"
        return f"record one command with `ckptprof run -- CMD`, or the whole host with `{whole}` as root"
    if path == SERVICE_DATABASE:
        return "the service has just started: try again in a few seconds"
    if os.access(SERVICE_DATABASE, os.R_OK):
        return f"the service on this host records to {SERVICE_DATABASE}: read that with --db"
    return _GROUP


def hint_if_refused(path: Path) -> str:
    """Hint for a database at `path` that the system refuses to open."""
    return _GROUP if SERVICE_DIRECTORY in (path, path.parent) else "give another path with --db"


def is_server(text: str) -> bool:
    """Test for the URL of a database server, False for a file."""
    return text.partition("://")[0] in ("postgresql+psycopg", "postgresql", "postgres")


def to_path(text: str | Path) -> Path:
    """Convert a path or an SQLite URL to a path; raises StoreError for any other URL."""
    if isinstance(text, str) and "://" in text:
        if _URL_OPTIONS.search(text):
            raise StoreError(f"{text}: options after a ? are not supported", hint="give the path of a file")
        if not text.startswith(_SQLITE) or text == _SQLITE:
            scheme = text.partition("://")[0]
            raise StoreError(f"a database of kind {scheme!r} is not supported yet", hint="give the path of a file")
        return Path(text[len(_SQLITE) :])
    try:
        return Path(os.path.abspath(Path(text).expanduser()))  # noqa: PTH100 # resolve() would follow links
    except (RuntimeError, OSError) as error:  # ~nobody-there, or a working directory that was removed
        raise StoreError(f"{shown(Path(text))}: {error}", hint="give an absolute path with --db") from error


def file_uri(path: Path, *, mode: str = "ro", immutable: bool = False) -> str:
    """SQLite's URI of an existing file, opened for reading (`ro`) or writing (`rw`)."""
    return f"file:{quote(os.fsencode(path))}?mode={mode}" + ("&immutable=1" if immutable else "")


def shown(path: Path) -> str:
    """Format a path for a message: undecodable bytes are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
