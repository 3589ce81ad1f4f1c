"""Run tests again and again in random order, beside a load, and say which of them fail, how often and with what.

    make steady N=10 LOAD=2                      # the deterministic tests
    make steady N=20 PYTEST_FLAGS='-m live -k megatron'

LOAD busy loops and a loop that writes and syncs run beside it; without LOAD, nothing does. The range is that in which
the rate of failure lies with a probability of 95 % (Wilson's interval, by flakerate). Exit code 1: some test failed.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from flakerate.results import Record, collect
from flakerate.runner import Run, repeat

BUSY = "while True: pass"
SYNCS = (
    "import os, sys\nfd = os.open(sys.argv[1], os.O_WRONLY)\n"
    "while True:\n os.pwrite(fd, os.urandom(1 << 20), 0); os.fsync(fd)\n"
)
HOURS = 3600.0 * 3  # that a run may take before it counts as hung


@contextlib.contextmanager
def loaded(loops: int) -> Iterator[None]:
    """Keep so many processors busy, and the disk with them."""
    with tempfile.NamedTemporaryFile(prefix="ckptprof-steady-") as file:
        commands = [["-c", BUSY]] * loops + ([["-c", SYNCS, file.name]] if loops else [])
        running = [subprocess.Popen([sys.executable, *command]) for command in commands]
        try:
            yield
        finally:
            for process in running:
                process.kill()
                process.wait()


def lines(record: Record) -> Iterator[str]:
    """Yield what is said of a test that failed."""
    low, high = record.interval
    yield f"{record.failures} of {record.runs} failed ({low:.0%} to {high:.0%}): {record.nodeid}"
    yield from (f"    {message}" for message in record.messages)


def main() -> None:
    """Run them and print what failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--load", type=int, default=0)
    told, flags = parser.parse_known_args()

    def progress(number: int, run: Run) -> None:
        failed = sum(one.bad for one in run.outcomes)
        print(
            f"run {number} of {told.runs}: {len(run.outcomes)} tests, {failed} failed, {run.duration:.0f} s", flush=True
        )
        if not run.usable:
            print(run.stderr, flush=True)

    with loaded(told.load):
        runs = repeat(["--dist", "loadgroup", *flags], told.runs, on_run=progress, timeout=HOURS)
    failed = [one for one in collect([run.outcomes for run in runs]).values() if one.failures]
    for record in sorted(failed, key=lambda one: -one.failures):
        print(*lines(record), sep="\n")
    whole = all(run.usable for run in runs)
    print(f"{len(failed)} tests failed in {told.runs} runs" + ("" if whole else ", of which some ended early"))
    raise SystemExit(1 if failed or not whole else 0)


if __name__ == "__main__":
    main()
