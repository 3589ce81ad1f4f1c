"""Ship a database again and again, and be killed: for each number of seconds on standard input, one process of its own.

killed.py DB URL. What is loaded stands ready, so that a process is at work from its first instant. A line tells that
it is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from ckptprof.service.shipping.server import to_server
from ckptprof.service.shipping.shipper import Shipper
from ckptprof.store.fleet import outbox
from ckptprof.store.fleet.target import target_of


def ship(db: Path, url: str) -> None:
    """Send in small batches, for ever."""
    outbox.MOST_EVENTS = 3
    shipper = Shipper(db, to_server(target_of(url)), names=True)
    while True:
        shipper.send()


def main(db: Path, url: str) -> None:
    """Kill as many as there are lines."""
    Shipper(db, to_server(target_of(url)), names=True).send()  # which loads what is loaded late
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            ship(db, url)
        time.sleep(float(line))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        sys.stdout.write("gone\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
