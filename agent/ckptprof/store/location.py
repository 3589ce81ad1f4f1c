"""Where the database is: a path, or an SQLAlchemy URL. Imports nothing slow."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from ckptprof.errors import StoreError

SERVICE_DIRECTORY = Path("/var/lib/ckptprof")
FILE_NAME = "ckptprof.db"
_SQLITE = "sqlite:///"


def default_path() -> Path:
    """Return the service's database for root, the user's own for others; raises StoreError for one without a home."""
    if os.geteuid() == 0:
        return SERVICE_DIRECTORY / FILE_NAME
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        home = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    except RuntimeError:  # no HOME, and no such user in /etc/passwd: a container's made-up uid
        raise StoreError(
            "this user has no home directory for a database", hint="give a path with --db or CKPTPROF_DB"
        ) from None
    return home / "ckptprof" / FILE_NAME


def to_url(text: str | Path) -> str:
    """Return an SQLAlchemy URL for a path; a text that already is a URL is returned as it is."""
    if isinstance(text, str) and "://" in text:
        return text
    try:
        return _SQLITE + os.path.abspath(Path(text).expanduser())  # noqa: PTH100 # resolve() would follow links
    except (RuntimeError, OSError) as error:  # ~nobody-there, or a working directory that was removed
        raise StoreError(f"{shown(Path(text))}: {error}", hint="give an absolute path with --db") from error


def to_path(text: str | Path) -> Path:
    """Return the file behind a path or an SQLite URL; raises StoreError for any other URL."""
    url = to_url(text)
    if not url.startswith(_SQLITE) or url == _SQLITE:
        scheme = url.partition("://")[0]
        raise StoreError(f"a database of kind {scheme!r} is not supported yet", hint="give the path of a file")
    return Path(url[len(_SQLITE) :])


def file_uri(path: Path, *, immutable: bool = False) -> str:
    """Return SQLite's own URI of a file opened for reading only."""
    return f"file:{quote(os.fsencode(path))}?mode=ro" + ("&immutable=1" if immutable else "")


def shown(path: Path) -> str:
    """Return a path fit for a message: bytes that are no text are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
