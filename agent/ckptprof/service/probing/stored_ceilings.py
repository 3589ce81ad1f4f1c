"""Measured ceilings, a file for each mount in the folder of the database; later verdicts compare with them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

import msgspec

from ckptprof.diagnose.ceilings import Ceilings
from ckptprof.store.location import default_path, path_of_database

FOLDER = "ceilings"
MAX_FILES = 64  # mounts; the oldest are deleted
_MAX_BYTES = 256 << 10  # a file has about 6 KiB
_SUFFIX = ".json"


def state_directory(db: str | None) -> Path:
    """Return the folder of the database, which is the state directory; raises StoreError."""
    return path_of_database(default_path() if db is None else db).parent


def store_ceilings(state_dir: Path, ceilings: Ceilings) -> Path | None:
    """Write the result of a probe and return its file; raises OSError.

    An incomplete probe does not replace a complete one: then nothing is written, and None returned.
    """
    folder = state_dir / FOLDER
    for missing in [one for one in (*reversed(folder.parents), folder) if not one.exists()]:
        missing.mkdir(mode=0o700, exist_ok=True)
    path = folder / _name(ceilings)
    if not ceilings.complete and (old := _load(path)) is not None and old.complete:
        return None
    _write(path, msgspec.json.format(msgspec.json.encode(ceilings), indent=1))
    _delete_oldest(folder, path)
    return path


def load_ceilings(state_dir: Path) -> tuple[Ceilings, ...]:
    """Return all, the newest last; damaged files and other formats are left out."""
    try:
        paths = sorted(path for path in (state_dir / FOLDER).iterdir() if path.suffix == _SUFFIX)
    except OSError:
        return ()
    loaded = [one for path in paths if (one := _load(path)) is not None]
    return tuple(sorted(loaded, key=lambda one: one.at_ns))


def _name(ceilings: Ceilings) -> str:
    key = (ceilings.device or ceilings.source, ceilings.fs_type, ceilings.mount_point)
    return hashlib.sha256("\0".join(key).encode()).hexdigest()[:16] + _SUFFIX


def _load(path: Path) -> Ceilings | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MAX_BYTES:
            return None
        return msgspec.json.decode(os.read(fd, _MAX_BYTES), type=Ceilings)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    finally:
        os.close(fd)


def _write(path: Path, data: bytes) -> None:
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(staging, flags, 0o600)
    try:
        try:
            os.fchmod(fd, 0o600)  # whatever the umask says
            with open(fd, "wb", closefd=False) as file:
                file.write(data)
            os.fsync(fd)
        finally:
            os.close(fd)
        staging.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            staging.unlink()
        raise


def _delete_oldest(folder: Path, newest: Path) -> None:
    """Remove the oldest files above the limit, and temporary files of killed writers."""
    entries = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.name.startswith(".") and _SUFFIX in path.name and not _is_writer_alive(path.name):
                path.unlink()
            elif path.suffix == _SUFFIX and path != newest:
                entries.append((path.lstat().st_mtime_ns, path))
    for _, path in sorted(entries)[: max(0, len(entries) + 1 - MAX_FILES)]:
        with contextlib.suppress(OSError):
            path.unlink()


def _is_writer_alive(name: str) -> bool:
    return Path("/proc", name.rpartition(".")[2]).exists()
