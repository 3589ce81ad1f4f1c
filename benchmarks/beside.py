"""What an agent is measured beside: jobs that train, crowds of one thing, and the goals there.

All but the idle interpreters move bytes all the time, so that an agent looks at them again and again. Each proves at
its end that it went on all the time (contenders.proving): figures beside nothing would be no figures.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from contenders import ROOT, Count, StoppedError, computing, logging_lines, proving, tree

NEVER_SECONDS = 100_000.0
_READY = 'print("ready", flush=True)\n'
_PACK = (
    """
import io, os, random, shutil, sys, tarfile
chance = random.Random(1)
with tarfile.open("tree.tar", "w") as tar:
    for n in range(int(sys.argv[1])):
        one = tarfile.TarInfo(f"package_{n % 140}/module_{n}.js")
        one.size = chance.randrange(200, 12_000)
        tar.addfile(one, io.BytesIO(bytes(one.size)))
"""
    + _READY
)
PROGRAMS = {
    "interpreters": """
import os, signal, sys
for _ in range(int(sys.argv[1])):
    if not os.fork():
        signal.pause()
"""
    + _READY
    + "signal.pause()",
    "files": """
import os, resource, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = [os.open(f"held_{n}.npy", os.O_RDWR | os.O_CREAT) for n in range(min(int(sys.argv[1]), most - 50))]
"""
    + _READY
    + """
while True:
    for fd in held[::100]:
        os.pwrite(fd, bytes(4096), 0)
    time.sleep(0.5)
""",
    "mappings": """
import ctypes, mmap, os, sys, time
libc = ctypes.CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, *[ctypes.c_size_t] * 5)
fd = os.open("data.bin", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 256 << 20)
for n in range(int(sys.argv[1])):
    libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_PRIVATE, fd, 8192 * (n % 32768))
whole = mmap.mmap(fd, 256 << 20, prot=mmap.PROT_READ)
"""
    + _READY
    + """
while True:
    for at in range(0, 256 << 20, 16 << 20):
        sum(whole[at : at + (16 << 20) : 4096])
        time.sleep(0.25)
    whole.madvise(mmap.MADV_DONTNEED)
""",
    "threads": """
import os, sys, threading, time
threading.stack_size(64 << 10)
for _ in range(int(sys.argv[1])):
    threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
fd = os.open("model.pt", os.O_RDWR | os.O_CREAT)
"""
    + _READY
    + """
while True:
    for _ in range(8):
        os.pwrite(fd, bytes(1 << 20), 0)
    time.sleep(0.25)
""",
    # each rank with seven threads that wait; a save is a megabyte of each, and the metadata of the first
    "ranks": """
import os, subprocess, sys, time
RANK = '''
import os, shutil, sys, threading, time
rank, every, wait = int(os.environ["RANK"]), 10, threading.Event()
for _ in range(7):
    threading.Thread(target=wait.wait, daemon=True).start()
print("ready", flush=True)
saved = int(time.time() // every)
while True:
    sum(range(5000))
    time.sleep(0.1)
    if (now := int(time.time() // every)) > saved:
        saved, folder = now, f"checkpoints/step_{now}"
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/__{rank}_0.distcp", "wb", buffering=0) as file:
            for _ in range(16):
                file.write(bytes(65536))
        if rank == 0:
            time.sleep(0.5)
            with open(f"{folder}/.metadata", "wb") as file:
                file.write(bytes(4096))
            shutil.rmtree(f"checkpoints/step_{now - 2}", ignore_errors=True)
'''
size = sys.argv[1]
ranks = [
    subprocess.Popen(
        [sys.executable, "-c", RANK],
        env={**os.environ, "RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": size},
        stdout=subprocess.PIPE,
    )
    for n in range(int(size))
]
for one in ranks:
    one.stdout.readline()
"""
    + _READY
    + "ranks[0].wait()",
    # again and again: a package is installed by pip and removed, an archive unpacked and removed, C compiled
    "churn": _PACK
    + """
import subprocess, zipfile
with tarfile.open("tree.tar") as tar, zipfile.ZipFile("made-1-py3-none-any.whl", "w") as wheel:
    for one in tar:
        wheel.writestr(f"made/{one.name}", bytes(one.size))
    wheel.writestr("made-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: made\\nVersion: 1\\n")
    wheel.writestr("made-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("made-1.dist-info/RECORD", "")
for n in range(100):
    with open(f"f{n}.c", "w") as file:
        file.write(f"#include <stdio.h>\\n#include <stdlib.h>\\nint f{n}(void) {{ return puts(getenv(\\"A\\")); }}\\n")
objects = " ".join(f"f{n}.o" for n in range(100))
pip = f"{sys.executable} -m pip install -q --no-index --no-deps --target site made-1-py3-none-any.whl && rm -r site"
untar = "mkdir tree && tar -xf tree.tar -C tree && rm -r tree"
script = f"while {pip} && {untar} && make -s -j2 {objects} && rm *.o; do :; done"
os.execvp("sh", ["sh", "-c", script])
""",
}


@contextlib.contextmanager
def crowd(name: str, count: int, work: Path) -> Iterator[subprocess.Popen[str]]:
    """Have a crowd while the block runs, with its files in `work`; raises StoppedError if it shrinks or idles."""
    command = [sys.executable, "-c", PROGRAMS[name], str(count)]
    with subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise StoppedError(f"the crowd {name} did not come")
            members = Count("members", lambda: len(tree(process.pid)))
            moves = computing((process,), 0.0 if name == "interpreters" else 1e-4)
            with proving(f"the crowd {name}", (process,), members, moves):
                yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def training(directory: Path, interval_seconds: float = 5.0, mb: int = 256) -> Iterator[subprocess.Popen[bytes]]:
    """Let a job train, and save so many megabytes so often, while the block runs, first before it begins.

    Raises StoppedError if it ends, computes nothing, or logs less than a third of the saves that are due.
    """
    truth, log = directory / "truth.jsonl", directory / "job.log"
    command = [sys.executable, str(ROOT / "examples/train_numpy.py"), "--dir", str(directory / "job")]
    command += [
        "--truth",
        str(truth),
        "--size-mb",
        str(mb),
        "--interval",
        str(interval_seconds),
        "--saves",
        "1000000",
    ]
    with log.open("wb") as words:
        process = subprocess.Popen(command, stdout=words, stderr=words)
    try:
        while interval_seconds < NEVER_SECONDS and not truth.exists():
            with proving("the job", (process,), log=log):
                time.sleep(0.1)
        saves = logging_lines(truth, 1 / (3 * interval_seconds))
        with proving("the job", (process,), computing((process,)), saves, log=log):
            yield process
    finally:
        process.kill()
        process.wait()


_FETCH = """
python3 -m pip download -q -d wheels numpy scipy pandas
npm install --silent --cache npm --prefix node webpack typescript && rm -r node
apt-get download -q linux-source-6.1
dpkg-deb --fsys-tarfile linux-source*.deb | tar -xOf - ./usr/src/linux-source-6.1.tar.xz | xz -dc > linux.tar
"""
_EVERYDAY = """
python3 -m pip install -q --no-index --find-links wheels --target site numpy scipy pandas
npm install --silent --offline --cache npm --prefix node webpack typescript
tar -xf linux.tar
make -s -j2 -C linux-source-6.1/tools/lib/bpf
for n in 1 2 3 4 5; do
    systemd-nspawn -q --register=no --keep-unit -D / --volatile=yes --pipe /usr/bin/python3 -c ''
done
rm -r site node linux-source-6.1
"""


def everyday(work: Path) -> Callable[[], float]:
    """Fetch packages and a kernel; return what works with them once, and returns the seconds that it took."""

    def once(script: str = _EVERYDAY) -> float:
        began = time.perf_counter()
        done = subprocess.run(["sh", "-ec", script], cwd=work, stdout=-3, stderr=-1, check=False)
        if done.returncode:
            raise StoppedError(f"everyday work failed: {done.stderr.decode()[-500:]}")
        return time.perf_counter() - began

    once(_FETCH)
    return once


@dataclass(frozen=True)
class Goal:
    """The most that something may be."""

    most: float
    unit: str = "%"

    def __str__(self) -> str:
        """Return it as the table has it."""
        return f"{self.most:g}{self.unit if self.unit == 'x' else ' ' + self.unit}"


@dataclass(frozen=True)
class Situation:
    """What goes on on the host, how long until it is measured, and what each level may cost: `x` of node_exporter."""

    make: Callable[[Path], AbstractContextManager[object]]  # in a folder
    settle_seconds: float
    trace: Goal | None = None
    poll: Goal | None = None
    count: int | None = None  # of a crowd
    in_turns: bool = False  # an agent that opens a checkpoint to look into it wakes the others


def crowded(name: str, number: int, goal: Goal, *, in_turns: bool = False) -> Situation:
    """Return a crowd of a number."""
    return Situation(lambda directory: crowd(name, number, directory), 10, goal, goal, number, in_turns)


SITUATIONS: Mapping[str, Situation] = {
    "idle": Situation(lambda _: nullcontext(), 0, Goal(0.25, "x"), Goal(0.25, "x")),
    "trains": Situation(lambda at: training(at, NEVER_SECONDS), 20, Goal(0.4, "x"), Goal(0.4, "x")),
    "saves": Situation(training, 0, Goal(0.6, "x"), Goal(0.8, "x"), in_turns=True),
    "interpreters": crowded("interpreters", 2_000, Goal(1.0)),
    "files": crowded("files", 20_000, Goal(1.0)),
    "mappings": crowded("mappings", 64_000, Goal(1.0)),
    "threads": crowded("threads", 5_000, Goal(1.0)),
    "ranks": crowded("ranks", 64, Goal(3.0), in_turns=True),
    "churn": crowded("churn", 7_000, Goal(5.0)),
}
