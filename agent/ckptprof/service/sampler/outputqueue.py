"""The sampler's end of the pipe to the recorder: never blocks, bounded, counts what it drops."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from itertools import islice

MAX_QUEUED_BYTES = 8 << 20
_MAX_MESSAGES_PER_WRITE = 1024  # IOV_MAX
_MAX_SLOWDOWN = 10


class OutputQueue:
    """A bounded queue before a non-blocking pipe."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self.dropped_count = 0
        self.is_broken = False

    @property
    def slowdown(self) -> float:
        """How many times as rarely to sample, so that the reader can keep up; after a flush 1 where it does."""
        return 1 + (_MAX_SLOWDOWN - 1) * min(1.0, 2 * self._queued / MAX_QUEUED_BYTES)

    def put(self, message: bytes) -> None:
        """Queue one message, or drop it and count it if the reader is too far behind."""
        if self._queued + len(message) > MAX_QUEUED_BYTES:
            self.dropped_count += 1
            return
        self._queue.append(message)
        self._queued += len(message)

    def flush(self) -> None:
        """Write what fits into the pipe now."""
        queue = self._queue
        while queue and not self.is_broken:
            try:
                written = os.writev(self._fd, list(islice(queue, _MAX_MESSAGES_PER_WRITE)))
            except BlockingIOError:
                return
            except OSError:
                self.is_broken = True
                return
            self._queued -= written
            while queue and written >= len(queue[0]):
                written -= len(queue.popleft())
            if written:
                queue[0] = queue[0][written:]
                return

    def flush_all(self, patience_ns: int) -> None:
        """Write everything, waiting for the reader at most `patience_ns`."""
        deadline = time.monotonic_ns() + patience_ns
        self.flush()
        while self._queue and not self.is_broken and time.monotonic_ns() < deadline:
            select.select([], [self._fd], [], 0.1)
            self.flush()

    def close(self) -> None:
        """Close the pipe, so that the reader gets EOF even while a hanging thread keeps this process alive."""
        os.close(self._fd)
        self.is_broken = True
