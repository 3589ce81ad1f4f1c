"""Opening an output file named by the user; it is not truncated, and opening never blocks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ckptprof.errors import CkptprofError, PermissionDeniedError


def open_output(path: Path, mode: int, *, new: bool = False) -> int:
    """Return a descriptor; raises CkptprofError, and FileExistsError if `new` and the file exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    flags |= os.O_EXCL if new else 0
    if path.absolute().parts[1:2] != ("dev",):  # /dev/stdout is a link; others may lead to a file of another user
        flags |= os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, mode)
    except FileExistsError:
        raise
    except PermissionError as error:
        raise PermissionDeniedError(f"{path}: {error.strerror}", hint="name a file that can be written") from error
    except OSError as error:
        if error.errno == errno.ENXIO and path.is_fifo():
            raise CkptprofError(f"{path}: no process reads this pipe", hint="start its reader first") from error
        if error.errno == errno.ELOOP and path.is_symlink():
            raise CkptprofError(f"{path}: is a link", hint="give the path of the file itself") from error
        raise CkptprofError(f"{path}: {error.strerror}", hint="give the path of a file") from error
    os.set_blocking(fd, True)
    return fd
