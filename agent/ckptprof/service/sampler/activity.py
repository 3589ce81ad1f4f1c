"""Bursts of file activity of one watched process, and when its files are due to be read: pure, no clock."""

from __future__ import annotations

from dataclasses import dataclass

ACTIVE_BYTES = 256 << 10  # transferred within one tick: a burst starts
ACTIVE_RESIDENT_BYTES = 4 << 20  # growth of file-backed memory within one tick: a mapped file is being read
SLOW_MAPPING_BYTES_PER_SECOND = 2 << 20  # a mapped file is read from a network or a slow disk
SLOW_MAPPING_NS = 120_000_000_000  # longest burst of such reads: a mapped data set is read throughout the training
QUIET_NS = 300_000_000  # without activity for this long, a burst has ended ...
OPEN_FILE_QUIET_NS = 600_000_000_000  # ... unless a written file is still open: fsync changes no byte counter
SECOND_SAMPLE_NS = 1_200_000_000  # after the end: commit markers, renames
FRUITLESS_SCANS = 50  # two seconds of activity without an open data file
MAPPINGS_INTERVAL_NS = 100_000_000
MIDWAY_SAMPLE_NS = 2_000_000_000  # within a long burst: files that are created and deleted


@dataclass(slots=True)
class ProcessActivity:
    """The state of one watched process. All times are CLOCK_MONOTONIC."""

    burst_since_ns: int | None = None  # the tick before the first activity
    last_active_ns: int = 0
    last_transfer_ns: int = 0  # the last activity, slow reads of a mapping excepted
    last_scan_ns: int = 0
    last_sample_ns: int = 0
    second_sample_ns: int | None = None
    sample_since_ns: int = 0
    resident_growth_bytes: int = 0  # since the mappings were last read
    last_mappings_ns: int = 0
    fruitless_scans: int = 0  # consecutive scans without a data file in use
    has_mappings: bool = False  # the last read of the mappings found data files: read them again often
    has_written_file_open: bool = False

    def observe(self, now_ns: int, previous_ns: int, transferred_bytes: int, resident_bytes: int) -> None:
        """Record the bytes transferred, and the growth of file-backed memory, since the previous tick."""
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
        """Return True while a mapped file is still read, below the rate that starts a burst."""
        if self.burst_since_ns is None or not self.has_mappings or now_ns - self.burst_since_ns > SLOW_MAPPING_NS:
            return False
        return resident_bytes * 1_000_000_000 >= SLOW_MAPPING_BYTES_PER_SECOND * max(1, during_ns)

    def alert(self, now_ns: int, *, mappings: bool, until_ns: int = 0) -> None:
        """Start a burst that the process's counters do not show (yet): a file was opened, or data is sent.

        It lasts until `until_ns` at least.
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
        """Return True from the start of a burst until `end_if_idle` ends it."""
        return self.burst_since_ns is not None

    def is_urgent(self, now_ns: int) -> bool:
        """Return True while bytes of a data file are transferred: read the process at the highest rate."""
        if self.burst_since_ns is None or self.fruitless_scans >= FRUITLESS_SCANS:
            return False
        return now_ns - self.last_transfer_ns <= QUIET_NS

    def record_scan(self, now_ns: int, *, fruitful: bool) -> None:
        """Record a scan of the open files; `fruitful`: it found a data file."""
        self.last_scan_ns = now_ns
        self.record_sample(fruitful=fruitful)

    def record_sample(self, *, fruitful: bool) -> None:
        """Record a sample by scan or trace; `fruitful`: it showed a data file in use."""
        self.fruitless_scans = 0 if fruitful else self.fruitless_scans + 1

    def scan_due(self, now_ns: int) -> bool:
        """Return True if the open files are due to be read: often at first, seldom in a long burst."""
        if self.burst_since_ns is None:
            return False
        idle = now_ns - self.last_active_ns > QUIET_NS
        age_ns = now_ns - self.burst_since_ns
        if self.fruitless_scans >= FRUITLESS_SCANS:
            period_ns = 1_000_000_000  # the bytes belong to pipes, sockets or /proc
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
        """Return True if this scan is to read the mappings, too."""
        if self.resident_growth_bytes >= ACTIVE_RESIDENT_BYTES:
            return True
        return self.has_mappings and now_ns - self.last_mappings_ns >= MAPPINGS_INTERVAL_NS

    def record_mappings(self, now_ns: int, *, found: bool) -> None:
        """Record a read of the mappings; `found`: data files were among them."""
        self.last_mappings_ns = now_ns
        self.has_mappings = found
        self.resident_growth_bytes = 0

    def end_if_idle(self, now_ns: int) -> bool:
        """End the burst after its last activity; return whether it ended."""
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
        """Request files written since `since_ns`, before the first read of the process, at once."""
        self.sample_since_ns = since_ns
        self.second_sample_ns = now_ns

    def schedule_second_sample(self, now_ns: int) -> None:
        """Schedule a sample of the files after a burst that has ended; a burst in progress ends with one anyway."""
        if self.burst_since_ns is None and self.second_sample_ns is None:
            self.second_sample_ns = now_ns + SECOND_SAMPLE_NS

    def midway_due(self, now_ns: int) -> bool:
        """Return True once per interval within a long burst: query its files."""
        if self.burst_since_ns is None or now_ns - self.last_sample_ns < MIDWAY_SAMPLE_NS:
            return False
        self.last_sample_ns = now_ns
        return True

    def second_sample_due(self, now_ns: int) -> bool:
        """Return True once, a while after a burst: query its files again, for renames and commit markers."""
        if self.second_sample_ns is None or now_ns < self.second_sample_ns:
            return False
        self.second_sample_ns = None
        return True
