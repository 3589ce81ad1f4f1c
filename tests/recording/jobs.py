"""The jobs that are recorded: those of the end-to-end tests, and what each of them says that it did."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
E2E = ROOT / "tests" / "e2e"
sys.path[:0] = [str(E2E), str(E2E / "faults"), str(ROOT / "examples")]
import framework_jobs  # noqa: E402 - found by the line above
from everyday.table import TASKS  # noqa: E402
from fault_cases import CASES, Case, Work  # noqa: E402
from fault_grounds import s3, sshfs  # noqa: E402
from recorder import FORGET  # noqa: E402
from tests.leftovers import own  # noqa: E402

Ground = Callable[[], AbstractContextManager[Path]]
SIZE_MB = 200
TOKENS = (
    "import numpy, sys, time\n"
    "for n in range(4):\n"
    "    numpy.save(f'{sys.argv[1]}/train_tokens_{n:04d}.npy', numpy.ones(12_000_000, dtype='u4')); time.sleep(0.7)\n"
)
STAGE_IN = "import numpy, shutil, sys; shutil.copytree(sys.argv[1], sys.argv[2])"
STREAM_DATA = "import sys, time\nf = open(sys.argv[1], 'rb')\nwhile f.read(1 << 20):\n    time.sleep(0.02)\n"
FORGOTTEN = f"{{python}} -c {shlex.quote(FORGET)}"


@dataclass(frozen=True)
class Job:
    """A command line for a shell.

    {dir} is its own folder, {truth} the log that it writes, {big} a folder with a checkpoint of somebody else, {store}
    what everyday tasks read. `held` is one of the first recordings, in which everything is told as it was.
    """

    command: str
    origin: str = "record.py"
    framework: str | None = None  # as ckptprof names it
    mapped: bool = False  # restored by page faults, the order of which nobody sees
    interrupted: bool = False  # its last save never comes to its end
    fails: bool = False  # it ends as no good program does
    host: str = ""  # what of the host a verdict needs: disks | links
    held: bool = False
    ground: Ground | None = None  # gives {dir}, elsewhere
    before: str | None = None  # done first, unwatched
    expected: tuple[dict[str, Any], ...] | None = None  # where the job keeps no log
    limits: tuple[str, ...] = ()  # what was planted
    skip: int = 0  # events at the beginning that the fault does not reach
    mode: str | None = None  # sync | async
    environment: tuple[tuple[str, str], ...] = ()


def training(script: str, format_: str, framework: str, *, mapped: bool = False) -> Job:
    """Return a job that saves three times, is restarted without its files in memory, restores and saves again."""
    train = (
        f"{{python}} {ROOT}/examples/{script} --dir {{dir}}/job --format {format_} --size-mb {SIZE_MB} --interval 1.2 "
        "--keep 9 --truth {truth}"
    )
    command = f"{train} --saves 3 && {FORGOTTEN} {{dir}}/job && {train} --saves 1 --resume"
    return Job(command, framework=framework, mapped=mapped, held=True)


def killed(script: str, format_: str, framework: str, at_mb: int) -> Job:
    """Return a job that is killed in the middle of its second save, when so much of it is there."""
    train = (
        f"{{python}} {ROOT}/examples/{script} --dir {{dir}}/job --format {format_} --size-mb {4 * SIZE_MB} "
        "--interval 1.2 --keep 9 --truth {truth} --saves 2"
    )
    wait = f'until [ "$(du -sm {{dir}} 2>/dev/null | cut -f1)" -ge {4 * SIZE_MB + at_mb} ]; do sleep 0.01; done'
    command = f"{train} & pid=$!; {wait}; kill -9 $pid; wait $pid; sleep 1"
    return Job(command, framework=framework, interrupted=True, held=True)


def example(framework: str, format_: str, name: str) -> Job:
    """Return a job of an example, which saves three times and is restarted."""
    train = (
        f"{{python}} {ROOT}/examples/train_{framework}.py --dir {{dir}}/job --format {format_} --size-mb 90 "
        "--interval 1.2 --truth {truth}"
    )
    command = f"{train} --saves 3 && {FORGOTTEN} {{dir}}/job && {train} --saves 1 --resume"
    return Job(command, "record.py", name, host="disks")


def framework(job: framework_jobs.Job) -> Job:
    """Return a job with a real framework, smaller than in its test."""
    life = shlex.join(job.command()).replace(sys.executable, "{python}")
    life += " --dir {dir}/job --truth {truth} --size-mb 60"
    command = f"{life} --saves 3 && {FORGOTTEN} {{dir}}/job && {life} --saves 0 --resume"
    return Job(command, "test_real_frameworks.py", host="disks", environment=tuple(framework_jobs.OFFLINE.items()))


def mode(way: str, *, sleeps: bool = False) -> Job:
    """Return a job that saves in one way and logs for how long it was held."""
    words = " --sleeps" if sleeps else ""
    command = f"{{python}} {E2E}/jobs/modes.py {way} --dir {{dir}}/job --truth {{truth}} --size-mb 64{words}"
    waits = way.endswith("-joined") or way in ("in-line", "dcp", "dcp-threads", "orbax")
    return Job(command, "test_modes.py", host="disks", mode="sync" if waits else "async")


def fault(case: Case, work: Work, *, planted: bool) -> Job:
    """Return a job on a ground with a fault, or its control."""
    worker = f"{{python}} {E2E}/faults/fault_worker.py --dir {{dir}} --truth {{truth}} --size-mb {case.sizes_mb[0]}"
    saves = str(2 + case.skip) if work.before is None else work.before[work.before.index("--saves") + 1]
    before = None
    if work.before is not None:
        before = f"{worker} {shlex.join(work.before)} && rm {{truth}} && {FORGOTTEN} {{dir}}"
    return Job(
        f"{worker} --saves {saves} {shlex.join(work.arguments)}".replace("--files 20000", "--files 2000"),
        f"test_planted_faults.py, {case.name}",
        host="links",
        ground=work.ground,
        before=before,
        limits=case.limits if planted else case.control_limits,
        skip=case.skip,
    )


def over_fuse(ground: Ground, *, restores: bool = False) -> Job:
    """Return a job that saves twice into a mount behind a narrow path, or restores from it what was saved before."""
    worker = f"{{python}} {E2E}/faults/fault_worker.py --dir {{dir}} --truth {{truth}} --size-mb 24"
    saves, once = f"{worker} --saves 2 --way torch-save", f"{worker} --saves 1 --way torch-save"
    return Job(
        f"{worker} --saves 1 --restore read" if restores else saves,
        "test_fuse_mounts.py",
        host="links",
        ground=ground,
        before=f"{once} && rm {{truth}} && {FORGOTTEN} {{dir}}" if restores else None,
        limits=("network",),
    )


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """Mount a file system of 50 MiB."""
    place = Path(tempfile.mkdtemp(prefix=own("small-"), dir="/mnt"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=50m", "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        place.rmdir()


def ending(
    name: str, arguments: str, *expected: dict[str, Any], fails: bool = False, ground: Ground | None = None
) -> Job:
    """Return a job of test_endings_and_durability.py."""
    program = _constants(E2E / "test_endings_and_durability.py")
    command = f"{{python}} -c {shlex.quote(program['JOB'] + program[name])} {arguments}"
    origin = "test_endings_and_durability.py"
    return Job(command, origin, host="disks", fails=fails, ground=ground, expected=expected)


def _constants(path: Path) -> dict[str, str]:
    """Return the texts that a test module defines; it is not imported, as it needs pytest's way of finding modules."""
    found = re.findall(r'^([A-Z_]+) = """(.*?)"""', path.read_text(), re.DOTALL | re.MULTILINE)
    return {name: text.encode().decode("unicode_escape") for name, text in found}


def bad(what: str, *expected: dict[str, Any], **environment: str) -> Job:
    """Return a job of test_bad_input.py."""
    command = f"{{python}} {E2E}/everyday/programs/badjobs.py {what} {{dir}}/job {{truth}}"
    settings = tuple(environment.items())
    fails = what == "dies"
    return Job(command, "test_bad_input.py", fails=fails, host="disks", environment=settings, expected=expected or None)


def beside_copies(name: str) -> Job:
    """Return a job that trains while `cp` copies a file of 200 MB again and again."""
    train = f"{{python}} {ROOT}/examples/train_numpy.py --dir {{dir}}/job --size-mb 100 --interval 2 --truth {{truth}}"
    copies = f"for i in 1 2 3; do cp {{big}}/step_500.pt {{dir}}/backup/{name}; sleep 1; done"
    command = f"mkdir {{dir}}/backup; ({copies}) & {train} --saves 3; code=$?; wait; exit $code"
    return Job(command, "test_no_checkpoint.py", "numpy", host="disks")


def sweep(how: str) -> Job:
    """Return two independent trainings that a launcher starts at the same time."""
    train = f"{{python}} {ROOT}/examples/train_numpy.py --size-mb 40 --interval 1.2 --saves 2 --truth {{truth}}"
    commands = {
        "xargs": f"seq 2 | xargs -P2 -I@ {train} --dir {{dir}}/run@",
        "shell": f"for n in 1 2; do {train} --dir {{dir}}/run$n & done; wait",
    }
    command = commands.get(how, f"{{python}} {E2E}/jobs/sweep.py {how} {{dir}} {train}")
    return Job(command, "record.py", "numpy", host="disks")


def everyday(name: str) -> Job:
    """Return a piece of everyday work."""
    command = f"{{python}} {E2E}/everyday/once.py {shlex.quote(name)} {{dir}}/out {{store}}"
    return Job(command, "test_false_alarms.py", held=True)


def slug(name: str) -> str:
    """Return a name for a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def save(step: int, status: str = "complete") -> dict[str, Any]:
    """Return what is expected of a job that keeps no log."""
    return {"kind": "save", "step": step, "status": status}


def restore(cache: str) -> dict[str, Any]:
    """Return likewise."""
    return {"kind": "restore", "cache": cache}


JOBS = {
    "torch-save": training("train_torch.py", "torch", "torch.save"),
    "torch-dcp": training("train_torch.py", "dcp", "torch-dcp"),
    "safetensors-torch": training("train_torch.py", "safetensors", "safetensors", mapped=True),
    "numpy-npz": training("train_numpy.py", "npz", "numpy"),
    "safetensors-numpy": training("train_numpy.py", "safetensors", "safetensors", mapped=True),
    "killed-torch-save": killed("train_torch.py", "torch", "torch.save", at_mb=200),
    "killed-torch-dcp": killed("train_torch.py", "dcp", "torch-dcp", at_mb=200),
    "log-only": Job(f"{{python}} {ROOT}/examples/log_only.py --dir {{dir}}/job --seconds 6", held=True),
    "cp": Job("cp {big}/step_500.pt {dir}/step_500.pt && sleep 1 && cp -r {big} {dir}/again", held=True),
    "dd": Job(
        "dd if=/dev/zero of={dir}/model.ckpt bs=1M count=300 && dd if={dir}/model.ckpt of=/dev/null bs=1M", held=True
    ),
    "tar": Job("tar -C {big} -cf {dir}/all.tar . && mkdir {dir}/out && tar -C {dir}/out -xf {dir}/all.tar", held=True),
    "unzip": Job(
        "{python} -m zipfile -c {dir}/a.zip {big} && {python} -m zipfile -e {dir}/a.zip {dir}/site-packages", held=True
    ),
    "stage-in": Job(f"{{python}} -c {shlex.quote(STAGE_IN)} {{big}} {{dir}}/local", held=True),
    "data-set": Job(f"{{python}} -c {shlex.quote(TOKENS)} {{dir}}", held=True),
    **{f"work-{slug(task.name)}": everyday(task.name) for task in TASKS if not task.missing},
    "example-numpy-npz": example("numpy", "npz", "numpy"),
    "example-numpy-npy": example("numpy", "npy", "numpy"),
    "example-numpy-safetensors": example("numpy", "safetensors", "safetensors"),
    "example-torch-save": example("torch", "torch", "torch.save"),
    "example-torch-dcp": example("torch", "dcp", "torch-dcp"),
    "example-torch-safetensors": example("torch", "safetensors", "safetensors"),
    **{f"framework-{job.name}": framework(job) for job in framework_jobs.JOBS},
    **{
        f"mode-{way}": mode(way)
        for way in (
            "in-line", "thread", "thread-joined", "fork", "fork-joined", "spawn", "spawn-joined", "dcp", "dcp-threads",
            "dcp-async", "dcp-process", "orbax", "orbax-async",
        )
    },
    "mode-thread-sleeps": mode("thread", sleeps=True),
    "mode-fork-joined-sleeps": mode("fork-joined", sleeps=True),
    "restore-sources": Job(
        f"{{python}} {E2E}/reading_job.py {{dir}} > {{dir}}/told.txt",
        "test_restore_sources.py",
        host="disks",
        expected=(
            *(save(step) for step in range(4)),
            *(restore(cache) for cache in ("warm", "cold", "warm", "cold", "cold")),
        ),
    ),
    "ending-killed": ending("KILLED", "{dir}/job", save(1), save(2, "incomplete"), fails=True),
    "ending-full": ending("FULL", "{dir}", save(1), save(2), save(3, "incomplete"), ground=small_disk),
    "ending-written-back": ending("WRITTEN_BACK", "{dir}/job", save(1)),
    "ending-staged": ending("STAGED", "{dir}/job {dir}/staging", save(1), save(2)),
    **{
        f"overwritten-{how}": Job(f"{{python}} {E2E}/jobs/overwriting.py {how} {{dir}}/checkpoints {{truth}}",
                                  framework="numpy", held=True)
        for how in ("names", "last", "at-once")
    },
    **{
        f"built-{kind}": Job(f"{{python}} {E2E}/jobs/building.py {kind} {{dir}}/job {{truth}}", "record.py", framework,
                             host="disks")
        for kind, framework in (("text", "boosting"), ("buffer", "torch.save"))
    },
    "plain": Job(f"{{python}} {E2E}/jobs/plain.py --dir {{dir}}/job --truth {{truth}}", "record.py", "pickle",
                 host="disks", mode="sync"),
    **{
        f"unknown-{way}": Job(f"{{python}} {E2E}/jobs/unknown.py {way} {{dir}}/job {{truth}}", "record.py", framework)
        for way, framework in (("epochs", None), ("beside", None), ("rotated", None), ("activations", "numpy"))
    },
    **{
        f"sends-{way}": Job(f"{{python}} {E2E}/jobs/sends.py {way} --dir {{dir}}/job --truth {{truth}}", "record.py")
        for way in (
            "boto3", "boto3-tls", "put", "thread", "streams", "uploads-files", "beside-files", "logs", "pictures",
            "gradients", "gathers", "restores", "restores-one", "s3fs", "s3torch",
        )
    },
    "short-of-cpu": Job(f"{{python}} {E2E}/jobs/plain.py --dir {{dir}}/job --truth {{truth}} --short-of-cpu --saves 2",
                        "record.py", "numpy", host="disks", mode="sync"),
    "bad-dies": bad("dies", save(1), save(2, "incomplete")),
    "bad-late-rank": bad("late-rank"),
    "bad-short-lived-writers": bad("short-lived-writers", BAD_WRITERS="100"),
    "bad-many-files": bad("many-files", BAD_FILES="400"),
    **{f"sweep-{how}": sweep(how) for how in ("xargs", "shell", "popen", "workers")},
    "beside-copies-of-data": beside_copies("dataset.bin"),
    "beside-copies-of-a-checkpoint": beside_copies("ckpt_00000001.npz"),
    "reads-its-data": Job(
        f"{{python}} -c {shlex.quote(STREAM_DATA)} {{big}}/step_500.pt", "test_no_checkpoint.py", held=True
    ),
    "fuse-sshfs": over_fuse(partial(sshfs, 160, routed=True, encrypted=True)),
    "fuse-rclone": over_fuse(partial(s3, 160, by="rclone", routed=True)),
    "fuse-rclone-restore": over_fuse(partial(s3, 160, by="rclone"), restores=True),
    **{f"fault-{case.name}": fault(case, case.fault, planted=True) for case in CASES},
    **{f"control-{case.name}": fault(case, case.control, planted=False) for case in CASES},
}  # fmt: skip
