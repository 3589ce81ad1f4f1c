"""Starts two independent trainings at the same time, as launchers of sweeps do: `sweep.py HOW FOLDER COMMAND...`.

`popen`: a Python program with PyTorch loaded that starts each anew. `workers`: two processes that wait for a task, as
those of a scheduler do, and train in it. To each command ` --dir FOLDER/run{1,2}` is added.
"""

from __future__ import annotations

import subprocess
import sys

WORKER = """
import os, runpy, sys
sys.argv = sys.stdin.readline().split()
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def main(how: str, folder: str, command: list[str]) -> int:
    """Return the worst exit status of both."""
    tasks = [[*command, "--dir", f"{folder}/run{number}"] for number in (1, 2)]
    if how == "popen":
        import torch  # noqa: F401, PLC0415 - a tuner has it loaded; nothing of it is used

        started = [subprocess.Popen(task) for task in tasks]
    else:
        started = [subprocess.Popen([task[0], "-c", WORKER], stdin=subprocess.PIPE, text=True) for task in tasks]
        for worker, task in zip(started, tasks, strict=True):
            assert worker.stdin is not None
            worker.stdin.write(" ".join(task[1:]) + "\n")
            worker.stdin.close()
    return max(one.wait() for one in started)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
