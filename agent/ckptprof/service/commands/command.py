"""The command of `ckptprof run`: started, waited for, sent signals to, and reported by a shell's exit codes."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ckptprof.errors import CkptprofError

NOT_FOUND = 127
NOT_EXECUTABLE = 126
SHELL = "/bin/sh"
OUR_STREAMS: Mapping[int, int] = MappingProxyType({})  # it has all of ours
_PR_SET_CHILD_SUBREAPER = 36  # include/uapi/linux/prctl.h


class NotStartedError(CkptprofError):
    """The command could not be started; the exit code is the one that a shell would give."""


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they are still seen as descendants."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Command:
    """A running command."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        others: frozenset[int] = frozenset(),
        blocked: Iterable[int] = (),
        streams: Mapping[int, int] = OUR_STREAMS,
    ) -> None:
        """Start it; `others` are children that somebody else waits for, `blocked` the signals that it is to block.

        `streams` are descriptors of ours by the number that each is to have in it. Raises NotStartedError.
        """
        self._others = others
        # Who ignored it before us (`trap '' CHLD`) would have the kernel throw the exit code away
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            if not arguments[0]:
                raise FileNotFoundError(errno.ENOENT, "")  # as execvp(3) says
            self.pid = _spawn(arguments, blocked, streams)
        except OSError as error:
            raise _not_started(arguments[0], error) from error

    def ended(self) -> bool:
        """Return whether it has ended; it stays a zombie, whose counters can still be read, until `reap`."""
        self._reap_orphans()
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _reap_orphans(self) -> None:
        while True:
            child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if child is None or child.si_pid == self.pid or child.si_pid in self._others:
                return
            os.waitpid(child.si_pid, os.WNOHANG)

    def reap(self) -> int:
        """Return its exit code, 128 and the signal's number if it was killed by one."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Send it a signal; one that has just ended does not mind."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return


def _spawn(arguments: Sequence[str], blocked: Iterable[int], streams: Mapping[int, int]) -> int:
    try:
        return _posix_spawn(arguments, blocked, streams)
    except OSError as error:
        if error.errno != errno.ENOEXEC or (script := _plain_script(arguments[0])) is None:
            raise
    return _posix_spawn([SHELL, script, *arguments[1:]], blocked, streams)  # as execvp(3) and every shell do


def _posix_spawn(arguments: Sequence[str], blocked: Iterable[int], streams: Mapping[int, int]) -> int:
    return os.posix_spawnp(
        arguments[0],
        list(arguments),
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, ours, its) for its, ours in streams.items()],
        setsigmask=blocked,
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these two, the command must not
    )


def _plain_script(name: str) -> str | None:
    """Return the path of a script without a first line that names its interpreter; None for a foreign binary."""
    path = shutil.which(name)
    if path is None:
        return None
    with Path(path).open("rb") as stream:
        return None if b"\0" in stream.read(80) else path


def _not_started(argument: str, error: OSError) -> NotStartedError:
    name = os.fsencode(argument).decode("utf-8", "backslashreplace")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if argument and shutil.which(argument):
            wrong = NotStartedError(f"{name}: the interpreter that its first line names is missing")
        else:
            wrong = NotStartedError(f"{name}: no such command", hint="give its path, or see whether it is on PATH")
        wrong.exit_code = NOT_FOUND
    else:
        reason = "no program that this machine can execute" if error.errno == errno.ENOEXEC else error.strerror
        wrong = NotStartedError(f"{name}: cannot be executed: {reason}", hint="see its mode, and its first line")
        wrong.exit_code = NOT_EXECUTABLE
    return wrong
