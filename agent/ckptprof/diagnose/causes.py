"""The causes that time of a critical path is attributed to: code uses the enum, users read the text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ckptprof.diagnose.tolerances import SLIGHT
from ckptprof.units import seconds
from ckptprof.verdicts import Account, Limit


class Cause(Enum):
    """A cause; one place in the code finds it, with its own text."""

    PREVIOUS_SAVE = auto()  # before the first byte: the save before was still being written
    STATE_RECEIVED_BEFORE = auto()  # before the first byte: state was received over the network
    MEMORY_GREW = auto()  # before the first byte: memory grew
    BUSY_BEFORE = auto()  # before the first byte: the writer's process was on CPU
    UNKNOWN_BEFORE = auto()  # before the first byte, cause not known
    PARSED = auto()  # after the last byte of a restore: memory grew
    PACKED = auto()  # after the last byte of a save: child programs read it
    DELETION = auto()
    LATE_RANK = auto()
    NAMES = auto()  # create, rename, open, stat
    DIRTY = auto()  # too many dirty pages
    FAULTS = auto()  # page faults of a mapping
    FLUSHES = auto()
    SMALL_OPERATIONS = auto()
    SMALL_OPERATIONS_CAPPED = auto()  # by a limit on operations
    DEVICE = auto()
    DEVICE_CAPPED = auto()  # by a limit that is set
    DEVICE_THROTTLED = auto()  # throttled before its queue
    LINK = auto()  # at its speed
    LINK_EVEN = auto()  # at its highest observed rate, or at a constant rate: may be due to a server
    LINK_SHAPED = auto()  # its queueing discipline delayed packets
    CONGESTION = auto()  # of the fabric, by the counters of its ports
    PATH = auto()  # between this host's link and the server, by TCP: because of the round trip
    QUEUES = auto()  # likewise, by queues or losses
    PATHS_LOST = auto()  # no path to a disk behind a fabric was usable
    DAEMON = auto()  # the process that serves a FUSE mount was busy all the time
    SERVER = auto()
    WINDOW = auto()  # the server did not accept the bytes, by TCP
    RETRANSMITTED = auto()  # requests were retransmitted, by the client's counters, as for those below
    SESSIONS = auto()  # it lost its session again and again, and sent its data again
    DELAYED = auto()  # the server asked to retry later
    COMMITS = auto()  # the server wrote it to its stable storage
    ONE_CONNECTION = auto()  # requests waited in the client for its only connection
    SMALL_REQUESTS = auto()  # each had far less data than possible
    ANSWERS = auto()  # the server was slow for each request
    SLOTS = auto()  # all request slots of its targets were in use, while the link had free capacity
    TARGET = auto()  # one of several servers or targets was far slower than the others
    STARVED = auto()  # without a CPU
    STOPPED = auto()  # by a signal, a debugger or a frozen cgroup
    COPYING = auto()  # into or out of the page cache
    OWN_CODE = auto()
    LOCK = auto()  # other threads of its process ran one at a time, as Python's lock has it
    THREADS = auto()  # other threads of its process computed
    MESSAGES = auto()  # sends and receives
    STATE_RECEIVED = auto()  # asleep while state was received over the network
    PAUSED = auto()  # requested sleep: a hook, a retry, a rate limit, a loop that polls
    CHILD = auto()  # a child process ran
    FILE_LOCK = auto()
    UNEXPLAINED = auto()


WORDS = {  # words for a limited checkpoint
    Limit.GATHER: "bound by gathering the state",
    Limit.STAGING: "bound by staging a copy of the state",
    Limit.SERIALIZE: "serialisation-bound",
    Limit.CPU: "short of CPU",
    Limit.PAGE_CACHE: "bound by the page cache",
    Limit.FLUSH: "bound by syncs",
    Limit.DEVICE: "disk-bound",
    Limit.NETWORK: "network-bound",
    Limit.SERVER: "bound by the storage server",
    Limit.SMALL_IO: "bound by small operations",
    Limit.METADATA: "bound by the number of files",
    Limit.STRAGGLER: "delayed by one rank",
    Limit.SINGLE_WRITER: "written by one of several ranks",
    Limit.PREVIOUS_SAVE: "delayed by the save before",
    Limit.CLEAN_UP: "blocked by deletion",
    Limit.PAGE_FAULT: "bound by page faults",
}
STOPPED = "stopped by a signal (SIGSTOP), a debugger or a frozen cgroup"
WITHOUT_CPU = "waiting for a CPU: all were in use, or the cgroup quota was exhausted"
_ASLEEP = {
    Limit.SERVER: "waiting for the server of the mount",
    Limit.NETWORK: "waiting for the network",
    Limit.SMALL_IO: "in small operations",
    Limit.SINGLE_WRITER: "waiting for its data to be sent",
}


@dataclass(frozen=True, kw_only=True)
class Wait:
    """The storage wait of a thread that was asleep in reads, writes and syncs."""

    cause: Cause
    limit: Limit
    words: str | None = None  # text for users; None: that of its limit
    facts: tuple[str, ...] = ()  # names and numbers
    excluded: tuple[str, ...] = ()
    rival: Limit | None = None  # the alternative limit
    imposed: bool = False  # by a configured limit, or one that the kernel measured
    sure: bool = True

    @property
    def text(self) -> str:
        """Text for users."""
        head = f"asleep {self.words or _ASLEEP[self.limit]}"
        return f"{head}: {'; '.join(self.facts)}" if self.facts else head


@dataclass(frozen=True)
class AttributedTime:
    """Seconds of the critical path with their cause."""

    cause: Cause
    limit: Limit | None  # None: unexplained time
    seconds: float
    text: str  # for users
    single_writer: str | None = None  # in words, where more writers of several ranks would have shared the work
    runnable: float = 0.0  # of these seconds, waiting for a CPU
    work: Cause | None = None  # of a wait for a CPU: the work that waited

    def __str__(self) -> str:
        return f"{seconds(self.seconds)} {self.words}"

    @property
    def account(self) -> Account:
        """The account as it is stored in a verdict; its waits for a CPU are a number there."""
        text = self.text if self.single_writer is None else f"{self.single_writer}: {self.text}"
        return Account(limit=self.limit, seconds=self.seconds, text=text, runnable_seconds=self.runnable)

    @property
    def words(self) -> str:
        """Text for users."""
        return self.clause if self.single_writer is None else f"{self.single_writer}: {self.clause}"

    @property
    def clause(self) -> str:
        """The text, with the time for which its work waited for a CPU."""
        is_slight = self.runnable <= SLIGHT * self.seconds
        waits = "" if is_slight or self.limit is Limit.CPU else f", {seconds(self.runnable)} of this waiting for a CPU"
        return f"{self.text}{waits}"
