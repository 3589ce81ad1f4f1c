"""How far apart observations of one thing may lie, what share of it is all, and how much is kept, with the reasons."""

from __future__ import annotations

# What is nearer is taken as the same.
STAMP_TOLERANCE_NS = (
    60_000_000  # stamps are up to a timer tick behind, what one tick observes is read one after the other
)
EDGE_TOLERANCE_NS = 100_000_000  # edges that lie between two looks are exact to a tick
LATE_TICK_NS = 120_000_000  # a tick, and some lateness
COUNTER_LAG_NS = 150_000_000  # calls are counted when they return, memory a little later than the bytes
NEARBY_NS = (
    250_000_000  # looks while something goes on are that near, and calls of one row; who waits wakes up for less
)
AT_ONCE_NS = 500_000_000  # what follows so soon is a piece of the same: a read and its write, a write and its close
CONCURRENT_NS = 1_000_000_000  # what one process does to a file, or to files of one folder, at a time is that near
POLL_INTERVAL_NS = 1_500_000_000  # a process that uses files is looked at, and counted, within this time
BIRTH_TOLERANCE_NS = 2_000_000_000  # a file is created, or read, so long before the first that was seen of it, at most
LATE_COUNTER_NS = (
    2_000_000_000  # a counter tells by then what another told before: a long write(2), or a child that ended
)
COMMIT_NS = 30_000_000_000  # what creates, syncs, renames, copies or cleans up for a save is part of it for as long
PATIENCE_NS = 60_000_000_000  # nobody waits longer for a rank that is late, a file that stays open, a second save

# So much of something is all of it, or most, or none.
ALL_SHARE = 0.99  # but for what was rounded
NEARLY_ALL = 0.95  # but for a header, or the last piece
WHOLE_SHARE = 0.9  # as counters tell: they lag by a tick
MOST_SHARE = 0.8  # as counters and stamps tell, which are some ticks apart; of the time, or of what a job writes
LITTLE_SHARE = 0.1  # less is none, or something beside it
SIMILAR_SHARE = 0.15  # sizes of two states of one training differ by less; the last bytes of one may be unseen yet

# Less of it tells nothing.
HEADER_BYTES = 64 << 10  # headers, manifests and directories of zip files
SIGNIFICANT_BYTES = 1 << 20  # is lost in the noise of counters, and opened by too many to say by whom
CODE_BYTES = 32 << 20  # are read of programs and libraries, and of Python's modules (PyTorch: 24 MB), by whoever begins
MANY = 4  # files of one shape, processes, events, looks: so many of them are no chance
FEW = 16  # of many files, processes or readings so many are looked at, the first or the latest

# More is not kept: the oldest goes.
MAX_FILES = 8192  # of one kind of knowledge, 0.3 to 1.7 KB each
MAX_SAMPLES = 40_000  # at all processes, or at all threads, 160 to 330 bytes each
MAX_POINTS = 600  # of one timeline
MAX_PER_ITEM = 64  # of one file, group, path or job: so many tell enough


def is_same_state_size(size: float, other: float, share: float = NEARLY_ALL) -> bool:
    """Return whether two sizes differ at most by a protocol's overhead, or by bytes fetched twice."""
    return min(size, other) >= share * max(size, other)


def is_similar_size(size: float, other: float) -> bool:
    """Return whether one size is similar to another."""
    return abs(size - other) <= SIMILAR_SHARE * other
