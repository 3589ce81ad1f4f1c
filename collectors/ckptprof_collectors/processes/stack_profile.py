"""The stacks of the main thread of one process over time, by `py-spy record --nonblocking`.

It finds the interpreter once, so that a sample costs 0.7 ms of CPU, and not 13 as one of `py-spy dump`. py-spy prints
them when that ends, or is ended, and only where the stack changed.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

import msgspec

from ckptprof_collectors.processes.python_stacks import PySpyCommand, StackDump, bounded_frames
from ckptprof_collectors.samples import StackSample, ThreadStack

SECONDS = 30  # of a profile
RATE = 8  # samples a second on average, at random times
_INTERVAL_NS = 1_000_000_000 // RATE


class _Place(msgspec.Struct):
    filename: str = ""
    line: int = 0


class _Event(msgspec.Struct):
    """A call starts or ends, as the Trace Event Format of Chrome has it."""

    name: str
    ph: str
    tid: int
    ts: int  # microseconds since py-spy started
    args: _Place


def parse_profile(found: StackDump, pid: int, start_ticks: int) -> list[StackSample]:
    """Parse a profile: each stack of the main thread with its first sample, and the last before another stack.

    It changed 1 / RATE before the first sample of the next one, on average: half-way to the time given as the last.
    """
    try:
        events = msgspec.json.decode(found.raw, type=list[_Event])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
    main = next((one.tid for one in events if one.name.startswith(f"thread ({pid})")), None)
    samples: list[StackSample] = []
    stack: list[tuple[str, str, int]] = []
    for at_us, changes in groupby((one for one in events if one.tid == main), key=attrgetter("ts")):
        if samples and stack:  # the last sample before
            before_ns = found.start_ns + at_us * 1000 - 2 * _INTERVAL_NS
            samples.append(msgspec.structs.replace(samples[-1], at_ns=max(before_ns, samples[-1].at_ns)))
        for one in changes:
            if one.ph == "B":
                stack.append((one.name, one.args.filename, one.args.line))
            elif stack:
                stack.pop()
        if len(stack) > 1:  # beyond the name of the thread
            thread = ThreadStack(tid=pid, name=None, active=True, frames=bounded_frames(stack[:0:-1]))
            samples.append(StackSample(found.start_ns + at_us * 1000, pid, start_ticks, 0, (thread,), _INTERVAL_NS))
    return samples


PROFILE = PySpyCommand(
    ("record", "--nonblocking", "--idle", "--threads", "--full-filenames", "--rate", str(RATE),
     "--duration", str(SECONDS), "-f", "chrometrace", "-o", "/proc/self/fd/3"),
    3, SECONDS + 30.0, parse_profile,  # a busy host is slow to find the interpreter
)  # fmt: skip
