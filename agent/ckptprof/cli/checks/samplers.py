"""What `ckptprof doctor` looks at: samplers that were ended and do not go, for a call of theirs hangs in the kernel."""

from __future__ import annotations

from ckptprof.report.doctor import Check
from ckptprof_collectors.kernelfs import KernelFs, read_text

_TITLE = "Name:\tckptprof:sample"  # as much of it as the kernel keeps
_KILLED = 1 << 8  # SIGKILL, in the masks of pending signals of proc_pid_status(5)


def stuck(fs: KernelFs) -> list[Check]:
    """Return a warning if there are some: only what they wait for can let them go."""
    pids = [folder.name for folder in fs.proc.glob("[0-9]*") if _is_stuck(read_text(folder / "status") or "")]
    if not pids:
        return []
    text = (
        f"ended, but held by a call to a file system that does not answer: sampler {', '.join(sorted(pids, key=int))}"
    )
    fix = "end the hanging mount (`umount -f`, or its server); /proc/PID/task/*/stack shows where each thread waits"
    return [Check("samplers", "warn", text, fix)]


def _is_stuck(status: str) -> bool:
    if not status.startswith(_TITLE):
        return False
    fields = dict(line.partition(":\t")[::2] for line in status.splitlines())
    pending = int(fields.get("SigPnd", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
    is_leaderless = fields.get("State", "").startswith("Z") and int(fields.get("Threads", "0")) > 1
    return is_leaderless or bool(pending & _KILLED)
