"""Hashes in the place of names of jobs, users and paths, by HMAC with the key of a site.

A name has the same hash everywhere, and of paths and keys each part has its own, so that nodes still share a run, and
folders a file system. Who lacks the key cannot guess a name by its hash.
"""

from __future__ import annotations

import hmac
import os
import re
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, Run, Sent
from ckptprof.store.connection import is_open_to_others

LEAST_KEY_BYTES = 16
_MAX_KEY_BYTES = 4096
_DIGITS = 12  # hexadecimal
_PART = re.compile(r"[^:/@+]+")
_KIND = re.compile(r"[a-z0-9.]+")
_NUMBER = re.compile(r"\d+(\.\d+)?")  # of a job and its step, a port, an inode
_Text = TypeVar("_Text", str, str | None)


def read_key(path: Path) -> bytes:
    """Read the key of a site; raises StoreError for a file that others may read, or that is too short."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            state = os.fstat(fd)
            key = os.read(fd, _MAX_KEY_BYTES).strip() if stat.S_ISREG(state.st_mode) else b""
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    is_credential = path.parent == Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nowhere"))  # protected by systemd
    if not is_credential and (is_open_to_others(state.st_mode) or state.st_uid not in (0, os.geteuid())):
        raise StoreError(f"others may read the key in {path}", hint=f"chmod 600 {path}")
    if len(key) < LEAST_KEY_BYTES:
        raise StoreError(
            f"{path} has a key of {len(key)} bytes, less than {LEAST_KEY_BYTES}", hint="make one: openssl rand -hex 32"
        )
    return key


class HashedNames:
    """Hashes with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def replace(self, one: Checkpoint) -> Checkpoint:
        """Return a checkpoint with hashes in the place of names. What is not shipped is left as it is."""
        return msgspec.structs.replace(
            one,
            job=self._name(one.job),
            path=self._name(one.path),
            run=None if one.run is None else self._run(one.run),
            place=None if one.place is None else msgspec.structs.replace(one.place, key=self._keyed(one.place.key)),
            sent=None if one.sent is None else Sent(
                destinations=(), connections=one.sent.connections, parts=one.sent.parts, part_bytes=one.sent.part_bytes
            ),
            writers=tuple(msgspec.structs.replace(writer, comm="") for writer in one.writers),
        )  # fmt: skip

    def _run(self, run: Run) -> Run:
        return Run(
            key=self._keyed(run.key), scheduler=run.scheduler, job=self._name(run.job), restart=run.restart,
            ranks=run.ranks, nodes=run.nodes, node=run.node, user=self._name(run.user),
            account=self._name(run.account), partition=self._name(run.partition),
        )  # fmt: skip

    def _name(self, name: _Text) -> _Text:
        return name if name is None else _PART.sub(self._part, name)

    def _keyed(self, key: str) -> str:
        """Hash a key whose first word, the kind of key, stays."""
        kind, _, rest = key.partition(":")
        return f"{kind}:{self._name(rest)}" if rest and _KIND.fullmatch(kind) else self._name(key)

    def _part(self, found: re.Match[str]) -> str:
        part = found[0]
        if _NUMBER.fullmatch(part):
            return part
        return hmac.digest(self._key, part.encode("utf-8", "backslashreplace"), "sha256").hex()[:_DIGITS]
