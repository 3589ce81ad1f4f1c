"""The sampler's end of the pipe: whole, in order, bounded, and never waited for."""

from __future__ import annotations

import os
import random
import tracemalloc

from ckptprof.service.sampler.outputqueue import MAX_QUEUED_BYTES, OutputQueue


def test_what_a_slow_reader_takes_in_pieces_comes_whole_and_in_order() -> None:
    """A pipe that takes a part of a message now gets the rest of it later."""
    read_fd, write_fd = os.pipe()
    queue, order = OutputQueue(write_fd), random.Random(1)  # noqa: S311 - an order, no secret
    messages = [bytes([number % 256]) * order.choice((1, 50, 5_000, 150_000)) for number in range(3_000)]
    sent, read = bytearray(), bytearray()
    for message in messages:
        before = queue.dropped_count
        queue.put(message)
        sent += message if queue.dropped_count == before else b""
        queue.flush()
        if order.random() < 0.3:
            read += os.read(read_fd, order.choice((1, 1_000, 60_000)))
    assert queue.dropped_count > 0

    while len(read) < len(sent):
        queue.flush()
        read += os.read(read_fd, 1 << 16)

    assert read == sent
    dropped = queue.dropped_count
    for _ in range(100):  # all of the room is there again
        queue.put(bytes(MAX_QUEUED_BYTES // 100))
    assert queue.dropped_count == dropped
    queue.close()
    os.close(read_fd)


def test_a_queue_that_waits_is_not_copied() -> None:
    """With megabytes waiting, a flush takes next to nothing: it is done five times a second."""
    read_fd, write_fd = os.pipe()
    queue = OutputQueue(write_fd)
    for _ in range(70):
        queue.put(bytes(100_000))
    tracemalloc.start()

    queue.flush()

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 300_000
    queue.close()
    os.close(read_fd)


def test_a_reader_that_is_behind_slows_the_sampler_down() -> None:
    """Before anything is dropped, and not where the pipe takes all that half a second made."""
    read_fd, write_fd = os.pipe()
    queue = OutputQueue(write_fd)
    queue.put(bytes(1000))
    queue.flush()
    at_first = queue.slowdown
    slowdowns = []
    for _ in range(8):
        queue.put(bytes(MAX_QUEUED_BYTES // 10))
        queue.flush()
        slowdowns.append(queue.slowdown)
    os.set_blocking(read_fd, False)
    while queue.slowdown > 1:
        os.read(read_fd, 1 << 16)
        queue.flush()

    assert at_first == 1
    assert slowdowns == sorted(slowdowns)
    assert 1.5 < slowdowns[0] < 3 < slowdowns[2] < slowdowns[-1] == 10
    assert queue.dropped_count == 0
    queue.close()
    os.close(read_fd)
