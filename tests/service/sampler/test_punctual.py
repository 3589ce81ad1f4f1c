"""The loop's thread is in the real-time class where that is allowed, and gives it up when it computes for long."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from livecommand import Ckptprof, sampler_of, wait_until
from tests.patience import PATIENCE_SECONDS

SPINNING = """
import os, sys, threading, time
from ckptprof.service.sampler import entry_point

def policy():
    return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK

entry_point.ORDINARY_SECONDS = 0.5
entry_point.RealTimeThread().run()
seen = [policy()]
while policy() != os.SCHED_OTHER:
    pass
seen.append(policy())
other = []
thread = threading.Thread(target=lambda: other.append(policy()))
while policy() != int(sys.argv[1]):
    time.sleep(0.01)
thread.start()
thread.join()
print(*seen, policy(), *other)
"""

BUDGETED = """
import os
from ckptprof.service.sampler import entry_point

(thread := entry_point.RealTimeThread()).run()
for is_within in (True, False, True):
    thread.set_within_budget(is_within)
    print(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK, flush=True)
os._exit(0)  # as the sampler does: an interpreter that ends has no handler for SIGXCPU
"""


def policies(*prefix: str, later: int) -> list[int]:
    """Return in which class its thread was before it computed for long, after that, `later`, and another one."""
    command = [*prefix, sys.executable, "-c", SPINNING, str(later)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    return list(map(int, done.stdout.split()))


@pytest.mark.capabilities("SYS_NICE")
def test_it_is_an_ordinary_thread_for_a_while_after_it_computed_for_long() -> None:
    """So a fault of ours takes no CPU from those who train; threads that it starts are ordinary ones."""
    assert policies(later=os.SCHED_RR) == [os.SCHED_RR, os.SCHED_OTHER, os.SCHED_RR, os.SCHED_OTHER]


@pytest.mark.capabilities("SYS_NICE")
def test_it_is_an_ordinary_thread_while_the_budget_is_exceeded() -> None:
    """Within it again, it is on time again."""
    done = subprocess.run([sys.executable, "-c", BUDGETED], capture_output=True, text=True, check=True)

    assert list(map(int, done.stdout.split())) == [os.SCHED_RR, os.SCHED_OTHER, os.SCHED_RR]


@pytest.mark.root
def test_where_it_is_not_allowed_it_stays_an_ordinary_thread() -> None:
    """As for any user who has no such limit."""
    nobody = ("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice", "prlimit", "--rtprio=0:0")

    assert policies(*nobody, later=os.SCHED_OTHER) == [os.SCHED_OTHER] * 4


@pytest.mark.capabilities("SYS_NICE")
@pytest.mark.slow
def test_the_sampler_of_an_agent_is_punctual_and_the_recorder_is_not(ckptprof: Ckptprof) -> None:
    """The recorder computes for long when it judges."""
    agent = ckptprof.start("agent", "--no-metrics", "--db", str(ckptprof.database))
    sampler = sampler_of(agent).pid

    wait_until(lambda: os.sched_getscheduler(sampler) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR)
    assert os.sched_getscheduler(agent.pid) == os.SCHED_OTHER
