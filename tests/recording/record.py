"""Makes the corpus in tests/fixtures/streams: real jobs under the real sampler, and what each job says it did.

    python tests/recording/record.py [NAME...]

Only the job's own processes are recorded; devices, memory and everything else of the host is left out, and so are its
names. Run it on a quiet machine with 2 GB of disk under /var/tmp.
"""

from __future__ import annotations

import gzip
import io
import json
import os
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
from ckptprof.service.sampler import SamplerOptions
from ckptprof_collectors.samples import (
    CollectorFault,
    FileEvent,
    FileFact,
    FileScan,
    ProcessExit,
    ProcessInfo,
    ProcessIo,
    ProcessStat,
    Sample,
)

ROOT = Path(__file__).resolve().parents[2]
STREAMS = ROOT / "tests" / "fixtures" / "streams"
KEPT = (ProcessInfo, ProcessIo, ProcessStat, ProcessExit, FileScan, FileFact, FileEvent, CollectorFault)
SIZE_MB = 200
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
    mapped: bool = False  # restored by page faults, the order of which nobody sees at poll level


def training(script: str, format_: str, framework: str, *, mapped: bool = False) -> Job:
    """Return a job that saves three times, is restarted without its files in memory, restores and saves again."""
    train = (
        f"{{python}} {ROOT}/examples/{script} --dir {{dir}}/job --format {format_} --size-mb {SIZE_MB} --interval 1.2 "
        "--keep 9 --truth {dir}/truth.jsonl"
    )
    forget = f"{{python}} -c {shlex.quote(FORGET)} {{dir}}/job"
    return Job(f"{train} --saves 3 && {forget} && {train} --saves 1 --resume", framework, mapped)


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
}


def record(command: str) -> tuple[Header, list[Frame]]:
    """Return what the sampler sees of a command and its descendants."""
    options = SamplerOptions(
        uid="corpus", only_family=True, base_hz=25.0, burst_hz=50.0, monitor_pids=(os.getpid(),), note="corpus"
    )
    sampler = subprocess.Popen(
        [sys.executable, "-m", "ckptprof.service.sampler", msgspec.json.encode(options).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert sampler.stdin is not None
    assert sampler.stdout is not None
    time.sleep(0.5)
    job = subprocess.Popen(["sh", "-c", command], stdout=subprocess.DEVNULL)
    sampler.stdin.write(json.dumps({"root_pid": job.pid}).encode() + b"\n")
    sampler.stdin.flush()
    pieces = []
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
    return header, [frame for frame in frames if isinstance(frame, Frame)]


def scrubbed(frame: Frame) -> Frame:
    """Return the frame without what is not of the job's own processes."""
    samples: list[Sample] = [sample for sample in frame.samples if isinstance(sample, KEPT)]
    samples = [msgspec.structs.replace(s, cgroup=None) if isinstance(s, ProcessInfo) else s for s in samples]
    return Frame(frame.at_ns, frame.wall_ns, tuple(name for name in frame.read if name == "processes"), tuple(samples))


def write(path: Path, header: Header, frames: list[Frame]) -> None:
    """Write a recording, compressed as well as gzip can."""
    plain = io.BytesIO()
    writer = FileWriter(plain, msgspec.structs.replace(header, host="recorded", boot_id=""))
    for frame in map(scrubbed, frames):
        writer.write(frame)
    writer.close()
    path.write_bytes(gzip.compress(gzip.decompress(plain.getvalue()), compresslevel=9, mtime=0))


def make(name: str, job: Job, work: Path) -> dict[str, Any]:
    """Record one job; return its label."""
    folder, big = work / name, work / "big"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not big.exists():
        big.mkdir()
        (big / "step_500.pt").write_bytes(b"PK\x03\x04" + os.urandom(200 << 20))
    command = job.command
    for word, value in (("{python}", sys.executable), ("{dir}", str(folder)), ("{big}", str(big))):
        command = command.replace(word, value)
    header, frames = record(f"sleep 0.5; {command}; sleep 0.5")
    write(STREAMS / f"{name}.ckptrec.gz", header, frames)
    truth = folder / "truth.jsonl"
    events = [json.loads(line) for line in truth.read_text().splitlines()] if truth.exists() else []
    for event in events:
        event["framework"] = job.framework
        event["class"] = None if job.mapped and event["kind"] == "restore" else "sequential-large"
    shutil.rmtree(folder)
    date = time.strftime("%Y-%m-%d", time.gmtime(header.wall_ns / 1e9))
    return {"kernel": header.kernel, "date": date, "command": job.command, "events": events}


def main(names: list[str]) -> None:
    """Record the named jobs, or all."""
    STREAMS.mkdir(parents=True, exist_ok=True)
    path = STREAMS / "labels.json"
    labels = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory(prefix="corpus-", dir="/var/tmp") as work:
        for name in names or JOBS:
            labels[name] = make(name, JOBS[name], Path(work))
            labels[name]["command"] = labels[name]["command"].replace(f"{ROOT}/", "")
            print(name, (STREAMS / f"{name}.ckptrec.gz").stat().st_size, "bytes", len(labels[name]["events"]), "events")  # noqa: T201 - a tool
            path.write_text(json.dumps(labels, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
