"""The process that `ckptprof run --pid` joins: somebody else's, watched until it ends or until we are told to go."""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path

from ckptprof.errors import CkptprofError, PermissionDeniedError
from ckptprof.service.recorder.loop import HASTE
from ckptprof.service.recorder.signals import Caught

_PROC = Path("/proc")


class Joined:
    """A process that runs already; it stands where `run` has its command, and is sent nothing."""

    def __init__(self, pid: int) -> None:
        """Take hold of it, so that no later process can take its number.

        Raises CkptprofError where there is no such process, and PermissionDeniedError where this user may not see it.
        """
        self.pid = pid
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError as error:
            raise _none(pid) from error
        except OSError as error:
            if error.errno == errno.EINVAL or (_PROC / str(pid)).exists():  # 6.9 has another word for it
                raise CkptprofError(
                    f"{pid} is a thread, and no process", hint="give the pid that `ps` shows of its process"
                ) from error
            raise CkptprofError(f"process {pid} cannot be followed: {error.strerror}") from error
        try:
            (_PROC / str(pid) / "io").read_bytes()  # what its checkpoints are found by
        except PermissionError as error:
            os.close(self._fd)
            raise PermissionDeniedError(
                f"process {pid} may not be watched by this user", hint="ask as its owner or as root"
            ) from error
        except OSError as error:
            os.close(self._fd)
            raise _none(pid) from error
        self.left = False  # we were told to go

    def ended(self) -> bool:
        """Return whether it is over, for it or for us."""
        return self.left or bool(select.select([self._fd], [], [], 0)[0])

    def take(self, caught: list[Caught]) -> None:
        """Take signals in: they are for us, and none is handed on."""
        self.left |= any(one.number in HASTE for one in caught)

    def turn(self) -> None:
        """Hand on nothing."""

    def reap(self) -> int:
        """Let it go; how it ended is for its own parent to know."""
        os.close(self._fd)
        return 0


def _none(pid: int) -> CkptprofError:
    return CkptprofError(f"there is no process {pid}", hint="`pgrep -af python` lists those that run now")
