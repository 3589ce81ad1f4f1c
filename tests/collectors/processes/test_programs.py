"""What a command line runs, and what of an environment is looked at."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes.process import Process, describe_launchers
from ckptprof_collectors.processes.programs import known_variables, name_program

SPAWN = b"from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)"


@pytest.mark.parametrize(
    ("arguments", "program"),
    [
        ([b"/usr/bin/python3", b"-u", b"/home/u/train.py", b"--lr", b"1"], b"train.py"),
        ([b"python3", b"-m", b"pkg.train"], b"pkg.train"),
        ([b"python3", b"-um", b"pkg.train"], b"pkg.train"),
        ([b"python3", b"-mpkg.train"], b"pkg.train"),
        ([b"python3", b"-X", b"dev", b"-Wignore", b"train.py"], b"train.py"),
        ([b"python3", b"--check-hash-based-pycs", b"always", b"train.py"], b"train.py"),
        ([b"python3", b"-m", b"cProfile", b"-o", b"out", b"/home/u/train.py", b"eval.py"], b"train.py"),
        ([b"python3", b"-m", b"pdb", b"-m", b"pkg.train"], b"pkg.train"),
        ([b"python3", b"-m", b"pdb"], b"pdb"),
        ([b"python3", b"/opt/debugpy/__main__.py", b"--connect", b"localhost:1", b"train.py"], b"train.py"),
        ([b"/usr/bin/python3", b"/usr/bin/memray", b"run", b"train.py"], b"train.py"),
        ([b"python3", b"-m", b"ipykernel_launcher", b"-f", b"kernel.json"], b"ipykernel_launcher"),
        ([b"python3", b"-c", b"import torch; secret = 1"], b"python3"),
        ([b"python3", b"-c", SPAWN, b"--multiprocessing-fork"], b"multiprocessing.spawn"),
        ([b"python3", b"-sBc", b"from multiprocessing.forkserver import main; main()"], b"multiprocessing.forkserver"),
        ([b"python3", b"/opt/pkg/train/__main__.py"], b"train"),
        ([b"python3", b"/opt/pkg/train/"], b"train"),
        ([b"python3", b"-"], b"python3"),
        ([b"/usr/bin/python3", b"/usr/bin/torchrun", b"--nproc-per-node", b"4", b"train.py"], b"torchrun"),
        ([b"mpirun", b"-n", b"4", b"python3", b"train.py"], b"mpirun"),
        ([b"python3"], b"python3"),
        ([b""], b"kthing"),
        ([], b"kthing"),
    ],
)
def test_a_program_is_named_by_what_it_runs(arguments: list[bytes], program: bytes) -> None:
    """Scripts, modules, pools; the text of `-c` is never told."""
    assert name_program(arguments, b"kthing") == program


def test_a_kernel_is_named_by_its_notebook() -> None:
    """Jupyter tells it the path; nothing else is named so, whoever started it."""
    kernel = [b"python3", b"-m", b"ipykernel_launcher", b"-f", b"kernel.json"]

    assert name_program(kernel, b"python3", b"/home/u/fine tuning.ipynb") == b"fine tuning.ipynb"
    assert name_program([b"python3", b"train.py"], b"python3", b"/home/u/fine tuning.ipynb") == b"train.py"


def test_only_known_variables_are_read() -> None:
    """Nothing else of an environment leaves the function, and no value is long."""
    found = known_variables(
        {"RANK": "3", "AWS_SECRET_ACCESS_KEY": "x", "WORLD_SIZE": "9" * 5000, "PMIX_NAMESPACE": "\udcff"}
    )

    assert (found["RANK"], found["PMIX_NAMESPACE"], len(found["WORLD_SIZE"])) == ("3", "\\xff", 256)
    assert set(found) == {"RANK", "WORLD_SIZE", "PMIX_NAMESPACE"}


def test_the_shell_above_a_process_is_described() -> None:
    """With its parent and its rank, up to the interpreter that started it: not this one, which tests may rename."""
    run = "import subprocess, sys; subprocess.run(['/bin/sh', '-c', '\"$0\" -c \"input()\"; true', sys.executable])"
    with subprocess.Popen(
        [sys.executable, "-c", run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "RANK": "2"}
    ) as interpreter:
        shell = _child_of(interpreter.pid)
        process = Process(KernelFs(), _child_of(shell))
        try:
            found = describe_launchers(process)
        finally:
            process.close()
            interpreter.communicate(b"\n")

    assert [info.pid for info in found] == [shell]
    assert (found[0].program, found[0].environment["RANK"], found[0].parent_pid) == ("sh", "2", interpreter.pid)


def _child_of(pid: int) -> int:
    for _ in range(1_000_000):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as stream:  # noqa: PTH123 - of the kernel
            found = stream.read().split()
        if found:
            return int(found[0])
    raise AssertionError("the shell started nothing")
