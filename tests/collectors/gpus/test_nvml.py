"""GPUs by NVML, through its own Python binding and a library that answers as the driver does: no GPU is here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof_collectors.abandoned import AbandonedWork
from ckptprof_collectors.gpus import gpu_sampler, nvml
from ckptprof_collectors.gpus.gpu_sampler import GpuSampler
from ckptprof_collectors.gpus.nvml import LIBRARY, NvmlGpus, PcieCounters

_DRIVER = r"""
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
struct process { unsigned int pid; unsigned long long bytes; unsigned int gpu, compute; };
/* GPU 0: pids 100 and 7; GPU 1: 101; GPU 2: nobody; GPU 3: 101 and 102 */
static const unsigned int pids[4][3] = {{100, 7, 0}, {101, 0, 0}, {0, 0, 0}, {101, 102, 0}};
int nvmlInitWithFlags(unsigned int flags) { const char *broken = getenv("BROKEN"); return broken ? atoi(broken) : 0; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
const char *nvmlErrorString(int result) { return "as planted"; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **found) { *found = (void *)(size_t)(index + 1); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, struct process *found)
{
	const unsigned int *mine = pids[(size_t)device - 1];
	unsigned int number = 0, room = *count;

	while (number < 3 && mine[number])
		number++;
	*count = number;
	if (number > room)
		return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
	memset(found, 0, number * sizeof(*found));
	for (unsigned int place = 0; place < number; place++)
		found[place].pid = mine[place];
	return 0;
}
"""
_USES = r"""
struct use { unsigned long long at_us; union { double d; unsigned int percent; } value; };
/* a point each 200 ms of the second before 2026-01-01: GPU 1 computes, then waits; GPU 3 tells nothing new */
int nvmlDeviceGetSamples(void *device, int kind, unsigned long long since_us, int *type, unsigned *count, void *room)
{
	struct use *found = room;
	unsigned int told = 0;

	if (kind != 1 || (size_t)device == 4)
		return kind != 1 ? 2 : 6; /* NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_FOUND */
	if (getenv("NO_USES"))
		return 3; /* NVML_ERROR_NOT_SUPPORTED: as in a part of a GPU (MIG) */
	*type = 1;
	if (found)
		for (unsigned int number = 0; number < 5; number++) {
			unsigned long long at_us = 1767225599000000ULL + 200000 * number;

			if (at_us > since_us && told < *count) {
				found[told].at_us = at_us;
				found[told++].value.percent = (size_t)device == 2 && number > 2 ? 0 : 90 + number;
			}
		}
	*count = found ? told : 5;
	return 0;
}
"""
_TRAFFIC = r"""
/* GPU 0 has GPM, GPU 1 counts bytes, GPU 3 tells neither; each look finds as much more as the first */
struct support { unsigned version, supported; };
struct metric { unsigned id; int result; double value; const char *info[3]; };
struct metrics { unsigned version, number; void *from, *to; struct metric each[2]; };
struct field { unsigned id, scope; long long at, latency; int type, result; union { unsigned long long u; } value; };
static int looks;
int nvmlGpmQueryDeviceSupport(void *device, struct support *told)
{
	if (getenv("OLD_DRIVER"))
		return 13; /* NVML_ERROR_FUNCTION_NOT_FOUND */
	told->supported = (size_t)device == 1;
	return 0;
}
int nvmlGpmSampleAlloc(void **sample) { *sample = calloc(1, 8); return 0; }
int nvmlGpmSampleGet(void *device, int *sample) { *sample = ++looks; return 0; }
int nvmlGpmMetricsGet(struct metrics *asked)
{
	const char *odd = getenv("ODD");

	if (*(int *)asked->to <= *(int *)asked->from || asked->each[0].id != 20 || asked->each[1].id != 21)
		return 2;
	asked->each[0].value = odd ? atof(odd) : 1e6; /* MiB/s */
	asked->each[1].value = 1.0;
	asked->each[0].result = asked->each[1].result = 0;
	return 0;
}
int nvmlDeviceGetFieldValues(void *device, int number, struct field *found)
{
	static unsigned long long count;

	count += 1000;
	for (int place = 0; place < number; place++) {
		found[place].result = (size_t)device == 2 ? 0 : 3;
		found[place].value.u = count + found[place].id;
	}
	return 0;
}
"""
_MOVED = """
import json
from ckptprof_collectors.gpus.nvml import NvmlGpus
gpus = NvmlGpus()
starts = {100: 1, 101: 2}
moved = lambda one: None if one.sent_bytes is None else (one.sent_bytes, one.received_bytes)
looks = [{one.gpu: moved(one) for one in gpus.read_use(starts)} for _ in range(3)]
print(json.dumps([looks, gpus.reason]))
"""
_LOOK = """
import json, time
from ckptprof_collectors.gpus.gpu_sampler import GpuSampler
looker = GpuSampler()
def look(*pids):
    asked = looker.request({pid: pid * 10 for pid in pids})
    while looker._busy:
        time.sleep(0.01)
    found = looker.consume()
    behind_ns = time.time_ns() - time.monotonic_ns()
    rows = [[one.pid, one.start_ticks, one.gpu, one.others,
             [[(at_ns + behind_ns) // 1000, use] for at_ns, use in one.points]]
            for one in found]
    return [asked, rows]
first = look(100, 101)
print(json.dumps([first, look(100), looker.failure_reason()]))
"""
_ASK = """
import json, sys
from ckptprof_collectors.gpus.nvml import NvmlGpus
gpus = NvmlGpus()
print(json.dumps([[gpus.count_used_by(pids) for pids in json.loads(sys.argv[1])], gpus.reason]))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a library that answers as NVML does."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("not installed: a C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(_DRIVER + _USES + _TRAFFIC)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / LIBRARY, folder / "nvml.c"], check=True)
    return folder


def run(driver: Path, script: str, *arguments: str, **environment: str) -> Any:
    """Return what a script prints where this driver is."""
    told = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "LD_LIBRARY_PATH": str(driver), **environment}, capture_output=True, check=True, text=True,
    )  # fmt: skip
    return json.loads(told.stdout)


def asked(driver: Path, pids: list[list[int]], **environment: str) -> tuple[list[int | None], str | None]:
    """Return what is told of several jobs where this driver is, and why not."""
    answers, reason = run(driver, _ASK, json.dumps(pids), **environment)
    return answers, reason


def test_the_gpus_of_a_job_are_those_that_its_processes_compute_on(driver: Path) -> None:
    """One process may use several, and several one; who uses none is told as not known, never as 0."""
    assert asked(driver, [[100], [101], [100, 101, 102], [55], []]) == ([1, 2, 3, None, None], None)


def test_the_gpus_are_counted(driver: Path) -> None:
    """Those of a driver that answers; none is told of one that does not."""
    script = "import json\nfrom ckptprof_collectors.gpus.nvml import NvmlGpus\nprint(json.dumps(NvmlGpus().count()))"

    assert (run(driver, script), run(driver, script, BROKEN="9")) == (4, None)


@pytest.mark.parametrize("code", [9, 4, 999])  # driver not loaded, no permission, unknown
def test_a_driver_that_refuses_is_none(driver: Path, code: int) -> None:
    """And the reason is kept."""
    answers, reason = asked(driver, [[100]], BROKEN=str(code))

    assert answers == [None]
    assert reason is not None
    assert reason.startswith("NVML: ")


def test_without_a_driver_nothing_is_imported_and_nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on any host without a GPU."""
    monkeypatch.setattr(nvml, "LIBRARY", "libno-such-driver.so.1")
    gpus = NvmlGpus()

    assert gpus.count_used_by({1}) is None
    assert gpus.reason is not None
    assert "libno-such-driver" in gpus.reason
    assert "pynvml" not in sys.modules


def test_a_driver_that_does_not_answer_is_reported_and_costs_its_own_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and counted until it answers."""
    gate, left = threading.Event(), AbandonedWork()
    monkeypatch.setattr(gpu_sampler, "ABANDONED", left)
    looker = GpuSampler()
    monkeypatch.setattr(looker._gpus, "read_use", lambda _: gate.wait(PATIENCE_SECONDS) and [])
    assert looker.request({1: 1})
    assert (looker.request({1: 1}), looker.failure_reason(), left.count()) == (False, None, 0)
    monkeypatch.setattr(gpu_sampler, "HUNG_NS", 0)

    assert [looker.request({1: 1}) for _ in range(3)] == [False] * 3
    assert (looker.failure_reason(), left.count("gpus")) == ("the NVIDIA driver has not answered for 0 s", 1)
    gate.set()
    wait_until(lambda: looker.request({1: 1}))
    left.remove_ended()
    assert left.count() == 0


def test_how_busy_a_gpu_was_is_told_once_of_each_who_computes_on_it(driver: Path) -> None:
    """What the driver kept of the last seconds, by our own clock; of one without news only what it sent."""
    (asked_first, first), (asked_again, again), reason = run(driver, _LOOK)

    assert (asked_first, asked_again, again, reason) == (True, True, [[100, 1000, 0, 1, []]], None)
    assert [row[:4] for row in first] == [[100, 1000, 0, 1], [101, 1010, 1, 0]]  # another one is on GPU 0
    ends_us = [1767225599000000 + 200000 * number for number in range(5)]
    for row, uses in zip(first, ([90, 91, 92, 93, 94], [90, 91, 92, 0, 0]), strict=True):
        assert [use for _, use in row[4]] == uses
        begin_us = row[4][0][0]  # who has to wait between two looks at the clocks is off by that
        assert [at_us - begin_us for at_us, _ in row[4]] == pytest.approx([end - ends_us[0] for end in ends_us], abs=1)
        assert begin_us == pytest.approx(ends_us[0], abs=PATIENCE_SECONDS * 1e6)


@pytest.mark.parametrize("environment", [{"BROKEN": "9"}, {"NO_USES": "1"}])
def test_a_driver_that_keeps_no_use_is_asked_once(driver: Path, environment: dict[str, str]) -> None:
    """It says why, and is left alone."""
    (asked_first, first), (asked_again, _), reason = run(driver, _LOOK, **environment)

    assert (asked_first, first, asked_again) == (True, [], False)
    assert reason.startswith("NVML: ")


def moved(driver: Path, **environment: str) -> tuple[list[dict[str, list[int] | None]], str | None]:
    """Return what each GPU sent and received, as three looks tell it, and why nothing is told."""
    looks, reason = run(driver, _MOVED, **environment)
    return looks, reason


def test_what_a_gpu_sends_is_told_by_gpm_or_by_its_counters(driver: Path) -> None:
    """From the second look on; GPM tells a rate, which is added up. One that has neither is asked once, and counts."""
    (first, second, third), reason = moved(driver)

    assert (reason, set(first.values())) == (None, {None})
    assert second["0"] is not None
    assert third["0"] is not None
    assert 0 < second["0"][0] < third["0"][0]
    assert second["0"][0] > 1000 * second["0"][1]
    assert (second["1"], third["1"]) == ([3197, 3198], [4197, 4198])
    assert "3" not in second


def test_a_driver_of_before_gpm_counts_bytes(driver: Path) -> None:
    """It is asked for what it has."""
    (_, second, _), reason = moved(driver, OLD_DRIVER="1")

    assert reason is None
    assert "0" not in second
    assert second["1"] is not None


@pytest.mark.parametrize("odd", ["-5", "nan", "inf", "1e300"])
def test_a_rate_that_cannot_be_adds_nothing(driver: Path, odd: str) -> None:
    """What it received meanwhile is told all the same."""
    (_, second, third), _ = moved(driver, ODD=odd)

    assert second["0"] is not None
    assert third["0"] is not None
    assert (second["0"][0], third["0"][0]) == (0, 0)
    assert third["0"][1] >= second["0"][1]


def test_rates_that_cannot_be_come_to_a_sum_that_can_be_kept() -> None:
    """A sum of 64 bits has room for a few of them."""
    told = [SimpleNamespace(metricId=None, value=1e12, nvmlReturn=0) for _ in range(2)]
    nvml = MagicMock(NVMLError=OSError, NVML_SUCCESS=0)
    nvml.c_nvmlGpmMetricsGet_t.return_value.metrics = told
    pcie = PcieCounters(nvml, clock=iter(range(9)).__next__)
    looks = [pcie.read(0, None) for _ in range(9)]

    assert looks[0] is None
    assert looks[1] == (10**12 << 20, 10**12 << 20)
    assert looks[4] == looks[8] == (4 * 10**12 << 20, 4 * 10**12 << 20)
