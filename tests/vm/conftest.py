"""Each scenario: recorded once a session in the virtual machine, replayed here; what was found is left as a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.machine import missing_programs, missing_root

from .machine import ROOT, Machine
from .scenarios import SCENARIOS, Scenario

LEVELS = ("trace", "poll")
JOB = """
cd /root; rm -f ./*.ckptrec.gz truth.jsonl trace.log poll.log; sync; echo 3 > /proc/sys/vm/drop_caches
export PATH=/opt/ckptprof/bin:$PATH
for level in {levels}; do
  ckptprof capture --force --rate 5 --level $level {name}.$level.ckptrec.gz 2> $level.log & pids="${{pids:-}} $!"
done
for level in {levels}; do
  timeout 180 bash -c "until grep -qs 'recording this host' $level.log; do sleep 0.2; done" || {{
    cat $level.log >&2; exit 1
  }}
done
sleep 3; ({meanwhile}) > /dev/null 2>&1 & beside=$!
./trainer /mnt/ckpt 3 {mib} {seconds} > truth.jsonl; sync; echo 3 > /proc/sys/vm/drop_caches; sleep 2
./trainer /mnt/ckpt 1 {mib} {seconds} /mnt/ckpt/step_000300.ckpt >> truth.jsonl
sleep 8; kill $beside 2> /dev/null || true; kill -INT $pids; wait $pids || true; cat truth.jsonl
"""


@dataclass
class Recorded:
    """What happened in one scenario by the log of its job, and what is reported of it."""

    scenario: Scenario
    truth: list[dict[str, Any]]
    found: dict[str, list[dict[str, Any]]]  # by level


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """Boot a machine with this tree's ckptprof."""
    made = Machine(os.environ.get("CKPTPROF_VM", "6.1"))
    if reason := missing_root() or missing_programs(*made.programs):
        pytest.skip(reason)
    made.build()
    made.boot()
    yield made
    made.stop()


@pytest.fixture(scope="session", params=sorted(SCENARIOS))
def recorded(request: pytest.FixtureRequest, machine: Machine) -> Recorded:
    """Record one scenario."""
    return record(machine, request.param)


def record(machine: Machine, name: str) -> Recorded:
    """Record a scenario at both levels at once; leave captures, the job's log and what was found in `captures`."""
    scenario, folder = SCENARIOS[name], machine.folder / "captures"
    folder.mkdir(exist_ok=True)
    job = JOB.format(
        name=name, levels=" ".join(LEVELS), mib=scenario.mib, seconds=scenario.train_seconds,
        meanwhile=scenario.meanwhile or ":",
    )  # fmt: skip
    try:
        machine.run(scenario.prepare)
        log = machine.run(job)
    finally:
        machine.run(f"set +e\n{scenario.undo}")
    (folder / f"{name}.jsonl").write_text(log)
    machine.fetch([f"{name}.{level}.ckptrec.gz" for level in LEVELS], folder)
    found = {level: _replay(folder / f"{name}.{level}.ckptrec.gz") for level in LEVELS}
    (folder / f"{name}.json").write_text(json.dumps(found))
    return Recorded(scenario, [json.loads(line) for line in log.splitlines()], found)


def _replay(capture: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "ckptprof", "replay", "--json", str(capture)]
    result = subprocess.run(command, capture_output=True, check=False, cwd=ROOT)
    assert result.returncode in (0, 3), result.stderr.decode()
    found: list[dict[str, Any]] = json.loads(result.stdout)["checkpoints"]
    return sorted(found, key=lambda one: one["start_ns"])
