"""The heap of glibc, in a process of its own: what a burst took goes back."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

_BURST = """
import ctypes, sys
if sys.argv[1] == "small":
    from ckptprof_collectors import heap

    assert heap.limit_heap()
del [bytearray(24 << 20) for _ in range(2)][:]  # from now on glibc keeps such room, unless it is told not to
burst = [b""] * 300
for place in range(300):  # the list does not grow meanwhile: where it went would stay in the midst of them
    burst[place] = bytearray(100_000)
del burst
class Info(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]
asked = ctypes.CDLL(None).mallinfo2
asked.restype = Info
print(asked().fordblks)
"""


def _free_bytes(mode: str) -> int:
    return int(subprocess.run([sys.executable, "-c", _BURST, mode], check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc: it has no mallinfo2(3)")
def test_free_room_goes_back_though_large_blocks_came_before() -> None:
    """30 MB of free blocks: all of them stay by default, less than one megabyte afterwards."""
    assert _free_bytes("default") > 20_000_000
    assert _free_bytes("small") < 1_000_000
