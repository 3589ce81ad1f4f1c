"""How far apart observations of one thing may lie, and how much is kept, each with the reason."""

from __future__ import annotations

# What is nearer is taken as the same.
STAMP_NS = 60_000_000  # stamps are up to a timer tick behind, what one tick observes is read one after the other
EDGE_NS = 100_000_000  # edges that lie between two looks are exact to a tick
LATE_TICK_NS = 120_000_000  # a tick, and some lateness
CALLS_NS = 150_000_000  # calls are counted when they return, memory a little later than the bytes
CLOSED_SOON_NS = 500_000_000  # a file that is closed within this time of its last write was being written until then
BESIDE_NS = 1_000_000_000  # what one process does to a file, or to files of one folder, at a time is that near
LOOK_NS = 1_500_000_000  # a process that uses files is looked at, and counted, within this time
BORN_NS = 2_000_000_000  # a file is created, or read, so long before the first that was seen of it, at most
COMMIT_NS = 30_000_000_000  # the creation, sync, rename or copying of the stage of a save is part of it for as long

# So much of something is all of it.
WHOLE_SHARE = 0.9  # as counters tell: they lag by a tick
NEARLY_ALL = 0.95  # but for a header, or the last piece
ALL_SHARE = 0.99  # but for what was rounded

# Less of it tells nothing.
HEADER_BYTES = 64 << 10  # headers, manifests and directories of zip files
TELLING_BYTES = 1 << 20  # is lost in the noise of counters, and opened by too many to say by whom

# More is not kept: the oldest goes.
MAX_FILES = 8192  # of one kind of knowledge, 0.3 to 1.7 KB each
MAX_EACH = 64  # of one file, group or path
