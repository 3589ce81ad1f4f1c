"""What a process is to those that it starts: a trainer, a launcher of ranks, a helper, or somebody else's program."""

from __future__ import annotations

from ckptprof.detect.world import rendezvous
from ckptprof.frameworks.launchers import HELPERS, INTERPRETERS, LAUNCHERS, RUNNERS
from ckptprof_collectors.samples import ProcessInfo


def is_interpreter(comm: str) -> bool:
    """Return whether a process of that name runs Python code."""
    return comm.startswith(INTERPRETERS)


def is_script(info: ProcessInfo) -> bool:
    """Return whether it runs Python code."""
    return is_interpreter(info.comm) or info.program.endswith(".py") or is_helper(info)


def is_launcher(info: ProcessInfo) -> bool:
    """Return whether it starts the ranks of one job, and is none itself."""
    return info.program in LAUNCHERS


def is_helper(info: ProcessInfo) -> bool:
    """Return whether it was started by a process pool or its kin, and belongs to whoever started it."""
    return info.program.startswith(HELPERS)


def is_forked(parent: ProcessInfo, child: ProcessInfo) -> bool:
    """Return whether a child runs its parent's program; in older recordings its name tells, which a fork keeps."""
    return parent.program == child.program and child.is_fork is not False


def belongs_to(parent: ProcessInfo, child: ProcessInfo) -> bool:
    """Return whether a child works for the job that its parent is of: a rank, a helper, a writer.

    A program that was started anew, can save itself, and was given no place among others is a job of its own, whatever
    its parent has loaded: sweeps, schedulers and tuners start such.
    """
    if not is_script(parent) or parent.start_ticks > child.start_ticks:
        return False
    if is_helper(child) or is_launcher(parent) or is_forked(parent, child):
        return True
    return not child.runtimes or rendezvous.place(child.environment) != rendezvous.place(parent.environment)


def title(*family: ProcessInfo) -> str:
    """Return the program that names the job best: the first script of a family that is told from the leaf upwards.

    A shell or another program that only runs the next one names nothing.
    """
    for info in family:
        if info.program.endswith(".py"):
            return info.program
    working = [info for info in family if info.program.removeprefix("-") not in RUNNERS] or list(family)
    for info in working:
        if info.program and not is_helper(info) and not info.program.startswith(INTERPRETERS):
            return info.program
    root = working[-1]
    return root.program or working[0].program or working[0].comm
