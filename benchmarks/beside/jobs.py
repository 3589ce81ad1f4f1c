"""Jobs that train, and the work of every day beside one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from contenders import ROOT

NEVER_SECONDS = 100_000.0


@contextlib.contextmanager
def training(directory: Path, interval_seconds: float = 5.0) -> Iterator[int]:
    """Let a job train, and save 256 MB so often, while the block runs, first before it begins. Yields its pid."""
    truth = directory / "truth.jsonl"
    job = [sys.executable, str(ROOT / "examples/train_numpy.py"), "--dir", str(directory / "job")]
    job += ["--truth", str(truth), "--size-mb", "256", "--interval", str(interval_seconds), "--saves", "1000000"]
    process = subprocess.Popen(job, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while interval_seconds < NEVER_SECONDS and not truth.exists() and process.poll() is None:
            time.sleep(0.1)
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def everyday(directory: Path, seconds: float) -> Iterator[None]:
    """Let everyday work be done for about so long beside a job that saves; the block ends when it has."""
    sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "examples")]
    from everyday.jobbeside import JobBeside  # noqa: PLC0415 - it takes what the other situations need not have
    from everyday.rounds import Office  # noqa: PLC0415 - likewise
    from everyday.store import make_store  # noqa: PLC0415 - likewise
    from everyday.table import TASKS  # noqa: PLC0415 - likewise

    directory.chmod(0o755)  # PostgreSQL gives up root
    office = Office(directory, ())
    make_store(office.store)
    job = JobBeside(directory / "training", ("npz",))
    tasks = [task for task in TASKS if not task.missing]
    worker = threading.Thread(target=office.work, args=(tasks,), kwargs={"at_once": 2, "seconds": seconds})
    job.start()
    worker.start()
    try:
        yield
    finally:
        worker.join()
        job.end()
