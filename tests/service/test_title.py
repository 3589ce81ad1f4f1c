"""The titles of the processes, as ps and top read them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from livecommand import Ckptprof, sampler_of, wait_until
from tests.patience import PATIENCE_SECONDS

CODE = """
import sys, ckptprof.service.title as title
print(title.set_title(sys.argv[1] * int(sys.argv[2])))
print(open("/proc/self/cmdline").read().rstrip(chr(0)))
print(open("/proc/self/comm").read().strip())
"""


def titled(role: str, *more: str, times: int = 1) -> list[str]:
    """Return whether a process could take a title, and its command line and name after that."""
    command = [sys.executable, "-c", CODE, role, str(times), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_title_takes_the_place_of_the_arguments() -> None:
    """Whole in the command line, and as far as the kernel has room for it as the name."""
    assert titled("sampler", "x" * 500) == ["True", "ckptprof: sampler", "ckptprof:sample"]


def test_a_title_that_has_no_room_leaves_the_arguments() -> None:
    """It does not run over into the environment, which is behind them."""
    told, *arguments, name = titled("r", times=9000)

    assert (told, name) == ("False", f"ckptprof:{'r' * 6}")
    assert arguments[-1].split("\0")[-2:] == ["r", "9000"]


def test_both_processes_of_an_agent_can_be_told_apart(ckptprof: Ckptprof) -> None:
    """And each from the job that it watches."""
    agent = ckptprof.start("agent", "--no-metrics", "--level", "poll", "--db", str(ckptprof.database))
    sampler = sampler_of(agent)

    for process, role in ((agent.pid, "recorder"), (sampler.pid, "sampler")):
        shown = Path(f"/proc/{process}/cmdline")  # which ps reads
        wait_until(lambda: shown.read_text().rstrip("\0") == f"ckptprof: {role}")  # noqa: B023
    agent.terminate()
    agent.communicate(timeout=PATIENCE_SECONDS)
