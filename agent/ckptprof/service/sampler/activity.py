"""How active a watched process is, by the bytes that it moves, and when it is read for that: pure, no clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

ACTIVE_BYTES = 256 << 10  # moved within one tick: something is going on
ACTIVE_RESIDENT_BYTES = 4 << 20  # growth of file-backed memory within one tick: a mapping is being read
SLOW_MAPPING_BYTES_PER_SECOND = 2 << 20  # of a mapped file that a network or a slow disk brings
SLOW_MAPPING_NS = 120_000_000_000  # of a burst: a data set that is mapped trickles in for as long as it is trained on
QUIET_NS = 300_000_000  # without activity for this long, a burst is over ...
OPEN_FILE_QUIET_NS = 600_000_000_000  # ... unless a file it wrote is still open: fsync moves no bytes of the process
SECOND_SAMPLE_NS = 1_200_000_000  # after the end: commit markers, renames
FRUITLESS_SCANS = 50  # two seconds in which bytes moved, but none of a data file that was open
MAPPINGS_INTERVAL_NS = 100_000_000
MIDWAY_SAMPLE_NS = 2_000_000_000  # within a long burst: files that come and go
RHYTHM_BURSTS = 3  # that write alike, at intervals alike
_ALIKE = 2  # the largest is at most so many times the smallest


@dataclass(slots=True)
class ProcessActivity:
    """The state of one watched process. All times are CLOCK_MONOTONIC."""

    burst_since_ns: int | None = None  # the tick before the first activity
    last_active_ns: int = 0
    last_transfer_ns: int = 0  # the last activity but a mapping's that comes in slowly
    last_scan_ns: int = 0
    last_sample_ns: int = 0
    second_sample_ns: int | None = None
    sample_since_ns: int = 0
    resident_growth_bytes: int = 0  # since the mappings were last read
    last_mappings_ns: int = 0
    fruitless_scans: int = 0  # in a row, without a data file that anything was done to
    has_mappings: bool = False  # data files were mapped when last looked: watch them come and go
    has_written_file_open: bool = False

    def observe(self, now_ns: int, previous_ns: int, transferred_bytes: int, resident_bytes: int) -> None:
        """Take note of what moved since the previous tick."""
        if resident_bytes > 0:
            self.resident_growth_bytes += resident_bytes
        if transferred_bytes >= ACTIVE_BYTES or resident_bytes >= ACTIVE_RESIDENT_BYTES:
            self.last_active_ns = max(self.last_active_ns, now_ns)
            self.last_transfer_ns = max(self.last_transfer_ns, now_ns)
            if self.burst_since_ns is None:
                self.burst_since_ns = previous_ns
                if self.second_sample_ns is None:
                    self.sample_since_ns = previous_ns
                self.last_sample_ns = now_ns
        elif self._maps_slowly(now_ns, resident_bytes, now_ns - previous_ns):
            self.last_active_ns = max(self.last_active_ns, now_ns)

    def _maps_slowly(self, now_ns: int, resident_bytes: int, during_ns: int) -> bool:
        """Return whether a file that was found mapped in a burst comes in yet, if by little at a time."""
        if self.burst_since_ns is None or not self.has_mappings or now_ns - self.burst_since_ns > SLOW_MAPPING_NS:
            return False
        return resident_bytes * 1_000_000_000 >= SLOW_MAPPING_BYTES_PER_SECOND * max(1, during_ns)

    def alert(self, now_ns: int, *, mappings: bool, until_ns: int = 0) -> None:
        """Begin a burst of which no counter of the process tells, or not yet: a file was opened, or something is sent.

        It goes on `until_ns` at least.
        """
        if self.burst_since_ns is None:
            self.burst_since_ns = now_ns
            self.last_sample_ns = now_ns
            if self.second_sample_ns is None:
                self.sample_since_ns = now_ns
        self.last_active_ns = max(self.last_active_ns, now_ns, until_ns)
        self.last_transfer_ns = max(self.last_transfer_ns, now_ns, until_ns)
        self.fruitless_scans = 0
        self.last_scan_ns = 0
        if mappings:
            self.last_mappings_ns = 0
            self.has_mappings = True

    def is_in_burst(self) -> bool:
        """Return whether a burst is going on."""
        return self.burst_since_ns is not None

    def is_urgent(self, now_ns: int) -> bool:
        """Return whether every moment counts: bytes of some file are moving right now."""
        if self.burst_since_ns is None or self.fruitless_scans >= FRUITLESS_SCANS:
            return False
        return now_ns - self.last_transfer_ns <= QUIET_NS

    def record_scan(self, now_ns: int, *, fruitful: bool) -> None:
        """Take note of a scan, and whether it found a data file."""
        self.last_scan_ns = now_ns
        self.record_sample(fruitful=fruitful)

    def record_sample(self, *, fruitful: bool) -> None:
        """Take note of whether a look at this process, in whatever way, found that it moved bytes of files."""
        self.fruitless_scans = 0 if fruitful else self.fruitless_scans + 1

    def scan_due(self, now_ns: int) -> bool:
        """Return whether the open files are to be read now: often at first, seldom in a burst that lasts."""
        if self.burst_since_ns is None:
            return False
        idle = now_ns - self.last_active_ns > QUIET_NS
        age_ns = now_ns - self.burst_since_ns
        if self.fruitless_scans >= FRUITLESS_SCANS:
            period_ns = 1_000_000_000  # pipes, sockets, /proc: the bytes of some other program's business
        elif idle:
            period_ns = 200_000_000
        elif age_ns < 5_000_000_000:
            period_ns = 0
        elif age_ns < 30_000_000_000:
            period_ns = 200_000_000
        else:
            period_ns = 500_000_000
        return now_ns - self.last_scan_ns >= period_ns

    def mappings_due(self, now_ns: int) -> bool:
        """Return whether the mappings are to be read with this scan."""
        if self.resident_growth_bytes >= ACTIVE_RESIDENT_BYTES:
            return True
        return self.has_mappings and now_ns - self.last_mappings_ns >= MAPPINGS_INTERVAL_NS

    def record_mappings(self, now_ns: int, *, found: bool) -> None:
        """Take note that the mappings were read, and whether data files were among them."""
        self.last_mappings_ns = now_ns
        self.has_mappings = found
        self.resident_growth_bytes = 0

    def end_if_idle(self, now_ns: int) -> bool:
        """Return whether the burst is over now, and end it if so."""
        if self.burst_since_ns is None:
            return False
        idle_ns = now_ns - self.last_active_ns
        if idle_ns < QUIET_NS or (self.has_written_file_open and idle_ns < OPEN_FILE_QUIET_NS):
            return False
        self.burst_since_ns = None
        self.fruitless_scans = 0
        self.second_sample_ns = now_ns + SECOND_SAMPLE_NS
        return True

    def sample_since(self, now_ns: int, since_ns: int) -> None:
        """Have what was written since a time before the first look at the process looked for at once."""
        self.sample_since_ns = since_ns
        self.second_sample_ns = now_ns

    def schedule_second_sample(self, now_ns: int) -> None:
        """Have a look taken a while after the burst that has ended already; a burst that lasts ends with one anyway."""
        if self.burst_since_ns is None and self.second_sample_ns is None:
            self.second_sample_ns = now_ns + SECOND_SAMPLE_NS

    def midway_due(self, now_ns: int) -> bool:
        """Return whether a long burst's files are to be looked at now."""
        if self.burst_since_ns is None or now_ns - self.last_sample_ns < MIDWAY_SAMPLE_NS:
            return False
        self.last_sample_ns = now_ns
        return True

    def second_sample_due(self, now_ns: int) -> bool:
        """Return, once, whether the time after a burst has come to look for what was renamed or committed."""
        if self.second_sample_ns is None or now_ns < self.second_sample_ns:
            return False
        self.second_sample_ns = None
        return True


class WriteRhythm:
    """Whether a process writes about as much again and again, at about the same intervals, as saves are written."""

    __slots__ = ("_bursts",)

    def __init__(self) -> None:
        self._bursts: deque[tuple[int, int]] = deque(maxlen=RHYTHM_BURSTS)

    def record(self, start_ns: int, written_bytes: int) -> None:
        """Record a burst in which a large file was written."""
        self._bursts.append((start_ns, written_bytes))

    @property
    def is_steady(self) -> bool:
        """Whether the last bursts were alike."""
        starts, sizes = zip(*self._bursts, strict=True) if self._bursts else ((), ())
        gaps = [later - earlier for earlier, later in pairwise(starts)]
        return len(sizes) == RHYTHM_BURSTS and all(max(some) <= _ALIKE * min(some) for some in (sizes, gaps))
