"""Title of a process in `ps` and `top` (PR_SET_NAME in prctl(2), cmdline in proc(5)).

By hand and not by setproctitle, which is a compiled module: where it has no wheel yet, as for a new Python, installing
ckptprof would take a compiler. It also moves the environment. A title that fits into the arguments needs neither.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

_PR_SET_NAME = 15  # include/uapi/linux/prctl.h
_COMM_BYTES = 15
_ARG_START = 47  # fields of /proc/PID/stat after the name, from `state` as 0: arg_start is the 48th of all
_ARG_END = 48
_BEFORE_STATE = 2


def set_title(role: str) -> bool:
    """Show this process as "ckptprof: ROLE"; return whether the title fitted. Call it in the main thread."""
    name = f"ckptprof:{role}".encode()[:_COMM_BYTES]
    ctypes.CDLL(None).prctl(_PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = (int(fields[number - _BEFORE_STATE]) for number in (_ARG_START, _ARG_END))
    except (OSError, ValueError, IndexError):
        return False
    title = f"ckptprof: {role}".encode()
    if start == 0 or end - start <= len(title):
        return False
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, title, len(title))
    return True
