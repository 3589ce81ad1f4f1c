"""Which processes train together: those whose environments meet, else those of one process tree."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from ckptprof.detect import rendezvous
from ckptprof.detect.lineage import TRAINING_RUNTIMES as TRAINING_RUNTIMES  # noqa: PLC0414 - others look for it here
from ckptprof.detect.lineage import belongs_to, is_helper, is_interpreter, is_launcher, is_script, title
from ckptprof.detect.streams import ProcessKey
from ckptprof.detect.tools import MOVERS, TOOLS
from ckptprof_collectors.samples import ProcessInfo

NUMERIC_RUNTIMES = frozenset(("numpy", "safetensors"))
GPU_RUNTIMES = frozenset(("cuda", "hip", "nccl", "gpu"))
MAX_KNOWN = 20_000
MAX_HEARD = 8192
_MAX_DEPTH = 64  # of a family
_INIT = 1


@dataclass(slots=True, eq=False)
class _Group:
    """The processes of one job; its name is given once and kept."""

    name: str
    top: ProcessInfo  # the one that was met first
    root: int  # pid of what started them
    living: dict[ProcessKey, int | None] = field(default_factory=dict)  # with their ranks


class JobBook:
    """Knows the processes that were described, and what job each belongs to."""

    def __init__(self, monitor_pids: tuple[int, ...] = ()) -> None:
        """Start with nobody; `monitor_pids` are ckptprof's own and never a job's root."""
        self._infos: dict[ProcessKey, ProcessInfo] = {}
        self._current: dict[int, ProcessKey] = {}
        self._monitors = frozenset(monitor_pids)
        self._comms: dict[ProcessKey, str] = {}  # of those that were traced, but lived too shortly to be described
        self._parents: dict[ProcessKey, int] = {}  # of the same
        self._groups: dict[tuple[object, ...], list[_Group]] = {}
        self._group_of: dict[ProcessKey, tuple[tuple[object, ...], _Group]] = {}
        self._holders: dict[str, _Group] = {}
        self._gone: dict[ProcessKey, None] = {}  # ended long ago, but others descend from them
        self._ranked: dict[ProcessKey, int] = {}  # the living processes that carry a rank

    def learn(self, info: ProcessInfo) -> None:
        """Take a description; an orphan keeps the parent that it had."""
        key = (info.pid, info.start_ticks)
        known = self._infos.get(key)
        info = _while_it_lived(info, known or self._infos.get(self._current.get(info.parent_pid, (0, 0))))
        if known is None and len(self._infos) >= MAX_KNOWN:
            self._drop(next(iter(self._infos)))
        if known is not None and info.parent_pid <= _INIT < known.parent_pid:
            info = msgspec.structs.replace(info, parent_pid=known.parent_pid)
        if known is not None and known.program == info.program and not info.runtimes:
            info = msgspec.structs.replace(info, runtimes=known.runtimes)  # it was looked at from a child only
        if known is not None and known.environment != info.environment:
            self.end(key)  # it has become another program
        self._infos[key] = info
        self._current[info.pid] = key
        rank = rendezvous.rank_of(info.environment) if rendezvous.is_rank(info.environment) else None
        if rank is not None and is_script(info):
            self._ranked[key] = rank

    def _drop(self, process: ProcessKey) -> None:
        self.end(process)
        del self._infos[process]
        self._group_of.pop(process, None)
        self._gone.pop(process, None)
        if self._current.get(process[0]) == process:
            del self._current[process[0]]

    def end(self, process: ProcessKey) -> None:
        """Take note that a process has ended: its rank, and in the end the name of its job, are free again."""
        self._ranked.pop(process, None)
        found = self._group_of.get(process)
        if found is not None:
            found[1].living.pop(process, None)

    def __len__(self) -> int:
        """Return how many things are held."""
        by_process = (self._infos, self._comms, self._parents, self._group_of, self._gone, self._ranked)
        return sum(len(book) for book in by_process) + len(self._current) + len(self._groups) + len(self._holders)

    def forget(self, gone: Iterable[ProcessKey]) -> None:
        """Drop what is known of processes that ended long ago, but for those that living ones descend from."""
        self._gone.update((process, None) for process in gone if process in self._infos)
        if not self._gone:
            return
        needed: set[ProcessKey] = set()
        for process, info in self._infos.items():
            above = None if process in self._gone else self._current.get(info.parent_pid)
            while above is not None and above not in needed:
                needed.add(above)
                above = self._current.get(self._infos[above].parent_pid)
        for process in [process for process in self._gone if process not in needed]:
            self._drop(process)
        met = {id(group) for _, group in self._group_of.values()}
        for key, groups in list(self._groups.items()):
            left = [group for group in groups if group.living or id(group) in met]
            if left:
                self._groups[key] = left
            else:
                del self._groups[key]
        for name, group in list(self._holders.items()):
            if not group.living and id(group) not in met:
                del self._holders[name]

    def hear(self, process: ProcessKey, comm: str, parent_pid: int | None = None) -> None:
        """Take the name of a process that did something; whether it will be described is open."""
        if process not in self._infos:
            while len(self._comms) >= MAX_HEARD and process not in self._comms:
                oldest = next(iter(self._comms))
                del self._comms[oldest]
                self._parents.pop(oldest, None)
            self._comms[process] = comm
            if parent_pid is not None and process not in self._parents:
                self._parents[process] = parent_pid

    def comm(self, process: ProcessKey) -> str:
        """Return the name of a process; empty if it is not known."""
        info = self._infos.get(process)
        return info.comm if info is not None else self._comms.get(process, "")

    def info(self, process: ProcessKey) -> ProcessInfo | None:
        """Return what is known of a process."""
        return self._infos.get(process)

    def forked_by(self, process: ProcessKey) -> ProcessInfo | None:
        """Return its description; of a fork that was gone before it could be described, that of who forked it."""
        info = self._infos.get(process)
        if info is None and (keeper := self.keeper(process)) is not None:
            above, comm = self._infos[keeper], self._comms.get(process, "")
            info = above if is_script(above) and comm and (comm == above.comm or is_interpreter(comm)) else None
        return info

    def parent(self, process: ProcessKey) -> ProcessKey | None:
        """Return its parent, if that is known."""
        info = self._infos.get(process)
        parent_pid = info.parent_pid if info is not None else self._parents.get(process)
        return self._current.get(parent_pid) if parent_pid is not None else None

    def keeper(self, process: ProcessKey) -> ProcessKey | None:
        """Return the process that it worked for, if it lived too shortly to be described itself."""
        for _ in range(_MAX_DEPTH):
            parent = self.parent(process)
            if parent is None or parent in self._infos:
                return parent
            process = parent
        return None

    def job_of(self, process: ProcessKey) -> str:
        """Return the job's name: the same for all its processes, whatever the order in which they were met."""
        info = self._infos.get(process)
        if info is None:
            keeper = self.keeper(process) if process not in self._infos else None
            info = self._infos.get(keeper) if keeper is not None else None
            if info is None or not is_script(info):
                return f"pid-{process[0]}"
        return self._group(info).name

    def _group(self, info: ProcessInfo) -> _Group:
        process = (info.pid, info.start_ticks)
        top = self._wrapper(info) if rendezvous.is_rank(info.environment) else self._root(info)
        key = self._key(info, top)
        known = self._group_of.get(process)
        if known is not None and known[0] == key:
            return known[1]
        groups = self._groups.get(key, [])
        group = next((group for group in reversed(groups) if self._may_join(group, info, top)), None)
        if group is None:
            group = self._found(key, info, top)
        self._group_of[process] = key, group
        group.living[process] = rendezvous.rank_of(info.environment) if process == _key_of(top) else None
        return group

    def _key(self, info: ProcessInfo, top: ProcessInfo) -> tuple[object, ...]:
        environment = info.environment
        if not rendezvous.is_rank(environment):
            return "tree", top.pid, top.start_ticks
        where = rendezvous.meeting(environment, info.cgroup)
        if where is not None:
            return where
        if top.parent_pid <= _INIT:
            return "orphans", info.uid, info.cgroup, title(info, top), environment.get("WORLD_SIZE")
        return "siblings", top.parent_pid

    def _may_join(self, group: _Group, info: ProcessInfo, top: ProcessInfo) -> bool:
        """Return whether it is one of them: a second process of the same rank, started alike, is of another job."""
        living = [process for process in group.living if self._current.get(process[0]) == process]
        if not living:
            return False  # the like of them, later
        if _key_of(info) != _key_of(top):
            return True
        rank = rendezvous.rank_of(info.environment)
        for process in living:
            other = self._infos.get(process)
            if other is not None and rank is not None and group.living[process] == rank:
                return other.parent_pid != top.parent_pid and top.parent_pid > _INIT
        return True

    def _found(self, key: tuple[object, ...], info: ProcessInfo, top: ProcessInfo) -> _Group:
        """Begin a group, under a name that no other job of now has."""
        started_by = self._launcher(top) if rendezvous.is_rank(info.environment) else top
        root = started_by.pid if started_by is not None else self._number(info, top)
        name, more = self._name(info, top, started_by or top, root)
        group = _Group(name, top, root)
        for wanted in (name, *more):
            holder = self._holders.get(wanted)
            if holder is None or not holder.living or self._are_one(holder, group):
                group.name = wanted
                break
        self._remember(key, group)
        return group

    def _name(self, info: ProcessInfo, top: ProcessInfo, root: ProcessInfo, number: int) -> tuple[str, tuple[str, ...]]:
        program = title(*self._family(info, root))
        port = rendezvous.port_of(info.environment)
        if "SLURM_JOB_ID" in info.environment:
            name = f"slurm-{info.environment['SLURM_JOB_ID']}"
            return name, (f"{name}:{program}-{number}", f"{name}:{program}-{top.pid}")
        name = f"{program}-{rendezvous.told_name(info.environment) or number}"
        return name, (*((f"{name}:{port}",) if port else ()), f"{program}-{top.pid}", f"{name}:{top.pid}")

    def _number(self, info: ProcessInfo, top: ProcessInfo) -> int:
        """Return the pid that names a job of ranks whose launcher is not known."""
        alone = (rendezvous.size_of(info.environment) or 1) <= 1
        return top.pid if alone or top.parent_pid <= _INIT or top.parent_pid in self._monitors else top.parent_pid

    def _are_one(self, holder: _Group, group: _Group) -> bool:
        """Return whether two groups are of one job: one was started by the other, or both by the same launcher."""
        if holder.root == group.root and holder.top.parent_pid == group.top.parent_pid:
            launcher = self._launcher(group.top)
            return launcher is not None and is_launcher(launcher)
        above = {_key_of(info) for info in self._ancestors(group.top)}
        return _key_of(holder.top) in above or _key_of(group.top) in {
            _key_of(info) for info in self._ancestors(holder.top)
        }

    def _remember(self, key: tuple[object, ...], group: _Group) -> None:
        while len(self._groups) >= MAX_KNOWN:
            for old in self._groups.pop(next(iter(self._groups))):
                if self._holders.get(old.name) is old:
                    del self._holders[old.name]
        self._groups[key] = [*(other for other in self._groups.get(key, []) if other.living), group]
        self._holders[group.name] = group
        while len(self._group_of) > 2 * MAX_KNOWN:
            del self._group_of[next(iter(self._group_of))]

    def _above(self, info: ProcessInfo) -> ProcessInfo | None:
        """Return the process that started it, if it is known and no part of ckptprof."""
        if info.parent_pid in self._monitors:
            return None
        key = self._current.get(info.parent_pid)
        parent = self._infos.get(key) if key is not None else None
        return parent if parent is not None and parent.start_ticks <= info.start_ticks else None

    def _ancestors(self, info: ProcessInfo) -> list[ProcessInfo]:
        """Return it and the known processes above it, itself first."""
        found = [info]
        while (parent := self._above(found[-1])) is not None and len(found) < _MAX_DEPTH:
            if any(parent.pid == other.pid for other in found):
                break
            found.append(parent)
        return found

    def _family(self, info: ProcessInfo, root: ProcessInfo) -> list[ProcessInfo]:
        """Return it and those above it, up to the root."""
        family = []
        for member in self._ancestors(info):
            family.append(member)
            if member is root:
                return family
        return [info, root]

    def _root(self, info: ProcessInfo) -> ProcessInfo:
        """Return the topmost process that works for the same job."""
        line = self._ancestors(info)
        root = info
        for child, parent in itertools.pairwise(line):
            if not belongs_to(parent, child):
                break
            root = parent
        return root

    def _wrapper(self, info: ProcessInfo) -> ProcessInfo:
        """Return the topmost process that carries the same rank: a shell around it, or the rank whose helper it is."""
        own = rendezvous.place(info.environment)
        top = info
        for parent in self._ancestors(info)[1:]:
            if rendezvous.place(parent.environment) != own or is_launcher(parent):
                break
            top = parent
        return top

    def _launcher(self, top: ProcessInfo) -> ProcessInfo | None:
        """Return what started the ranks, or that which started this, as long as all of it is there for them only."""
        line = self._ancestors(top)[1:]
        if not line or not is_script(line[0]):
            return None
        found = line[0]
        for parent in line[1:]:
            if not is_launcher(parent):
                break
            found = parent
        return found

    def is_tool(self, process: ProcessKey) -> bool:
        """Return whether it is a program that copies, packs, installs or serves, and trains nothing."""
        return not TOOLS.isdisjoint(self._names(process))

    def is_mover(self, process: ProcessKey) -> bool:
        """Return whether it is a tool that copies, packs, sends or fetches files."""
        return not MOVERS.isdisjoint(self._names(process))

    def _names(self, process: ProcessKey) -> tuple[str, ...]:
        info = self._infos.get(process)
        return (info.comm, info.program) if info is not None else (self._comms.get(process, ""),)

    def rank(self, process: ProcessKey) -> int | None:
        """Return the process's rank, from its environment."""
        info = self._told(process)
        return rendezvous.rank_of(info.environment) if info is not None else None

    def ranks(self, process: ProcessKey) -> int | None:
        """Return how many ranks the job has, from the environment."""
        info = self._told(process)
        return rendezvous.size_of(info.environment) if info is not None else None

    def living_ranks(self, process: ProcessKey) -> set[int]:
        """Return the ranks of its job that are alive on this host."""
        info = self._told(process)
        if info is None:
            return set()
        group = self._group(info)
        return {rank for other, rank in self._ranked.items() if self._group(self._infos[other]) is group}

    def starts_ranks(self, process: ProcessKey) -> bool:
        """Return whether it carries no rank, and living processes that it started do: it need not train itself."""
        info = self._infos.get(process)
        if info is None or rendezvous.is_rank(info.environment):
            return False
        return any(self._infos[ranked].parent_pid == info.pid for ranked in self._ranked)

    def _told(self, process: ProcessKey) -> ProcessInfo | None:
        """Return its description, or that of the process that it worked for."""
        info = self._infos.get(process)
        if info is None and (keeper := self.keeper(process)) is not None:
            info = self._infos.get(keeper)
        return info

    def works_for(self, process: ProcessKey) -> ProcessKey:
        """Return the process that stands for it among the ranks: itself, or the one that it was forked by to help."""
        info = self._infos.get(process)
        if info is None:
            return self.keeper(process) or process
        if rendezvous.is_rank(info.environment):
            return _key_of(self._wrapper(info))
        parent = self._above(info)
        forked = parent is not None and is_script(parent) and parent.program == info.program and not is_helper(info)
        return _key_of(parent) if parent is not None and forked else process


def _key_of(info: ProcessInfo) -> ProcessKey:
    return info.pid, info.start_ticks


def _while_it_lived(info: ProcessInfo, like: ProcessInfo | None) -> ProcessInfo:
    """Return what was said of a process that ended meanwhile: with its memory goes all but its name, at any moment.

    `like` is what it was before, or its parent: a fork has its program and environment.
    """
    if like is None or info.environment or info.comm != like.comm:
        return info
    same = (info.pid, info.start_ticks) == (like.pid, like.start_ticks)
    if not like.environment and not (same and info.cgroup is None and like.cgroup is not None):
        return info  # it has none of the variables that are read: that they are gone shows nothing
    if info.program not in {"", info.comm, like.program}:
        return info
    return msgspec.structs.replace(
        info, program=like.program, environment=like.environment, runtimes=info.runtimes or like.runtimes
    )
