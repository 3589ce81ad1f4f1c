"""The sampler's trace: attached if requested and possible, read at each tick, closed when it fails.

It also steers the polling alongside: which processes to watch, and which files to query.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ckptprof.service.sampler.population import Population
from ckptprof.service.sampler.stack_sampling import training_ancestors
from ckptprof.service.sampler.thread_sampling import descriptor_shortage
from ckptprof.service.sampler.watched_folders import folders_of
from ckptprof.service.sampler.watched_process import WatchedProcess
from ckptprof.service.sampler_options import RequestedLevel
from ckptprof_collectors.files.file_facts import FactQuery
from ckptprof_collectors.files.process_roots import ProcessKey
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, has_host_pids
from ckptprof_collectors.processes.open_files import is_data_path
from ckptprof_collectors.samples import CollectorFault, FileActivity, FileLifeEvent, Sample, SocketTraffic, TraceHealth

if TYPE_CHECKING:
    from ckptprof_collectors.ebpf.trace import EbpfTrace

NAME = "trace"
RATE_SHARE = 0.5  # of the rate between bursts, while traced: the trace's counters do not depend on when they are read
BURST_RATE_SHARE = 0.4  # of the rate in a burst: samples of threads less than 0.08 s apart add nothing
WATCH_BYTES = 1 << 20  # of one file: a process that transfers as much is watched at once
RETURNED_SHARE = 0.1  # a process that receives more than this share of what it sends is no uploader
SENDING_NS = 1_000_000_000  # between reads of connections
MAX_OPEN = 65536  # sessions; the kernel's map has space for a fraction of that
SMALL_BYTES = 64 << 10
WAITED_NS = 100_000_000  # bpf/records.h: a call that waits for so long may begin a save
MAX_CHILDREN = 16_384  # short-lived ones of training processes
MAX_STRANGERS = 64  # processes per tick that ended before they were found, whose files are queried
MAX_FILES_EACH = 64
SELECT_INTERVAL_NS = 1_000_000_000  # between searches for the training ones of the watched
WATCHED, FOLLOWED, TRAINS = 1, 2, 3  # what the programs report of a process: bpf/trace.h
LOSS_MEMORY_NS = 10_000_000_000  # after a loss of events counters are read as well
_UNKNOWN_USER = -1
_SLACK_NS = 50_000_000  # file systems stamp with the clock of the last timer tick


TraceFactory = Callable[..., "EbpfTrace"]  # of `KernelFs`, as `attach`; raises UnavailableError


def namespace_problem(fs: KernelFs) -> str | None:
    """Return why the pids of the trace are useless here, None if they are usable: eBPF reports the pids of the host."""
    if has_host_pids(fs) is not False:
        return None
    return "the pids of this container are not the host's: share them (hostPID: true, --pid=host)"


def attach(fs: KernelFs, *, family_of: tuple[int, ...], ignore: tuple[int, ...]) -> EbpfTrace:
    """Attach the eBPF programs, imported only here: polling needs none of that. Raises UnavailableError.

    `family_of`: only what these processes start from now on; `ignore`: processes to leave out.
    """
    if (namespace := namespace_problem(fs)) is not None:
        raise UnavailableError(namespace)
    from ckptprof_collectors.ebpf.trace import EbpfTrace  # noqa: PLC0415 - as the docstring says

    return EbpfTrace(fs, family_of=family_of, ignore=ignore)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, without the output of libbpf and the kernel's verifier."""
    return (str(error).splitlines() or [""])[0]


class Tracing:
    """The trace of one sampler, or why there is none."""

    def __init__(self, wish: RequestedLevel, make: Callable[[], EbpfTrace], poll: select.poll) -> None:
        """Attach unless the wish is `poll`; the descriptor to wait for is kept registered in `poll`."""
        self._poll = poll
        self._tracer: EbpfTrace | None = None
        self._fd = -1
        self._health: TraceHealth | None = None
        self._lost_ns: int | None = None
        self.reason = ""  # why there is no trace, or what it does not cover
        self.denied = False  # only a privilege is missing
        self.faults = 0
        self._now_ns = self._select_next_ns = 0
        self._open_sessions: dict[str, int | None] = {}  # reported sessions that are still open -> pid of a small one
        self._selected: dict[int, int] | None = None  # pids, and what is reported of them
        self._last_watched: tuple[int, int | None] = (0, None)  # number of the watched processes, and the last one
        self._children: dict[int, int] = {}  # pid -> start: forked by training processes, reported like them
        if wish != "poll":
            self._attach(make)

    def _attach(self, make: Callable[[], EbpfTrace]) -> None:
        try:
            tracer = make()
            fd = tracer.fileno()
        except UnavailableError as error:
            self.reason = first_line(error)
            self.denied = bool(getattr(error, "permission", False))
        except Exception as error:  # noqa: BLE001 - polling works without the trace
            self.reason = f"{type(error).__name__}: {first_line(error)}"
            self.denied = isinstance(error, PermissionError)
        else:
            self.reason = descriptor_shortage()
            if self.reason:
                tracer.close()
                return
            self._tracer, self._fd = tracer, fd
            self.reason = "; ".join(tracer.degraded)
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)

    @property
    def is_active(self) -> bool:
        """The trace is attached."""
        return self._tracer is not None

    def is_complete_since(self, since_ns: int) -> bool:
        """Return True if every file written since then was reported; of thousands a second some may be missing."""
        return self.is_active and (self._lost_ns is None or self._lost_ns < since_ns)

    def is_complete(self, now_ns: int) -> bool:
        """Return True if the trace counts all file I/O of processes: their counters need not be read."""
        return self.is_complete_since(now_ns - LOSS_MEMORY_NS)

    def small_reads(self) -> Mapping[int, int]:
        """Return, by pid, the bytes that unwatched processes read of unreported files, since the last call."""
        try:
            return self._tracer.consume_trifles() if self._tracer is not None else {}
        except OSError:  # the next `read` reports the fault
            return {}

    def fileno(self) -> int:
        """Return the descriptor registered for polling; -1 if there is none."""
        return self._fd

    def check(self) -> None:
        """Raise OSError if it cannot be read."""
        tracer = self._tracer
        if tracer is not None:
            tracer.check()

    def read(self, now_ns: int, *, previous: bool = False) -> Sequence[Sample]:
        """Return new samples, with `previous` all that are left; a trace that fails is closed and reports its fault."""
        if self._tracer is None:
            return ()
        self._now_ns = now_ns
        try:
            samples = self._tracer.read(final=previous)
        except Exception as error:  # noqa: BLE001 - polling continues without the trace
            return self._close_failed(f"{type(error).__name__}: {first_line(error)}")
        for current in samples:
            if isinstance(current, TraceHealth):
                if _lost(current) > (_lost(self._health) if self._health is not None else 0):
                    self._lost_ns = now_ns
                self._health = current
        return samples

    def filter_reported(self, samples: Sequence[Sample], watched: dict[int, WatchedProcess] | None) -> list[Sample]:
        """Return the samples to report: without reads of program code, as polling has none either.

        Small files of processes not in `watched` (None: all are), or not followed, are left out, too: a build or many
        shells make thousands a second, which the recorder would keep for minutes. Children forked by a training
        process count as watched: a child may write one small shard and end.
        """
        if watched is not None:
            self._learn_children(samples, watched)
            self.select_processes(watched, SMALL_BYTES)
        return [sample for sample in samples if self._is_reported(sample, watched)]

    def select_processes(self, watched: dict[int, WatchedProcess], trifle_bytes: int) -> None:
        """Select the processes whose small files and connections the trace reports.

        Called at each tick; a change shows in the last of `watched` (one was added) or in the length (one has ended).
        """
        last = len(watched), next(reversed(watched), None)
        if self._now_ns < self._select_next_ns and last == self._last_watched:
            return
        self._last_watched = last
        self._select_next_ns = self._now_ns + SELECT_INTERVAL_NS
        attended = {pid: self._attention(watching) for pid, watching in watched.items()}
        for pid in self._open_sessions.values():  # the trace reports the end of a larger file whoever has it open
            if pid is not None:
                attended[pid] = max(FOLLOWED, attended.get(pid, FOLLOWED))
        if self._tracer is not None and attended != self._selected:
            self._selected = attended
            self._tracer.set_attended(attended, trifle_bytes)

    def _attention(self, watching: WatchedProcess) -> int:
        if watching.is_training or watching.is_required:
            return TRAINS
        return FOLLOWED if watching.is_followed(self._now_ns) else WATCHED

    def _learn_children(self, samples: Iterable[Sample], watched: Mapping[int, WatchedProcess]) -> None:
        for sample in samples:
            if not isinstance(sample, FileActivity) or sample.parent_pid is None or sample.pid in watched:
                continue
            parent = watched.get(sample.parent_pid)
            if (parent is not None and parent.is_training) or sample.parent_pid in self._children:
                self._children[sample.pid] = sample.start_ticks
                if len(self._children) > MAX_CHILDREN:
                    del self._children[next(iter(self._children))]

    def _is_unknown(self, sample: FileActivity | FileLifeEvent, watched: Mapping[int, WatchedProcess] | None) -> bool:
        if watched is None or self._children.get(sample.pid) == sample.start_ticks:
            return False
        watching = watched.get(sample.pid)
        return watching is None or not watching.is_followed(self._now_ns)

    def _is_reported(self, sample: Sample, watched: Mapping[int, WatchedProcess] | None) -> bool:
        if isinstance(sample, FileActivity):
            if sample.session in self._open_sessions:  # its start was reported, without a path or as a larger one
                self._record_session(sample)
                return True
            if _is_code(sample.path) or (sample.bytes < SMALL_BYTES and self._is_unknown(sample, watched)):
                return False
            if len(self._open_sessions) < MAX_OPEN:
                self._record_session(sample)
        elif isinstance(sample, FileLifeEvent):
            trifle = sample.kind in ("created", "emptied", "unlinked", "mapped")
            if trifle and (sample.duration_ns or 0) < WAITED_NS and self._is_unknown(sample, watched):
                return False
            return not _is_code(sample.path) or not _is_code(sample.new_path or sample.path)
        return True

    def _record_session(self, sample: FileActivity) -> None:
        if sample.closed_ns is None:
            self._open_sessions[sample.session] = sample.pid if sample.bytes < SMALL_BYTES else None
        else:
            self._open_sessions.pop(sample.session, None)

    def _close_failed(self, reason: str) -> list[Sample]:
        self.faults += 1
        self.reason = reason
        health = self._health or TraceHealth(0, 0, 0, 0, 0, 0, {}, ())
        sentence = f"the trace failed, only polling since: {reason}"
        self.close()
        last = msgspec.structs.replace(health, programs={}, degraded=(*health.degraded, sentence))
        return [CollectorFault(NAME, reason), last]

    def close(self) -> None:
        """Detach; a second call does nothing."""
        tracer, self._tracer = self._tracer, None
        if self._fd >= 0:
            self._poll.unregister(self._fd)  # a closed descriptor would wake the loop for ever
            self._fd = -1
        if tracer is not None:
            try:
                tracer.close()
            except Exception as error:  # noqa: BLE001 - as above; the kernel detaches what is left when we end
                self.reason = self.reason or f"{type(error).__name__}: {error}"


def _lost(health: TraceHealth) -> int:
    return health.lost_sessions + health.lost_events + health.lost_operations


def _is_code(path: str | None) -> bool:
    return path is not None and path.startswith("/") and not is_data_path(path.encode())


class TracedFamily:
    """The attached process and its descendants, also those that end at once."""

    def __init__(self) -> None:
        self._born: dict[int, int] = {}

    def filter_members(self, samples: Sequence[Sample], known: Container[int]) -> list[Sample]:
        """Return the samples of members; `known`: the members found so far."""
        found = []
        for sample in samples:
            if isinstance(sample, FileActivity | FileLifeEvent | SocketTraffic):
                if isinstance(sample, FileActivity) and sample.pid not in known:
                    self._learn_child(sample, known)
                if sample.pid not in known and self._born.get(sample.pid) != sample.start_ticks:
                    continue
            found.append(sample)
        return found

    def _learn_child(self, sample: FileActivity, known: Container[int]) -> None:
        parent = sample.parent_pid
        if parent is not None and (parent in known or parent in self._born):
            self._born[sample.pid] = sample.start_ticks
            if len(self._born) > MAX_CHILDREN:
                del self._born[next(iter(self._born))]


def update_watched(samples: Iterable[Sample], population: Population, now_ns: int, offset_ns: int) -> list[FactQuery]:
    """Pass trace samples to their watched processes, and watch processes that transfer much.

    Returns queries for the files of processes that ended before they were found.
    """
    strangers: dict[tuple[int, int], list[FileActivity]] = {}
    for sample in samples:
        if isinstance(sample, FileActivity):
            watching = _watch_mover(sample, population, now_ns)
            if _is_code(sample.path):
                continue
            if watching is not None and watching.process.start_ticks == sample.start_ticks:
                watching.ingest(sample)
            elif sample.writes and sample.bytes >= WATCH_BYTES and sample.path is not None:
                files = strangers.setdefault((sample.pid, sample.start_ticks), [])
                if len(strangers) <= MAX_STRANGERS and len(files) < MAX_FILES_EACH:
                    files.append(sample)
        elif isinstance(sample, FileLifeEvent):
            watching = population.watched.get(sample.pid)
            if watching is not None and watching.process.start_ticks == sample.start_ticks:
                _update_life(sample, watching, now_ns)
    return [
        question
        for process, files in strangers.items()
        if files and (question := _unmet_question(ProcessKey(*process), files, population, (now_ns, offset_ns)))
    ]


def update_senders(samples: Iterable[Sample], population: Population, now_ns: int) -> None:
    """Treat processes that send much and receive little as writers, until connections are read again.

    Only training processes and their helpers: a web server sends for as long as it runs.
    """
    transferred: dict[WatchedProcess, tuple[int, int]] = {}
    for sample in samples:
        if isinstance(sample, SocketTraffic):
            watching = population.watched.get(sample.pid)
            if watching is not None and watching.process.start_ticks == sample.start_ticks:
                (sent, received), before = watching.traced.ingest_traffic(sample), transferred.get(watching, (0, 0))
                transferred[watching] = before[0] + sent, before[1] + received
    for watching, (sent, received) in transferred.items():
        if sent < WATCH_BYTES or received > RETURNED_SHARE * sent:
            continue
        if watching.is_training or training_ancestors(watching, population.watched):
            watching.record_sending(now_ns, now_ns + SENDING_NS)


def _watch_mover(sample: FileActivity, population: Population, now_ns: int) -> WatchedProcess | None:
    watching = population.watched.get(sample.pid)
    if watching is None:
        population.unwatched.ingest(sample)
        if sample.bytes >= WATCH_BYTES and not _is_code(sample.path):
            return population.watch_pid(sample.pid, sample.start_ticks, now_ns)
    return watching


def _update_life(event: FileLifeEvent, watching: WatchedProcess, now_ns: int) -> None:
    if not _is_code(event.path):
        watching.traced.record_thread(event.tid, event.at_ns)
    if event.kind == "renamed" and event.path and event.new_path:
        watching.rename(os.fsencode(event.path), os.fsencode(event.new_path), now_ns)
    elif event.kind == "mapped" and not _is_code(event.path):
        # a cached file is mapped within some hundredths of a second, a large folio without an event
        watching.alert(now_ns, mappings=True)


def _unmet_question(
    process: ProcessKey, files: list[FileActivity], population: Population, at_ns: tuple[int, int]
) -> FactQuery | None:
    """Make the query of a process that may have ended, at the cost of its parent; `at_ns`: now, and wall minus that."""
    parent = population.watched.get(files[0].parent_pid or 0)
    payer = population.others_of(_UNKNOWN_USER) if parent is None else parent.payer
    if payer.left_ns(at_ns[0]) <= 0 and not (parent is not None and parent.is_candidate):
        return None
    keys = {os.fsencode(file.path): (file.device, file.inode) for file in files if file.path is not None}
    folders = [folders_of(path) for path in keys]
    return FactQuery(
        pid=process.pid,
        start_ticks=process.start_ticks,
        view=process if parent is None else parent.view,
        files=tuple(keys),
        folders=tuple(dict.fromkeys(folder for folder, _ in folders)),
        unshared_folders=tuple(dict.fromkeys(above for _, above in folders if above is not None)),
        keys=keys,
        since_ns=min(file.first_ns for file in files) + at_ns[1] - _SLACK_NS,
        count_unwritten=True,
        spend=payer.spend,
    )
