"""Makes the corpus in tests/fixtures/streams: real jobs under the real sampler, and what each job says it did.

    python tests/recording/record.py [--level trace] [NAME...]

What is recorded at trace level carries that in its name. `work-tar` is the task `tar` of tests/e2e/everyday/.
Only the job's own processes and files are recorded; devices, memory and everything else of the host is left out, and
so are its names. Run it on a quiet machine with 2 GB of disk under /var/tmp.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ckptprof.recording import FileWriter, Frame, Header, Unpacker
from ckptprof.service.options import SamplerOptions, Wish
from ckptprof_collectors.samples import (
    CollectorFault,
    DirtyPause,
    FileActivity,
    FileEvent,
    FileFact,
    FileLifeEvent,
    FileScan,
    ProcessExit,
    ProcessInfo,
    ProcessIo,
    ProcessStat,
    Sample,
    StackSample,
    ThreadTime,
    TraceHealth,
)

ROOT = Path(__file__).resolve().parents[2]
STREAMS = ROOT / "tests" / "fixtures" / "streams"
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from everyday.store import make_store  # noqa: E402 - found by the line above
from everyday.table import TASKS  # noqa: E402

POLLED = (ProcessInfo, ProcessIo, ProcessStat, ProcessExit, FileScan, FileFact, FileEvent, CollectorFault)
KEPT = (*POLLED, ThreadTime, StackSample, FileActivity, FileLifeEvent, DirtyPause, TraceHealth)
PLACES = ("/var/tmp/corpus-", "/dev/shm/everyday.")  # where jobs work
SIZE_MB = 200
DISK = "/var/tmp"
FORGET = (
    "import os,sys,pathlib\n"
    "for p in pathlib.Path(sys.argv[1]).rglob('*'):\n"
    "    if p.is_file():\n"
    "        f = os.open(p, os.O_RDONLY); os.fsync(f); os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)\n"
)
TOKENS = (
    "import numpy, sys, time\n"
    "for n in range(4):\n"
    "    numpy.save(f'{sys.argv[1]}/train_tokens_{n:04d}.npy', numpy.ones(12_000_000, dtype='u4')); time.sleep(0.7)\n"
)
STAGE_IN = "import numpy, shutil, sys; shutil.copytree(sys.argv[1], sys.argv[2])"


@dataclass(frozen=True)
class Job:
    """A command line for a shell; {dir} is its own folder, {big} a folder with a checkpoint of somebody else."""

    command: str
    framework: str | None = None  # as ckptprof names it
    mapped: bool = False  # restored by page faults, the order of which nobody sees
    ends_well: bool = True


def training(script: str, format_: str, framework: str, *, mapped: bool = False) -> Job:
    """Return a job that saves three times, is restarted without its files in memory, restores and saves again."""
    train = (
        f"{{python}} {ROOT}/examples/{script} --dir {{dir}}/job --format {format_} --size-mb {SIZE_MB} --interval 1.2 "
        "--keep 9 --truth {dir}/truth.jsonl"
    )
    forget = f"{{python}} -c {shlex.quote(FORGET)} {{dir}}/job"
    return Job(f"{train} --saves 3 && {forget} && {train} --saves 1 --resume", framework, mapped)


def killed(script: str, format_: str, framework: str, at_mb: int) -> Job:
    """Return a job that is killed in the middle of its second save, when so much of it is there."""
    train = (
        f"{{python}} {ROOT}/examples/{script} --dir {{dir}}/job --format {format_} --size-mb {4 * SIZE_MB} "
        "--interval 1.2 --keep 9 --truth {dir}/truth.jsonl --saves 2"
    )
    wait = f'until [ "$(du -sm {{dir}} 2>/dev/null | cut -f1)" -ge {4 * SIZE_MB + at_mb} ]; do sleep 0.01; done'
    return Job(f"{train} & pid=$!; {wait}; kill -9 $pid; wait $pid; sleep 1", framework, ends_well=False)


def work(name: str) -> Job:
    """Return a piece of everyday work."""
    return Job(f"{{python}} {ROOT}/tests/e2e/everyday/once.py {shlex.quote(name)} {{dir}}/out {{store}}")


JOBS = {
    "torch-save": training("train_torch.py", "torch", "torch.save"),
    "torch-dcp": training("train_torch.py", "dcp", "torch-dcp"),
    "safetensors-torch": training("train_torch.py", "safetensors", "safetensors", mapped=True),
    "numpy-npz": training("train_numpy.py", "npz", "numpy"),
    "safetensors-numpy": training("train_numpy.py", "safetensors", "safetensors", mapped=True),
    "log-only": Job(f"{{python}} {ROOT}/examples/log_only.py --dir {{dir}}/job --seconds 6"),
    "cp": Job("cp {big}/step_500.pt {dir}/step_500.pt && sleep 1 && cp -r {big} {dir}/again"),
    "dd": Job("dd if=/dev/zero of={dir}/model.ckpt bs=1M count=300 && dd if={dir}/model.ckpt of=/dev/null bs=1M"),
    "tar": Job("tar -C {big} -cf {dir}/all.tar . && mkdir {dir}/out && tar -C {dir}/out -xf {dir}/all.tar"),
    "unzip": Job("{python} -m zipfile -c {dir}/a.zip {big} && {python} -m zipfile -e {dir}/a.zip {dir}/site-packages"),
    "stage-in": Job(f"{{python}} -c {shlex.quote(STAGE_IN)} {{big}} {{dir}}/local"),
    "data-set": Job(f"{{python}} -c {shlex.quote(TOKENS)} {{dir}}"),
    "killed-torch-save": killed("train_torch.py", "torch", "torch.save", at_mb=200),
    "killed-torch-dcp": killed("train_torch.py", "dcp", "torch-dcp", at_mb=200),
    **{f"work-{re.sub('[^a-z0-9]+', '-', task.name.lower()).strip('-')}": work(task.name) for task in TASKS},
}


def record(command: str, level: Wish) -> tuple[Header, list[Frame], int]:
    """Return what the sampler sees of a command and its descendants, and the pid of the command."""
    options = SamplerOptions(
        uid="corpus",
        level=level,
        only_family=True,
        base_hz=25.0 if level == "poll" else 10.0,
        burst_hz=50.0 if level == "poll" else 25.0,
        monitor_pids=(os.getpid(),),
        note="corpus",
    )
    sampler = subprocess.Popen(
        [sys.executable, "-m", "ckptprof.service.sampler.main", msgspec.json.encode(options).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert sampler.stdin is not None
    assert sampler.stdout is not None
    pieces = [os.read(sampler.stdout.fileno(), 1 << 16)]  # the header: from now on it looks
    job = subprocess.Popen(["sh", "-c", command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sampler.stdin.write(json.dumps({"root_pid": job.pid}).encode() + b"\n")
    sampler.stdin.flush()
    os.set_blocking(sampler.stdout.fileno(), False)
    while job.poll() is None:
        pieces.append(sampler.stdout.read() or b"")
        time.sleep(0.01)
    sampler.stdin.close()
    os.set_blocking(sampler.stdout.fileno(), True)
    pieces.append(sampler.stdout.read())
    if job.returncode or sampler.wait():
        raise SystemExit(f"{command}: ended with {job.returncode}")
    header, *frames = Unpacker().feed(b"".join(pieces))
    assert isinstance(header, Header)
    return header, [frame for frame in frames if isinstance(frame, Frame)], job.pid


def family(frames: list[Frame], root_pid: int) -> frozenset[int]:
    """Return the pids of a process and its descendants."""
    known = {root_pid}
    for frame in frames:  # parents come before their children do anything
        for sample in frame.samples:
            if isinstance(sample, (ProcessInfo, FileActivity)) and sample.parent_pid in known:
                known.add(sample.pid)
    return frozenset(known)


def ours(sample: Sample, pids: frozenset[int]) -> Sample | None:
    """Return what a sample says of these processes and of files in the job's folder; None if nothing."""
    if not isinstance(sample, KEPT) or (hasattr(sample, "pid") and sample.pid not in pids):
        return None
    if isinstance(sample, ProcessInfo):
        return msgspec.structs.replace(sample, cgroup=None)
    if isinstance(sample, FileScan):
        files = tuple(file for file in sample.files if file.path.startswith(PLACES))
        mapped = sample.mapped and tuple(file for file in sample.mapped if file.path.startswith(PLACES))
        return msgspec.structs.replace(sample, files=files, mapped=mapped)
    path = getattr(sample, "path", None)
    return sample if path is None or path.startswith(PLACES) else None


def scrubbed(frame: Frame, pids: frozenset[int]) -> Frame:
    """Return the frame without what is not of the job's own processes."""
    samples = [kept for sample in frame.samples if (kept := ours(sample, pids)) is not None]
    return Frame(frame.at_ns, frame.wall_ns, tuple(name for name in frame.read if name == "processes"), tuple(samples))


def write(path: Path, header: Header, frames: list[Frame], root_pid: int) -> None:
    """Write a recording, compressed as well as gzip can."""
    plain = io.BytesIO()
    writer = FileWriter(plain, msgspec.structs.replace(header, host="recorded", boot_id="", monitor_pids=()))
    pids = family(frames, root_pid)
    for frame in frames:
        writer.write(scrubbed(frame, pids))
    writer.close()
    text = gzip.decompress(plain.getvalue())
    for place, name in ((str(ROOT), "/src"), (str(Path(sys.prefix)), "/venv"), (str(Path.home()), "/home/user")):
        text = text.replace(place.encode(), name.encode())
    path.write_bytes(gzip.compress(text, compresslevel=9, mtime=0))


def make(name: str, job: Job, level: Wish, place: Path) -> dict[str, Any]:
    """Record one job; return its label."""
    folder, big, store = place / name, place / "big", place / "store"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not big.exists():
        big.mkdir()
        (big / "step_500.pt").write_bytes(b"PK\x03\x04" + os.urandom(200 << 20))
    if "{store}" in job.command and not store.exists():
        make_store(store)
    command = job.command
    words = {"{python}": sys.executable, "{dir}": str(folder), "{big}": str(big), "{store}": str(store)}
    for word, value in words.items():
        command = command.replace(word, value)
    header, frames, root_pid = record(f"sleep 0.5; {command}; sleep 0.5", level)
    if header.level != level:
        raise SystemExit(f"{name}: recorded at {header.level} level: {header.level_reason}")
    write(STREAMS / f"{file_name(name, level)}.ckptrec.gz", header, frames, root_pid)
    truth = folder / "truth.jsonl"
    events = [json.loads(line) for line in truth.read_text().splitlines()] if truth.exists() else []
    for event in events:
        event["framework"] = job.framework
        if not (job.mapped and event["kind"] == "restore"):
            event["class"] = "sequential-large"
        elif level == "poll":
            event["class"] = None  # at trace level it depends on how much was read before it was mapped
    if not job.ends_well:
        events.append(interrupted(folder, events, job))
    shutil.rmtree(folder)
    date = time.strftime("%Y-%m-%d", time.gmtime(header.wall_ns / 1e9))
    return {"kernel": header.kernel, "date": date, "level": level, "command": job.command, "events": events}


def interrupted(folder: Path, events: list[dict[str, Any]], job: Job) -> dict[str, Any]:
    """Return the label of a save that its job never logged: the newest thing in its folder."""
    known = {event["path"] for event in events}
    (path,) = [str(entry) for entry in (folder / "job").iterdir() if str(entry) not in known]
    step = int(re.sub(r"\D", "", Path(path).stem))
    return {"kind": "save", "path": path, "step": step, "framework": job.framework, "status": "incomplete"}


def file_name(name: str, level: Wish) -> str:
    """Return the name of a recording."""
    return f"{name}.trace" if level == "trace" else name


def main(names: list[str], level: Wish) -> None:
    """Record the named jobs, or all."""
    STREAMS.mkdir(parents=True, exist_ok=True)
    path = STREAMS / "labels.json"
    labels = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory(prefix="corpus-", dir=DISK) as place:
        Path(place).chmod(0o755)
        for name in names or JOBS:
            file = file_name(name, level)
            labels[file] = make(name, JOBS[name], level, Path(place))
            labels[file]["command"] = labels[file]["command"].replace(f"{ROOT}/", "")
            print(file, (STREAMS / f"{file}.ckptrec.gz").stat().st_size, "bytes", len(labels[file]["events"]), "events")  # noqa: T201 - a tool
            path.write_text(json.dumps(labels, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--level", choices=("poll", "trace"), default="poll")
    arguments.add_argument("names", nargs="*", metavar="NAME")
    options = arguments.parse_args()
    main(options.names, options.level)
