"""The classes of a thread's time, and the seconds of each; `accounts` assigns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Part(Enum):
    """A class of a thread's time; each second belongs to exactly one, in the order in which accounts claim them."""

    UNLINK = "unlink"  # asleep in unlink(2) and the like
    CREATE = "create"  # asleep in open(2) and the like
    RENAME = "rename"
    METADATA = "metadata"  # samples in stat(2) and the like
    DATA = "data"  # asleep in reads and writes
    SYNC = "sync"
    CLOSE = "close"
    STORED_NAMES = "stored-names"  # creates and renames that wait for what stores the names
    FAULT = "fault"  # asleep in a page fault
    QUEUED = "queued"  # runnable in the kernel, waiting for a CPU
    COPY = "copy"  # on CPU in reads and writes
    KERNEL = "kernel"  # on CPU in the kernel, outside of known calls
    USER = "user"  # on CPU in its own code
    STARVED = "starved"  # runnable in its own code, waiting for a CPU
    CPU = "cpu"  # on CPU, activity unknown
    NETWORK = "network"  # asleep in sends and receives
    LOCK = "lock"  # asleep in futex(2) and the like, or at a pipe
    FILE_LOCK = "file-lock"  # asleep in flock(2) and the like
    CHILD = "child"  # asleep until a child process ends
    SLEEP = "sleep"  # requested sleep
    STOPPED = "stopped"  # by a signal, a debugger or a frozen cgroup
    REST = "rest"  # asleep, reason not known


CALLS = (Part.DATA, Part.SYNC, Part.CLOSE, Part.CREATE, Part.RENAME, Part.UNLINK)  # timed by the trace
STORED = (Part.DATA, Part.SYNC, Part.CLOSE, Part.STORED_NAMES)  # waits that storage may cause
RUNNABLE = (Part.QUEUED, Part.STARVED)  # waits for a CPU
IDLE = (Part.REST, Part.LOCK, Part.FILE_LOCK, Part.CHILD, Part.SLEEP)  # waits outside I/O
BUSY = tuple(part for part in Part if part not in IDLE)


@dataclass(frozen=True)
class Parts:
    """Seconds by part. Immutable: an operation returns the time that it removed and the remaining parts."""

    seconds: Mapping[Part, float]

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return self.of(*Part)

    def of(self, *parts: Part) -> float:
        """Sum the seconds of some parts."""
        return sum(self.seconds.get(part, 0.0) for part in parts)

    def without(self, *parts: Part) -> Parts:
        """Return all parts but these."""
        return Parts({part: spent for part, spent in self.seconds.items() if part not in parts})

    def plus(self, other: Mapping[Part, float]) -> Parts:
        """Return the sum, part by part."""
        return Parts({part: self.of(part) + other.get(part, 0.0) for part in (*self.seconds, *other)})

    def scaled(self, factor: float) -> Parts:
        """Multiply each part by a factor."""
        return Parts({part: spent * factor for part, spent in self.seconds.items()})

    def claim(self, wanted: float, *parts: Part) -> tuple[float, Parts]:
        """Remove up to `wanted` seconds from parts, in this order; return the seconds removed and the rest."""
        left, seconds = max(0.0, wanted), dict(self.seconds)
        for part in parts:
            piece = min(left, seconds.get(part, 0.0))
            if piece > 0:
                seconds[part] -= piece
                left -= piece
        return max(0.0, wanted) - left, Parts(seconds)

    def claim_evenly(self, wanted: float) -> tuple[float, Parts]:
        """Remove up to `wanted` seconds from all parts in proportion; return the seconds removed and the rest."""
        whole = self.total
        claimed = min(max(0.0, wanted), whole)
        return claimed, self.scaled(1 - claimed / whole) if whole > 0 else self

    def reassign(self, wanted: float, source: Part, target: Part) -> Parts:
        """Move up to `wanted` seconds from one part to another."""
        claimed, left = self.claim(wanted, source)
        return left.plus({target: claimed}) if claimed > 0 else left
