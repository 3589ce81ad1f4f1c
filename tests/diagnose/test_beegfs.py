"""RDMA of BeeGFS that fell back to TCP is the cause of a network or a server that is too slow.

Saves are played tick by tick on the files of its client, which are made after its module: no kernel here has it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.collectors.mounts.test_beegfsclients import put
from tests.detect.stage import Stage
from tests.diagnose.hand import GIB, link, measured, save, thread

from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.measures import MountMeasure, ServerMeasure
from ckptprof.model import Level
from ckptprof.verdicts import Limit, Verdict
from ckptprof_collectors.mounts.client_counters import RemoteClientReader
from ckptprof_collectors.samples import MountInfo, NicInfo, NicSample, Sample, ThreadSample

BEGIN_S = 20.0
SERVER = "storage{} [ID: {}]\n   Connections: {}: 8 (10.0.3.{}:8003);\x20\n"


def node(name: str, rdma: int = 0, tcp: int = 0, fallback: int = 0) -> ServerMeasure:
    """Return a storage server with such connections."""
    return ServerMeasure(
        name=name, gauges={"rdma_connections": rdma, "tcp_connections": tcp, "fallback_connections": fallback}
    )


def said(*servers: ServerMeasure, fs_type: str = "beegfs", **settings: int) -> Verdict:
    """Return the verdict of a save in which the thread waited for 19 of 20 s, over a link with room."""
    told: dict[str, Any] = {"mount_point": "/ckpt", "fs_type": fs_type, "source": "beegfs_nodev", "remote": True}
    mount = MountMeasure(**told, per_server=servers, settings={"connUseRDMA": 1, "rdma_interfaces": 0, **settings})
    at = thread(Level.TRACE, 20, data=19, copy=1)
    verdict = diagnose(save(Level.TRACE, 20, measured(at, mount=mount, links=(link(),)))).verdict
    assert verdict is not None
    return verdict


@pytest.mark.parametrize(
    ("servers", "settings"),
    [((node("storage1", rdma=8), node("storage2", tcp=4)), {}), ((node("storage2", tcp=4),), {"rdma_interfaces": 1})],
)
def test_a_fallback_is_told(servers: tuple[ServerMeasure, ...], settings: dict[str, int]) -> None:
    """Others are reached over RDMA, or it has an interface for that."""
    verdict = said(*servers, **settings)

    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "rdma-fallback")
    assert "1 storage server reached over TCP, although this client has RDMA: storage2" in verdict.evidence


@pytest.mark.parametrize(
    ("servers", "settings"),
    [
        ((node("storage1", rdma=8), node("storage2", rdma=8, tcp=1)), {}),
        ((node("storage1", tcp=8),), {}),
        ((node("storage1", tcp=8),), {"rdma_interfaces": 1, "connUseRDMA": 0}),
        ((node("storage1", tcp=8, fallback=8),), {}),
        ((node("storage1", tcp=8, fallback=8),), {"connUseRDMA": 0}),
        ((), {}),
    ],
)
def test_no_fallback_is_told_where_there_is_none(servers: tuple[ServerMeasure, ...], settings: dict[str, int]) -> None:
    """TCP is what a client without RDMA has, or one that is told not to use it, on whichever of its interfaces."""
    assert said(*servers, **settings).cause == "slow-server"


def test_of_many_servers_a_few_are_named() -> None:
    """So that a verdict stays one that can be read."""
    many = [node(f"storage{number}", tcp=4, fallback=4) for number in range(9)]
    assert any(one.endswith("storage3, ...") for one in said(*many, rdma_interfaces=1).evidence)


def played(root: Path, seconds: float, *, fallen: bool) -> Verdict:
    """Return the verdict of a save of 8 GiB to two servers; one of them may be reached over TCP from its begin on."""
    mount, now = MountInfo(50, 0, 50, "/", "/ckpt", "beegfs", "beegfs_nodev", None, None), 0.0
    fs = put(root, SERVER.format(1, 1, "RDMA", 1) + SERVER.format(2, 2, "RDMA", 2))
    (root / "proc/self").mkdir()
    (root / "proc/self/mountinfo").touch()
    collector = RemoteClientReader(fs, clock=lambda: now, cpu_seconds=float)
    collector.set_mounts([mount])
    stage = Stage(hz=10.0)
    trainer, end_s = stage.process(), BEGIN_S + seconds
    stage.write(trainer, "/ckpt/step_1.pt", BEGIN_S, seconds, 8 * GIB)
    key = (trainer.pid, trainer.info.start_ticks, trainer.pid, "python3")
    seen: list[tuple[float, Sample]] = [(0.05, mount)]
    seen.append((0.05, NicInfo("eth0", 25_000_000_000, True, "mlx5_core", True)))  # noqa: FBT003 - a struct of the collectors
    for tick in range(int((end_s + 6) * 10)):
        now = tick / 10
        if fallen and now == BEGIN_S:
            nodes = SERVER.format(1, 1, "RDMA", 1) + SERVER.format(2, 2, "TCP", 2).replace(")", " [fallback route])")
            (root / "proc/fs/beegfs/c1A2B-host/storage_nodes").write_text(nodes)
        part = min(max(0.0, now - BEGIN_S) / seconds, 1.0)
        sent = int(8 * GIB * (part + 0.02 * math.sin(12 * math.pi * part)))  # at the pace of a server, which is uneven
        seen += [(now, one) for one in collector.read() or ()]
        seen.append((now, NicSample("eth0", 0, 0, 0, 0, sent, 0, 0, 0)))
        if BEGIN_S <= now <= end_s:
            seen.append((now, ThreadSample(*key, tick * 1000, 0, tick // 50, tick // 50, 0, None, "D", 1, "")))
    collector.close()
    stage.extra = sorted(seen, key=lambda pair: pair[0])
    (found,) = stage.play(end_s + 10)
    verdict = diagnose(found).verdict
    assert verdict is not None
    return verdict


@pytest.mark.slow
def test_a_save_that_falls_back_to_tcp_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    """From the files of its client to a verdict with a remedy; over RDMA there is nothing to tell."""
    fell = played(tmp_path / "fell", 20.0, fallen=True)
    slow = played(tmp_path / "slow", 20.0, fallen=False)
    healthy = played(tmp_path / "healthy", 0.4, fallen=False)

    assert (fell.limit, fell.cause) == (Limit.SERVER, "rdma-fallback")
    assert "1 storage server reached over TCP, although this client has RDMA: storage2" in " ".join(fell.evidence)
    assert fell.remedy
    assert (slow.limit, slow.cause) == (Limit.SERVER, "slow-server")
    assert healthy.limit is Limit.NONE
