"""Saves that go straight to an object store, and all else that a process that trains sends to where one answers."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from tests.detect.sockets import AT_S, SIZE, STORE, TOOK_S, Ways, both, count, fetched, look, saved, tcp, told
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, Stage
from tests.detect.tracer import activity

from ckptprof.model import Kind, Level, Medium
from ckptprof_collectors.samples import Sample, SocketTraffic, TcpSample


def each(*sizes: float) -> Ways:
    """Return the same where each is so many times SIZE."""
    ways = [saved(int(size * SIZE), (10.3 + 10 * number,)) for number, size in enumerate(sizes)]
    return lambda now_s: tuple(map(sum, zip(*(by(now_s) for by in ways), strict=True)))  # type: ignore[return-value]


def federated(now_s: float) -> tuple[int, int]:
    """Return what was sent and came back by a time, where each state that is sent is answered by another one later."""
    (sent, _), (fetched, _) = saved()(now_s), saved(at_s=tuple(at_s + 5 for at_s in AT_S))(now_s)
    return sent, fetched


def test_saves_to_an_object_store_are_told() -> None:
    """They are saves as any, with no path, and where they went."""
    stage = Stage()
    look(stage, stage.process(), saved(), 40)
    found = told(stage)

    assert [one.kind for one in found] == [Kind.SAVE] * 3
    assert {one.medium for one in found} == {Medium.OBJECT}
    assert [one.bytes for one in found] == [SIZE] * 3
    assert {(one.path, one.files, one.step, one.framework) for one in found} == {(None, 0, None, None)}
    for one, at_s in zip(found, AT_S, strict=True):
        assert one.sent is not None
        assert [place.place for place in one.sent.destinations] == ["10.0.0.9:443"]
        assert one.sent.connections == 4
        assert one.measures is not None
        assert [(place.remote, place.relation) for place in one.measures.connections] == [(STORE[0], "server")]
        assert abs(one.start_ns - stage.wall(at_s)) <= SECOND_NS // 10
        assert abs(one.end_ns - stage.wall(at_s + TOOK_S)) <= SECOND_NS // 10


@pytest.mark.parametrize("by", ["calls", "looks"])
def test_a_save_is_over_once_its_last_part_was_answered(by: str) -> None:
    """Which takes a store its time; its last byte went earlier. Data may be fetched as soon as it is over."""
    stage = Stage()
    actor = stage.process()
    if by == "calls":
        for number, at_s in enumerate(AT_S):
            count(stage, actor, number, at_s)
    else:
        look(stage, actor, saved(came=0), 40)
    answers = []
    for number, at_s in enumerate(AT_S):
        answered_ns = MONOTONIC_NS + int((at_s + TOOK_S + 1.9) * SECOND_NS)
        last = next(one for told_s, one in reversed(stage.extra) if at_s < told_s < at_s + 5)
        assert isinstance(last, SocketTraffic | TcpSample)
        answer = {"received_ns": answered_ns, "bytes_received": 300 * (number + 1), "is_new": False}
        if isinstance(last, SocketTraffic):
            answer = {"received_ns": answered_ns, "received_bytes": last.received_bytes + 300}
        answers.append((at_s + TOOK_S + 2.0, msgspec.structs.replace(last, **answer)))
        data = SocketTraffic(
            pid=actor.pid, start_ticks=actor.info.start_ticks, remote="10.0.0.8", port=50_123, local_port=50_001,
            sockets=1, sent_bytes=0, received_bytes=(number + 1) * SIZE, sends=0, receives=number + 1,
            send_start_ns=None,
            sent_ns=None, receive_start_ns=answered_ns + SECOND_NS // 10, received_ns=answered_ns + SECOND_NS,
            parts=0, parts_bytes=0, part_bytes=None, answers=0, answers_bytes=0, tid=actor.pid,
        )  # fmt: skip
        answers.append((at_s + TOOK_S + 3.0, data))
    stage.extra += answers
    found = told(stage)

    assert len(found) == 3
    for one, at_s in zip(found, AT_S, strict=True):
        assert one.end_ns == stage.wall(at_s + TOOK_S + 1.9)
        assert one.moments.last_data_ns is not None
        assert abs(one.moments.last_data_ns - stage.wall(at_s + TOOK_S)) <= SECOND_NS // 10


@pytest.mark.parametrize("port", [80, 3128, 9000])
def test_where_object_stores_and_their_proxies_answer_saves_are_told(port: int) -> None:
    """On whatever host."""
    stage = Stage()
    look(stage, stage.process(), saved(), 40, port=port)
    assert len(told(stage)) == 3


def test_two_are_no_series() -> None:
    """Whatever is sent twice may be anything."""
    stage = Stage()
    look(stage, stage.process(), saved(at_s=AT_S[:2]), 40)
    assert told(stage) == []


@pytest.mark.parametrize(
    ("sizes", "saves"),
    [
        ((1, 1.05, 0.97, 1.02), 0),
        ((1, 1, 1.01, 1), 0),
        ((1, 1.001, 1.002), 3),
        ((0.34, 1, 1, 1), 3),
        ((1, 0.08, 1, 0.08, 1), 3),
        ((1.0217, 1.002, 1.0024, 1.002, 1.0013), 5),  # float32 with Adam by zlib, after 1, 100, ... 400 steps
    ],
    ids=["videos", "rows", "a-longer-history", "no-optimizer-yet", "pictures-between", "compressed"],
)
def test_a_state_has_one_size(sizes: tuple[float, ...], saves: int) -> None:
    """Its tensors are the same each time; what happens to be about as large as the last one is something else."""
    stage, until_s = Stage(), 10.0 * len(sizes) + 15
    look(stage, stage.process(), each(*sizes), until_s)
    assert len(told(stage, until_s)) == saves


def test_what_goes_to_three_ports_is_no_series() -> None:
    """Nothing says that it is of one kind."""
    stage = Stage()
    actor = stage.process()
    for port, at_s in zip((443, 9000, 8333), AT_S, strict=True):
        look(stage, actor, saved(at_s=(at_s,)), 40, port=port, remote=f"10.0.0.{port % 200}")
    assert told(stage) == []


def test_two_in_parts_are_told_where_sends_are_counted() -> None:
    """Exactly, however seldom anybody looks; the looks at the sockets tell of the same."""
    stage = Stage()
    actor = stage.process()
    look(stage, actor, saved(at_s=AT_S[:2]), 40)
    for number, at_s in enumerate(AT_S[:2]):
        count(stage, actor, number, at_s)
    found = told(stage)

    assert [(one.bytes, one.level) for one in found] == [(SIZE, Level.TRACE)] * 2
    assert [one.start_ns for one in found] == [stage.wall(at_s) for at_s in AT_S[:2]]
    assert [one.end_ns for one in found] == [stage.wall(at_s + TOOK_S) for at_s in AT_S[:2]]
    assert [(one.sent.connections, one.sent.parts) for one in found if one.sent is not None] == [(4, 7)] * 2


def test_what_was_counted_is_known_beside_a_thousand_others() -> None:
    """The trace keeps as many sums: what was sent before is not sent again."""
    stage = Stage()
    actor = stage.process()
    for number, at_s in enumerate(AT_S):
        count(stage, actor, number, at_s)
    _, sample = stage.extra[0]
    assert isinstance(sample, SocketTraffic)
    for at_s, place in itertools.product((8.0, 17.0, 27.0), range(1000)):
        other = f"10.1.{place // 250}.{place % 250}"
        stage.extra.append((at_s, msgspec.structs.replace(sample, pid=1, remote=other, sent_bytes=70_000)))

    assert [one.bytes for one in told(stage)] == [SIZE] * 3


def test_how_many_connections_were_open_at_once_calls_do_not_tell() -> None:
    """They are counted with all that have closed."""
    stage = Stage()
    actor = stage.process()
    for number, at_s in enumerate(AT_S):
        count(stage, actor, number, at_s)

    assert [one.sent.connections for one in told(stage) if one.sent is not None] == [None] * 3


def test_small_parts_are_no_upload_of_a_large_object() -> None:
    """Batches of a log; stores take none so small."""
    stage = Stage()
    actor = stage.process()
    for number, at_s in enumerate(AT_S[:2]):
        count(stage, actor, number, at_s, part_bytes=4 * MIB)
    assert told(stage) == []


def test_ranks_that_send_at_a_time_save_together() -> None:
    """One save, with both as writers."""
    stage = Stage()
    for pid in (100, 101):
        actor = stage.process(pid, environment={"RANK": str(pid - 100), "WORLD_SIZE": "2"}, cgroup="/job")
        look(stage, actor, saved(), 40)
    found = told(stage)

    assert [one.bytes for one in found] == [2 * SIZE] * 3
    assert {len(one.writers) for one in found} == {2}


def test_who_fetches_data_all_the_time_hides_no_save_of_another_rank() -> None:
    """Its requests go to a store as well, and have no pause."""
    stage = Stage()
    actors = [
        stage.process(pid, environment={"RANK": str(pid - 100), "WORLD_SIZE": "2"}, cgroup="/job") for pid in (100, 101)
    ]
    look(stage, actors[0], saved(), 40)
    look(stage, actors[1], lambda now_s: (int(now_s * 100_000), int(now_s * SIZE)), 40, remote="10.0.0.10")
    found = told(stage)

    assert [one.bytes for one in found] == [SIZE] * 3


def test_who_fetches_data_between_its_saves_is_told_them() -> None:
    """Over the same connections: what asks for data is no part of a save."""
    stage = Stage()
    look(stage, stage.process(), both(saved(), fetched(SIZE // 5, at_s=tuple(at_s - 3 for at_s in AT_S))), 40)
    found = told(stage)

    assert [one.bytes for one in found] == [SIZE] * 3
    for one, at_s in zip(found, AT_S, strict=True):
        assert abs(one.start_ns - stage.wall(at_s)) <= SECOND_NS // 10


def test_ranks_that_begin_at_a_time_save_together_however_long_the_first_one_takes() -> None:
    """One that begins two seconds later is over much earlier."""
    stage = Stage()
    for pid, size, offsets in ((100, SIZE, (0, 2, 4, 6)), (101, SIZE // 4, (2,))):
        actor = stage.process(pid, environment={"RANK": str(pid - 100), "WORLD_SIZE": "2"}, cgroup="/job")
        look(stage, actor, saved(size, tuple(at_s + offset for at_s in (5.3, 25.3, 45.3) for offset in offsets)), 65)
    found = told(stage, 65.0)

    assert [one.bytes for one in found] == [4 * SIZE + SIZE // 4] * 3


@pytest.mark.parametrize(
    ("by", "fields"),
    [
        (saved(), {"port": 40123}),
        (saved(), {"port": 29500}),
        (saved(), {"is_accepted": True}),
        (saved(came=1.0), {}),
        (federated, {}),
        (saved(size=4 * MIB), {}),
        (saved(at_s=tuple(range(4, 40, 2))), {}),
    ],
    ids=["a-rank", "a-meeting", "a-client", "gradients", "a-federation", "pictures", "no-pause"],
)
def test_what_else_is_sent_is_nothing(by: Ways, fields: dict[str, Any]) -> None:
    """Gradients, gathered states, answers to clients, pictures and logs."""
    stage = Stage()
    look(stage, stage.process(), by, 40, **fields)
    assert told(stage) == []


def test_what_is_answered_now_and_then_is_no_save_in_between() -> None:
    """Gradients go to a parameter server that is asked for its parameters with every third step only."""
    at_s = tuple(10.3 + 6 * step for step in range(9))

    def by(now_s: float) -> tuple[int, int]:
        return saved(at_s=at_s)(now_s)[0], sum(SIZE for begin_s in at_s[::3] if now_s > begin_s + TOOK_S + 0.3)

    stage = Stage()
    look(stage, stage.process(), by, 75)
    assert told(stage, 75.0) == []


@pytest.mark.parametrize(("port", "after_s"), [(STORE[1], 5.0), (50_123, 0.0)], ids=["a-federation", "gradients"])
def test_what_came_is_counted_where_nobody_sees_the_sockets(port: int, after_s: float) -> None:
    """A container has a network of its own: what else is sent is nothing there, either."""
    stage = Stage()
    actor = stage.process()
    for number, at_s in enumerate(AT_S):
        count(stage, actor, number, at_s)
    (_, sample), counted = stage.extra[0], [at_s + after_s + 1.5 for at_s in AT_S]
    assert isinstance(sample, SocketTraffic)
    for number, at_s in enumerate(counted, 1):
        told_ns = {"receive_start_ns": MONOTONIC_NS + int((at_s - 1) * SECOND_NS)}
        came = msgspec.structs.replace(
            sample, remote="10.0.0.8", port=port, sent_bytes=0, parts=0, received_bytes=number * SIZE, **told_ns
        )
        stage.extra.append((at_s, came))
    assert told(stage) == []


def test_who_trains_nothing_saves_nothing() -> None:
    """A program that uploads what it makes."""
    stage = Stage()
    look(stage, stage.process(runtimes=(), program="uploader.py"), saved(), 40)
    assert told(stage) == []


@pytest.mark.parametrize(("share", "saves"), [(0.3, 3), (0.7, 0)])
def test_an_upload_of_files_is_no_save(share: float, saves: int) -> None:
    """The process reads most of what it sends; who reads less reads something else."""
    stage = Stage()
    actor = stage.process()
    for number, at_s in enumerate(AT_S):
        stage.read(actor, f"/data/{number}.bin", at_s, TOOK_S, int(share * SIZE), kept=0.0)
    look(stage, actor, saved(), 40)
    assert len([one for one in told(stage) if one.medium is Medium.OBJECT]) == saves


@pytest.mark.parametrize(
    ("starts_s", "share", "saves"),
    [(tuple(at_s - 0.2 for at_s in AT_S), 1.0, 0), (tuple(at_s - 0.2 for at_s in AT_S), 0.3, 3), ((2.0,), 4.0, 3)],
    ids=["an-upload", "something-beside", "a-data-set-that-was-mapped-before"],
)
def test_an_upload_out_of_mappings_is_no_save(starts_s: tuple[float, ...], share: float, saves: int) -> None:
    """No call reads it: the pages that it touches tell."""
    stage = Stage()
    actor = stage.process()
    for number, at_s in enumerate(starts_s):
        unmapped_s = at_s + TOOK_S + 0.5 if share <= 1 else 40.0
        stage.map(actor, f"/data/{number}.bin", at_s, TOOK_S, int(share * SIZE), unmapped_s=unmapped_s)
    look(stage, actor, saved(), 40)
    assert len([one for one in told(stage) if one.medium is Medium.OBJECT]) == saves


def test_a_save_to_files_that_is_sent_as_well_is_told_once() -> None:
    """By its files, which have names."""
    stage = Stage()
    actor = stage.process()
    for number, at_s in enumerate(AT_S):
        stage.write(actor, f"/ckpt/step_{number}.pt", at_s - 1, 0.8, SIZE)
    look(stage, actor, saved(), 40)
    found = told(stage)

    assert {one.medium for one in found} == {Medium.FILE}
    assert len(found) == 3


def test_a_save_to_files_that_only_the_trace_saw_is_told_once_too() -> None:
    """Nobody met a file open; its writes were counted."""
    stage = Stage()
    actor = stage.process()
    look(stage, actor, saved(), 40)
    for number, at_s in enumerate(AT_S):
        count(stage, actor, number, at_s)
        path, inode = f"/ckpt/step_{number}.pt", 70 + number
        stage.extra.append((at_s - 0.2, activity(actor.pid, path, at_s - 0.4, at_s - 0.25, SIZE, inode=inode)))
    found = told(stage)

    assert {one.medium for one in found} == {Medium.FILE}
    assert len(found) == 3


def test_what_an_unlooked_connection_did_before_is_not_known() -> None:
    """It had sent much when the watch began."""
    stage = Stage()
    actor, samples = stage.process(), list[tuple[float, Sample]]()
    samples += [(1.0, tcp(actor, lambda _: (900 * MIB, 0), 1.0)), (2.0, tcp(actor, lambda _: (901 * MIB, 0), 2.0))]
    stage.extra += samples
    assert told(stage) == []


@pytest.mark.parametrize(("port", "is_served", "saves"), [(40123, False, 3), (40123, True, 0), (5432, False, 0)])
def test_a_store_on_this_host_may_be_at_any_port(port: int, *, is_served: bool, saves: int) -> None:
    """But not where another process that trains is called: ranks meet at ports of the kernel. Nor a database."""
    stage = Stage()
    here = {"remote": "127.0.0.1", "local": "127.0.0.1", "port": port}
    look(stage, stage.process(), saved(), 40, **here)
    if is_served:
        look(stage, stage.process(101), lambda now_s: saved()(now_s)[::-1], 40, is_accepted=True, **here)
    assert len(told(stage)) == saves
