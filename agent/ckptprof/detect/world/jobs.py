"""Which processes train together: those whose environments name one meeting place, else those of one process tree.

The model. Each process belongs to one group, and a group has one name, given when its first process was described. The
key of a group is its meeting place (`rendezvous.meeting`); for ranks without one their parent, or, once that has
exited, their program and cgroup; for all other processes the root of their tree, up to the first process that only runs
another program (a shell, `conda run`).

Several groups may have one key in the course of time, and even at once: ports are reused. A process joins the latest
group that has living processes, unless that has a living rank equal to its own with the same parent. Names are
unique among living groups: a job is
called by its Slurm id, or by its program and the pid of its launcher, and by more if another job has that name.

Invariant: the name does not depend on the order in which processes are described, except for a group that was first
seen as a shell, which is renamed once it runs a program.

Example: torchrun (pid 100) starts ranks 101 and 102 of train.py; 101 forks a helper 103. All ranks have MASTER_PORT
29500, so their key is that port. The helper inherits it and is of the same rank. The job is called `train.py-100`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from ckptprof.detect.world import rendezvous
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.processes import (
    INIT,
    MAX_KNOWN,
    Processes,
    is_interpreter,
    is_launcher,
    is_runner,
    is_script,
    job_title,
    key_of,
)
from ckptprof.frameworks.program_names import RUNNERS
from ckptprof.frameworks.runkeys import identify_run, user_run_name
from ckptprof.model import Run
from ckptprof_collectors.samples import ProcessInfo


@dataclass(slots=True, eq=False)
class _JobGroup:
    """The processes of one job; its name changes only where a shell gave it, or an interpreter without its script."""

    name: str
    program: str  # in its name
    top: ProcessInfo  # the first that was described
    root: int  # pid of their launcher
    living: dict[ProcessKey, int | None] = field(default_factory=dict)  # with their ranks


class Jobs(Processes):
    """The described processes, and the job of each."""

    def __init__(self, monitor_pids: tuple[int, ...] = ()) -> None:
        """`monitor_pids` are ckptprof's own processes and never the root of a job."""
        super().__init__(monitor_pids)
        self._groups: Bounded[tuple[object, ...], list[_JobGroup]] = Bounded(MAX_KNOWN, on_drop=self._free_names)
        self._group_of: dict[ProcessKey, tuple[tuple[object, ...], _JobGroup]] = {}
        self._group_by_name: dict[str, _JobGroup] = {}
        self._exited: dict[ProcessKey, None] = {}  # exited long ago, but others descend from them
        self._ranked: dict[ProcessKey, int] = {}  # the living processes that carry a rank

    def observe(self, info: ProcessInfo) -> None:
        """Ingest the description of a process: its program, parent, rank and libraries."""
        key = key_of(info)
        known = self._infos.get(key)
        described = self._describe(info)
        if known is not None and known.environment != described.environment:
            self._leave(key)  # it has become another program
        rank = rendezvous.rank_of(described.environment) if rendezvous.is_rank(described.environment) else None
        if rank is not None and is_script(described):
            self._ranked[key] = rank

    def _forget_process(self, process: ProcessKey, info: ProcessInfo) -> None:
        self._leave(process)
        super()._forget_process(process, info)
        self._group_of.pop(process, None)
        self._exited.pop(process, None)

    def record_exit(self, process: ProcessKey) -> None:
        """Record that a process has exited: its rank, and finally the name of its job, may be used again."""
        super().record_exit(process)
        self._leave(process)

    def _leave(self, process: ProcessKey) -> None:
        self._ranked.pop(process, None)
        found = self._group_of.get(process)
        if found is not None:
            found[1].living.pop(process, None)

    def forget(self, exited: Iterable[ProcessKey]) -> None:
        """Drop processes that exited long ago, unless living ones descend from them."""
        self._exited.update((process, None) for process in exited if process in self._infos)
        if not self._exited:
            return
        needed: set[ProcessKey] = set()
        for process, info in self._infos.items():
            above = None if process in self._exited else self._current.get(info.parent_pid)
            while above is not None and above not in needed:
                needed.add(above)
                above = self._current.get(self._infos[above].parent_pid)
        for process in [process for process in self._exited if process not in needed]:
            self._forget_process(process, self._infos.pop(process))
        in_use = {id(group) for _, group in self._group_of.values()}
        for key, groups in list(self._groups.items()):
            remaining = [group for group in groups if group.living or id(group) in in_use]
            if remaining:
                self._groups[key] = remaining
            else:
                del self._groups[key]
        for name, group in list(self._group_by_name.items()):
            if not group.living and id(group) not in in_use:
                del self._group_by_name[name]

    def job_of(self, process: ProcessKey) -> str:
        """Name of the job: equal for all its processes, in whatever order they were described."""
        info = self._info_or_parent(process)
        if info is None or not (process in self._infos or is_script(info) or self.own_or_forker_info(process)):
            return f"pid-{process[0]}"
        return self._group(info).name

    def _group(self, info: ProcessInfo) -> _JobGroup:
        process = (info.pid, info.start_ticks)
        top = self._wrapper(info) if rendezvous.is_rank(info.environment) else self._root(info)
        key = self._key(info, top)
        known = self._group_of.get(process)
        if known is not None and known[0] == key:
            self._rename_after_exec(known[1], info, top)
            return known[1]
        groups = self._groups.get(key, [])
        group = next((group for group in reversed(groups) if self._may_join(group, info, top)), None)
        if group is None:
            group = self._create_group(key, info, top)
        self._rename_after_exec(group, info, top)
        self._group_of[process] = key, group
        group.living[process] = rendezvous.rank_of(info.environment) if process == key_of(top) else None
        return group

    def _key(self, info: ProcessInfo, top: ProcessInfo) -> tuple[object, ...]:
        environment = info.environment
        if not rendezvous.is_rank(environment):
            return "tree", top.pid, top.start_ticks
        where = rendezvous.meeting_place(environment, info.cgroup)
        if where is not None:
            return where
        if top.parent_pid <= INIT:
            return "orphans", info.uid, info.cgroup, job_title(info, top), environment.get("WORLD_SIZE")
        return "siblings", top.parent_pid

    def _may_join(self, group: _JobGroup, info: ProcessInfo, top: ProcessInfo) -> bool:
        """Whether it fits into a group: a second living process of the same rank belongs to another job."""
        living = [process for process in group.living if self._current.get(process[0]) == process]
        if not living:
            return False  # a later job of the same key
        if key_of(info) != key_of(top):
            return True
        rank = rendezvous.rank_of(info.environment)
        for process in living:
            other = self._infos.get(process)
            if other is not None and rank is not None and group.living[process] == rank:
                return other.parent_pid != top.parent_pid and top.parent_pid > INIT
        return True

    def _create_group(self, key: tuple[object, ...], info: ProcessInfo, top: ProcessInfo) -> _JobGroup:
        group = _JobGroup("", "", top, 0)
        self._name_group(group, info, top)
        self._groups[key] = [*(other for other in self._groups.get(key, []) if other.living), group]
        self._group_by_name[group.name] = group
        return group

    def _name_group(self, group: _JobGroup, info: ProcessInfo, top: ProcessInfo) -> None:
        started_by = self._launcher(top) if rendezvous.is_rank(info.environment) else top
        group.root = started_by.pid if started_by is not None else self._naming_pid(info, top)
        root, line = started_by or top, self.ancestors(info)
        group.program = job_title(*(line[: line.index(root) + 1] if root in line else (info, root)))
        group.name, *more = self._names_of(group.program, info, top, group.root)
        for wanted in (group.name, *more):
            other = self._group_by_name.get(wanted)
            if other is None or not other.living or self._are_same_job(other, group):
                group.name = wanted
                break

    def _rename_after_exec(self, group: _JobGroup, info: ProcessInfo, top: ProcessInfo) -> None:
        is_same = key_of(info) == key_of(group.top)  # at first described while it was executed, without its arguments
        is_named_for_others = group.program.removeprefix("-") in RUNNERS or (is_same and is_interpreter(group.program))
        if not is_named_for_others or is_runner(info) or info.program == group.program:
            return
        if self._group_by_name.get(group.name) is group:
            del self._group_by_name[group.name]
        self._name_group(group, info, top)
        self._group_by_name[group.name] = group

    @staticmethod
    def _names_of(program: str, info: ProcessInfo, top: ProcessInfo, number: int) -> tuple[str, ...]:
        """Preferred name of a job, then the alternatives if another job has it."""
        port = rendezvous.first_number(info.environment, ("MASTER_PORT",))
        if "SLURM_JOB_ID" in info.environment:
            name = f"slurm-{info.environment['SLURM_JOB_ID']}"
            return name, f"{name}:{program}-{number}", f"{name}:{program}-{top.pid}"
        name = f"{program}-{user_run_name(info.environment) or number}"
        return name, *((f"{name}:{port}",) if port else ()), f"{program}-{top.pid}", f"{name}:{top.pid}"

    def _naming_pid(self, info: ProcessInfo, top: ProcessInfo) -> int:
        """Choose the pid in the name of a job of ranks whose launcher is unknown."""
        alone = (rendezvous.size_of(info.environment) or 1) <= 1
        return top.pid if alone or top.parent_pid <= INIT or top.parent_pid in self._monitors else top.parent_pid

    def _are_same_job(self, other: _JobGroup, group: _JobGroup) -> bool:
        """Whether two groups are one job: one started the other, or both have one launcher."""
        if other.root == group.root and other.top.parent_pid == group.top.parent_pid:
            launcher = self._launcher(group.top)
            return launcher is not None and is_launcher(launcher)
        return self._starts(other.top, group.top) or self._starts(group.top, other.top)

    def _starts(self, above: ProcessInfo, below: ProcessInfo) -> bool:
        for_others = is_launcher(above) or not is_script(above)
        return for_others and key_of(above) in {key_of(info) for info in self.ancestors(below)}

    def _free_names(self, _: tuple[object, ...], groups: list[_JobGroup]) -> None:
        for group in groups:
            if self._group_by_name.get(group.name) is group:
                del self._group_by_name[group.name]

    def rank(self, process: ProcessKey) -> int | None:
        """Rank of the process by its environment; None: unknown."""
        info = self._info_or_parent(process)
        return rendezvous.rank_of(info.environment) if info is not None else None

    def owner(self, process: ProcessKey) -> int | None:
        """User id of the process; None: unknown."""
        info = self._info_or_parent(process)
        return info.uid if info is not None else None

    def ranks(self, process: ProcessKey) -> int | None:
        """Count the ranks of the job by the environment; None: unknown."""
        info = self._info_or_parent(process)
        return rendezvous.size_of(info.environment) if info is not None else None

    def run(self, process: ProcessKey) -> Run | None:
        """Identify the run that joins its job with other nodes; None: unknown."""
        info = self._info_or_parent(process)
        run = identify_run(info.environment, info.cgroup) if info is not None else None
        return None if run is None else msgspec.structs.replace(run, ranks=self.ranks(process))

    def are_all_ranks_local(self, process: ProcessKey) -> bool:
        """Whether all ranks of its job run on this host, by its environment."""
        info = self._info_or_parent(process)
        return info is None or (rendezvous.size_of(info.environment) or 1) <= rendezvous.local_size_of(info.environment)

    def has_other_nodes(self, process: ProcessKey) -> bool:
        """Whether its run has other nodes, by its environment."""
        run = self.run(process)
        return run is not None and (run.nodes or 1) > 1

    def local_living_ranks(self, process: ProcessKey) -> set[int]:
        """Ranks of its job that are alive on this host."""
        info = self._info_or_parent(process)
        if info is None:
            return set()
        group = self._group(info)
        return {rank for other, rank in self._ranked.items() if self._group(self._infos[other]) is group}

    def starts_ranks(self, process: ProcessKey) -> bool:
        """Whether it has no rank, but living children that do: it need not train itself."""
        info = self._infos.get(process)
        if info is None or rendezvous.is_rank(info.environment):
            return False
        return any(self._infos[ranked].parent_pid == info.pid for ranked in self._ranked)
