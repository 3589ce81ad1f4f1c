"""Work on a directory in a separate process, so that the caller can continue if the file system does not answer.

A call to a hanging server cannot be interrupted, and once the server has received it not even be killed (NFS, FUSE).
The process is then abandoned, and ends when the server answers or its mount ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

from ckptprof.errors import CkptprofError
from ckptprof_collectors import hostfacts
from ckptprof_collectors.abandoned import ABANDONED, has_ended, sleep_of
from ckptprof_collectors.samples import text

END_THE_MOUNT = "end the mount that hangs (`umount -f`, or its server)"
_LOOK_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
T = TypeVar("T")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Stop:
    """`halt` ends the work, `give_up` ends waiting for it."""

    halt: threading.Event = field(default_factory=threading.Event)
    give_up: threading.Event = field(default_factory=threading.Event)


class NoAnswerError(CkptprofError):
    """A directory was not read in time: its file system hangs, or this host is too busy to know."""

    def __init__(self, directory: str | bytes, seconds: float, *, hangs: bool) -> None:
        """`hangs`: the process that reads it sleeps in one call (`sleep_of`)."""
        self.hangs = hangs
        where = text(os.fsencode(directory))
        if hangs:
            super().__init__(f"{where}: its file system has not answered for {seconds:.3g} s", hint=END_THE_MOUNT)
        else:
            reason = f"not read within {seconds:.3g} s: this host is too busy, or its file system does not answer"
            super().__init__(f"{where}: {reason}", hint="try again when this host is less busy")


def apart(
    work: Callable[[Say], T],
    directory: str | bytes,
    *,
    heard: Say = lambda _: None,
    patience_seconds: float,
    stop: Stop | None = None,
) -> T:
    """Return the result of `work`, or raise its exception; its messages go to `heard`.

    Raises NoAnswerError if it sends none for `patience_seconds`, or does not end within as many after `stop.halt` was
    set, in which it removes its files; also at once when `stop.give_up` is set.
    """
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        _work(work, theirs)
    theirs.close()
    try:
        found: T = _heard(ours, pid, heard, patience_seconds, stop or Stop())
    except _SilentError as error:
        raise NoAnswerError(directory, error.seconds, hangs=error.hangs) from error
    finally:
        ours.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if not has_ended(pid):
            ABANDONED.add("apart", lambda: has_ended(pid))
    return found


class _SilentError(Exception):
    def __init__(self, seconds: float, *, hangs: bool) -> None:
        super().__init__()
        self.seconds, self.hangs = seconds, hangs


def _work(work: Callable[[Say], T], theirs: Connection) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    hostfacts.own.cache_clear()  # it is another one
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # readers of the command's output must not wait for this process
        os.dup2(nowhere, standard)
    try:
        try:
            theirs.send((True, work(lambda said: theirs.send((None, said)))))
        except Exception as error:  # noqa: BLE001 - the parent raises it
            theirs.send((False, error))
    finally:
        os._exit(0)


def _heard(ours: Connection, pid: int, heard: Say, patience_seconds: float, stop: Stop) -> Any:
    silent_seconds, is_ending, looked = 0.0, False, time.monotonic()
    sleep, slept_seconds = sleep_of(pid), 0.0
    while True:
        while not ours.poll(_LOOK_SECONDS):
            if stop.halt.is_set() and not is_ending:
                os.kill(pid, signal.SIGTERM)
                silent_seconds, is_ending = 0.0, True
            before, looked = looked, time.monotonic()
            passed_seconds = min(looked - before, 2 * _LOOK_SECONDS)  # more means that both were stopped
            silent_seconds += passed_seconds
            slept, sleep = sleep, sleep_of(pid)
            slept_seconds = slept_seconds + passed_seconds if sleep is not None and sleep == slept else 0.0
            if silent_seconds > patience_seconds or stop.give_up.is_set():
                hangs = slept_seconds > silent_seconds / 2
                raise _SilentError(min(silent_seconds, patience_seconds), hangs=hangs)
        try:
            is_result, said = ours.recv()
        except EOFError:
            raise CkptprofError("the probing process was killed") from None
        if is_result:
            return said
        if is_result is False:
            raise said
        heard(said)
        if not is_ending:
            silent_seconds = 0.0
