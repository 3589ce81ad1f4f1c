"""Touches a directory in a process of its own, so that who waits for it goes on if its file system does not answer.

A call to a server that hangs cannot be interrupted, and once the server has taken it not even be killed (NFS, FUSE).
What it holds is left behind then, and is gone when the server answers or its mount ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

from ckptprof.errors import CkptprofError
from ckptprof_collectors import hostfacts
from ckptprof_collectors.samples import text

_LOOK_SECONDS = 0.1
_TO_END_SECONDS = 10.0  # after a signal: it removes what it made
_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
T = TypeVar("T")
Say = Callable[[str], None]


class HangsError(CkptprofError):
    """The file system of a directory does not answer."""


def apart(
    work: Callable[[Say], T],
    directory: str | bytes,
    *,
    heard: Say = lambda _: None,
    patience_seconds: float,
    halt: threading.Event | None = None,
) -> T:
    """Return what `work` does, or raise what it raises; what it says meanwhile is `heard`.

    Raises HangsError if it says nothing for so many seconds, or does not end soon after `halt` was set.
    """
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        _work(work, theirs)
    theirs.close()
    try:
        found: T = _heard(ours, pid, heard, patience_seconds, halt or threading.Event())
    except TimeoutError as error:
        raise HangsError(
            f"{text(os.fsencode(directory))}: its file system has not answered for {error} s",
            hint="`ckptprof doctor` names remote mounts; end the hanging one (`umount -f`, or its server)",
        ) from error
    finally:
        ours.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return found


def _work(work: Callable[[Say], T], theirs: Connection) -> None:
    """Work, tell what came of it, and end; with the process that waits for it, too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    hostfacts.own.cache_clear()  # it is another one
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # whoever reads what the command prints does not wait for this one
        os.dup2(nowhere, standard)
    try:
        try:
            theirs.send((True, work(lambda said: theirs.send((None, said)))))
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            theirs.send((False, error))
    finally:
        os._exit(0)


def _heard(ours: Connection, pid: int, heard: Say, patience_seconds: float, halt: threading.Event) -> Any:
    """Return what came of the work; raises that, and TimeoutError with the seconds of silence."""
    limit, until, is_ending = patience_seconds, time.monotonic() + patience_seconds, False
    while True:
        while not ours.poll(_LOOK_SECONDS):
            if halt.is_set() and not is_ending:
                os.kill(pid, signal.SIGTERM)
                limit, until, is_ending = _TO_END_SECONDS, time.monotonic() + _TO_END_SECONDS, True
            if time.monotonic() > until:
                raise TimeoutError(f"{limit:g}")
        try:
            is_result, said = ours.recv()
        except EOFError:
            raise CkptprofError("the process that probed was ended by somebody else") from None
        if is_result:
            return said
        if is_result is False:
            raise said
        heard(said)
        if not is_ending:
            until = time.monotonic() + limit
