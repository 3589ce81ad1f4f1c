"""`ckptprof run` works for a user who is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from recorder import EXAMPLES, ONE_THREAD, Recorder, check_job

from truth import compare, read_log

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live")]

NOBODY = 65534
# setpriv itself still has every capability when it executes its command, env has none.
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", "env"]


def outcome(recorder: Recorder) -> tuple[int, ...]:
    """Return how many events of the log were found, missed and invented."""
    comparison = compare(read_log(recorder.work / "truth.jsonl"), recorder.checkpoints())
    return tuple(len(comparison.of(verdict)) for verdict in ("found", "missed", "invented"))


def python_for_nobody(home: Path) -> tuple[str, dict[str, str]]:
    """Return a Python that an unprivileged user can start, and what it needs to find ckptprof and numpy."""
    sources = home / "sources"  # the checkout may lie where nobody else may look
    for top, package in (("agent", "ckptprof"), ("collectors", "ckptprof_collectors")):
        shutil.copytree(Path(__file__).parents[2] / top / package, sources / package)
    shutil.copytree(EXAMPLES, sources / "examples")
    paths = [str(sources), sysconfig.get_path("purelib")]
    candidates = [(sys.executable, {}), ("/usr/bin/python3", {"PYTHONPATH": ":".join(paths)})]
    for python, environment in candidates:
        probe = [*AS_NOBODY, python, "-c", "import ckptprof, msgspec, numpy, sqlalchemy"]
        if shutil.which(python) and not subprocess.run(probe, env=environment, check=False, cwd="/").returncode:
            return python, environment
    pytest.skip("no Python that an unprivileged user can start and that finds ckptprof")


@pytest.mark.root
def test_run_needs_no_root(
    recorder: Recorder, tmp_path_factory: pytest.TempPathFactory, make_reachable: Callable[[Path], None]
) -> None:
    """One's own job is watched in full by a user without any privilege, with nothing but a home directory."""
    home = tmp_path_factory.mktemp("nobody")
    os.chown(home, NOBODY, NOBODY)
    make_reachable(home)
    python, environment = python_for_nobody(home)
    recorder.work = home
    recorder.prefix = AS_NOBODY
    recorder.command = [python, "-c", "from ckptprof.cli.main import entry; entry()"]
    recorder.environment = {"HOME": str(home), "PATH": os.environ["PATH"], **ONE_THREAD, **environment}
    script = str(home / "sources" / "examples" / "train_numpy.py")
    job = [script, "--dir", str(home / "job"), "--size-mb", "200", "--interval", "1.2"]
    job += ["--truth", str(home / "truth.jsonl")]

    result = recorder.run(
        *recorder.restarted([python, *job, "--saves", "3"], [python, *job, "--resume", "--saves", "1"])
    )

    check_job(result)
    assert outcome(recorder) == (5, 0, 0)
    assert recorder.database.stat().st_uid == NOBODY
    assert recorder.database.stat().st_mode & 0o077 == 0
