"""Tolerances of detection: times, shares and sizes that count as equal, whole or negligible, and limits of memory."""

from __future__ import annotations

# Times: what is nearer counts as simultaneous.
STAMP_TOLERANCE_NS = 60_000_000  # stamps lag by up to a timer tick, and the readings of one tick are sequential
EDGE_TOLERANCE_NS = 100_000_000  # edges between two samples are exact to a tick
LATE_TICK_NS = 120_000_000  # a tick, and some lateness
COUNTER_LAG_NS = 150_000_000  # calls are counted when they return, memory a little later than the bytes
NEARBY_NS = 250_000_000  # between samples of an active process, and between calls of one series
AT_ONCE_NS = 500_000_000  # between two steps of one operation: a read and its write, a write and its close
CONCURRENT_NS = 1_000_000_000  # between concurrent operations of one process on a file or a folder
POLL_INTERVAL_NS = 1_500_000_000  # longest time between two samples of a process that uses files
BIRTH_TOLERANCE_NS = 2_000_000_000  # longest time from the creation or read of a file to its first observation
LATE_COUNTER_NS = 2_000_000_000  # longest lag between two counters of the same bytes: a long write(2), a child's end
COPY_WITHIN_NS = 8_000_000_000  # longest time from a copy of its state to its first byte
COMMIT_NS = 30_000_000_000  # creating, syncing, renaming, copying, cleaning up belong to a save for as long
PATIENCE_NS = 60_000_000_000  # longest wait for a late rank, a file that stays open, a second save

# Shares that count as all, most or none.
ALL_SHARE = 0.99  # except rounding
NEARLY_ALL = 0.95  # except a header, or the last piece
WHOLE_SHARE = 0.9  # by counters, which lag by a tick
MOST_SHARE = 0.8  # by counters and stamps, which are some ticks apart; of the time, or of a job's bytes
LITTLE_SHARE = 0.1  # less counts as none
SIMILAR_SHARE = 0.15  # largest difference between two states of one training; the last bytes may be unobserved

# Sizes and counts below which there is no evidence.
HEADER_BYTES = 64 << 10  # headers, manifests and directories of zip files
SIGNIFICANT_BYTES = 1 << 20  # smaller files are lost in the noise of counters, and opened by many processes
CODE_BYTES = 32 << 20  # programs, libraries and Python modules that a starting process reads (PyTorch: 24 MB)
MANY = 4  # files of one shape, processes, events, samples: so many are no chance
FEW = 16  # of many files, processes or reads so many are inspected, the first or the latest

# Limits of memory: the oldest is dropped.
MAX_FILES = 8192  # of one kind of knowledge, 0.3 to 1.7 KB each
MAX_SAMPLES = 40_000  # of all processes, or of all threads, 160 to 330 bytes each
MAX_POINTS = 600  # of one timeline
MAX_PER_ITEM = 64  # of one file, group, path or job


def is_same_state_size(size: float, other: float, share: float = NEARLY_ALL) -> bool:
    """Return True if two sizes differ at most by a protocol's overhead, or by bytes fetched twice."""
    return min(size, other) >= share * max(size, other)


def is_similar_size(size: float, other: float) -> bool:
    """Return True if `size` differs from `other` by at most `SIMILAR_SHARE`."""
    return abs(size - other) <= SIMILAR_SHARE * other
