"""The processes that were described or traced, which of them started which, and their roles."""

from __future__ import annotations

import msgspec

from ckptprof.detect.tolerances import MAX_PER_ITEM
from ckptprof.detect.world import rendezvous
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.program_names import HELPERS, INTERPRETERS, LAUNCHERS, RUNNERS, TOOLS, TRANSFER_TOOLS
from ckptprof_collectors.samples import ProcessInfo

MAX_KNOWN = 20_000
INIT = 1
_UNKNOWN: tuple[str, int | None] = ("", None)


class Processes:
    """The processes that were described or traced."""

    def __init__(self, monitor_pids: tuple[int, ...] = ()) -> None:
        """`monitor_pids` are ckptprof's own processes, which are no ancestors of a job."""
        self._infos: Bounded[ProcessKey, ProcessInfo] = Bounded(MAX_KNOWN, on_drop=self._forget_process)
        self._current: dict[int, ProcessKey] = {}
        self._monitors = frozenset(monitor_pids)
        # name and parent of processes that were traced, but too short-lived to be described
        self._traced: Bounded[ProcessKey, tuple[str, int | None]] = Bounded(MAX_KNOWN)
        # children whose parent has since become another program, which did not start them
        self._children_of_exec: Bounded[ProcessKey, None] = Bounded(MAX_KNOWN)
        self._ended: set[ProcessKey] = set()  # of those that were described

    def _describe(self, info: ProcessInfo) -> ProcessInfo:
        """Store a description, completed by earlier ones. An orphan keeps the parent that it had."""
        key = key_of(info)
        previous = self._infos.get(key)
        info = _restore_exited_info(info, previous or self._infos.get(self._current.get(info.parent_pid, (0, 0))))
        if previous is not None and info.parent_pid <= INIT < previous.parent_pid:
            info = msgspec.structs.replace(info, parent_pid=previous.parent_pid)
        elif info.is_fork and (forked_by := self._find_forker(info)) is not None:
            info = msgspec.structs.replace(info, parent_pid=forked_by.pid)
        if is_helper(info) and (parent := self._above(info)) is not None and _named_itself(parent, info):
            info = msgspec.structs.replace(info, environment=parent.environment)
        if previous is not None and previous.program == info.program and not info.runtimes:
            info = msgspec.structs.replace(info, runtimes=previous.runtimes)  # only a child of it could be read
        if (
            previous is not None and is_runner(previous) and not is_runner(info)
        ):  # exec: a shell runs its last command so
            self._children_of_exec.update(
                (child, None) for child, one in self._infos.items() if one.parent_pid == info.pid
            )
        self._infos[key] = info
        self._current[info.pid] = key
        return info

    def _find_forker(self, info: ProcessInfo) -> ProcessInfo | None:
        """Find the process that forked it, when an intermediate process has exited.

        None: its parent forked it, or may have, or several processes run that program.
        """
        above = self._infos.get(self._current.get(info.parent_pid, (0, 0)))
        if above is None and info.parent_pid > INIT and info.parent_pid not in self._monitors:
            return None
        if not is_script(info) or (above is not None and (above.program == info.program or above.runtimes)):
            return None
        living = (self._infos[key] for key in self._current.values() if key not in self._ended)
        alike = {one.pid: one for one in living if _may_fork(one, info)}
        first = [one for one in alike.values() if one.parent_pid not in alike]  # the others are also its forks
        return first[0] if len(first) == 1 else None

    def record_exit(self, process: ProcessKey) -> None:
        """Record that a process has exited."""
        if process in self._infos:
            self._ended.add(process)

    def _forget_process(self, process: ProcessKey, _: ProcessInfo) -> None:
        self._ended.discard(process)
        if self._current.get(process[0]) == process:
            del self._current[process[0]]

    def __len__(self) -> int:
        return len(self._infos)

    def record_traced(self, process: ProcessKey, comm: str, parent_pid: int | None = None) -> None:
        """Record name and parent of a process that was traced; it may be described later, or never."""
        if process not in self._infos:
            known_pid = self._traced.get(process, _UNKNOWN)[1]
            self._traced[process] = comm, parent_pid if known_pid is None else known_pid

    def comm(self, process: ProcessKey) -> str:
        """Name of a process; empty if unknown."""
        info = self._infos.get(process)
        return info.comm if info is not None else self._traced.get(process, _UNKNOWN)[0]

    def info(self, process: ProcessKey) -> ProcessInfo | None:
        """Return the description of a process; None: never described."""
        return self._infos.get(process)

    def own_or_forker_info(self, process: ProcessKey) -> ProcessInfo | None:
        """Return the description of a process, or for a short-lived fork that of its parent; None: unknown."""
        info = self._info_or_parent(process)
        if info is None or key_of(info) == process:
            return info
        comm = self.comm(process)
        return info if comm and (comm == info.comm or (is_script(info) and is_interpreter(comm))) else None

    def parent(self, process: ProcessKey) -> ProcessKey | None:
        """Find its parent; None: unknown."""
        info = self._infos.get(process)
        parent_pid = info.parent_pid if info is not None else self._traced.get(process, _UNKNOWN)[1]
        return self._current.get(parent_pid) if parent_pid is not None else None

    def _above(self, info: ProcessInfo) -> ProcessInfo | None:
        """Find the process that started it; None: unknown, or part of ckptprof."""
        if info.parent_pid in self._monitors or key_of(info) in self._children_of_exec:
            return None
        key = self._current.get(info.parent_pid)
        parent = self._infos.get(key) if key is not None else None
        return parent if parent is not None and parent.start_ticks <= info.start_ticks else None

    def ancestors(self, info: ProcessInfo) -> list[ProcessInfo]:
        """List it and its known ancestors, itself first; contradicting samples may make a circle."""
        found = {info.pid: info}
        while len(found) < MAX_PER_ITEM and (parent := self._above(info)) is not None and parent.pid not in found:
            info = found[parent.pid] = parent
        return list(found.values())

    def _root(self, info: ProcessInfo) -> ProcessInfo:
        root = info
        for parent in self.ancestors(info)[1:]:
            if is_runner(parent) and not (is_script(root) or root.runtimes):
                continue  # a shell in which a script runs a tool
            if not is_of_same_job(parent, root):
                break
            root = parent
        return root

    def _wrapper(self, info: ProcessInfo) -> ProcessInfo:
        """Find the topmost process of the same rank: a shell around it, or the rank that it helps."""
        own = rendezvous.rank_place(info.environment)
        top = info
        for parent in self.ancestors(info)[1:]:
            if rendezvous.rank_place(parent.environment) != own or is_launcher(parent):
                break
            top = parent
        return top

    def _launcher(self, top: ProcessInfo) -> ProcessInfo | None:
        """Find what started the ranks, or the topmost launcher above, if these exist for them only."""
        line = self.ancestors(top)[1:]
        if not line or not is_script(line[0]):
            return None
        found = line[0]
        for parent in line[1:]:
            if not is_launcher(parent):
                break
            found = parent
        return found

    def is_tool(self, process: ProcessKey) -> bool:
        """Whether it is a program that copies, packs, installs or serves, and trains nothing."""
        return not TOOLS.isdisjoint(self._names(process))

    def is_mover(self, process: ProcessKey) -> bool:
        """Whether it is a tool that copies, packs, sends or fetches files."""
        return not TRANSFER_TOOLS.isdisjoint(self._names(process))

    def _names(self, process: ProcessKey) -> tuple[str, ...]:
        info = self._infos.get(process)
        return (info.comm, info.program) if info is not None else (self.comm(process),)

    def _info_or_parent(self, process: ProcessKey) -> ProcessInfo | None:
        info = self._infos.get(process)
        parent = self.parent(process) if info is None else None
        return self._infos.get(parent) if parent is not None else info

    def rank_process(self, process: ProcessKey) -> ProcessKey:
        """Find the process that represents it among the ranks: itself, or the one that forked it as a helper."""
        info = self._infos.get(process)
        if info is None:
            return self.parent(process) or process
        if rendezvous.is_rank(info.environment):
            return key_of(self._wrapper(info))
        parent = self._above(info)
        forked = parent is not None and is_forked(parent, info) and not is_helper(info)
        return key_of(parent) if parent is not None and forked else process


def is_interpreter(comm: str) -> bool:
    """Whether a process of that name runs Python code."""
    return comm.startswith(INTERPRETERS)


def is_script(info: ProcessInfo) -> bool:
    """Whether it runs Python code."""
    return is_interpreter(info.comm) or info.program.endswith(".py") or is_helper(info)


def is_runner(info: ProcessInfo) -> bool:
    """Whether it is a shell or the like, which runs another program; login shells have a leading dash."""
    return info.program.removeprefix("-") in RUNNERS


def is_launcher(info: ProcessInfo) -> bool:
    """Whether it starts the ranks of one job, and is none itself."""
    return info.program in LAUNCHERS


def is_helper(info: ProcessInfo) -> bool:
    """Whether it was started by a process pool or the like, and belongs to its parent."""
    return info.program.startswith(HELPERS)


def is_forked(parent: ProcessInfo, child: ProcessInfo) -> bool:
    """Whether a child runs its parent's program; in older recordings a script's, by its name, which a fork keeps."""
    is_fork = child.is_fork if child.is_fork is not None else is_script(parent)
    return parent.program == child.program and is_fork


def _may_fork(one: ProcessInfo, child: ProcessInfo) -> bool:
    same = one.program == child.program and one.environment == child.environment and one.uid == child.uid
    return same and one.start_ticks < child.start_ticks and one.cgroup == child.cgroup


def _named_itself(parent: ProcessInfo, helper: ProcessInfo) -> bool:
    """Whether a process set its own rank, which a helper inherits, after it was started without one.

    A launcher of several ranks gives each its own. A process with its own rank is a single one, or a helper itself.
    """
    if rendezvous.rank_of(helper.environment) is None or any(rendezvous.rank_place(parent.environment)):
        return False
    return is_helper(parent) or (is_script(parent) and rendezvous.size_of(helper.environment) == 1)


def is_of_same_job(parent: ProcessInfo, child: ProcessInfo) -> bool:
    """Whether a child works for the job of its parent: a rank, a helper, a writer.

    Nothing works for a process that only runs another program, though that may be a script (`conda run`, `ckptprof
    run`). A newly started program that can save itself, and was given no rank of its own, is a job of its own, whatever
    its parent has loaded: sweeps, schedulers and tuners start such programs.
    """
    if is_runner(parent) or parent.start_ticks > child.start_ticks:
        return False
    rank_places = {rendezvous.rank_place(one.environment) for one in (parent, child)}
    helps = is_helper(child) or is_launcher(parent) or not child.runtimes or len(rank_places) > 1
    return is_forked(parent, child) or (is_script(parent) and helps)


def job_title(*family: ProcessInfo) -> str:
    """Choose the program that names the job: the first script of a family, from the leaf upwards; never a shell."""
    for info in family:
        if info.program.endswith(".py"):
            return info.program
    working = [info for info in family if not is_runner(info)] or list(family)
    for info in working:
        if info.program and not is_helper(info) and not info.program.startswith(INTERPRETERS):
            return info.program
    return working[-1].program or working[0].program or working[0].comm


def key_of(info: ProcessInfo) -> ProcessKey:
    """Key of a process, unique within a boot: pid and start time in clock ticks."""
    return info.pid, info.start_ticks


def _restore_exited_info(info: ProcessInfo, previous: ProcessInfo | None) -> ProcessInfo:
    """Restore the description of a process that was exiting: it loses all but its name with its memory.

    `previous`: its earlier description, or its parent's: a fork has the same program and environment.
    """
    if previous is None or info.environment or info.comm != previous.comm:
        return info
    same = key_of(info) == key_of(previous)
    if not previous.environment and not (same and info.cgroup is None and previous.cgroup is not None):
        return info  # it had none of these variables: that they are missing is no evidence
    if info.program not in {"", info.comm, previous.program}:
        return info
    return msgspec.structs.replace(
        info, program=previous.program, environment=previous.environment, runtimes=info.runtimes or previous.runtimes
    )
