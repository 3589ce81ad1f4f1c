"""Processes of this host: finds them, reads the counters of all slowly, and selects those to watch closely."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ckptprof.service.sampler.rounds import SamplingRounds
from ckptprof.service.sampler.shares import CpuAllowance, UserPlaces, UserTurns
from ckptprof.service.sampler.thread_sampling import max_retained_processes
from ckptprof.service.sampler.traced_activity import UnwatchedBytes
from ckptprof.service.sampler.watched_process import OTHERS_SAVED_NS, OTHERS_SHARE, WatchedProcess
from ckptprof_collectors import privileges
from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES
from ckptprof_collectors.kernelfs import KernelFile, KernelFs, has_host_pids
from ckptprof_collectors.processes.process import (
    KernelThread,
    Process,
    ProcessGone,
    descendants,
    list_pids,
    read_parent,
    runs_interpreter,
)
from ckptprof_collectors.samples import FileActivity, FileLifeEvent, Sample, Unavailable

BUSY_BYTES_PER_SECOND = 2 << 20  # an unwatched process that transfers more is watched for a while
IDLE_PATIENCE_NS = 30_000_000_000  # a process that was busy once is no longer watched after so long without activity
INTERPRETER_PATIENCE_NS = 90_000_000_000  # how long a new interpreter is watched for signs of training
PROGRAM_LOAD_BYTES = 64 << 10  # read within a second: a program is being loaded
MAX_WATCHED = 1024
MAX_ALERTED = 16  # processes, by one opened file
MAX_KNOWN = 16384
MAX_NEW_PER_POLL = 128  # new processes that need the place of another; picked at random, so that none can hide
EXEC_AFTER_START_NS = 3_000_000_000  # so long a new process may exec another program,
EXEC_AFTER_CHILD_NS = 1_000_000_000  # and so long one whose child has ended: a shell execs its last command
SWEEP_SHARE = 0.004  # of a core, for the counters of processes that were idle when last read
SWEEP_SAVED_NS = 5_000_000  # of CPU time: a thousand are all read each second
MAX_ANCESTORS = 8  # between a candidate and what works for it
LIST_INTERVAL_NS = 5_000_000_000  # even if the kernel shows no change


class Population:
    """The processes of this host, or (with a root) the descendants of one process only."""

    def __init__(self, fs: KernelFs, own_pids: frozenset[int], root_pid: int | None) -> None:
        self._fs = fs
        self._own = own_pids
        self.root_pid = root_pid
        self.subreaper_pid: int | None = None
        self.known: dict[int, Process] = {}
        self.watched: dict[int, WatchedProcess] = {}
        self._known_shares, self._watched_shares = UserPlaces(), UserPlaces()
        self._loadavg: KernelFile | None = None
        if has_host_pids(fs) is not False:
            with contextlib.suppress(OSError):
                self._loadavg = KernelFile(fs.proc / "loadavg")
        self._listed: tuple[object, ...] = ()
        self._list_again_ns = 0
        self._found_ns: int | None = None  # time of the last complete list
        self._ignored: set[int] = set()
        self._newcomers: dict[int, int | None] = {}  # listed once, not opened -> time of the list before
        self._parents: dict[int, int] = {}
        self._reread_parents_ns = 0
        self.rounds = SamplingRounds()
        self.others: dict[int, CpuAllowance] = {}  # by user: for processes that are no candidates
        self._candidate_groups: set[int] = set()
        self.unwatched = UnwatchedBytes()
        self._swept_ns = 0
        self._turns = UserTurns()
        self._sweeping = CpuAllowance(SWEEP_SHARE, SWEEP_SAVED_NS)
        self._transfers: dict[int, tuple[int, int]] = {}  # bytes at the last read, and its time
        self._active: set[int] = set()  # transferred bytes at the last read
        self._young: dict[int, int] = {}  # pid -> when it is no longer young
        self._retained = 0  # known processes whose descriptors are retained
        self._max_retained = max_retained_processes(MAX_KNOWN)
        self.unreadable = 0
        self.refused_count = 0
        self._reported: set[str] = set()
        self._blocking_changes = 0  # changes of the blocking processes that were applied

    def find(self, now_ns: int, samples: list[Sample], *, may_wait: bool = False) -> list[WatchedProcess]:
        """Find new and ended processes; return the watched ones that have ended.

        `may_wait`: those that run no interpreter are opened when they are found again, as most have ended by then.
        """
        self.drop_blocking()
        self._inspect_young(now_ns)
        state = (self._task_state(), self.root_pid, self.subreaper_pid)
        if state == self._listed and state[0] is not None and now_ns < self._list_again_ns:
            self._open(self._newcomers.keys() - self.known.keys(), now_ns, may_wait=False)
            self._found_ns = now_ns
            return []
        self._list_again_ns = now_ns + LIST_INTERVAL_NS
        pids = list_pids(self._fs)
        self._listed = state
        present = set(pids)
        self._ignored &= present
        ended = [process for pid, process in self.known.items() if pid not in present]
        gone = [watching for process in ended if (watching := self.forget(process.pid, samples)) is not None]
        self._young.update((process.parent_pid, now_ns + EXEC_AFTER_CHILD_NS) for process in ended)
        fresh = [pid for pid in pids if pid not in self.known and pid not in self._ignored]
        if self.root_pid is not None:
            fresh = self._descendants(now_ns, fresh, present)
        capacity = max(MAX_KNOWN - len(self.known), MAX_NEW_PER_POLL)
        if len(fresh) > capacity:
            fresh, may_wait = random.sample(fresh, capacity), False
        may_wait &= self.root_pid is None and self._found_ns is not None
        self._open((pid for pid in fresh if pid not in self._own), now_ns, may_wait=may_wait)
        self._found_ns = now_ns
        self._report_limits(samples)
        return gone

    def _open(self, pids: Iterable[int], now_ns: int, *, may_wait: bool) -> None:
        met, self._newcomers = self._newcomers, {}
        folder = os.fsencode(self._fs.proc) + b"/%d"
        for pid in pids:
            BLOCKING_PROCESSES.reading = pid
            if may_wait and pid not in met and pid not in BLOCKING_PROCESSES and not runs_interpreter(folder % pid):
                self._newcomers[pid] = self._found_ns
            else:
                self._add(pid, now_ns, met.get(pid, self._found_ns))
        BLOCKING_PROCESSES.reading = 0

    def _report_limits(self, samples: list[Sample]) -> None:
        reasons = {}
        if self.unreadable:
            reasons["some processes"] = f"{self.unreadable} cannot be read; {_unreadable_reason()}"
        if self.refused_count:
            reasons["further processes"] = (
                f"at most {MAX_KNOWN} are watched, {MAX_WATCHED} of them closely; "
                "a low limit of open files (LimitNOFILE=, ulimit -n) allows fewer"
            )
        for name, reason in reasons.items():
            if name not in self._reported:
                self._reported.add(name)
                samples.append(Unavailable(name, reason))

    def _task_state(self) -> bytes | None:
        """Return a value that changes when a task starts or ends, None if unreadable; ten times cheaper than a list.

        From fs/proc/loadavg.c: the number of tasks, and the last pid of our namespace. Not enough in a container, whose
        list is short anyway: the number is the host's, where a start elsewhere cancels an end in here.
        """
        if self._loadavg is None:
            return None
        try:
            tasks, _, last = self._loadavg.read().rpartition(b"/")[2].partition(b" ")
        except OSError:
            return None
        return tasks + b" " + last if last else None

    def _descendants(self, now_ns: int, fresh: list[int], present: set[int]) -> list[int]:
        """Descendants of the root among these. The parent of a stranger is read once, and again at intervals."""
        if now_ns >= self._reread_parents_ns:  # a pid may have been reused between two searches
            self._reread_parents_ns = now_ns + LIST_INTERVAL_NS
            self._parents = {pid: self._parents[pid] for pid in self.known if pid in self._parents}
        self._parents = {
            pid: parent for pid, parent in self._parents.items() if pid in present and (parent in present or not parent)
        }
        unasked = [pid for pid in fresh if pid not in self._parents]
        self._read_parents(unasked)
        inside = self._inside()
        remembered = inside.intersection(fresh).difference(unasked)
        if remembered:  # the pid of an ended parent may have been reused
            self._read_parents(remembered)
            inside = self._inside()
        return [pid for pid in fresh if pid in inside]

    def _read_parents(self, pids: Iterable[int]) -> None:
        for pid in pids:
            BLOCKING_PROCESSES.reading = pid
            parent = read_parent(self._fs, pid) if pid not in BLOCKING_PROCESSES else None
            if parent is not None:
                self._parents[pid] = parent if parent != os.getpid() else 0  # else py-spy counts as of the job

    def _inside(self) -> set[int]:
        roots = [pid for pid in (self.root_pid, *self.known) if pid is not None]
        if self.subreaper_pid is not None:
            roots.append(self.subreaper_pid)
        inside = descendants(self._parents, roots)
        inside.discard(self.subreaper_pid or 0)
        return inside

    def drop_blocking(self) -> None:
        """Forget processes that block their readers, and find again those that no longer do."""
        BLOCKING_PROCESSES.remove_ended()
        if BLOCKING_PROCESSES.changes == self._blocking_changes:
            return
        self._blocking_changes = BLOCKING_PROCESSES.changes
        self._listed = ()
        for pid in list(self.known):
            if pid in BLOCKING_PROCESSES:
                self._drop(pid)

    def _drop(self, pid: int) -> None:
        watching = self.watched.get(pid)
        if watching is not None:
            self._relax(watching)
        self.forget(pid, [])

    def _add(self, pid: int, now_ns: int, born_since_ns: int | None = None) -> None:
        if pid in BLOCKING_PROCESSES:
            return
        BLOCKING_PROCESSES.reading = pid
        try:
            process = Process(self._fs, pid, keeps_open=self._retained < self._max_retained)
        except KernelThread:
            self._ignored.add(pid)
            return
        except ProcessGone:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self.refused_count += 1
            else:
                self._ignored.add(pid)
                self.unreadable += 1
            return
        if len(self.known) >= MAX_KNOWN and not self._evict_for(process.uid):
            process.close()
            return
        self.known[pid] = process
        self._retained += process.keeps_open
        self._known_shares.add(pid, process.uid)
        self._turns.add(pid, process.uid)
        if self.root_pid is not None or runs_interpreter(process.folder):
            self.watch(process, now_ns, keep=self.root_pid is not None, born_since_ns=born_since_ns)
        else:
            self._young[pid] = now_ns + EXEC_AFTER_START_NS

    def _evict_for(self, uid: int) -> bool:
        """Forget a process of the user who has most; not one that trains or transfers bytes."""
        self.refused_count += 1
        for pid in self._known_shares.candidates_to_evict(uid):
            watching = self.watched.get(pid)
            if watching is None or not (watching.is_training or watching.activity.is_in_burst()):
                self._drop(pid)
                return True
        return False

    def _inspect_young(self, now_ns: int) -> None:
        for pid, until_ns in list(self._young.items()):
            process = self.known.get(pid)
            if process is None or pid in self.watched or now_ns > until_ns:
                del self._young[pid]
                continue
            BLOCKING_PROCESSES.reading = pid
            if runs_interpreter(process.folder):
                self.watch(process, now_ns)
        BLOCKING_PROCESSES.reading = 0

    def watch(
        self, process: Process, now_ns: int, *, keep: bool = False, born_since_ns: int | None = None
    ) -> WatchedProcess | None:
        """Watch a process closely from now on; None if too many are watched and its user has a fair share."""
        if len(self.watched) >= MAX_WATCHED:
            self.refused_count += 1
            givers = [self.watched[pid] for pid in self._watched_shares.candidates_to_evict(process.uid)]
            quiet = [one for one in givers if not one.activity.is_in_burst()]
            if not quiet:
                return None
            self._relax(min(quiet, key=lambda one: (one.is_training, one.activity.last_active_ns)))
        watching = WatchedProcess(
            process, now_ns, keep=keep, born_since_ns=born_since_ns, others=self.others_of(process.uid)
        )
        watching.is_candidate = keep or self._works_for_candidate(process)
        self.watched[process.pid] = watching
        self._watched_shares.add(process.pid, process.uid)
        self.rounds.add(watching)
        return watching

    def _relax(self, watching: WatchedProcess) -> None:
        pid = watching.process.pid
        del self.watched[pid]
        self._watched_shares.remove(pid)
        self.rounds.remove(pid)
        watching.stop()

    def _works_for_candidate(self, process: Process) -> bool:
        """Test whether a candidate started it, or feeds it through a pipe: the commands of a pipeline are one group."""
        if process.group in self._candidate_groups:
            return True
        for _ in range(MAX_ANCESTORS):
            above = self.watched.get(process.parent_pid)
            if above is not None and above.has_signs:
                return True
            parent = self.known.get(process.parent_pid)
            if parent is None:
                return False
            process = parent
        return False

    def others_of(self, uid: int) -> CpuAllowance:
        """Return the CPU time that processes of a user share which are no candidates."""
        return self.others.get(uid) or self.others.setdefault(uid, CpuAllowance(OTHERS_SHARE, OTHERS_SAVED_NS))

    def charge_others(self, samples: Sequence[Sample], spent_ns: int) -> None:
        """Charge what a trace took to the users whose processes it reports and that are no candidates."""
        files = Counter(sample.pid for sample in samples if isinstance(sample, FileActivity | FileLifeEvent))
        for pid, count in files.items():
            watching = self.watched.get(pid)
            if watching is not None and not watching.is_candidate:
                watching.payer.spend(spent_ns * count // files.total())

    def watch_pid(self, pid: int, start_ticks: int, now_ns: int) -> WatchedProcess | None:
        """Watch the process with this pid and start; None if it has ended, is ours, or cannot be watched."""
        if pid in self._own or pid in self._ignored:
            return None
        if pid not in self.known:
            self._add(pid, now_ns)
        process = self.known.get(pid)
        watching = None
        if process is not None and process.start_ticks == start_ticks:
            watching = self.watched.get(pid) or self.watch(process, now_ns)
        BLOCKING_PROCESSES.reading = 0
        return watching

    def alert(self, now_ns: int, *, mappings: bool) -> None:
        """Start bursts in processes that may have opened a checkpoint: the training processes active last."""
        candidates = [watching for watching in self.watched.values() if watching.is_required or watching.is_interpreter]
        candidates.sort(key=lambda watching: watching.activity.last_active_ns, reverse=True)
        for watching in candidates[:MAX_ALERTED]:
            watching.alert(now_ns, mappings=mappings)

    def sweep(self, now_ns: int, samples: list[Sample], small_reads: Mapping[int, int] | None = None) -> None:
        """Watch the unwatched processes that are busy, stop watching the idle ones.

        `small_reads`: bytes that each pid read, by the trace; without a trace (None) their counters are read. Each of
        many idle processes is read every few seconds, users in turn.
        """
        for watching in list(self.watched.values()):
            self._relax_if_idle(watching, now_ns)
        self._candidate_groups = {one.process.group for one in self.watched.values() if one.has_signs}
        for watching in self.watched.values():
            if watching.is_awake and not watching.is_candidate:
                watching.is_candidate = self._works_for_candidate(watching.process)
        during_ns, self._swept_ns = now_ns - self._swept_ns, now_ns
        transferred = self.unwatched.consume()
        if small_reads is None:
            self._sweep_counters(now_ns, samples)
            return
        for pid in {pid for pid, _ in transferred} | small_reads.keys():
            process = self.known.get(pid)
            if process is not None and pid not in self.watched:
                transferred_bytes = transferred.get((pid, process.start_ticks), 0) + small_reads.get(pid, 0)
                self._watch_if_busy(process, transferred_bytes, during_ns, now_ns)
        BLOCKING_PROCESSES.reading = 0

    def _sweep_counters(self, now_ns: int, samples: list[Sample]) -> None:
        active, self._active = self._active, set()
        for pid in active:
            self._read(pid, now_ns, samples)
        start_ns = time.thread_time_ns()
        turns = self._turns.in_turn()
        while self._sweeping.left_ns(now_ns) > 0 and (due := next(turns, None)) is not None:
            if due not in active:
                self._read(due, now_ns, samples)
            ended = time.thread_time_ns()
            self._sweeping.spend(ended - start_ns)
            start_ns = ended
        BLOCKING_PROCESSES.reading = 0

    def _read(self, pid: int, now_ns: int, samples: list[Sample]) -> None:
        process = self.known.get(pid)
        if process is None or pid in self.watched:
            return
        BLOCKING_PROCESSES.reading = pid
        try:
            changed = process.read_io()
        except ProcessGone:
            self.forget(pid, samples)
            return
        if (io := process.io) is None:
            return
        total = io.read_chars + io.write_chars
        before, before_ns = self._transfers.get(pid, (None, now_ns))
        self._transfers[pid] = total, now_ns
        if before is None or not changed:
            return
        self._active.add(pid)
        self._watch_if_busy(process, total - before, now_ns - before_ns, now_ns)

    def _watch_if_busy(self, process: Process, transferred_bytes: int, during_ns: int, now_ns: int) -> None:
        BLOCKING_PROCESSES.reading = process.pid
        if transferred_bytes * 1e9 > BUSY_BYTES_PER_SECOND * during_ns:
            self.watch(process, now_ns)
        elif transferred_bytes > PROGRAM_LOAD_BYTES and runs_interpreter(process.folder):
            self.watch(process, now_ns)  # a shell script that execs the training script at its end

    def _relax_if_idle(self, watching: WatchedProcess, now_ns: int) -> None:
        if watching.is_required or watching.is_training or watching.activity.is_in_burst():
            return
        patience_ns = INTERPRETER_PATIENCE_NS if watching.is_interpreter else IDLE_PATIENCE_NS
        if now_ns - max(watching.since_ns, watching.activity.last_active_ns) > patience_ns:
            self._relax(watching)

    def forget(self, pid: int, samples: list[Sample]) -> WatchedProcess | None:
        """Drop a process that has ended; returns its watching, closed, if it was watched."""
        process = self.known.pop(pid, None)
        watching = self.watched.pop(pid, None)
        self._transfers.pop(pid, None)
        self._active.discard(pid)
        self._turns.remove(pid)
        self.rounds.remove(pid)
        self._known_shares.remove(pid)
        self._watched_shares.remove(pid)
        if process is not None:
            self._retained -= process.keeps_open
        if watching is not None:
            samples.append(watching.process.make_exit())
            watching.close()
        elif process is not None:
            process.close()
        return watching

    def close(self) -> None:
        """Close all descriptors."""
        for watching in self.watched.values():
            watching.close()
        for process in self.known.values():
            process.close()
        self.watched.clear()
        self.known.clear()
        if self._loadavg is not None:
            self._loadavg.close()


def _unreadable_reason() -> str:
    """Return which privilege reading any process needs, or why it would not help: ptrace(2), access mode checking."""
    with contextlib.suppress(OSError):
        if privileges.read_capabilities().effective >> privileges.CAP_SYS_PTRACE & 1:
            return "CAP_SYS_PTRACE is effective, but a user namespace or a security module protects them"
    need = "processes of other users, and those with more capabilities, need CAP_SYS_PTRACE"
    if privileges.are_in_bounding_set(privileges.CAP_SYS_PTRACE):
        return need
    return f"{need}, which root lacks in this container (--cap-add=SYS_PTRACE)"
