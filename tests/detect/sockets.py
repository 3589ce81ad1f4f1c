"""What a sampler tells of connections with an object store, by looks at them or as calls are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, Actor, Stage, play

from ckptprof.model import Checkpoint
from ckptprof_collectors.samples import SocketTraffic, TcpSample

STORE = ("10.0.0.9", 443)
SIZE = 50 * MIB
AT_S = (10.3, 20.3, 30.3)
TOOK_S = 2.0
Ways = Callable[[float], tuple[int, int]]


def saved(size: int = SIZE, at_s: tuple[float, ...] = AT_S, *, came: float = 0.001, took_s: float = TOOK_S) -> Ways:
    """Return what was sent and came back by a time, of a connection over which something goes now and then."""

    def by(now_s: float) -> tuple[int, int]:
        sent = sum(int(size * min(max(0.0, now_s - begin_s), took_s) / took_s) for begin_s in at_s)
        return sent, int(came * sent)

    return by


def fetched(size: int = SIZE, at_s: tuple[float, ...] = (3.3,)) -> Ways:
    """Return what was sent and came by a time, of a connection from which something is fetched now and then."""
    sent = saved(size, at_s)
    return lambda now_s: sent(now_s)[::-1]


def both(*ways: Ways) -> Ways:
    """Return what was sent and came by a time, of a connection over which several things go."""

    def by(now_s: float) -> tuple[int, int]:
        moved = [one(now_s) for one in ways]
        return sum(sent for sent, _ in moved), sum(came for _, came in moved)

    return by


def tcp(actor: Actor, by: Ways, at_s: float, **more: Any) -> TcpSample:
    """Return an endpoint as it stands."""
    sent, came = by(at_s)
    told: dict[str, Any] = {
        "remote": STORE[0], "port": STORE[1], "is_accepted": False, "local": "10.0.0.2", "interfaces": ("eth0",),
        "pid": actor.pid, "start_ticks": actor.info.start_ticks, "sockets": 4, "bytes_acked": sent,
        "bytes_received": came, "bytes_retrans": 0, "busy_us": 0, "rwnd_limited_us": 0, "sndbuf_limited_us": 0,
        "rtt_us": 800, "min_rtt_us": 400, "delivery_rate": None,
    }  # fmt: skip
    return TcpSample(**{**told, **more})


def look(stage: Stage, actor: Actor, by: Ways, until_s: float, *, every_s: float = 1.0, **more: Any) -> None:
    """Let a sampler look at the endpoint from time to time; what did not change is not told."""
    before: tuple[int, int] | None = None
    for tick in range(1, int(until_s / every_s)):
        at_s = tick * every_s
        if by(at_s) != before:
            hundredths = range(int(at_s * 100), 0, -1)
            last = next((one for one in hundredths if by(one / 100) != by(one / 100 - 0.01)), 0)
            sample = tcp(actor, by, at_s, sent_ns=MONOTONIC_NS + last * 10_000_000, is_new=before is None, **more)
            stage.extra.append((at_s, sample))
        before = by(at_s)


def count(stage: Stage, actor: Actor, number: int, at_s: float, *, part_bytes: int = 8 * MIB) -> None:
    """Let the trace count a save of SIZE in parts; its bytes are told twice meanwhile, and once all is answered."""
    for share, after_s in ((0.4, 1.0), (0.9, 1.8), (1.0, 2.2), (1.0, 3.0)):
        is_answered = after_s > TOOK_S + 0.5
        sent, whole = int((number + share) * SIZE), -(-SIZE // part_bytes)
        parts = number * whole + (whole if is_answered else int(share * SIZE) // part_bytes)
        sample = SocketTraffic(
            pid=actor.pid, start_ticks=actor.info.start_ticks, remote=STORE[0], port=STORE[1], local_port=50_000,
            sockets=4, sent_bytes=sent, received_bytes=1000 * parts, sends=sent >> 14, receives=parts,
            send_start_ns=MONOTONIC_NS + int(at_s * SECOND_NS), sent_ns=MONOTONIC_NS + int((at_s + share * 2) *
            SECOND_NS),
            receive_start_ns=None, received_ns=None, parts=parts, answers=0, answers_bytes=0, tid=actor.pid,
            parts_bytes=sent if is_answered else parts * part_bytes, part_bytes=part_bytes,
        )  # fmt: skip
        stage.extra.append((at_s + after_s, sample))


def told(stage: Stage, until_s: float = 40.0, *, every_s: float = 1.0) -> list[Checkpoint]:
    """Return what is told; the connections were looked at so often."""
    stage.extra.sort(key=lambda pair: pair[0])
    frames = [
        msgspec.structs.replace(frame, read=(*frame.read, "tcp")) if index % round(25 * every_s) == 0 else frame
        for index, frame in enumerate(stage.frames(until_s))
    ]
    return play(stage.header(), frames)
