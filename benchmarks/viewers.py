"""What those who watch cost the agent: four at its socket, one of whom never reads, against nobody.

A pair is two windows one after the other, with and without them, by turns the first; the noise is that of two windows
without. Late ticks are those that the agent itself counts. `--job`: beside a job that saves 256 MB every 5 s.
As root it all happens in a PID namespace of its own, with 150 idle processes. Beside that, the CPU of one telling
alone, of which there is one a second: in the windows a busy host hides it.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from beside.jobs import training
from ckptprof.export.health import RecorderHealth
from ckptprof.model import Checkpoint, Kind, Level, Pattern, PatternClass, Session, Writer
from ckptprof.service.live.client import listen
from ckptprof.service.live.server import LiveServer
from ckptprof.service.live.wire import socket_of
from ckptprof.service.recorder.live import Live
from ckptprof_collectors.samples import DiskSample, Frame
from contenders import USUAL_PROCESSES, Contender, agent, isolate, meanwhile, scrape, sleepers
from figures import median, parser, show

VIEWERS = 4
_SESSION = Session(
    uid="s", host="h", boot_id="b", kernel="6", version="0", level="trace", start_ns=1, end_ns=2, clean=False
)
_SAVE = Checkpoint(
    id=0, uid="u", kind=Kind.SAVE, job="train.py", framework="torch-dcp", step=1, ranks=1, start_ns=1, end_ns=2,
    bytes=1, files=1, path="/ckpt/step_1", writers=(Writer(pid=1, comm="python", bytes=1, rank=0),),
    pattern=Pattern(class_=PatternClass.SEQUENTIAL_LARGE), level=Level.TRACE, blind=(), evidence=(), confidence=0.9,
)  # fmt: skip
_LATE = re.compile(rb"^ckptprof_sampler_late_ticks_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


@contextlib.contextmanager
def watching(database: Path, count: int) -> Iterator[None]:
    """Have so many at the socket of the agent while the block runs; the first of them never reads."""
    found = [one for _ in range(count) if (one := listen(database)) is not None]
    assert len(found) == count

    def read() -> None:
        assert all(one.take() for one in found[1:])

    try:
        with meanwhile(read, 1.0):
            yield
    finally:
        for one in found:
            one.close()


def window(ours: Contender, database: Path, viewers: int, seconds: float) -> tuple[float, float]:
    """Return the percent of a core that the agent used in a window, and its late ticks."""
    with watching(database, viewers):
        time.sleep(1.0)
        late, used, began = _late(ours), ours.cpu_ns(), time.monotonic_ns()
        time.sleep(seconds)
        share = (ours.cpu_ns() - used) / (time.monotonic_ns() - began) * 100
        return share, _late(ours) - late


def _late(ours: Contender) -> float:
    found = _LATE.search(scrape(ours.url or ""))
    return float(found[1]) if found is not None else 0.0


def telling(viewers: int, times: int) -> float:
    """Return the CPU milliseconds of one telling of twelve devices and one save to so many, one of whom never reads."""
    with tempfile.TemporaryDirectory(prefix="ckptprof-bench-") as directory:
        database = Path(directory) / "ckptprof.db"
        database.touch()
        server = LiveServer(socket_of(database))
        server.start()
        live = Live(server)
        with watching(database, viewers):
            time.sleep(0.5)
            began = time.process_time()
            for number in range(times):
                disks = tuple(DiskSample(f"sd{letter}", *[number] * 11) for letter in "abcdefghijkl")
                live.feed(Frame(number * 10**9, number * 10**9, ("disks",), disks))
                live.tell(_SESSION, RecorderHealth(cpu_seconds=float(number)), [_SAVE], frozenset({1}))
                time.sleep(0.02)
            spent = time.process_time() - began
        server.close()
    return spent / times * 1e3


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--pairs", type=int, default=10)
    arguments.add_argument("--window", type=float, default=10.0, help="seconds")
    arguments.add_argument("--settle", type=float, default=30.0, help="seconds before the first window")
    arguments.add_argument("--job", action="store_true", help="beside a job that saves")
    arguments.add_argument("--tellings", type=int, default=200, help="fewer than fill the buffer of who never reads")
    options = arguments.parse_args()
    isolate()
    alone: list[tuple[float, float]] = []
    watched: list[tuple[float, float]] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(sleepers(USUAL_PROCESSES))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ckptprof-bench-")))
        if options.job:
            stack.enter_context(training(directory))
        database = directory / "ckptprof.db"
        ours = stack.enter_context(agent(database))
        time.sleep(options.settle)
        for number in range(options.pairs):
            for viewers in (0, VIEWERS) if number % 2 else (VIEWERS, 0):
                (watched if viewers else alone).append(window(ours, database, viewers, options.window))
    rises = [with_[0] - without[0] for with_, without in zip(watched, alone, strict=True)]
    noise = [abs(second[0] - first[0]) for first, second in pairwise(alone)]
    row = {
        "load": "a job that saves" if options.job else "idle",
        "agent_percent": median([share for share, _ in alone]),
        "watched_percent": median([share for share, _ in watched]),
        "rise_percent": median(rises),
        "rise_min": min(rises),
        "rise_max": max(rises),
        "noise_percent": median(noise) if noise else None,
        "late_ticks": sum(late for _, late in alone),
        "late_ticks_watched": sum(late for _, late in watched),
    }
    show("viewers", [row], as_json=options.json)
    costs = {viewers: telling(viewers, options.tellings) for viewers in (0, VIEWERS)}
    told = [{"viewers": viewers, "cpu_ms": cost, "percent_of_a_core": cost / 10} for viewers, cost in costs.items()]
    show("viewers, one telling", told, as_json=options.json)


if __name__ == "__main__":
    main()
