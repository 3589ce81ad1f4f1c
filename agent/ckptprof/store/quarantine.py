"""Sets a damaged database aside, so that recording continues in a new one.

A file is only touched if ckptprof certainly wrote it: it is in the service's own folder, or its first page has the
application id.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone
from pathlib import Path

from ckptprof.store.location import SERVICE_DATABASE
from ckptprof.store.migrations import APPLICATION_ID

MAX_SET_ASIDE = 3  # a disk that keeps damaging databases must not be filled with them
_SUFFIX = ".damaged-"
_SQLITE_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID_OFFSET = 68  # https://www.sqlite.org/fileformat2.html, section 1.3
_COMPANIONS = ("-wal", "-shm")


def is_own_database(path: Path) -> bool:
    """Test whether ckptprof wrote this file. This process must not have it open."""
    if path == SERVICE_DATABASE:
        return True
    try:
        with path.open("rb") as stream:
            head = stream.read(_APPLICATION_ID_OFFSET + 4)
    except OSError:
        return False
    return head.startswith(_SQLITE_MAGIC) and head[_APPLICATION_ID_OFFSET:] == APPLICATION_ID.to_bytes(4, "big")


def set_aside(path: Path) -> Path:
    """Rename the database with its log; keep the latest `MAX_SET_ASIDE`. Returns its new name, raises OSError."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    target = path.with_name(f"{path.name}{_SUFFIX}{stamp}")
    for suffix in _COMPANIONS:
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").replace(f"{target}{suffix}")
    path.replace(target)
    for old in list_set_aside(path)[:-MAX_SET_ASIDE]:
        for suffix in ("", *_COMPANIONS):
            with contextlib.suppress(OSError):
                Path(f"{old}{suffix}").unlink()
    return target


def list_set_aside(path: Path) -> list[Path]:
    """List the databases that were set aside, oldest first; none where the folder may not be listed."""
    prefix = f"{path.name}{_SUFFIX}"
    try:
        found = [one for one in path.parent.iterdir() if one.name.startswith(prefix)]
    except OSError:
        return []
    return sorted(one for one in found if not one.name.endswith(_COMPANIONS))
