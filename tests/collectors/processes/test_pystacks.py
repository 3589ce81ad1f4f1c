"""Python stacks by py-spy: a real process that is not stopped, and programs that misbehave in its place."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest
from tests.patience import LIFETIME, PATIENCE_SECONDS, wait_until

from ckptprof_collectors import abandoned
from ckptprof_collectors.abandoned import AbandonedWork
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes import python_stacks
from ckptprof_collectors.processes.process import Process
from ckptprof_collectors.processes.python_stacks import DUMP, StackDump, StackSampler, find_program, parse, run_py_spy
from ckptprof_collectors.processes.stack_profile import PROFILE, RATE, parse_profile

PROGRAM = find_program() or ""
needs_it = pytest.mark.skipif(not PROGRAM, reason="py-spy is not installed")
SLEEPER = f"import time\ndef lie_down():\n    print(flush=True)\n    time.sleep({LIFETIME})\nlie_down()\n"
TOLD = """echo '[{"os_thread_id": 7, "frames": [{"name": "f", "filename": "f.py"}]}]'"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a look wait as long as a test does."""

    def run(program: str, pid: int, command: python_stacks.PySpyCommand, **more: Any) -> StackDump:
        return run_py_spy(program, pid, command._replace(timeout_seconds=PATIENCE_SECONDS), **more)

    monkeypatch.setattr(python_stacks, "run_py_spy", run)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Return a Python process that sleeps in a function of its own."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        child.kill()


def impostor(tmp_path: Path, script: str) -> str:
    """Return a program that does something else than py-spy would."""
    path = tmp_path / "py-spy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def seen_by(looker: StackSampler, pid: int) -> list[python_stacks.StackSample]:
    """Return what one look yields."""
    assert looker.request(Process(KernelFs(), pid))
    wait_until(lambda: not looker.busy)
    return looker.consume()


@needs_it
def test_the_function_in_which_a_process_sleeps_is_seen(sleeper: subprocess.Popen[bytes]) -> None:
    """With its thread, its file and what the look cost."""
    (sample,) = seen_by(StackSampler(PROGRAM), sleeper.pid)

    (thread,) = sample.threads
    assert thread.tid == sample.pid == sleeper.pid
    assert [frame[0] for frame in thread.frames] == ["lie_down", "<module>"]
    assert sample.cost_ns > 0


@needs_it
def test_a_look_does_not_stop_its_target() -> None:
    """A process under `--nonblocking` is traced by nobody: the longest pause of its loop is that of its scheduler."""
    with subprocess.Popen(
        [sys.executable, "-c", "import time\nprint(flush=True)\nwhile True: time.sleep(0.001)"], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        states = set()
        looker = StackSampler(PROGRAM)
        assert looker.request(Process(KernelFs(), child.pid))
        busy = True
        while busy:
            busy = looker.busy
            status = Path(f"/proc/{child.pid}/status").read_text()
            states.add((status.split("State:\t")[1][0], status.split("TracerPid:\t")[1].split("\n")[0]))
        child.kill()

    assert states
    assert not {state for state, _ in states} & {"T", "t"}
    assert {tracer for _, tracer in states} == {"0"}


PROFILED = f"""
import time
def train():
    print(flush=True)
    open({{gate!r}}).read()
def save():
    print(time.monotonic_ns(), flush=True)
    time.sleep({LIFETIME})
train()
save()
"""


@needs_it
def test_a_profile_shows_when_a_thread_went_on_to_another_line(tmp_path: Path) -> None:
    """Of its main thread, once it is ended."""
    os.mkfifo(tmp_path / "gate")
    script = PROFILED.format(gate=str(tmp_path / "gate"))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        profiler, process = StackSampler(PROGRAM, PROFILE), Process(KernelFs(), child.pid)

        def profiled() -> list[python_stacks.StackSample]:
            assert profiler.request(process)
            wait_until(lambda: profiler._pidfd >= 0)
            time.sleep(0.5)  # without a sample by then it is tried again
            profiler.stop()
            wait_until(lambda: not profiler.busy)
            return profiler.consume()

        samples: list[python_stacks.StackSample] = []
        wait_until(lambda: samples.extend(profiled()) or samples)
        (tmp_path / "gate").write_text("")
        saves_ns, before = int(child.stdout.readline()), len(samples)
        wait_until(lambda: samples.extend(profiled()) or len(samples) > before)
        child.kill()

    frames = [(sample.at_ns < saves_ns, sample.threads[0].frames) for sample in samples]
    assert {(early, stack[0][0]) for early, stack in frames} == {(True, "train"), (False, "save")}
    assert {stack[-1][0] for _, stack in frames} == {"<module>"}


TRACE = (
    '[{"name":"thread (7): MainThread","ph":"B","tid":1,"ts":100000,"args":{"filename":"","line":0}},'
    '{"name":"f","ph":"B","tid":1,"ts":100000,"args":{"filename":"f.py","line":1}},'
    '{"name":"other","ph":"B","tid":2,"ts":200000,"args":{"filename":"f.py","line":9}},'
    '{"name":"f","ph":"E","tid":1,"ts":2100000,"args":{"filename":"f.py","line":1}},'
    '{"name":"g","ph":"B","tid":1,"ts":2100000,"args":{"filename":"f.py","line":5}}]'
)


def test_a_profile_is_printed_where_its_stacks_change() -> None:
    """Each stack has its first sample, and two intervals before the next: it changed half-way, on average."""
    samples = parse_profile(StackDump(TRACE.encode(), "", 0, 0, 1_000_000_000), 7, 3)

    assert [(one.at_ns // 1_000_000, one.threads[0].frames) for one in samples] == [
        (1100, (("f", "f.py", 1),)),
        (2850, (("f", "f.py", 1),)),
        (3100, (("g", "f.py", 5),)),
    ]
    assert {one.interval_ns for one in samples} == {1_000_000_000 // RATE}


def test_only_one_look_is_taken_at_a_time(tmp_path: Path) -> None:
    """What is asked for meanwhile is refused, not queued."""
    os.mkfifo(tmp_path / "gate")
    looker = StackSampler(impostor(tmp_path, f"read go < {tmp_path}/gate; {TOLD}"))
    process = Process(KernelFs(), os.getpid())
    answers = [looker.request(process) for _ in range(3)]
    (tmp_path / "gate").write_text("go\n")
    wait_until(lambda: not looker.busy)

    assert answers == [True, False, False]
    assert len(looker.consume()) == 1


@pytest.mark.parametrize("telling", ["first", "last"])
def test_a_look_was_taken_shortly_before_its_program_told_it(tmp_path: Path, telling: str) -> None:
    """Not in the middle of its run: on a busy host that takes half a second, and the stacks are read late in it."""
    os.mkfifo(tmp_path / "gate")
    held = f"touch {tmp_path}/there; read go < {tmp_path}/gate"
    looker = StackSampler(impostor(tmp_path, f"{TOLD}; {held}" if telling == "first" else f"{held}; {TOLD}"))
    began_ns = time.monotonic_ns()
    assert looker.request(Process(KernelFs(), os.getpid()))
    wait_until((tmp_path / "there").exists)
    there_ns = time.monotonic_ns()
    time.sleep(3 * (there_ns - began_ns) / 1e9)  # the middle of its run is after that
    opened_ns = time.monotonic_ns()
    (tmp_path / "gate").write_text("go\n")
    wait_until(lambda: not looker.busy)
    (sample,) = looker.consume()

    if telling == "first":
        assert began_ns < sample.at_ns <= there_ns
    else:
        assert sample.at_ns >= began_ns + 0.8 * (opened_ns - began_ns)


def test_without_py_spy_that_is_told_once() -> None:
    """Nothing is asked for, and the reason is given a single time."""
    looker = StackSampler(None)

    assert not looker.request(Process(KernelFs(), os.getpid()))
    assert [looker.consume_reason(), looker.consume_reason()] == [
        "py-spy is not installed: Python stacks are not sampled",
        None,
    ]


@pytest.mark.parametrize(
    ("script", "seconds", "reason"),
    [
        ("echo Error: Permission Denied >&2; exit 1", PATIENCE_SECONDS, "may not read the process"),
        ("echo one >&2; echo 'Error: two' >&2; exit 1", PATIENCE_SECONDS, "py-spy failed: Error: two"),
        (f"exec sleep {LIFETIME}", 0.5, "did not finish within"),
        ("exec cat /dev/zero", PATIENCE_SECONDS, "did not finish within"),
        ("exit 3", PATIENCE_SECONDS, "no output"),
    ],
)
def test_a_program_that_fails_hangs_or_babbles_is_ended(
    tmp_path: Path, script: str, seconds: float, reason: str
) -> None:
    """Time and output are bounded, and nothing is left behind."""
    before = psutil.Process().children()

    raw, complaint, *_ = run_py_spy(impostor(tmp_path, script), os.getpid(), DUMP._replace(timeout_seconds=seconds))

    assert raw == b""
    assert reason in complaint
    assert set(psutil.Process().children()) <= set(before)  # other tests of this worker may have some


def test_a_process_that_may_not_be_read_is_left_alone(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """It is tried once, told once, and not again."""
    looker = StackSampler(impostor(tmp_path, "echo Permission denied >&2; exit 1"))
    seen = seen_by(looker, sleeper.pid)
    reason = looker.consume_reason()

    assert seen == []
    assert "CAP_SYS_PTRACE" in (reason or "")
    assert not looker.can_sample(Process(KernelFs(), sleeper.pid))


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> AbandonedWork:
    """Return the list of what is left behind, for this test alone; each child of a look goes there, in state D."""
    own = AbandonedWork()
    monkeypatch.setattr(python_stacks, "ABANDONED", own)
    monkeypatch.setattr(python_stacks, "uninterruptible_sleep", lambda _: b"1 2 3")
    monkeypatch.setattr(python_stacks, "wait_child", lambda *_: None)
    return own


def test_a_program_that_cannot_be_killed_costs_its_target_alone(
    left: AbandonedWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    """It is left and counted until it ends, its target is named and not looked at again, and the next look is taken."""
    looker = StackSampler(impostor(tmp_path, TOLD))
    assert seen_by(looker, sleeper.pid) == []
    monkeypatch.setattr(python_stacks, "wait_child", abandoned.wait_child)
    reason = looker.consume_reason()

    assert (left.count("stacks"), looker.can_sample(Process(KernelFs(), sleeper.pid))) == (1, False)
    assert f"process {sleeper.pid}: py-spy cannot be killed" in (reason or "")
    assert len(seen_by(looker, os.getpid())) == 1
    wait_until(lambda: left.remove_ended() or left.count() == 0)


def test_targets_of_one_user_do_not_end_all_looks(
    left: AbandonedWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After two of a user's his others are not looked at; after four of all users none, until one ends."""
    users = {1: 1000, 2: 1000, 3: 1000, 4: 1001, 5: 1002, 6: 1003}
    monkeypatch.setattr(python_stacks.BLOCKING_PROCESSES, "user_of", users.get)
    monkeypatch.setattr(python_stacks, "reap", lambda _: False)
    program = impostor(tmp_path, TOLD)
    looker = StackSampler(program)
    may = {}
    for pid in users:
        may[pid] = looker.can_sample(SimpleNamespace(pid=pid, start_ticks=0))  # type: ignore[arg-type]
        if may[pid]:
            assert run_py_spy(program, pid).is_unkillable

    assert may == {1: True, 2: True, 3: False, 4: True, 5: True, 6: False}
    monkeypatch.setattr(python_stacks, "reap", lambda _: True)
    left.remove_ended()
    assert looker.can_sample(SimpleNamespace(pid=6, start_ticks=0))  # type: ignore[arg-type]
    wait_until(lambda: not [one for one in psutil.Process().children() if abandoned.reap(one.pid)])


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[1]", b"null", b'[{"frames": [{"name": 1}]}]', b'[{"frames": [', b"\xff"]
)
def test_what_is_no_dump_has_no_threads(raw: bytes) -> None:
    """Whatever comes out of the pipe."""
    assert parse(raw) == ()


def test_deep_and_hostile_stacks_are_cut() -> None:
    """Of a recursion both ends are kept, of a name its end."""
    frames = [{"name": "\x1b[2J" + "n" * 300, "filename": "/f" * 200, "line": line} for line in range(300)]
    threads = parse(msgspec.json.encode([{"os_thread_id": 7, "thread_name": "t", "frames": frames}] * 80))

    assert len(threads) == python_stacks.MAX_THREADS
    assert [frame[2] for frame in threads[0].frames][:: python_stacks.MAX_FRAMES] == [0, 300 - python_stacks.MAX_FRAMES]
    assert all(
        len(name) <= python_stacks.MAX_NAME and len(file) <= python_stacks.MAX_NAME
        for name, file, _ in threads[0].frames
    )
