"""Ship a database again and again, and be killed: for each line on standard input, one process of its own.

killed.py DB URL. A line is for how long, in the time that one shipment takes here. What is loaded stands ready, so that
a process is at work from its first instant: "ready" is said before the first one, and then for each how it ended.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from ckptprof.fleet.files import FleetFiles
from ckptprof.service.shipping.shipper import Shipper
from ckptprof.store import outbox


def main(db: Path, url: str) -> None:
    """Kill as many as there are lines."""
    outbox.MAX_BATCH_EVENTS = 3
    shipper = Shipper(db, url, lambda: FleetFiles(url), lambda one: one)
    shipper.ship(time.time_ns())  # which loads what is loaded late
    before = time.monotonic()
    shipper.ship(time.time_ns())
    usual_seconds = time.monotonic() - before
    _say("ready")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            while True:
                shipper.ship(time.time_ns())
        time.sleep(float(line) * usual_seconds)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        _say("killed" if os.WIFSIGNALED(status) else "ended")


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
