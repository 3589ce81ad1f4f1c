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
from ckptprof_collectors import process_facts
from ckptprof_collectors.abandoned import ABANDONED, reap, uninterruptible_sleep
from ckptprof_collectors.samples import text

END_THE_MOUNT = "end the mount that hangs (`umount -f`, or its server)"
_POLL_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
T = TypeVar("T")
OnReport = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StopEvents:
    """`halt` ends the work, `give_up` ends waiting for it."""

    halt: threading.Event = field(default_factory=threading.Event)
    give_up: threading.Event = field(default_factory=threading.Event)


class NoAnswerError(CkptprofError):
    """A directory was not read in time: its file system hangs, or this host is too busy to know."""

    def __init__(self, directory: str | bytes, seconds: float, *, hangs: bool) -> None:
        """`hangs`: the process that reads it sleeps in one call (`uninterruptible_sleep`)."""
        self.hangs = hangs
        where = text(os.fsencode(directory))
        if hangs:
            super().__init__(f"{where}: its file system has not answered for {seconds:.3g} s", hint=END_THE_MOUNT)
        else:
            reason = f"not read within {seconds:.3g} s: this host is too busy, or its file system does not answer"
            super().__init__(f"{where}: {reason}", hint="try again when this host is less busy")


def run_isolated(
    work: Callable[[OnReport], T],
    directory: str | bytes,
    *,
    on_report: OnReport = lambda _: None,
    patience_seconds: float,
    stop: StopEvents | None = None,
) -> T:
    """Return the result of `work`, or raise its exception; its messages go to `on_report`.

    Raises NoAnswerError if it sends none for `patience_seconds`, or does not end within as many after `stop.halt` was
    set, in which it removes its files; also at once when `stop.give_up` is set.
    """
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        _run_child(work, theirs)
    theirs.close()
    try:
        result: T = _await_result(ours, pid, on_report, patience_seconds, stop or StopEvents())
    except _SilentError as error:
        raise NoAnswerError(directory, error.seconds, hangs=error.hangs) from error
    finally:
        ours.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if not reap(pid):
            ABANDONED.add("apart", lambda: reap(pid))
    return result


class _SilentError(Exception):
    def __init__(self, seconds: float, *, hangs: bool) -> None:
        super().__init__()
        self.seconds, self.hangs = seconds, hangs


def _run_child(work: Callable[[OnReport], T], theirs: Connection) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    process_facts.own_process.cache_clear()  # after fork it is another process
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # readers of the command's output must not wait for this process
        os.dup2(nowhere, standard)
    try:
        try:
            theirs.send((True, work(lambda message: theirs.send((None, message)))))
        except Exception as error:  # noqa: BLE001 - the parent raises it
            theirs.send((False, error))
    finally:
        os._exit(0)


def _await_result(ours: Connection, pid: int, on_report: OnReport, patience_seconds: float, stop: StopEvents) -> Any:
    silent_seconds, is_ending, polled = 0.0, False, time.monotonic()
    sleep, slept_seconds = uninterruptible_sleep(pid), 0.0
    while True:
        while not ours.poll(_POLL_SECONDS):
            if stop.halt.is_set() and not is_ending:
                os.kill(pid, signal.SIGTERM)
                silent_seconds, is_ending = 0.0, True
            before, polled = polled, time.monotonic()
            passed_seconds = min(polled - before, 2 * _POLL_SECONDS)  # more means that both were stopped
            silent_seconds += passed_seconds
            slept, sleep = sleep, uninterruptible_sleep(pid)
            slept_seconds = slept_seconds + passed_seconds if sleep is not None and sleep == slept else 0.0
            if silent_seconds > patience_seconds or stop.give_up.is_set():
                hangs = slept_seconds > silent_seconds / 2
                raise _SilentError(min(silent_seconds, patience_seconds), hangs=hangs)
        try:
            is_result, message = ours.recv()
        except EOFError:
            raise CkptprofError("the probing process was killed") from None
        if is_result:
            return message
        if is_result is False:
            raise message
        on_report(message)
        if not is_ending:
            silent_seconds = 0.0
