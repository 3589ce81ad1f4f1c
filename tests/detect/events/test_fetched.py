"""Restores from an object store, told by what was saved before or is saved later, and what else comes from there."""

from __future__ import annotations

import pytest
from tests.detect.sockets import AT_S, SIZE, STORE, TOOK_S, Ways, both, count, fetched, look, saved, told
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, Actor, Stage

from ckptprof.model import Checkpoint, Kind, Level, Medium
from ckptprof_collectors.samples import SocketTraffic

AGAIN_S = 43.3  # when a second run fetches
NEVER: tuple[float, ...] = ()


def kinds(found: list[Checkpoint]) -> list[str]:
    """Return what was told, in order of time."""
    return [one.kind.value for one in found]


def restarted(second: Ways, *, saves_at_s: tuple[float, ...] = AT_S, before: Ways | None = None) -> list[Checkpoint]:
    """Return what is told of a run that saves, and fetches something `before`, and of a second one of its program."""
    stage = Stage()
    saves = saved(at_s=saves_at_s)
    look(stage, stage.process(exit_s=36.0), saves if before is None else both(before, saves), 35)
    look(stage, stage.process(200, born_s=38.0), second, 60)
    return told(stage, 60.0)


def counted(stage: Stage, actor: Actor, at_s: float, size: int = SIZE) -> None:
    """Let the trace count a restore: it is told meanwhile, and once it has come to rest."""
    for share, after_s in ((0.4, 1.0), (0.9, 1.8), (1.0, 2.2), (1.0, 3.3)):
        came = int(share * size)
        sample = SocketTraffic(
            pid=actor.pid, start_ticks=actor.info.start_ticks, remote=STORE[0], port=STORE[1], local_port=50_000,
            sockets=4, sent_bytes=7000, received_bytes=came, sends=7, receives=came >> 14,
            send_start_ns=MONOTONIC_NS + int((at_s - 0.01) * SECOND_NS), sent_ns=MONOTONIC_NS + int((at_s + 1) *
            SECOND_NS),
            receive_start_ns=MONOTONIC_NS + int(at_s * SECOND_NS),
            received_ns=MONOTONIC_NS + int((at_s + share * TOOK_S) * SECOND_NS),
            parts=0, parts_bytes=0, part_bytes=None, answers=came // (8 * MIB),
            answers_bytes=came // (8 * MIB) * 8 * MIB, tid=actor.pid,
        )  # fmt: skip
        stage.extra.append((at_s + after_s, sample))


def test_a_second_run_restores_what_the_first_one_saved() -> None:
    """It is as large, and comes as it begins; whence it came is told, and no name."""
    found = restarted(fetched(at_s=(AGAIN_S,)))
    *_, restore = found

    assert kinds(found) == ["save"] * 3 + ["restore"]
    assert (restore.medium, restore.path, restore.files, restore.bytes) == (Medium.OBJECT, None, 0, SIZE)
    assert restore.sent is not None
    assert [(place.place, place.bytes) for place in restore.sent.destinations] == [("10.0.0.9:443", SIZE)]
    assert (restore.durable_ns, restore.mode, restore.cache) == (None, None, None)
    assert any(reason.name == "read-again" for reason in restore.evidence)
    assert not any("page cache" in sentence for sentence in restore.limitations)


def test_where_calls_are_counted_a_restore_is_exact() -> None:
    """In its edges, and in how many answers it came; of the last answer nobody knows that it is over."""
    stage = Stage()
    first = stage.process(exit_s=36.0)
    for number, at_s in enumerate(AT_S):
        count(stage, first, number, at_s)
    counted(stage, stage.process(200, born_s=38.0), AGAIN_S)
    *saves, restore = told(stage, 60.0)

    assert kinds(saves) == ["save"] * 3
    assert (restore.kind, restore.level, restore.bytes) == (Kind.RESTORE, Level.TRACE, SIZE)
    assert restore.start_ns == stage.wall(AGAIN_S)
    assert restore.end_ns == stage.wall(AGAIN_S + TOOK_S)
    assert restore.sent is not None
    assert (restore.sent.parts, restore.sent.part_bytes) == (6, 8 * MIB)


def test_two_saves_and_the_restore_of_the_second_are_told_together() -> None:
    """Too few for a series: but nobody fetches back what was no state."""
    found = restarted(fetched(at_s=(AGAIN_S,)), saves_at_s=AT_S[:2])
    assert kinds(found) == ["save"] * 2 + ["restore"]


@pytest.mark.parametrize("saves_at_s", [(10.3,), AT_S[:2], AT_S], ids=["one", "two", "three"])
def test_what_came_first_was_a_restore_if_as_much_is_saved_later(saves_at_s: tuple[float, ...]) -> None:
    """And who went on from it saves it, if only once: that is known when its run is over."""
    stage = Stage()
    look(stage, stage.process(exit_s=50.0), both(fetched(), saved(at_s=saves_at_s)), 50)
    found = told(stage, 60.0)

    assert kinds(found) == ["restore"] + ["save"] * len(saves_at_s)
    assert {one.medium for one in found} == {Medium.OBJECT}


def test_a_job_that_saves_to_files_may_have_restored_from_a_store() -> None:
    """Another node's, say."""
    stage = Stage()
    actor = stage.process()
    stage.write(actor, "/ckpt/step_20.pt", 20.0, 0.8, SIZE)
    look(stage, actor, fetched(), 40)
    found = told(stage)

    assert [(one.kind, one.medium) for one in found] == [(Kind.RESTORE, Medium.OBJECT), (Kind.SAVE, Medium.FILE)]


@pytest.mark.parametrize(("factor", "sent"), [(1.0, 1), (0.98, 0), (1.03, 0)])
def test_the_size_of_a_state_in_files_tells_one_that_is_sent_once(factor: float, sent: int) -> None:
    """The last one, say, which is to be kept; pictures are nearly as large by chance, too."""
    stage = Stage()
    actor = stage.process(exit_s=75.0)
    for number in range(3):
        stage.write(actor, f"/ckpt/step_{number}.pt", 5.0 + 8 * number, 0.8, SIZE)
    look(stage, actor, saved(int(factor * SIZE), at_s=(60.3,)), 75)
    found = told(stage, 80.0)

    assert [one.medium for one in found] == [Medium.FILE] * 3 + [Medium.OBJECT] * sent


def test_of_many_sizes_one_is_that_of_a_state_by_chance() -> None:
    """Videos of evaluations, by a run that saves to files."""
    stage = Stage()
    actor = stage.process(exit_s=75.0)
    for number in range(3):
        stage.write(actor, f"/ckpt/step_{number}.pt", 5.0 + 8 * number, 0.8, SIZE)
    videos = (saved(int(share * SIZE), at_s=(40.3 + 8 * number,)) for number, share in enumerate((1.3, 1.0, 0.8)))
    look(stage, actor, both(*videos), 75)

    assert [one.medium for one in told(stage, 80.0)] == [Medium.FILE] * 3


def test_what_comes_from_elsewhere_is_no_state_that_was_sent() -> None:
    """It is as large by chance."""
    stage = Stage()
    look(stage, stage.process(exit_s=36.0), saved(), 35)
    look(stage, stage.process(200, born_s=38.0), fetched(at_s=(AGAIN_S,)), 60, port=9000)

    assert kinds(told(stage, 60.0)) == ["save"] * 3


@pytest.mark.parametrize(("factor", "restores"), [(1.0, 1), (0.98, 0), (1.02, 0)])
def test_what_an_earlier_run_saved_to_files_may_come_from_a_store(factor: float, restores: int) -> None:
    """Somebody has brought it there, to the byte."""
    stage = Stage()
    first = stage.process(exit_s=36.0)
    for number in range(3):
        stage.write(first, f"/ckpt/step_{number}.pt", 5.0 + 8 * number, 0.8, SIZE)
    fetch = fetched(int(factor * SIZE), at_s=(AGAIN_S,))
    look(stage, stage.process(200, born_s=38.0), fetch, 60)

    assert kinds(told(stage, 60.0)) == ["save"] * 3 + ["restore"] * restores


@pytest.mark.parametrize("more", [6 * MIB, 60 * MIB, 100 * MIB])
def test_a_state_and_what_its_reader_fetches_ahead_is_restored(more: int) -> None:
    """By s3fs of fsspec 50 MiB, and torch.load begins three times; data had come in the first run, too."""
    fetch = fetched(SIZE + more, at_s=(AGAIN_S,))
    *saves, restore = restarted(fetch)
    data = restarted(fetch, before=fetched(SIZE + more))

    assert kinds(saves) == kinds(data) == ["save"] * 3
    assert (restore.kind, restore.bytes) == (Kind.RESTORE, SIZE + more)


@pytest.mark.parametrize(("factor", "restores"), [(2.9, 1), (3.3, 0)])
def test_nobody_fetches_a_small_state_more_than_three_times(factor: float, restores: int) -> None:
    """What is fetched ahead is no more than there is."""
    size, stage = 20 * MIB, Stage()
    look(stage, stage.process(exit_s=36.0), saved(size), 35)
    look(stage, stage.process(200, born_s=38.0), fetched(int(factor * size), at_s=(AGAIN_S,)), 60)

    assert kinds(told(stage, 60.0)) == ["save"] * 3 + ["restore"] * restores


@pytest.mark.parametrize("factor", [0.5, 0.9, 3.5])
def test_what_is_no_state_by_its_size_is_nothing(factor: float) -> None:
    """Neither what a second run fetches, nor what the first one sends once."""
    assert kinds(restarted(fetched(int(factor * SIZE), at_s=(AGAIN_S,)))) == ["save"] * 3


@pytest.mark.parametrize(
    ("sent", "to", "restores"),
    [
        ((1.0, 1.0), {}, 1),
        ((0.3, 1.0, 0.3, 1.0), {}, 1),
        ((1.0, 1.0), {"port": 9000}, 0),
        ((1.0,), {}, 0),
        ((1.3, 1.0, 0.8, 1.0), {}, 0),
    ],
    ids=["two-saves", "pictures-beside-them", "to-somewhere-else", "once", "videos"],
)
def test_what_was_sent_twice_tells_a_restore_if_it_may_be_a_state(
    sent: tuple[float, ...], to: dict[str, int], restores: int
) -> None:
    """From where it went, and if no other size went there: what is sent once may be as large by chance."""
    stage, first = Stage(), both(*(saved(int(share * SIZE), (5.3 + 8 * n,)) for n, share in enumerate(sent)))
    look(stage, stage.process(exit_s=36.0), first, 35, **to)
    look(stage, stage.process(200, born_s=38.0), fetched(at_s=(AGAIN_S,)), 60)
    assert kinds(told(stage, 60.0)) == ["save", "save", "restore"] * restores


def test_ranks_that_fetch_all_of_it_each_restore_together() -> None:
    """The first one saved for all."""
    stage = Stage()
    first = stage.process(exit_s=36.0)
    look(stage, first, saved(), 35)
    for pid in (200, 201):
        actor = stage.process(pid, born_s=38.0, environment={"RANK": str(pid - 200), "WORLD_SIZE": "2"}, cgroup="/job")
        look(stage, actor, fetched(at_s=(AGAIN_S,)), 60)
    *saves, restore = told(stage, 60.0)

    assert kinds(saves) == ["save"] * 3
    assert (restore.kind, restore.bytes, len(restore.writers)) == (Kind.RESTORE, 2 * SIZE, 2)


def federated(now_s: float) -> tuple[int, int]:
    """Return what was sent and came by a time: each state that is fetched is sent back, and the next one fetched."""
    return both(fetched(at_s=(3.3, 17.3, 31.3)), saved(at_s=(10.3, 24.3)))(now_s)


def streamed(now_s: float) -> tuple[int, int]:
    """Return what was sent and came by a time, of a data set in shards, one of which is as large as its states."""
    return both(fetched(at_s=(3.3, 17.3, 24.3, 31.3)), saved(at_s=(10.3,)))(now_s)


@pytest.mark.parametrize(
    "by",
    [
        federated,
        streamed,
        fetched(),
        fetched(at_s=tuple(range(3, 50, 6))),
        both(fetched(SIZE // 3), saved(at_s=(10.3,))),
    ],
    ids=["a-federation", "a-data-set-and-one-save", "a-model", "a-data-set", "another-size"],
)
def test_what_else_comes_is_nothing(by: Ways) -> None:
    """Nor what is sent beside it."""
    stage = Stage()
    look(stage, stage.process(exit_s=50.0), by, 50)
    assert told(stage, 60.0) == []


@pytest.mark.parametrize("at_s", [(0.3, 5.3), (3.3, 7.3)], ids=["piece-by-piece", "in-one"])
def test_a_data_set_hides_no_save(at_s: tuple[float, ...]) -> None:
    """Whatever came first of it."""
    stage = Stage()
    look(stage, stage.process(exit_s=50.0), both(fetched(SIZE, at_s=at_s), saved()), 50)
    assert kinds(told(stage, 60.0)) == ["save"] * 3


def test_what_workers_fetch_in_each_run_is_a_data_set() -> None:
    """Of more than a state, which a rank saves: a reader that fetches ahead would fetch as much."""
    stage = Stage()
    for pid, born_s, exit_s, at_s in ((100, -5.0, 36.0, 2.3), (200, 38.0, None, AGAIN_S)):
        rank = stage.process(pid, born_s=born_s, exit_s=exit_s)
        worker = stage.process(pid + 1, born_s=born_s, exit_s=exit_s, parent_pid=pid)
        look(stage, rank, saved(at_s=AT_S if pid == 100 else NEVER), 60 if exit_s is None else 35)
        look(stage, worker, fetched(SIZE * 3 // 2, at_s=(at_s,)), 60 if exit_s is None else 35)

    assert kinds(told(stage, 60.0)) == ["save"] * 3


def test_who_downloads_does_not_restore() -> None:
    """What is read of the file later does."""
    stage = Stage()
    look(stage, stage.process(exit_s=36.0), saved(), 35)
    actor = stage.process(200, born_s=38.0)
    stage.write(actor, "/tmp/download", AGAIN_S + 0.1, TOOK_S, SIZE, magic=None)
    look(stage, actor, fetched(at_s=(AGAIN_S,)), 60)
    assert [one.medium for one in told(stage, 60.0)][:3] == [Medium.OBJECT] * 3
    assert not [one for one in told(stage, 60.0)[3:] if one.medium is Medium.OBJECT]


def test_another_program_restores_nothing() -> None:
    """It fetches what it wants."""
    stage = Stage()
    look(stage, stage.process(exit_s=36.0), saved(), 35)
    look(stage, stage.process(200, born_s=38.0, program="other.py"), fetched(at_s=(AGAIN_S,)), 60)
    assert kinds(told(stage, 60.0)) == ["save"] * 3


def test_who_sends_as_much_meanwhile_does_not_restore() -> None:
    """Ranks exchange states as they begin, too, over whatever port."""
    assert kinds(restarted(both(fetched(at_s=(AGAIN_S,)), saved(at_s=(AGAIN_S,))))) == ["save"] * 3


def test_what_a_worker_of_the_run_that_goes_on_fetches_is_no_restore() -> None:
    """It was born later and fetches about as much as a state: but a run that trains has its state."""
    stage = Stage()
    rank = stage.process(100, environment={"RANK": "0", "WORLD_SIZE": "1"})
    look(stage, rank, saved(), 40)
    worker = stage.process(200, environment={"RANK": "0", "WORLD_SIZE": "1"}, born_s=38.0, parent_pid=100)
    look(stage, worker, fetched(int(SIZE * 1.04), at_s=(AGAIN_S,)), 60)

    assert kinds(told(stage, 60.0)) == ["save"] * 3
