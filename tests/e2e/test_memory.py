"""A job that leaks in a memory cgroup until the kernel kills it at a save, and one that frees what it takes."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recorder import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.bpf]

JOB = Path(__file__).with_name("jobs") / "leaking.py"
LIMIT_BYTES = 320 << 20
FEWEST_SAVES = 5  # for a forecast
WITHIN_SECONDS = 3.0


@pytest.fixture
def cgroup(recorder: Recorder) -> Iterator[Path]:
    """Return a new cgroup with a limit of memory, of v1 or v2."""
    for root, limit in (("memory", "memory.limit_in_bytes"), ("", "memory.max"), ("unified", "memory.max")):
        made = Path("/sys/fs/cgroup", root, f"ckptprof-{recorder.work.parent.name}-{recorder.work.name}")
        try:
            made.mkdir()
            (made / limit).write_text(str(LIMIT_BYTES))
        except OSError:
            if made.exists():
                made.rmdir()
            continue
        yield made
        made.rmdir()
        return
    pytest.skip("no memory cgroup can be made here")


def test_a_kill_is_forecast_to_within_a_save(
    recorder: Recorder, cgroup: Path, record_property: Callable[[str, object], None]
) -> None:
    """After the fifth save and each later one; the job that does not leak has no forecast at any time."""
    traced, polled = recorder.at("trace"), recorder.at("poll")
    began = {how: run(traced, polled, cgroup, how, saves) for how, saves in (("leaks", 40), ("keeps", 9))}

    for one in (traced, polled):
        killed_at = len(began["leaks"])
        late = []
        for number in range(FEWEST_SAVES, killed_at):
            (job,) = jobs(one, began["leaks"][0], began["leaks"][number] - 1)
            assert len(job["saves"]) == number
            assert job["saves_left"] is not None, job
            late.append(number + job["saves_left"] - killed_at)
        (whole,) = jobs(one, began["leaks"][0], began["keeps"][0])
        (control,) = jobs(one, began["keeps"][0], None)
        record_property("figure", f"{one.level}: killed at save {killed_at}, forecasts late by {late} saves")
        assert late and all(abs(each) <= 1 for each in late), late  # noqa: PT018 - an empty list is no forecast
        assert whole["killed_ns"] == pytest.approx(began["leaks"][-1], abs=WITHIN_SECONDS * 1e9)
        assert len(control["saves"]) == len(began["keeps"])
        assert (control["saves_left"], control["killed_ns"]) == (None, None)


def run(traced: Recorder, polled: Recorder, cgroup: Path, how: str, saves: int) -> list[int]:
    """Run the job; return when each of its saves began, by its own log."""
    folder, truth = traced.work / how, traced.work / f"{how}.jsonl"
    folder.mkdir()
    inside = f'echo $$ > {shlex.quote(str(cgroup / "cgroup.procs"))}; exec "$@"'
    command = (sys.executable, str(JOB), str(folder), str(truth), str(saves), how)
    result = traced.run_with([polled], "/bin/sh", "-c", inside, "job", *command)
    began = [json.loads(line)["begun_ns"] for line in truth.read_text().splitlines()]
    assert (result.returncode == 0) == (how == "keeps"), result.stderr
    return began


def jobs(recorder: Recorder, since_ns: int, until_ns: int | None) -> list[dict[str, Any]]:
    """Return what is reported of the saves that began in a time."""
    until = [] if until_ns is None else ["--until", f"{until_ns / 1e9:.6f}"]
    times = ["--since", f"{since_ns / 1e9:.6f}", *until]
    result = recorder.call("report", "--memory", "--json", *times, "--db", str(recorder.database))
    assert result.returncode == 0, result.stderr
    return list(json.loads(result.stdout)["jobs"])
