"""How far apart observations of one thing may lie, each with the reason: what is nearer is taken as the same."""

from __future__ import annotations

STAMP_NS = 60_000_000  # stamps come from the clock of the last timer tick, up to 10 ms behind; a tick may be late
COUNTED_NS = 60_000_000  # counters, looks and events of one tick are read one after the other
EDGE_NS = 100_000_000  # edges that lie between two looks are exact to a tick
LATE_TICK_NS = 120_000_000  # a tick, and some lateness
CALLS_NS = 150_000_000  # calls are counted when they return, memory a little later than the bytes
CLOSED_SOON_NS = 500_000_000  # a file that is closed within this time of its last write was being written until then
BESIDE_NS = 1_000_000_000  # what one process does to files of one folder at a time is that near
COMMIT_NS = 30_000_000_000  # a sync or a rename is part of a save for as long
WHOLE_SHARE = 0.9  # of a file makes all of it: counters lag by a tick
