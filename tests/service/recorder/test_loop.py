"""The recorder's loop: a silent, broken or mistaken sampler is told, and the last frames are not cut off."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from itertools import chain, count, repeat

import pytest
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof.errors import CkptprofError
from ckptprof.recording import Frame, Header, Unpacker, pack
from ckptprof.service.recorder import loop as looping
from ckptprof.service.recorder.loop import Loop, SamplerLostError
from ckptprof.service.recorder.signals import CaughtSignal

HEADER = Header(
    uid="u", host="h", boot_id="b", kernel="k", ckptprof="1", level="poll", at_ns=0, wall_ns=0, ticks_per_second=100,
    page_size=4096,
)  # fmt: skip
FRAME = Frame(at_ns=1, wall_ns=1, read=(), samples=())


class Piped:
    """The recorder's end of a sampler, with the other end in the test's hand."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._unpacker = Unpacker()
        self.stopped = threading.Event()
        self.killed = False
        self.has_backlog = False
        self.cpu_ticks: Iterator[float] = repeat(0.0)

    def fileno(self) -> int:
        """Return what to wait for."""
        return self._read_fd

    def read(self) -> Iterator[Header | Frame] | None:
        """Return the messages that have come, None at the end."""
        data = os.read(self._read_fd, 1 << 20)
        return self._unpacker.feed(data) if data else None

    def cpu_seconds(self) -> float:
        """Return the next of its readings."""
        return next(self.cpu_ticks)

    def stop(self) -> None:
        """Take note of it."""
        self.stopped.set()

    def kill(self) -> None:
        """Take note of it."""
        self.killed = True

    def wait(self, timeout_seconds: float) -> int | None:
        """Return at once."""
        del timeout_seconds
        return 0

    def end(self) -> None:
        """Close the sampler's end."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def close(self) -> None:
        """Close both ends."""
        self.end()
        os.close(self._read_fd)


class Told:
    """A trap that catches what the test says."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        self._caught: list[CaughtSignal] = []

    def fileno(self) -> int:
        """Return what to wait for."""
        return self._read_fd

    def tell(self, number: int) -> None:
        """Let a signal come."""
        self._caught.append(CaughtSignal(number, from_terminal=False))
        os.write(self._write_fd, b"!")

    def pop_all(self) -> list[CaughtSignal]:
        """Return the signals that have come."""
        os.read(self._read_fd, 4096)
        caught, self._caught = self._caught, []
        return caught

    def close(self) -> None:
        """Close both ends."""
        os.close(self._read_fd)
        os.close(self._write_fd)


@pytest.fixture
def sampler() -> Iterator[Piped]:
    """Return a sampler of pipes."""
    made = Piped()
    yield made
    made.close()


@pytest.fixture
def trap() -> Iterator[Told]:
    """Return a trap."""
    made = Told()
    yield made
    made.close()


def test_a_start_that_uses_cpu_time_is_no_silence(sampler: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow or crowded host it imports and attaches for longer than a hung sampler is waited for."""
    monkeypatch.setattr(looping, "SILENCE_SECONDS", 0.05)
    loop = Loop(sampler, None, lambda _: None)  # type: ignore[arg-type]
    sampler.cpu_ticks = chain((0.01 * n for n in range(1, 11)), repeat(0.1))

    for _ in range(10):
        assert loop.poll(0.02) == []
    with pytest.raises(SamplerLostError, match="no message"):  # then it hangs
        wait_until(lambda: loop.poll(0.02))


@pytest.mark.parametrize(("message", "cpu_ticks"), [(b"", repeat(0.0)), (pack(HEADER), count(1.0)), (b"", count(1.0))])
def test_silence_is_a_lost_sampler(
    sampler: Piped, monkeypatch: pytest.MonkeyPatch, message: bytes, cpu_ticks: Iterator[float]
) -> None:
    """One that hangs says nothing; after its first message, or a long start, one that computes is lost as well."""
    monkeypatch.setattr(looping, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(looping, "START_SECONDS", looping.START_SECONDS if message else 0.1)
    loop, sampler.cpu_ticks = Loop(sampler, None, lambda _: None), cpu_ticks  # type: ignore[arg-type]
    os.write(sampler.write_fd, message)

    with pytest.raises(SamplerLostError, match="no message"):
        wait_until(lambda: loop.poll(0.02))


def test_a_stop_of_all_of_us_is_no_silence(sampler: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-Z and fg, or a pause of the machine, the clock has run and nobody else has."""
    monkeypatch.setattr(looping, "SILENCE_SECONDS", 0.2)
    loop = Loop(sampler, None, lambda _: None)  # type: ignore[arg-type]
    loop.poll(0.01)
    time.sleep(0.3)  # as if stopped between two turns

    assert loop.poll(0.01) == []


@pytest.mark.parametrize("what", ["garbage", "judgement"])
def test_nonsense_and_faults_are_a_lost_sampler(sampler: Piped, what: str) -> None:
    """Bytes that are no frame, and a frame that our own code stumbles over, do not end the process."""

    def take(_: Header | Frame) -> None:
        raise KeyError(what)

    loop = Loop(sampler, None, take)  # type: ignore[arg-type]
    os.write(sampler.write_fd, b"\x04\0\0\0junk" if what == "garbage" else pack(HEADER))

    with pytest.raises(SamplerLostError, match="damaged" if what == "garbage" else "KeyError"):
        loop.poll(1)


def test_an_error_with_a_line_of_its_own_passes(sampler: Piped) -> None:
    """`capture` on a full disk says so, in its own words."""

    def take(_: Header | Frame) -> None:
        raise CkptprofError("no room")

    loop = Loop(sampler, None, take)  # type: ignore[arg-type]
    os.write(sampler.write_fd, pack(HEADER))

    with pytest.raises(CkptprofError, match="no room"):
        loop.poll(1)


def drain_with(sampler: Piped, trap: Told, *told: tuple[float, int], frames: float | None) -> tuple[Loop, list[Frame]]:
    """Drain while signals come at the given times, and the last frames at theirs, or when the sampler was killed."""
    taken: list[Header | Frame] = []
    loop = Loop(sampler, trap, taken.append)  # type: ignore[arg-type]
    os.write(sampler.write_fd, pack(HEADER))

    def play() -> None:
        sampler.stopped.wait(PATIENCE_SECONDS)
        began = time.monotonic()
        for at, number in (*told, (frames or 0.0, 0)):
            time.sleep(max(0.0, began + at - time.monotonic()))
            if number:
                trap.tell(number)
        if frames is None:
            wait_until(lambda: sampler.killed)
        os.write(sampler.write_fd, pack(FRAME))
        sampler.end()

    player = threading.Thread(target=play)
    player.start()
    loop.drain(PATIENCE_SECONDS)
    player.join()
    return loop, [message for message in taken if isinstance(message, Frame)]


@pytest.mark.parametrize("number", [signal.SIGCHLD, signal.SIGWINCH, signal.SIGUSR1])
def test_signals_that_ask_for_no_haste_cut_nothing_off(sampler: Piped, trap: Told, number: int) -> None:
    """An orphan that ends while we drain made us kill the sampler before its last frames."""
    loop, frames = drain_with(sampler, trap, (0.05, number), (0.3, number), frames=0.4)

    assert loop.has_ended
    assert not loop.is_hurried
    assert len(frames) == 1


def test_the_twin_of_the_signal_that_ends_us_is_no_haste(
    sampler: Piped, trap: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`timeout` and supervisors send two at once; only one that comes later means it."""
    monkeypatch.setattr(looping, "GRACE_SECONDS", PATIENCE_SECONDS)
    loop, frames = drain_with(sampler, trap, (0.0, signal.SIGTERM), frames=0.2)

    assert loop.has_ended
    assert len(frames) == 1


def test_a_second_signal_later_is_haste(sampler: Piped, trap: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who presses Ctrl-C again does not want to wait."""
    monkeypatch.setattr(looping, "GRACE_SECONDS", 0.05)
    loop, frames = drain_with(sampler, trap, (0.2, signal.SIGINT), frames=None)

    assert loop.is_hurried
    assert sampler.killed
    assert frames == []


def test_a_signal_is_heard_however_many_frames_wait(
    sampler: Piped, trap: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames that come faster than they are judged do not keep us from ending; what was left out is told."""
    monkeypatch.setattr(looping, "STEP_SECONDS", 0.05)
    taken: list[Header | Frame] = []
    loop = Loop(sampler, trap, lambda message: (time.sleep(0.02), taken.append(message))[1])  # type: ignore[arg-type, func-returns-value]
    os.write(sampler.write_fd, pack(HEADER) + pack(FRAME) * 1000)
    trap.tell(signal.SIGTERM)

    caught = loop.poll()
    ended = loop.drain(0.3)

    assert [one.number for one in caught] == [signal.SIGTERM]
    assert 0 < len(taken) < 1000
    assert not ended
    assert sampler.killed


def test_frames_that_come_often_are_read_together(sampler: Piped, trap: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """To wake up for each costs more than the frame; a signal is heard meanwhile."""
    monkeypatch.setattr(looping, "REST_SECONDS", PATIENCE_SECONDS)
    taken: list[Header | Frame] = []
    loop = Loop(sampler, trap, taken.append)  # type: ignore[arg-type]
    for message in (HEADER, FRAME):
        os.write(sampler.write_fd, pack(message))
        loop.poll()
    os.write(sampler.write_fd, pack(FRAME) * 3)
    trap.tell(signal.SIGCHLD)

    caught = loop.poll()
    resting = len(taken)
    loop.poll(0.01)

    assert [one.number for one in caught] == [signal.SIGCHLD]
    assert (resting, len(taken)) == (2, 5)
