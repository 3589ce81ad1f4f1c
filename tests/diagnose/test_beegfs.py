"""RDMA of BeeGFS that fell back to TCP is the cause of a network or a server that is too slow."""

from __future__ import annotations

from typing import Any

import pytest
from tests.diagnose.hand import link, measured, save, thread

from ckptprof.diagnose.judging import diagnose
from ckptprof.measures import MountMeasure, ServerMeasure
from ckptprof.model import Level
from ckptprof.verdicts import Limit, Verdict


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
    [
        ((node("storage1", rdma=8), node("storage2", tcp=4)), {}),
        ((node("storage2", tcp=4),), {"rdma_interfaces": 1}),
    ],
)
def test_a_fallback_is_told(servers: tuple[ServerMeasure, ...], settings: dict[str, int]) -> None:
    """Others are reached over RDMA, or it has an interface for that."""
    verdict = said(*servers, **settings)

    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "rdma-fallback")
    assert "1 storage server reached over TCP, though this client has RDMA: storage2" in verdict.evidence


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
    """And of another file system none."""
    many = [node(f"storage{number}", tcp=4, fallback=4) for number in range(9)]
    assert any(one.endswith("storage3, ...") for one in said(*many, rdma_interfaces=1).evidence)
    assert said(*many, fs_type="gpfs", rdma_interfaces=1).cause == "slow-server"
