"""Saves to NFS, played on the counters of its client tick by tick: from /proc/self/mountstats to a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.collectors.mounts.mountstats import block, mounted, put
from tests.detect.stage import MIB, Stage
from tests.diagnose.hand import GIB, far, link, measured, restore, save, thread

from ckptprof.diagnose.accounts.network_evidence import client_wait
from ckptprof.diagnose.accounts.storage_waits import BEATS
from ckptprof.diagnose.causes import Cause
from ckptprof.diagnose.context import gather_context
from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.measures import ConnectionMeasure, MountMeasure, OperationMeasure
from ckptprof.model import Checkpoint, Level
from ckptprof.verdicts import Limit, Verdict
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts.client_counters import RemoteClientReader
from ckptprof_collectors.samples import NicInfo, NicSample, Sample, TcpSample, ThreadSample

SIZE = 8 * GIB
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
    each_bytes: int = MIB  # of a WRITE
    kept_s: float = 0.0  # for so long it goes to the page cache alone, as fast as it is sent after that


class MovingNfs:
    """A mount whose mountstats play a training that saves, a NIC of 25 Gbit/s, and the connection between them."""

    def __init__(self, root: Path, how: Playing) -> None:
        """Make it."""
        self.root, self.how = root, how
        put(root)
        self.collector = RemoteClientReader(KernelFs(proc=root), clock=lambda: self.at_s, cpu_seconds=float)
        self.at_s = 0.0
        self.collector.set_mounts([mounted()])

    def write(self) -> int:
        """Write the counters as they are at a time; return the bytes that were sent by then."""
        how, since_s = self.how, self.at_s - BEGIN_S
        asked = int(SIZE * min(max(0.0, since_s) / (how.kept_s or how.write_s), 1.0))
        part = min(max(0.0, since_s - how.kept_s) / how.write_s, 1.0)
        synced = min(max(0.0, since_s - how.kept_s - how.write_s) / how.commit_s, 1.0)
        sent, count = int(SIZE * part), 1000 + int(SIZE // how.each_bytes * part)
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
            read_write=(0, asked, 0, 0, 0, sent, 0, sent // 4096),
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
    write_s = how.kept_s or how.write_s
    end_s = BEGIN_S + how.kept_s + how.write_s + how.commit_s
    stage.write(trainer, "/ckpt/step_1.pt", BEGIN_S, write_s, SIZE, held_s=end_s - BEGIN_S - write_s)
    key = (trainer.pid, trainer.info.start_ticks, trainer.pid, "python3")
    looks = []
    for at in range(int(BEGIN_S * 10), int(end_s * 10) + 1):
        call = 1 if at / 10 <= BEGIN_S + write_s else 74  # write, fsync
        looks.append((at / 10, ThreadSample(*key, at * 1000, 0, at // 50, at // 50, 0, None, "D", call, "")))
    moving = MovingNfs(root, how).play(end_s + 6)
    stage.extra = sorted([*looks, *moving], key=lambda pair: pair[0])
    stage.looks = [(tick / 5 + 0.1, "clients") for tick in range(int((end_s + 6) * 5))]
    (found,) = stage.play(end_s + 10)
    return found


def told(checkpoint: Checkpoint) -> Verdict:
    """Return the verdict."""
    verdict = diagnose(checkpoint).verdict
    assert verdict is not None
    return verdict


FAULTS = {
    "commit": (
        Playing(commit_s=16.0), Limit.SERVER, "nfs-commit", "1 COMMIT took 16 s: the server's stable storage",
    ),
    "one connection": (
        Playing(write_s=20.0, queue_ms=60, answer_ms=8, backlog=40), Limit.NETWORK, "nfs-one-connection",
        "of 64 slots in use at the server (40 more waiting for a slot)",
    ),
    "sent again": (
        Playing(write_s=64.0, queue_ms=20, answer_ms=400, again=900, timeouts=12, busy_share=0.2), Limit.NETWORK,
        "nfs-retransmission", "requests retransmitted, 12 timed out",
    ),
    "delayed": (
        Playing(write_s=20.0, answer_ms=30, delays=300, busy_share=0.2), Limit.SERVER, "nfs-delay",
        "times that the client should retry later",
    ),
    "slow": (
        Playing(write_s=20.0, answer_ms=80, busy_share=0.2), Limit.SERVER, "slow-server",
        "each WRITE took 80 ms at the server, with a round trip of 0.20 ms",
    ),
    "small": (
        Playing(write_s=20.0, each_bytes=8192, answer_ms=0.3, queue_ms=0.1, busy_share=0.4), Limit.SMALL_IO,
        "nfs-small-requests", "WRITEs of 8.19 kB each, where 1.05 MB would fit",
    ),
    "kept": (
        Playing(kept_s=8.0, write_s=12.0, answer_ms=9, busy_share=0.2), Limit.SERVER, "sent-at-the-end",
        "of it was sent only after all writes, which took",
    ),
}  # fmt: skip
HEALTHY = {
    "commit": Playing(),
    "one connection": Playing(connections=8, queue_ms=3, answer_ms=8),
    "sent again": Playing(again=3),
    "delayed": Playing(delays=2),
    "slow": Playing(answer_ms=20, queue_ms=10),
    "small": Playing(each_bytes=256 << 10, queue_ms=0.1, answer_ms=0.4),
    "kept": Playing(kept_s=0.4, write_s=3.6),
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


def test_one_process_alone_is_no_single_writer() -> None:
    """What waits for the only connection of a mount is limited by that; a server on this host is not behind a link."""
    at = thread(Level.TRACE, 20, copy=0.5, data=19.5)
    held_back = mount(writes(queue=0.05, answer=0.02))
    for ranks, over, limit, cause in (
        (2, link(), Limit.SINGLE_WRITER, "nfs-one-connection"),
        (1, link(), Limit.NETWORK, "nfs-one-connection"),
        (1, link(name="lo", kind="loopback", countable=False), Limit.SERVER, "slow-server"),
    ):
        verdict = told(save(Level.TRACE, 20, measured(at, mount=held_back, links=(over,)), ranks=ranks))
        assert (verdict.limit, verdict.cause) == (limit, cause)


def mount(*operations: OperationMeasure, **more: Any) -> MountMeasure:
    """Return a mount over one connection, to which 1 GiB went."""
    told_: dict[str, Any] = {
        "client": "nfs 4.2", "transport": "tcp", "wire_written_bytes": GIB, "wire_read_bytes": GIB, "connections": 1,
        "slots": 64, "settings": {"wsize": MIB, "rsize": MIB, "timeo": 600}, "operations": operations,
    }  # fmt: skip
    return replace(far(), **{**told_, **more})


def writes(count: int = 1024, queue: float = 0.001, answer: float = 0.002, **more: Any) -> OperationMeasure:
    """Return so many WRITEs."""
    told_: dict[str, Any] = {
        "kind": "WRITE", "count": count, "seconds": queue + answer, "queue_seconds": queue, "server_seconds": answer,
        "retransmissions": 0, "timeouts": 0,
    }  # fmt: skip
    return OperationMeasure(**{**told_, **more})


def commits(count: int, each: float) -> OperationMeasure:
    """Return so many COMMITs."""
    return OperationMeasure(kind="COMMIT", count=count, seconds=each, queue_seconds=0.0, server_seconds=each)


def of_client(one: MountMeasure, *, reads: bool = False, **more: Any) -> Cause | None:
    """Return what a client tells of 19 s that a save, or a restore, of 1 GiB waited."""
    at = thread(Level.TRACE, 20, data=19, copy=1)
    make = restore if reads else save
    found = client_wait(gather_context(make(Level.TRACE, 20, measured(at, mount=one, links=(link(),), **more))), 19.0)
    return None if found is None else found.cause


def connection(round_s: float) -> ConnectionMeasure:
    """Return the connection with the server."""
    return ConnectionMeasure(remote="10.0.0.9", port=2049, relation="server", sockets=1, sent_bytes=GIB,
                             received_bytes=MIB, seconds=20.0, min_rtt_seconds=round_s)  # fmt: skip


@pytest.mark.parametrize(
    ("fits", "not_quite", "cause"),
    [
        (mount(writes(8), commits(1, 12)), mount(writes(7), commits(1, 12)), Cause.COMMITS),
        (mount(writes(queue=0.02), commits(2, 5)), mount(writes(queue=0.02), commits(2, 4.5)), Cause.COMMITS),
        (mount(writes(queue=0.0), commits(1, 2.1)), mount(writes(queue=0.0), commits(1, 2.0)), Cause.COMMITS),
        (
            mount(writes(queue=0.05), commits(1, 4), replace(commits(1, 6), kind="RENAME")),
            mount(writes(queue=0.05), commits(1, 4), replace(commits(1, 5), kind="RENAME")), Cause.COMMITS,
        ),
        (mount(writes(retransmissions=11)), mount(writes(retransmissions=10)), Cause.RETRANSMITTED),
        (mount(writes(20, retransmissions=8)), mount(writes(20, retransmissions=7)), Cause.RETRANSMITTED),
        (mount(writes(timeouts=1)), mount(writes()), Cause.RETRANSMITTED),
        (
            mount(writes(timeouts=2), settings={"timeo": 10}),
            mount(writes(timeouts=1), settings={"timeo": 10}), Cause.RETRANSMITTED,
        ),
        (
            mount(writes(30, errors=10), replace(writes(8), kind="CREATE_SESSION")),
            mount(writes(30, errors=9), replace(writes(8), kind="CREATE_SESSION")), Cause.SESSIONS,
        ),
        (
            mount(writes(253, errors=205), replace(writes(42), kind="CREATE_SESSION")),  # a client of the same name
            mount(writes(253, errors=205), replace(writes(7), kind="CREATE_SESSION")), Cause.SESSIONS,
        ),
        (mount(writes(), delays=20), mount(writes(), delays=18), Cause.DELAYED),
        (mount(writes(8_500)), mount(writes(8_000)), Cause.SMALL_REQUESTS),
        (
            mount(writes(26_000), settings={"wsize": 128 << 10}),
            mount(writes(24_000), settings={"wsize": 128 << 10}), Cause.SMALL_REQUESTS,
        ),
        (mount(writes(queue=0.05, answer=0.02)), mount(writes(queue=0.02, answer=0.021)), Cause.ONE_CONNECTION),
        (mount(writes(queue=1.2, answer=0.58)), mount(writes(queue=1.2, answer=0.61)), Cause.ONE_CONNECTION),
        (mount(writes(queue=0.05)), mount(writes(queue=0.05), slots=None), Cause.ONE_CONNECTION),
        (mount(writes(queue=0.05)), mount(writes(queue=0.05), connections=8), Cause.ONE_CONNECTION),
        (mount(writes(timeouts=1)), mount(writes(timeouts=1), wire_written_bytes=GIB // 3), Cause.RETRANSMITTED),
        (mount(writes(timeouts=1)), mount(writes(timeouts=1), wire_written_bytes=None), Cause.RETRANSMITTED),
    ],
)  # fmt: skip
def test_what_a_client_tells_has_its_measure(fits: MountMeasure, not_quite: MountMeasure, cause: Cause) -> None:
    """A little less of it tells nothing."""
    assert cause in BEATS
    assert of_client(fits) is cause
    assert of_client(not_quite) is not cause


def test_a_server_that_takes_long_is_told_by_how_long_a_round_takes() -> None:
    """Five times as long; without a connection nobody knows what a round takes."""
    assert of_client(mount(writes(answer=0.0051)), connections=(connection(0.001),)) is Cause.ANSWERS
    assert of_client(mount(writes(answer=0.0049)), connections=(connection(0.001),)) is None
    assert of_client(mount(writes(answer=0.0051))) is None


def test_of_a_restore_it_is_what_was_read() -> None:
    """COMMITs and the turns of WRITEs are of others; small READs are its own."""
    small = replace(writes(20_000), kind="READ")
    assert of_client(mount(small), reads=True) is Cause.SMALL_REQUESTS
    assert of_client(mount(writes(queue=0.05), commits(1, 18)), reads=True) is None


def verdict_of(one: MountMeasure, **more: Any) -> Verdict:
    """Return the verdict of a save that waited for 19 of 20 s."""
    at = thread(Level.TRACE, 20, data=19, copy=1)
    told_ = {"links": (link(steadiness=0.3),), **more}
    return told(save(Level.TRACE, 20, measured(at, mount=one, **told_)))


def test_a_full_link_has_requests_wait_as_well() -> None:
    """What the network shows of itself goes first; where it shows that it has room, the client does."""
    starved = mount(writes(queue=0.05))
    full = (link(sent_bytes=60 * GIB, peak_bytes_per_second=3.1e9),)

    assert verdict_of(starved).cause == "nfs-one-connection"
    assert verdict_of(starved, links=full).cause == "full-link"
    assert verdict_of(starved, links=(link(shaped_overlimits=5000),)).cause == "shaped"
    assert "bound by one connection" in verdict_of(starved).sentence


def test_tcp_and_the_client_are_heard_together() -> None:
    """One connection is as fast as the way allows: more are faster, unless what is sent waits in queues on its way."""
    starved = mount(writes(queue=0.05))
    busy = replace(connection(0.001), busy_seconds=18.0, rwnd_share=0.0, rtt_seconds=0.0011)
    queued, window = replace(busy, rtt_seconds=0.02), replace(busy, rwnd_share=0.9)

    assert verdict_of(starved, connections=(busy,)).cause == "nfs-one-connection"
    assert verdict_of(starved, connections=(queued,)).cause == "slow-path"
    assert verdict_of(starved, connections=(window,)).limit is Limit.SERVER
    assert verdict_of(mount(writes(), commits(1, 15)), connections=(window,)).cause == "nfs-commit"
    assert verdict_of(mount(writes(), commits(1, 15)), connections=(busy,)).cause == "slow-path"


@pytest.mark.parametrize(
    ("late", "asked", "cause"), [(0.75, 7.0, "sent-at-the-end"), (0.65, 7.0, "slow-server"), (0.75, 5.0, "slow-server")]
)
def test_what_the_client_kept_until_the_end_is_the_cause(late: float, asked: float, cause: str) -> None:
    """Most of it, and for long."""
    assert verdict_of(mount(writes(answer=0.02), late_share=late, requested_seconds=asked)).cause == cause


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_requests_that_took_no_time_decide_nothing(seconds: float | None) -> None:
    """Of WRITEs without COMMITs, and with those."""
    untimed = replace(writes(), seconds=seconds, queue_seconds=seconds, server_seconds=seconds)

    assert verdict_of(mount(untimed)).limit is Limit.SERVER
    assert verdict_of(mount(untimed, replace(untimed, kind="COMMIT", count=1))).cause != "nfs-commit"
