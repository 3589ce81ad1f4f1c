"""Where the database is. Imports nothing slow."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from ckptprof.errors import StoreError

SERVICE_DIRECTORY = Path("/var/lib/ckptprof")
DATABASE_NAME = "ckptprof.db"
SERVICE_DATABASE = SERVICE_DIRECTORY / DATABASE_NAME
UNIT_INVOCATION = Path("/run/systemd/units/invocation:ckptprof.service")  # systemd keeps it while the unit is active
SYSTEMD_RUNTIME = Path("/run/systemd/system")  # sd_booted(3)
FLEET_SCHEMES = ("s3", "gs", "gcs", "file")
_GROUP_HINT = "only root and the group ckptprof may read the service's database: `usermod -aG ckptprof USER` as root"


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
    return home / "ckptprof" / DATABASE_NAME


def path_to_read() -> Path:
    """Database to read if none is named: that of CKPTPROF_DB, else the user's own, else the service's if readable.

    Raises StoreError for a user without a home who may not read the service's.
    """
    if named := os.environ.get("CKPTPROF_DB"):
        return path_of_database(named)
    readable = os.access(SERVICE_DATABASE, os.R_OK)
    try:
        own = default_path()
    except StoreError:
        if readable:
            return SERVICE_DATABASE
        raise
    return SERVICE_DATABASE if readable and not os.path.lexists(own) else own


def is_service_running() -> bool:
    """Test whether systemd runs the service on this host; needs no privilege."""
    return os.path.lexists(UNIT_INVOCATION)


def missing_data_hint(path: Path) -> str:
    """Hint for a missing or empty database at `path`."""
    if not is_service_running():
        host_command = "ckptprof service install" if SYSTEMD_RUNTIME.is_dir() else "ckptprof agent"
        return f"record one command with `ckptprof run -- CMD`, or the whole host with `{host_command}` as root"
    if path == SERVICE_DATABASE:
        return "the service has just started: try again in a few seconds"
    if os.access(SERVICE_DATABASE, os.R_OK):
        return f"the service on this host records to {SERVICE_DATABASE}: read that with --db"
    return _GROUP_HINT


def permission_hint(path: Path) -> str:
    """Hint for a database at `path` that the system refuses to open."""
    return _GROUP_HINT if SERVICE_DIRECTORY in (path, path.parent) else "give another path with --db"


def is_fleet(text: str) -> bool:
    """Test for the URL of a fleet, or a folder with the files of one."""
    if "://" in text:
        return text.partition("://")[0] in FLEET_SCHEMES
    return os.path.isdir(f"{text}/v1")  # noqa: PTH112 # no error for a text that is no path


def path_of_database(text: str | Path) -> Path:
    """Make a path absolute; raises StoreError for a URL."""
    if isinstance(text, str) and "://" in text:
        scheme = text.partition("://")[0]  # what follows may have a password
        raise StoreError(f"a database of kind {scheme!r} is not supported", hint="give the path of a file")
    try:
        return Path(os.path.abspath(Path(text).expanduser()))  # noqa: PTH100 # resolve() would follow links
    except (RuntimeError, OSError) as error:  # ~nobody-there, or a working directory that was removed
        raise StoreError(f"{printable_path(Path(text))}: {error}", hint="give an absolute path with --db") from error


def file_uri(path: Path, *, mode: str = "ro", immutable: bool = False) -> str:
    """SQLite's URI of an existing file, opened for reading (`ro`) or writing (`rw`)."""
    return f"file:{quote(os.fsencode(path))}?mode={mode}" + ("&immutable=1" if immutable else "")


def printable_path(path: Path) -> str:
    """Format a path for a message: undecodable bytes are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
