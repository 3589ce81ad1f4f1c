"""Who is on this host: finds processes, reads all of their counters slowly, and picks those to be watched closely."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import time
from collections.abc import Iterable, Mapping

from ckptprof.service.sampler.rounds import Rounds
from ckptprof.service.sampler.shares import Allowance, Shares, Turns
from ckptprof.service.sampler.threadlooks import most_kept
from ckptprof.service.sampler.traced import Unwatched
from ckptprof.service.sampler.watching import Watching
from ckptprof_collectors import privileges
from ckptprof_collectors.holders import HOLDERS
from ckptprof_collectors.kernelfs import KeptFile, KernelFs, has_the_hosts_pids
from ckptprof_collectors.processes.process import (
    Process,
    ProcessGone,
    descendants,
    is_interpreter,
    is_kernel_thread,
    list_pids,
    parent_of,
)
from ckptprof_collectors.samples import Sample, Unavailable

BUSY_BYTES_PER_SECOND = 2 << 20  # an unwatched process that moves more is watched for a while
KEEP_QUIET_NS = 30_000_000_000  # a process that was busy once is let go after so long without activity
LEARN_NS = 90_000_000_000  # how long a new interpreter is watched to see whether it comes to train
TURNED_BYTES = 64 << 10  # read within a second: a program is being loaded
MAX_WATCHED = 1024
MAX_ALERTED = 16  # by one opened file
MAX_KNOWN = 16384
MAX_MET = 128  # at one look, of those for whom somebody would have to give way; picked at random, so none can hide
YOUNG_NS = 3_000_000_000  # so long a new process may turn into another program,
TURNING_NS = 1_000_000_000  # and so long one whose child has ended: a shell runs its last command in its own place
SWEEP_SHARE = 0.004  # of a core, for the counters of those who did nothing when they were read last
SWEEP_SAVED_NS = 5_000_000  # of CPU time: a thousand are all read each second
LIST_AGAIN_NS = 5_000_000_000  # however little the kernel says has changed


class Population:
    """The processes of this host, or (with a root) the descendants of one process only."""

    def __init__(self, fs: KernelFs, own_pids: frozenset[int], root_pid: int | None) -> None:
        self._fs = fs
        self._own = own_pids
        self.root_pid = root_pid
        self.subreaper_pid: int | None = None
        self.known: dict[int, Process] = {}
        self.watched: dict[int, Watching] = {}
        self._known_shares, self._watched_shares = Shares(), Shares()
        self._births: KeptFile | None = None
        if has_the_hosts_pids(fs) is not False:
            with contextlib.suppress(OSError):
                self._births = KeptFile(fs.proc / "loadavg")
        self._listed: tuple[object, ...] = ()
        self._list_again_ns = 0
        self._found_ns: int | None = None  # when all who were there then had been found
        self._ignored: set[int] = set()
        self._parents: dict[int, int] = {}
        self._strangers_again_ns = 0
        self.rounds = Rounds()
        self.unwatched = Unwatched()
        self._swept_ns = 0
        self._turns = Turns()
        self._sweeping = Allowance(SWEEP_SHARE, SWEEP_SAVED_NS)
        self._moved: dict[int, tuple[int, int]] = {}  # bytes, when they were read last, and when that was
        self._moving: set[int] = set()  # moved something when they were read last
        self._young: dict[int, int] = {}  # and until when each is
        self._kept, self._max_kept = 0, most_kept(MAX_KNOWN)  # of those who are known, whose descriptors are kept
        self.unreadable = 0
        self.over_limit = 0
        self._told: set[str] = set()
        self._holders = 0  # changes of them that were taken into account

    def find(self, now_ns: int, samples: list[Sample]) -> list[Watching]:
        """Look for new and ended processes; return the watched ones that have ended."""
        self.let_holders_go()
        self._look_again(now_ns)
        state = (self._tasks(), self.root_pid, self.subreaper_pid)
        if state == self._listed and state[0] is not None and now_ns < self._list_again_ns:
            self._found_ns = now_ns
            return []
        self._list_again_ns = now_ns + LIST_AGAIN_NS
        pids = list_pids(self._fs)
        self._listed = state
        present = set(pids)
        self._ignored &= present
        ended = [process for pid, process in self.known.items() if pid not in present]
        gone = [watching for process in ended if (watching := self.forget(process.pid, samples)) is not None]
        self._young.update((process.parent_pid, now_ns + TURNING_NS) for process in ended)
        fresh = [pid for pid in pids if pid not in self.known and pid not in self._ignored]
        if self.root_pid is not None:
            fresh = self._family(now_ns, fresh, present)
        room = max(MAX_KNOWN - len(self.known), MAX_MET)
        for pid in fresh if len(fresh) <= room else random.sample(fresh, room):
            if pid not in self._own:
                self._meet(pid, now_ns, self._found_ns)
        self._found_ns = now_ns
        HOLDERS.reading = 0
        self._tell(samples)
        return gone

    def _tell(self, samples: list[Sample]) -> None:
        reasons = {}
        if self.unreadable:
            reasons["some processes"] = f"{self.unreadable} cannot be read; {_why_not()}"
        if self.over_limit:
            reasons["further processes"] = (
                f"at most {MAX_KNOWN} are watched, {MAX_WATCHED} of them closely; "
                "a low limit of open files (LimitNOFILE=, ulimit -n) allows fewer"
            )
        for name, reason in reasons.items():
            if name not in self._told:
                self._told.add(name)
                samples.append(Unavailable(name, reason))

    def _tasks(self) -> bytes | None:
        """Return what changes whenever a task is born or ends, None if it cannot be read: a list costs ten times that.

        From fs/proc/loadavg.c: how many tasks there are, and the pid that was given last in our namespace. In that of
        a container, whose list is short, it tells too little: the number is the host's, where a birth makes up for an
        end in here.
        """
        if self._births is None:
            return None
        try:
            tasks, _, last = self._births.read().rpartition(b"/")[2].partition(b" ")
        except OSError:
            return None
        return tasks + b" " + last if last else None

    def _family(self, now_ns: int, fresh: list[int], present: set[int]) -> list[int]:
        """Return who of these belongs to the root. A stranger is asked for its parent once, and now and then again."""
        if now_ns >= self._strangers_again_ns:  # a pid may have been given anew between two looks
            self._strangers_again_ns = now_ns + LIST_AGAIN_NS
            self._parents = {pid: self._parents[pid] for pid in self.known if pid in self._parents}
        self._parents = {
            pid: parent for pid, parent in self._parents.items() if pid in present and (parent in present or not parent)
        }
        unasked = [pid for pid in fresh if pid not in self._parents]
        self._ask_parents(unasked)
        inside = self._inside()
        remembered = inside.intersection(fresh).difference(unasked)
        if remembered:  # the pid of a parent that has ended may be that of another by now
            self._ask_parents(remembered)
            inside = self._inside()
        return [pid for pid in fresh if pid in inside]

    def _ask_parents(self, pids: Iterable[int]) -> None:
        for pid in pids:
            HOLDERS.reading = pid
            parent = parent_of(self._fs, pid) if pid not in HOLDERS else None
            if parent is not None:
                self._parents[pid] = parent

    def _inside(self) -> set[int]:
        roots = [pid for pid in (self.root_pid, *self.known) if pid is not None]
        if self.subreaper_pid is not None:
            roots.append(self.subreaper_pid)
        inside = descendants(self._parents, roots)
        inside.discard(self.subreaper_pid or 0)
        return inside

    def let_holders_go(self) -> None:
        """Forget those who hold whoever reads of them, and look for those again who have let go."""
        HOLDERS.review()
        if HOLDERS.changes == self._holders:
            return
        self._holders = HOLDERS.changes
        self._listed = ()
        for pid in list(self.known):
            if pid in HOLDERS:
                self._drop(pid)

    def _drop(self, pid: int) -> None:
        watching = self.watched.get(pid)
        if watching is not None:
            self._relax(watching)
        self.forget(pid, [])

    def _meet(self, pid: int, now_ns: int, born_since_ns: int | None = None) -> None:
        if pid in HOLDERS:
            return
        HOLDERS.reading = pid
        if is_kernel_thread(self._fs, pid) is not False:
            self._ignored.add(pid)
            return
        if len(self.known) >= MAX_KNOWN and not self._make_room(pid):
            return
        try:
            process = Process(self._fs, pid, keeps=self._kept < self._max_kept)
        except ProcessGone:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self.over_limit += 1
                return
            self._ignored.add(pid)
            self.unreadable += 1
            return
        self.known[pid] = process
        self._kept += process.keeps
        self._known_shares.take(pid, process.uid)
        self._turns.take(pid, process.uid)
        if self.root_pid is not None or is_interpreter(process):
            self.watch(process, now_ns, keep=self.root_pid is not None, born_since_ns=born_since_ns)
        else:
            self._young[pid] = now_ns + YOUNG_NS

    def _make_room(self, newcomer: int) -> bool:
        """Forget a process of the user who has most of those that are known; not one that trains or moves bytes."""
        self.over_limit += 1
        try:
            uid = os.stat(self._fs.proc / str(newcomer)).st_uid
        except OSError:
            return False
        for pid in self._known_shares.givers(uid):
            watching = self.watched.get(pid)
            if watching is None or not (watching.trains or watching.activity.in_burst()):
                self._drop(pid)
                return True
        return False

    def _look_again(self, now_ns: int) -> None:
        for pid, until_ns in list(self._young.items()):
            process = self.known.get(pid)
            if process is None or pid in self.watched or now_ns > until_ns:
                del self._young[pid]
                continue
            HOLDERS.reading = pid
            if is_interpreter(process):
                self.watch(process, now_ns)
        HOLDERS.reading = 0

    def watch(
        self, process: Process, now_ns: int, *, keep: bool = False, born_since_ns: int | None = None
    ) -> Watching | None:
        """Watch it closely from now on; None if too many are watched already, and its user has a fair share."""
        if len(self.watched) >= MAX_WATCHED:
            self.over_limit += 1
            givers = [self.watched[pid] for pid in self._watched_shares.givers(process.uid)]
            quiet = [one for one in givers if not one.activity.in_burst()]
            if not quiet:
                return None
            self._relax(min(quiet, key=lambda one: (one.trains, one.activity.last_active_ns)))
        watching = Watching(process, now_ns, keep=keep, born_since_ns=born_since_ns)
        self.watched[process.pid] = watching
        self._watched_shares.take(process.pid, process.uid)
        self.rounds.join(watching)
        return watching

    def _relax(self, watching: Watching) -> None:
        pid = watching.process.pid
        del self.watched[pid]
        self._watched_shares.give_back(pid)
        self.rounds.leave(pid)
        watching.end()

    def meet(self, pid: int, start_ticks: int, now_ns: int) -> Watching | None:
        """Watch a process that was pointed out to us; None if it has ended, is ours, or cannot be watched."""
        if pid in self._own or pid in self._ignored:
            return None
        if pid not in self.known:
            self._meet(pid, now_ns)
        process = self.known.get(pid)
        found = None
        if process is not None and process.start_ticks == start_ticks:
            found = self.watched.get(pid) or self.watch(process, now_ns)
        HOLDERS.reading = 0
        return found

    def alert(self, now_ns: int, *, mappings: bool) -> None:
        """Look at once at those who may have opened a checkpoint: the training processes that were active last."""
        candidates = [watching for watching in self.watched.values() if watching.keep or watching.interpreter]
        candidates.sort(key=lambda watching: watching.activity.last_active_ns, reverse=True)
        for watching in candidates[:MAX_ALERTED]:
            watching.alert(now_ns, mappings=mappings)

    def sweep(self, now_ns: int, samples: list[Sample], trifles: Mapping[int, int] | None = None) -> None:
        """Watch the busy ones of those who are not watched, let the idle ones go.

        Who is busy a trace has told, with what each pid has read in `trifles`; without one (None) their counters do.
        Of a crowd that does nothing each is read every some seconds, users in turn.
        """
        for watching in list(self.watched.values()):
            self._let_go(watching, now_ns)
        during_ns, self._swept_ns = now_ns - self._swept_ns, now_ns
        moved = self.unwatched.take()
        if trifles is None:
            self._sweep_counters(now_ns, samples)
            return
        for pid in {pid for pid, _ in moved} | trifles.keys():
            process = self.known.get(pid)
            if process is not None and pid not in self.watched:
                moved_bytes = moved.get((pid, process.start_ticks), 0) + trifles.get(pid, 0)
                self._judge(process, moved_bytes, during_ns, now_ns)
        HOLDERS.reading = 0

    def _sweep_counters(self, now_ns: int, samples: list[Sample]) -> None:
        moving, self._moving = self._moving, set()
        for pid in moving:
            self._read(pid, now_ns, samples)
        began = time.thread_time_ns()
        turns = self._turns.turns()
        while self._sweeping.left_ns(now_ns) > 0 and (due := next(turns, None)) is not None:
            if due not in moving:
                self._read(due, now_ns, samples)
            ended = time.thread_time_ns()
            self._sweeping.spend(ended - began)
            began = ended
        HOLDERS.reading = 0

    def _read(self, pid: int, now_ns: int, samples: list[Sample]) -> None:
        process = self.known.get(pid)
        if process is None or pid in self.watched:
            return
        HOLDERS.reading = pid
        try:
            changed = process.read_io()
        except ProcessGone:
            self.forget(pid, samples)
            return
        if (io := process.io) is None:
            return
        total = io.read_chars + io.write_chars
        before, before_ns = self._moved.get(pid, (None, now_ns))
        self._moved[pid] = total, now_ns
        if before is None or not changed:
            return
        self._moving.add(pid)
        self._judge(process, total - before, now_ns - before_ns, now_ns)

    def _judge(self, process: Process, moved_bytes: int, during_ns: int, now_ns: int) -> None:
        HOLDERS.reading = process.pid
        if moved_bytes * 1e9 > BUSY_BYTES_PER_SECOND * during_ns:
            self.watch(process, now_ns)
        elif moved_bytes > TURNED_BYTES and is_interpreter(process):
            self.watch(process, now_ns)  # a script of a shell that became the training script at its end

    def _let_go(self, watching: Watching, now_ns: int) -> None:
        if watching.keep or watching.trains or watching.activity.in_burst():
            return
        patience_ns = LEARN_NS if watching.interpreter else KEEP_QUIET_NS
        if now_ns - max(watching.since_ns, watching.activity.last_active_ns) > patience_ns:
            self._relax(watching)

    def forget(self, pid: int, samples: list[Sample]) -> Watching | None:
        """Drop a process that has ended; returns its watching, closed, if it was watched."""
        process = self.known.pop(pid, None)
        watching = self.watched.pop(pid, None)
        self._moved.pop(pid, None)
        self._moving.discard(pid)
        self._turns.give_back(pid)
        self.rounds.leave(pid)
        self._known_shares.give_back(pid)
        self._watched_shares.give_back(pid)
        if process is not None:
            self._kept -= process.keeps
        if watching is not None:
            samples.append(watching.process.exit())
            watching.close()
        elif process is not None:
            process.close()
        return watching

    def close(self) -> None:
        """Give all descriptors back."""
        for watching in self.watched.values():
            watching.close()
        for process in self.known.values():
            process.close()
        self.watched.clear()
        self.known.clear()
        if self._births is not None:
            self._births.close()


def _why_not() -> str:
    """Return what is needed to read any process, or that it does not help: see ptrace(2), access mode checking."""
    with contextlib.suppress(OSError):
        if privileges.held().effective >> privileges.CAP_SYS_PTRACE & 1:
            return "CAP_SYS_PTRACE is effective, but a user namespace or a security module protects them"
    need = "processes of other users, and those with more capabilities, need CAP_SYS_PTRACE"
    if privileges.within_bounds(privileges.CAP_SYS_PTRACE):
        return need
    return f"{need}, which root lacks in this container (--cap-add=SYS_PTRACE)"
