"""An SFTP server that takes what it is sent slowly, as one with an overloaded disk does: `python slow_sftp.py BYTES`.

It speaks on its standard input and output; BYTES a second is what it takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

SERVER = "/usr/lib/openssh/sftp-server"
PIECE = 64 << 10


def pass_on(source: int, target: int) -> None:
    """Pass on what comes as it comes."""
    while piece := os.read(source, PIECE):
        os.write(target, piece)


def main() -> None:
    """Pass on what comes, no faster than told."""
    rate = int(sys.argv[1])
    with subprocess.Popen([SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        if server.stdin is None or server.stdout is None:
            return
        threading.Thread(target=pass_on, args=(server.stdout.fileno(), 1), daemon=True).start()
        due = time.monotonic()
        while piece := os.read(0, PIECE):
            server.stdin.write(piece)
            server.stdin.flush()
            due = max(due, time.monotonic() - 0.05) + len(piece) / rate
            time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
