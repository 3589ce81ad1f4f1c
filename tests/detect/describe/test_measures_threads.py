"""What each thread of a save did: exact times in calls by the trace, counters interpolated, looks counted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.detect.observed import books
from tests.detect.stage import MIB, SECOND_NS, Stage, play
from tests.detect.tracer import activity, life, mono

from ckptprof.detect.tolerances import MAX_PER_ITEM
from ckptprof.detect.world.thread_histories import ThreadHistories
from ckptprof.measures import Measures, ThreadMeasure
from ckptprof.model import Checkpoint
from ckptprof_collectors.samples import Frame, Sample, ThreadSample

WRITE, FSYNC, CLOSE, FUTEX, SLEEP = 1, 74, 3, 202, 230
MS = 1_000_000
TEMPORARY = "/ckpt/step_1.pt.tmp"


def look(at_s: float, *, pid: int = 100, tid: int | None = None, cpu_s: float = 0.0, waited_s: float = 0.0,
         user: float = 0.5, call: int | None = -1, state: str = "R", **fields: Any) -> ThreadSample:  # fmt: skip
    """Return a look; `user`: the share of its CPU time outside the kernel."""
    described: dict[str, Any] = {
        "pid": pid, "start_ticks": pid * 10, "tid": pid if tid is None else tid, "comm": "python3",
        "on_cpu_ns": int(cpu_s * SECOND_NS), "waited_ns": int(waited_s * SECOND_NS),
        "user_ticks": round(cpu_s * user * 100), "system_ticks": round(cpu_s * (1 - user) * 100), "major_faults": 0,
        "block_delay_ticks": None, "state": state, "call": call, "wait": "" if state == "R" else None,
        "at_ns": mono(at_s),
    }  # fmt: skip
    return ThreadSample(**{**described, **fields})


def told(checkpoint: Checkpoint) -> Measures:
    """Return its measures."""
    assert checkpoint.measures is not None
    return checkpoint.measures


def with_samples(stage: Stage, until_s: float, *samples: tuple[float, Sample]) -> list[Checkpoint]:
    """Return the checkpoints of a stage to whose frames other samples were added."""
    frames = []
    before_ns = 0
    for frame in stage.frames(until_s):
        more = [sample for at_s, sample in samples if before_ns < mono(at_s) <= frame.at_ns]
        read = (*frame.read, "trace", "disks", "nics", "memory")
        frames.append(Frame(frame.at_ns, frame.wall_ns, read, (*frame.samples, *more)))
        before_ns = frame.at_ns
    return play(stage.header(), frames)


def traced_stage() -> Stage:
    """Return a traced process that is described, and does what the test adds."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    return stage


def test_the_calls_of_a_thread_are_exact_and_within_its_span() -> None:
    """Created at 2.0, written from 2.1 to 4, synced until 5, closed and renamed until 5.2."""
    wrote = activity(100, TEMPORARY, 2.1, 4.0, 200 * MIB, call_ns=1_200 * MS, closed=False)
    (save,) = with_samples(
        traced_stage(), 12,
        (2.0, life("created", 2.0, duration_s=0.02, path=TEMPORARY)),
        (4.0, wrote),
        (5.0, life("synced", 5.0, duration_s=0.9, path=TEMPORARY)),
        (5.1, life("closed-written", 5.1, duration_s=0.08, path=TEMPORARY)),
        (5.1, msgspec.structs.replace(wrote, closed_ns=mono(5.1))),
        (5.2, life("renamed", 5.2, inode=None, duration_s=0.05, path=TEMPORARY, new_path="/ckpt/step_1.pt")),
    )  # fmt: skip

    (thread,) = told(save).threads
    assert (thread.bytes, thread.operations, thread.files, thread.tid) == (200 * MIB, 200, 1, 100)
    assert (thread.data_call_ns, thread.read_bytes) == (1_200 * MS, 0)
    assert thread.sync_call_ns == pytest.approx(900 * MS, rel=1e-6)
    assert thread.close_call_ns == pytest.approx(80 * MS, rel=1e-6)
    assert thread.rename_call_ns == pytest.approx(50 * MS, rel=1e-6)
    assert (thread.syncs, thread.closes, thread.creates, thread.renames, thread.unlinks) == (1, 1, 1, 1, 0)
    assert thread.end_ns - thread.start_ns == pytest.approx(3_200 * MS, abs=20 * MS)
    assert thread.unlink_call_ns == 0
    assert (thread.on_cpu_ns, thread.samples, thread.samples_by_state) == (None, None, None)


@pytest.mark.parametrize(("kind", "created"), [("emptied", 0), ("created", 1)])
def test_the_opening_of_its_file_is_the_first_of_a_save(kind: str, created: int) -> None:
    """Training stood still for that, too: to cut off what was in it, or until an NFS server had it."""
    (save,) = with_samples(
        traced_stage(), 12,
        (3.0, life(kind, 3.0, duration_s=1.0, path="/ckpt/last.pt")),
        (4.0, activity(100, "/ckpt/last.pt", 3.1, 4.0, 200 * MIB)),
    )  # fmt: skip

    (thread,) = told(save).threads
    assert save.end_ns - save.start_ns == pytest.approx(2_000 * MS, abs=20 * MS)
    assert thread.create_call_ns == pytest.approx(1_000 * MS, rel=1e-6)
    assert (thread.creates, save.metadata.created) == (created, created)


def of_one_thread(looks: list[ThreadSample], *, start_s: float = 2.0, end_s: float = 4.0) -> ThreadMeasure:
    """Return what is told of a thread that wrote from one time to another."""
    wrote = activity(100, "/ckpt/step_1.pt", start_s, end_s, 200 * MIB, call_ns=100 * MS)
    samples = [((one.at_ns or 0) / SECOND_NS - 5000 + 0.001, one) for one in looks]
    (save,) = with_samples(traced_stage(), 12, (end_s, wrote), *samples)
    (thread,) = told(save).threads
    return thread


def test_counters_are_interpolated_to_the_span_of_the_thread() -> None:
    """Looked at from before its first act to after its last one, out of step with it."""
    looks = [look(at / 10 + 0.03, cpu_s=at / 10 * 0.6, waited_s=at / 10 * 0.1, user=0.75) for at in range(100)]

    thread = of_one_thread(looks)

    assert thread.on_cpu_ns == pytest.approx(1_200 * MS, rel=0.02)
    assert thread.runqueue_ns == pytest.approx(200 * MS, rel=0.02)
    assert thread.user_ns == pytest.approx(900 * MS, rel=0.04)
    assert (thread.user_ns or 0) + (thread.system_ns or 0) == pytest.approx(thread.on_cpu_ns, abs=2)
    assert thread.block_delay_ns is None
    assert (thread.samples, thread.samples_by_state) == (20, {"running": 20})


def test_a_thread_that_began_in_the_save_began_at_nothing() -> None:
    """Others of its process were looked at before: it was not there."""
    looks = [look(at / 10, tid=100, cpu_s=9.0) for at in range(10, 60)]
    looks += [look(at / 10, tid=107, cpu_s=(at - 22) / 10) for at in range(23, 41)]
    book = ThreadHistories()
    for one in looks:
        book.observe(0, one)

    used = book.usage((100, 1000), 107, mono(2.2), mono(4.0))

    assert used is not None
    assert used.on_cpu_ns == pytest.approx(1_800 * MS, rel=0.01)


def test_a_thread_that_has_run_for_longer_than_the_save_did_not_begin_in_it() -> None:
    """A worker of training that was looked at late: what it used before is none of the save's."""
    book = ThreadHistories()
    for one in [look(at / 10, tid=100, cpu_s=9.0) for at in range(10, 60)]:
        book.observe(0, one)
    for at in range(25, 41):
        book.observe(0, look(at / 10, tid=107, cpu_s=3.0 + (at - 25) * 0.001))

    used = book.usage((100, 1000), 107, mono(2.2), mono(4.0))

    assert used is not None
    assert used.on_cpu_ns == pytest.approx(18 * MS, rel=0.05)


def test_a_sample_stands_for_the_time_since_the_one_before() -> None:
    """Half a second of writes, sampled each 50 ms, then two of sleep, sampled each 250."""
    book = ThreadHistories()
    for one in range(10):
        book.observe(0, look(1.05 + one / 20, call=WRITE, state="D"))
    for one in range(8):
        book.observe(0, look(1.75 + one / 4, call=SLEEP, state="S"))

    used = book.usage((100, 1000), 100, mono(1.0), mono(3.5))

    assert used is not None
    assert (used.samples, used.samples_by_state) == (18, {"data": 3, "sleep": 15})


def test_of_a_span_that_was_hardly_looked_at_nothing_is_told() -> None:
    """Half of it is scaled, a tenth is not; and a short run of ticks does not tell user from kernel."""
    book = ThreadHistories()
    for at in range(10):
        book.observe(0, look(3.5 + at / 18, cpu_s=at / 180))

    assert book.usage((100, 1000), 100, mono(0.0), mono(4.0)) is None
    half = book.usage((100, 1000), 100, mono(3.0), mono(4.0))
    assert half is not None
    assert half.on_cpu_ns == pytest.approx(100 * MS, rel=0.01)
    brief = book.usage((100, 1000), 100, mono(3.6), mono(3.7))
    assert brief is not None
    assert (brief.user_ns, brief.system_ns) == (None, None)
    longer = book.usage((100, 1000), 100, mono(3.6), mono(4.0))
    assert longer is not None
    assert longer.user_ns == longer.system_ns == pytest.approx(20 * MS, rel=0.01)
    assert book.usage((100, 1000), 5, mono(3.0), mono(4.0)) is None
    assert book.usage((100, 1000), 100, mono(4.0), mono(4.0)) is None


def test_without_schedstat_ticks_are_all_there_is() -> None:
    """Kernels without CONFIG_SCHED_INFO."""
    looks = [look(at / 10, cpu_s=at / 10, user=0.5, on_cpu_ns=None, waited_ns=None) for at in range(100)]

    thread = of_one_thread(looks)

    assert (thread.on_cpu_ns, thread.runqueue_ns) == (None, None)
    assert thread.user_ns == pytest.approx(1_000 * MS, rel=0.03)


def test_looks_that_were_not_permitted_count_for_nothing() -> None:
    """Who may not see calls sees no call; delay accounting is told where it is kept."""
    looks = [look(at / 10, state="S", call=None if at % 2 else FSYNC, block_delay_ticks=at * 5) for at in range(100)]

    thread = of_one_thread(looks)

    assert thread.samples_by_state == {"sync": thread.samples}
    assert thread.samples == pytest.approx(10, abs=1)
    assert thread.block_delay_ns == pytest.approx(1_000 * MS, rel=0.02)


def test_what_was_read_back_is_told_with_the_time_in_it() -> None:
    """A save that verifies what it wrote, by the same thread, before it renames."""
    save, *_ = with_samples(
        traced_stage(), 12,
        (3.0, activity(100, TEMPORARY, 2.0, 3.0, 100 * MIB, call_ns=500 * MS)),
        (4.0, activity(100, TEMPORARY, 3.1, 4.0, 100 * MIB, writes=False, call_ns=300 * MS)),
        (4.1, life("renamed", 4.1, inode=None, duration_s=0.001, path=TEMPORARY, new_path="/ckpt/step_1.pt")),
    )  # fmt: skip

    (thread,) = told(save).threads
    assert (thread.bytes, thread.read_bytes, thread.data_call_ns) == (100 * MIB, 100 * MIB, 800 * MS)


def test_several_threads_of_one_process_are_told_apart() -> None:
    """PyTorch DCP: writer threads fill files of their own, another one renames."""
    samples: list[tuple[float, Sample]] = [
        (4.0, activity(100, f"/ckpt/step_1/__0_{n}.distcp", 2.0, 3.0 + n / 4, (n + 1) * 50 * MIB, tid=200 + n,
                       inode=n + 7, call_ns=n * MS)) for n in range(4)
    ]  # fmt: skip
    (save,) = with_samples(traced_stage(), 12, *samples)

    threads = told(save).threads
    assert [thread.tid for thread in threads] == [203, 202, 201, 200]
    assert [thread.data_call_ns for thread in threads] == [3 * MS, 2 * MS, MS, 0]
    assert not any(thread.is_main for thread in threads)


def test_hundreds_of_threads_are_bounded_and_the_last_to_end_is_among_them() -> None:
    """However little it moved."""
    samples: list[tuple[float, Sample]] = [
        (5.0, activity(100, f"/ckpt/step_1/part-{n}.safetensors", 2.0, 4.9 if n == 150 else 3.0,
                       MIB if n == 150 else 2 * MIB, tid=1000 + n, inode=n + 7)) for n in range(300)
    ]  # fmt: skip
    (save,) = with_samples(traced_stage(), 12, *samples)

    threads = told(save).threads
    assert len(threads) == MAX_PER_ITEM
    assert max(threads, key=lambda thread: thread.end_ns).tid == 1150


def polled(*looks: ThreadSample) -> tuple[ThreadMeasure, ...]:
    """Return the threads of a process that wrote 200 MiB from 2 s to 4 s, as polling tells them."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 2.0, 200 * MIB)
    samples = [((one.at_ns or 0) / SECOND_NS - 5000 + 0.001, one) for one in looks]
    (save,) = with_samples(stage, 12, *samples)
    return told(save).threads


def test_polled_the_looks_tell_where_the_time_went() -> None:
    """A thread that was met in fsync a quarter of the time; one that only waits is left out."""
    main = [look(at / 20, cpu_s=at / 80, state="S", call=FSYNC if at % 4 == 0 else WRITE) for at in range(120)]
    idle = [look(at / 20, tid=107, state="S", call=FUTEX) for at in range(120)]

    (thread,) = polled(*main, *idle)

    assert (thread.tid, thread.bytes, thread.files) == (100, 200 * MIB, 1)
    assert (thread.data_call_ns, thread.sync_call_ns, thread.creates, thread.read_bytes) == (None, None, None, None)
    met = thread.samples_by_state or {}
    assert met["sync"] == pytest.approx(10, abs=1)
    assert met["data"] == pytest.approx(30, abs=2)
    assert thread.samples == sum(met.values())


def test_polled_bytes_go_to_the_threads_that_were_met_at_them() -> None:
    """One writes three times as often as the other, and the main thread waits for them."""
    looks = []
    for at in range(120):
        looks += [look(at / 20, state="S", call=FUTEX), look(at / 20, tid=101, state="S", call=WRITE)]
        looks.append(look(at / 20, tid=102, state="S", call=WRITE if at % 3 == 0 else FUTEX))

    first, second = polled(*looks)

    assert (first.tid, second.tid) == (101, 102)
    assert first.bytes / second.bytes == pytest.approx(3, rel=0.1)
    assert first.bytes + second.bytes == pytest.approx(200 * MIB, abs=2)


def test_polled_without_a_look_the_process_is_told_with_nothing_invented() -> None:
    """An old recording, or a kernel that lets nobody look."""
    (thread,) = polled()

    assert (thread.pid, thread.tid, thread.bytes) == (100, 100, 200 * MIB)
    assert (thread.on_cpu_ns, thread.user_ns, thread.samples, thread.samples_by_state) == (None, None, None, None)


def test_the_book_of_looks_is_bounded_and_keeps_its_sums() -> None:
    """An hour of looks at one thread, and looks at thousands of threads."""
    book = ThreadHistories()
    for at in range(5000):
        book.observe(0, look(at / 10, cpu_s=at / 20, call=WRITE, state="S"))
    assert book._count <= 1024
    used = book.usage((100, 1000), 100, mono(0), mono(499))
    assert used is not None
    assert used.on_cpu_ns == pytest.approx(249_500 * MS, rel=0.01)
    assert used.samples_by_state["data"] == pytest.approx(4990, rel=0.01)

    for tid in range(3000):
        for at in range(30):
            book.observe(0, look(500 + tid + at / 100, tid=tid + 200))
    assert 35_000 < book._count <= 40_000
    book.forget_before(mono(10_000))
    assert book._count == books(book) == 0


@pytest.mark.parametrize(
    ("looks", "until_s"),
    [
        (((3.9, WRITE), (4.12, WRITE), (4.3, FSYNC), (5.6, FSYNC), (7.5, FSYNC)), 5.6),
        (((3.9, WRITE), (4.25, WRITE), (4.35, FSYNC)), None),
    ],
    ids=["goes-on-until-looks-are-too-far-apart", "began-too-late-to-be-of-the-write"],
)
def test_a_write_is_durable_when_the_thread_was_last_met_in_its_sync(
    looks: tuple[tuple[float, int], ...], until_s: float | None
) -> None:
    """Met in it soon after the last byte, and at every look since."""
    book = ThreadHistories()
    for at_s, call in looks:
        book.observe(0, look(at_s, call=call, state="S"))

    assert book.state_end_ns((100, 1000), "sync", mono(4.0)) == (None if until_s is None else mono(until_s))


def test_a_number_that_another_thread_has_by_now_begins_anew_and_late_looks_are_ignored() -> None:
    """Thread ids are reused; two frames may tell of one instant."""
    book = ThreadHistories()
    for at in range(10):
        book.observe(0, look(at / 10, tid=107, cpu_s=5.0 + at / 10))
    book.observe(0, look(0.5, tid=107, cpu_s=99.0))
    for at in range(10, 20):
        book.observe(0, look(at / 10, tid=107, cpu_s=(at - 10) / 20))

    used = book.usage((100, 1000), 107, mono(1.0), mono(1.9))

    assert book._count == 10
    assert used is not None
    assert used.on_cpu_ns == pytest.approx(450 * MS, rel=0.01)


def test_a_polled_save_beside_training_lasts_until_its_thread_has_synced_and_is_that_ones() -> None:
    """Written at once into the page cache, then three seconds in fsync, while others of the process compute."""
    stage = Stage()
    stage.process()
    stage.write(stage.actors[0], "/ckpt/step_1.pt", 2.0, 0.3, 200 * MIB, held_s=3.0)
    times = [round(1.5 + 0.1 * number, 1) for number in range(55)]
    stage.extra += [(at_s, look(at_s, tid=101, cpu_s=at_s)) for at_s in times]  # it trains
    stage.extra += [
        (at_s, look(at_s, tid=102, cpu_s=min(at_s, 2.3) / 10, call=FSYNC, state="D" if 2.3 < at_s < 5.3 else "R"))
        for at_s in times
    ]
    (save,) = stage.play(15)

    assert (save.end_ns - save.start_ns) / SECOND_NS == pytest.approx(3.3, abs=0.2)
    writer = max(told(save).threads, key=lambda thread: thread.bytes or 0)
    assert (writer.tid, (writer.samples_by_state or {}).get("sync", 0) > 20) == (102, True)
