"""Crowds: many of one thing, each held by one program that is told how many.

All but the idle interpreters move bytes all the time, so that whoever watches looks at them again and again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_READY = 'print("ready", flush=True)\n'
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
    # a thousand names again and again, each written and closed so many times a second in all, as a build does
    "events": """
import os, sys, time
rate, number, due = int(sys.argv[1]), 0, time.monotonic()
"""
    + _READY
    + """
while True:
    for _ in range(rate // 20):
        fd = os.open(f"object_{number % 1000}.o", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, bytes(4096))
        os.close(fd)
        number += 1
    due = max(due + 0.05, time.monotonic())
    time.sleep(due - time.monotonic() if due > time.monotonic() else 0.001)
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
}
USUAL: Mapping[str, int] = {
    "interpreters": 2_000,
    "files": 20_000,
    "mappings": 64_000,
    "threads": 5_000,
    "events": 1_000,
    "ranks": 64,
}


@contextlib.contextmanager
def crowd(name: str, count: int, work: Path) -> Iterator[int]:
    """Have a crowd while the block runs, with its files in `work`; yields its pid."""
    command = [sys.executable, "-c", PROGRAMS[name], str(count)]
    with subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise SystemExit(f"the crowd {name} did not come")
            yield process.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
