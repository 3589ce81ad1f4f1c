"""A job that saves through a path whose folder it keeps swapping for a link: `swapping_job.py BASE TARGET SECONDS`.

Each save goes to a folder of its own, which is swapped all the while for a link to TARGET. The job itself goes by
descriptors, and so never follows it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from pathlib import Path

_EXCHANGE = 2  # renameat2(2)
_CWD = -100
_CHUNK = bytes(1 << 20)


def swap(first: bytes, second: bytes, over: threading.Event) -> None:
    """Swap two names until that is over, so that each of them is a link half of the time."""
    libc = ctypes.CDLL(None, use_errno=True)
    while not over.is_set():
        libc.renameat2(_CWD, first, _CWD, second, _EXCHANGE)
        time.sleep(0.0005)


def main(base: str, target: str, seconds: float) -> None:
    """Save again and again."""
    os.chdir(base)
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        number += 1
        folder, link = f"{base}/step_{number}", f"{base}/link_{number}"
        Path(folder).mkdir()
        Path(link).symlink_to(target)
        at = os.open(folder, os.O_RDONLY)
        over = threading.Event()
        swapper = threading.Thread(target=swap, args=(folder.encode(), link.encode(), over))
        swapper.start()
        fd = os.open("model.pt", os.O_WRONLY | os.O_CREAT, dir_fd=at)
        for _ in range(8):
            os.write(fd, _CHUNK)
            time.sleep(0.03)
        os.close(fd)
        time.sleep(0.3)
        over.set()
        swapper.join()
        os.close(at)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
