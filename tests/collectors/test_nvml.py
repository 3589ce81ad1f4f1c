"""GPUs by NVML, through its own Python binding and a library that answers as the driver does: no GPU is here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckptprof_collectors import nvml
from ckptprof_collectors.nvml import LIBRARY, Gpus

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
_ASK = """
import json, sys
from ckptprof_collectors.nvml import Gpus
gpus = Gpus()
print(json.dumps([[gpus.used_by(pids) for pids in json.loads(sys.argv[1])], gpus.reason]))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a library that answers as NVML does."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("not installed: a C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(_DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / LIBRARY, folder / "nvml.c"], check=True)
    return folder


def asked(driver: Path, pids: list[list[int]], **environment: str) -> tuple[list[int | None], str | None]:
    """Return what is told of several jobs where this driver is, and why not."""
    told = subprocess.run(
        [sys.executable, "-c", _ASK, json.dumps(pids)],
        env={**os.environ, "LD_LIBRARY_PATH": str(driver), **environment}, capture_output=True, check=True, text=True,
    )  # fmt: skip
    answers, reason = json.loads(told.stdout)
    return answers, reason


def test_the_gpus_of_a_job_are_those_that_its_processes_compute_on(driver: Path) -> None:
    """One process may use several, and several one; who uses none is told as not known, never as 0."""
    assert asked(driver, [[100], [101], [100, 101, 102], [55], []]) == ([1, 2, 3, None, None], None)


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
    gpus = Gpus()

    assert gpus.used_by({1}) is None
    assert gpus.reason is not None
    assert "libno-such-driver" in gpus.reason
    assert "pynvml" not in sys.modules
