"""A process that stores event after event and acknowledges each: `committer.py DATABASE NUMBER`.

The first event is NUMBER + 1. It prints "ready", then the number of each event once it is stored, until it is killed or
cannot store.
"""

from __future__ import annotations

import os
import sys

from ckptprof.model import Checkpoint, Kind, Level, Pattern, Stream
from ckptprof.store.timeline import Window
from ckptprof.store.writer import StoreWriter


def main(database: str, number: int) -> None:
    """Go on for ever; raises StoreError."""
    writer = StoreWriter(database)
    os.write(1, b"ready\n")
    while True:
        number += 1
        streams = tuple(Stream(pid=1, comm="c", path=f"/{i}", bytes=i, size=i, start_ns=1, end_ns=2) for i in range(20))
        one = Checkpoint(
            uid=str(number), kind=Kind.SAVE, job="j", framework=None, step=number, ranks=None, start_ns=number,
            end_ns=number, bytes=1, files=1, path="/", writers=(), pattern=Pattern(class_=None), level=Level.POLL,
            limitations=(), evidence=(), confidence=1.0, streams=streams,
        )  # fmt: skip
        at_ns = number * 60 * 10**9
        writer.add_windows([Window(f"disk:{number % 7}", at_ns, ("a",), [at_ns], ([number],))])
        writer.add_checkpoints([one])
        os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
