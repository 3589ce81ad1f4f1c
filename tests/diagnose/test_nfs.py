"""Saves to NFS, played on the counters of its client tick by tick: from /proc/self/mountstats to a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.collectors.mounts.mountstats import block, mounted, put
from tests.detect.stage import MIB, Stage
from tests.diagnose.hand import GIB

from ckptprof.diagnose.judging import diagnose
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit, Verdict
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts.clients import RemoteClients
from ckptprof_collectors.samples import NicInfo, NicSample, Sample, TcpSample, ThreadLook

SIZE = 8 * GIB
WRITES = SIZE // MIB
BEGIN_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Playing:
    """How one save goes: what its client counts in all, and when."""

    write_s: float = 4.0  # in which it is sent
    commit_s: float = 0.05  # after that
    queue_ms: float = 0.5  # of each WRITE
    answer_ms: float = 1.5
    backlog: float = 0.0
    connections: int = 1
    slots: int = 64
    again: int = 0
    timeouts: int = 0
    delays: int = 0
    busy_share: float = 0.9  # of the time data is on its way
    rtt_us: int = 210


class MovingNfs:
    """A mount whose mountstats play a training that saves, a NIC of 25 Gbit/s, and the connection between them."""

    def __init__(self, root: Path, how: Playing) -> None:
        """Make it."""
        self.root, self.how = root, how
        put(root)
        self.collector = RemoteClients(KernelFs(proc=root), clock=lambda: self.at_s)
        self.at_s = 0.0
        self.collector.follow([mounted()])

    def write(self) -> int:
        """Write the counters as they are at a time; return the bytes that were sent by then."""
        how, since_s = self.how, self.at_s - BEGIN_S
        part = min(max(0.0, since_s) / how.write_s, 1.0)
        synced = min(max(0.0, since_s - how.write_s) / how.commit_s, 1.0)
        sent, count = int(SIZE * part), 1000 + int(WRITES * part)
        over_ms = how.queue_ms + how.answer_ms
        counted = {
            "GETATTR": (500, 500, 0, 90_000, 120_000, 3, 200, 210, 0),
            "WRITE": (count, count + int(how.again * part), int(how.timeouts * part), sent + 200 * count, 150 * count,
                      int(how.queue_ms * count), int(how.answer_ms * count), int(over_ms * count), 0),
        }  # fmt: skip
        if synced >= 1:
            took_ms = int(how.commit_s * 1000)
            counted["COMMIT"] = (1, 1, 0, 200, 150, 0, took_ms, took_ms, 0)
        each = count // how.connections
        in_use = how.slots * each
        tcp = f"tcp 8{{}} 0 1 0 11 {each} {each} 0 {in_use} {int(how.backlog * each)} {how.slots} 1 1"
        text = block(
            counted=counted, delays=int(how.delays * part), age=int(self.at_s),
            read_write=(0, sent, 0, 0, 0, sent, 0, sent // 4096),
            transports=[tcp.format(at) for at in range(how.connections)],
        )  # fmt: skip
        put(self.root, text)
        return sent

    def play(self, until_s: float) -> Iterator[tuple[float, Sample]]:
        """Yield what is read of it, five times a second."""
        yield 0.05, mounted()
        yield 0.05, NicInfo("eth0", 25_000_000_000, True, "mlx5_core", True)  # noqa: FBT003 - a struct of the collectors
        for tick in range(int(until_s * 5)):
            self.at_s = tick / 5
            sent = self.write()
            samples = [*(self.collector.read() or ()), NicSample("eth0", 0, 0, 0, 0, sent + sent // 50, 0, 0, 0)]
            samples.append(self._tcp(sent))
            yield from ((self.at_s + 0.1, sample) for sample in samples)
        self.collector.close()

    def _tcp(self, sent: int) -> TcpSample:
        busy_us = int(self.how.busy_share * self.how.write_s * 1e6 * sent / SIZE)
        return TcpSample(
            "10.0.0.9", 2049, False, "10.0.0.2", ("eth0",), None, None, 1, sent, sent // 1000, 0, busy_us, 0, 0,  # noqa: FBT003 - as above
            self.how.rtt_us, 200, None,
        )  # fmt: skip


def played(root: Path, how: Playing) -> Checkpoint:
    """Return the save, as it is detected."""
    stage = Stage(hz=10.0)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", BEGIN_S, how.write_s, SIZE, held_s=how.commit_s)
    end_s = BEGIN_S + how.write_s + how.commit_s
    key = (trainer.pid, trainer.info.start_ticks, trainer.pid, "python3")
    looks = []
    for at in range(int(BEGIN_S * 10), int(end_s * 10) + 1):
        call = 1 if at / 10 <= BEGIN_S + how.write_s else 74  # write, fsync
        looks.append((at / 10, ThreadLook(*key, at * 1000, 0, at // 50, at // 50, 0, None, "D", call, "")))
    moving = MovingNfs(root, how).play(end_s + 6)
    stage.extra = sorted([*looks, *moving], key=lambda pair: pair[0])
    (found,) = stage.play(end_s + 10)
    return found


def told(checkpoint: Checkpoint) -> Verdict:
    """Return the verdict."""
    verdict = diagnose(checkpoint).verdict
    assert verdict is not None
    return verdict


FAULTS = {
    "commit": (
        Playing(commit_s=16.0), Limit.SERVER, "nfs-commit", "1 COMMIT took 16 s: its stable storage",
    ),
    "one connection": (
        Playing(write_s=20.0, queue_ms=60, answer_ms=8, backlog=40), Limit.SINGLE_WRITER, "nfs-one-connection",
        "at a time at the server, of 64 slots (40 more without a slot)",
    ),
    "sent again": (
        Playing(write_s=64.0, queue_ms=20, answer_ms=400, again=900, timeouts=12, busy_share=0.2), Limit.NETWORK,
        "nfs-retransmission", "were sent again, 12 requests timed out",
    ),
    "delayed": (
        Playing(write_s=20.0, answer_ms=30, delays=300, busy_share=0.2), Limit.SERVER, "nfs-delay",
        "times that it is to be asked again later",
    ),
    "slow": (
        Playing(write_s=20.0, answer_ms=80, busy_share=0.2), Limit.SERVER, "slow-server",
        "each WRITE took 80 ms there, where a round takes 0.20 ms",
    ),
}  # fmt: skip
HEALTHY = {
    "commit": Playing(),
    "one connection": Playing(connections=8, queue_ms=3, answer_ms=8),
    "sent again": Playing(again=3),
    "delayed": Playing(delays=2),
    "slow": Playing(answer_ms=20, queue_ms=10),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_save_that_something_holds_up_is_told_by_its_client(name: str, tmp_path: Path) -> None:
    """From files to a verdict, with its evidence; and the same mount where nothing is slow."""
    how, limit, cause, words = FAULTS[name]
    found = played(tmp_path, how)
    verdict = told(found)

    assert (verdict.limit, verdict.cause) == (limit, cause)
    assert words in " ".join(verdict.evidence)
    assert verdict.remedy


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_mount_limits_nothing(name: str, tmp_path: Path) -> None:
    """At the speed of its link, with the little trouble that every network has."""
    found = played(tmp_path, HEALTHY[name])
    verdict = told(found)

    assert found.measures is not None
    assert found.measures.mount is not None
    assert found.measures.mount.client == "nfs 4.2"
    assert verdict.limit is Limit.NONE, verdict.sentence
