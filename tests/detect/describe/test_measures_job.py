"""What a job's processes did around a save: who waited, who was held, what came before, and what was deleted."""

from __future__ import annotations

import pytest
from tests.detect.describe.test_measures_threads import look, told, with_samples
from tests.detect.observed import books
from tests.detect.stage import MIB, SECOND_NS, Stage
from tests.detect.tracer import activity, life, mono

from ckptprof.detect.world.process_usage import ProcessUsage
from ckptprof.detect.world.stack_states import classify_act
from ckptprof_collectors.samples import (
    DeviceInfo,
    DirtyPause,
    DiskSample,
    MountInfo,
    NicSample,
    ProcessStat,
    Sample,
    StackSample,
    ThreadStack,
    ThreadTime,
    TraceHealth,
)

RANK = {"WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "job"}


def test_ranks_that_moved_nothing_are_told_with_what_they_did() -> None:
    """Rank 0 writes for three ranks: one of the others computes, one waits."""
    stage = Stage(hz=10)
    writer, computing, waiting = (
        stage.process(100 + rank, busy=busy, environment={**RANK, "RANK": str(rank)})
        for rank, busy in ((0, 0.5), (1, 1.0), (2, 0.0))
    )
    stranger = stage.process(500, parent_pid=77, program="other.py")
    stage.write(writer, "/ckpt/step_1.pt", 2.0, 2.0, 200 * MIB)
    (save,) = stage.play(10)

    processes = told(save).processes
    assert [process.pid for process in processes] == [writer.pid, computing.pid, waiting.pid]
    assert stranger.pid not in {process.pid for process in processes}
    assert [process.rank for process in processes] == [0, 1, 2]
    assert [process.bytes for process in processes] == [200 * MIB, 0, 0]
    assert processes[1].first_ns is None
    assert processes[0].first_ns == pytest.approx(save.start_ns, abs=SECOND_NS // 10)
    assert [process.busy for process in processes] == pytest.approx([0.5, 1.0, 0.0], abs=0.06)


def test_who_else_used_cpus_is_told_by_name() -> None:
    """Children that load no library for training are no part of the job's work, and idle ones of nothing."""
    stage = Stage(hz=10)
    writer = stage.process(100, busy=0.5)
    for pid in (201, 202):
        stage.process(pid, parent_pid=100, busy=0.9, comm="spin", runtimes=())
    stage.process(300, parent_pid=77, busy=0.8, comm="other", runtimes=())
    stage.process(301, parent_pid=100, busy=0.0, comm="idle", runtimes=())
    reader = stage.process(302, parent_pid=77, busy=0.0, comm="reader", runtimes=())
    stage.read(reader, "/data/other.bin", 1.5, 3.0, 300 * MIB)
    stage.write(writer, "/ckpt/step_1.pt", 2.0, 2.0, 200 * MIB)
    (save,) = stage.play(10)

    others = [(one.comm, one.count, round(one.busy, 1), one.started_by_writer) for one in told(save).others]
    assert others == [("spin", 2, 1.8, True), ("other", 1, 0.8, False), ("reader", 1, 0.0, False)]
    assert told(save).others[-1].disk_bytes == pytest.approx(200 * MIB, rel=0.1)


@pytest.mark.parametrize("waited_s", [0.1, 1.0])
def test_nobody_is_told_who_used_what_was_not_short(waited_s: float) -> None:
    """A thread that hardly waited for a CPU, on a disk that transferred nothing else, has no others to name."""
    stage = Stage(hz=10)
    stage.process(201, parent_pid=77, busy=0.9, comm="spin", runtimes=())
    stage.write(stage.process(100), "/ckpt/step_1.pt", 2.0, 2.0, 200 * MIB)
    looks = [(at_s, look(at_s, cpu_s=0.1, waited_s=waited_s * (at_s > 3))) for at_s in (1.9, 2.5, 3.5, 4.1)]
    (save,) = with_samples(stage, 10, *looks)

    assert [one.comm for one in told(save).others] == ["spin"] * (waited_s == 1.0)


@pytest.mark.parametrize(("call", "named"), [(61, "make"), (202, None)])
def test_the_child_that_a_writer_waited_for_is_told(call: int, named: str | None) -> None:
    """Of those that ran meanwhile the one that ran longest, if it waited for a child at all."""
    stage = Stage(hz=10)
    writer = stage.process()
    for pid, born_s, exit_s, comm in ((201, 2.3, 3.9, "make"), (202, 2.5, 3.0, "date"), (203, 5.0, 9.0, "later")):
        stage.process(pid, parent_pid=100, born_s=born_s, exit_s=exit_s, comm=comm, runtimes=())
    stage.write(writer, "/ckpt/step_1.pt", 2.0, 2.0, 200 * MIB)
    looks = [(at_s, look(at_s, call=call, state="S")) for at_s in (2.4, 2.8, 3.4, 3.8)]
    (save,) = with_samples(stage, 10, *looks)

    assert told(save).awaited == named


def test_pauses_for_dirty_pages_are_of_the_time_between() -> None:
    """Held three times before, twenty times meanwhile; of a process of which the kernel never told nothing is known."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    samples: list[tuple[float, Sample]] = [
        (1.0, DirtyPause(100, 1000, 3, 30_000_000)),
        (2.0 + 0.5, DirtyPause(100, 1000, 13, 130_000_000)),
        (3.9, DirtyPause(100, 1000, 23, 230_000_000)),
        (4.0, activity(100, "/ckpt/step_1.pt", 2.0, 4.0, 200 * MIB)),
        (4.05, activity(101, "/ckpt/step_1-2.pt", 2.0, 4.0, 100 * MIB, inode=9)),
    ]
    (save, *_) = with_samples(stage, 10, *samples)

    (process,) = (process for process in told(save).processes if process.pid == 100)
    assert (process.dirty_pauses, process.dirty_pause_ns) == (20, 200_000_000)


@pytest.mark.parametrize(("programs", "pauses"), [({"dirty-pauses": "typed"}, 0), ({"calls": "portable"}, None)])
def test_none_is_told_only_where_the_trace_sees_them(programs: dict[str, str], pauses: int | None) -> None:
    """Nothing was held back, or nobody could have told."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    health = TraceHealth(0, 0, 0, 0, 0, 0, programs, ())
    (save,) = with_samples(stage, 10, (1.0, health), (4.0, activity(100, "/ckpt/step_1.pt", 2.0, 4.0, 200 * MIB)))

    (process,) = told(save).processes
    assert (process.dirty_pauses, process.dirty_pause_ns) == (pauses, pauses)
    assert told(save).clean_up_files == 0


def test_the_clean_up_is_what_its_processes_deleted_of_others() -> None:
    """Two old files in line; not its own temporary one, and not what somebody else deletes."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    stage.process(700, program="other.py")
    gone: list[tuple[float, Sample]] = [
        (4.1, life("unlinked", 4.1, inode=None, duration_s=0.3, path="/ckpt/step_0.pt")),
        (4.5, life("unlinked", 4.5, inode=None, duration_s=0.2, path="/ckpt/step_0.json")),
        (4.6, life("unlinked", 4.6, inode=None, duration_s=0.5, path="/ckpt/step_1.pt.tmp")),
        (4.7, life("unlinked", 4.7, 700, inode=None, duration_s=0.5, path="/ckpt/step_00.pt")),
    ]
    samples: list[tuple[float, Sample]] = [(4.0, activity(100, "/ckpt/step_1.pt", 2.0, 4.0, 200 * MIB)), *gone]
    (save,) = with_samples(stage, 40, *samples)

    assert told(save).clean_up_files == 2
    assert told(save).clean_up_ns == pytest.approx(SECOND_NS // 2, rel=1e-6)


def frames_of(*functions: tuple[str, str]) -> tuple[tuple[str, str, int], ...]:
    """Return a stack, innermost first."""
    return tuple((function, file, 1) for function, file in functions)


TORCH = "/usr/lib/python3/site-packages/torch"


@pytest.mark.parametrize(
    ("frames", "what"),
    [
        (frames_of(("persistent_id", f"{TORCH}/serialization.py"), ("_save", f"{TORCH}/serialization.py")), "pickle"),
        (frames_of(("_save", f"{TORCH}/serialization.py"), ("save", f"{TORCH}/serialization.py")), "write"),
        (frames_of(("__reduce_ex__", f"{TORCH}/_tensor.py"), ("dump", "/usr/lib/python3.11/pickle.py")), "pickle"),
        (frames_of(("write", "/usr/lib/python3.11/gzip.py")), "compress"),
        (frames_of(("write", "/usr/lib/python3.11/zipfile.py"), ("savez_compressed", "/numpy/npyio.py")), "compress"),
        (frames_of(("write", "/usr/lib/python3.11/zipfile.py"), ("savez", "/numpy/npyio.py")), "write"),
        (frames_of(("_write_gzip_header", "/usr/lib/python3.11/gzip.py")), "compress"),
        (frames_of(("_update_crc", "/usr/lib/python3.11/zipfile.py")), "crc"),
        (frames_of(("compress_block", "/job/train.py")), "compress"),
        (frames_of(("sha256_of", "/job/train.py")), "crc"),
        (frames_of(("fsync_file", "/job/train.py")), "sync"),
        (frames_of(("gather_object", f"{TORCH}/distributed/distributed_c10d.py")), "gather"),
        (frames_of(("wrapper", f"{TORCH}/distributed/c10d_logger.py")), "gather"),
        (frames_of(("wait", "/usr/lib/python3.11/threading.py")), "wait"),
        (frames_of(("_copy_state_dict", f"{TORCH}/distributed/_state_dict_utils.py")), "copy"),
        (frames_of(("inner", "/job/train.py"), ("deepcopy", "/usr/lib/python3.11/copy.py")), "copy"),
        (frames_of(("step", "/job/train.py"), ("<module>", "/job/train.py")), "other"),
        (frames_of(("spin", "/job/train.py"), ("run", "/usr/lib/python3.11/threading.py")), "other"),
        (frames_of(*[("loss", "/job/model.py")] * 8, ("stage", "/job/pipeline.py")), "other"),  # of a pipeline
        ((), "other"),
    ],
)
def test_what_a_writing_thread_is_at_by_its_stack(frames: tuple[tuple[str, str, int], ...], what: str) -> None:
    """The innermost frame that tells decides; C shows as who called it."""
    assert classify_act(frames) == what


def test_stacks_of_the_writing_thread_are_counted_by_what_it_was_at() -> None:
    """Looks within the save only, and of the thread that wrote."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    compressing, waiting = (
        frames_of(("compress", "/job/train.py")),
        frames_of(("wait", "/usr/lib/python3/threading.py")),
    )
    looks = [
        (at_s, StackSample(mono(at_s), 100, 1000, 0, (ThreadStack(100, "MainThread", False, waiting),  # noqa: FBT003 - a struct of the collectors
                                                      ThreadStack(107, "w", True, compressing))))  # noqa: FBT003
        for at_s in (1.0, 2.5, 3.0, 3.5, 6.0)
    ]  # fmt: skip
    times = [(at / 10, ThreadTime(100, 1000, 100, at, 0, at)) for at in range(5, 80)]
    wrote = activity(100, "/ckpt/step_1.pt", 2.0, 4.0, 200 * MIB, tid=107)
    (save,) = with_samples(stage, 10, (4.0, wrote), *times, *looks)

    (process,) = told(save).processes
    assert process.stacks == {"compress": 3}


@pytest.mark.parametrize(("held_s", "writes_s"), [(2, 2.0), (2, 0.3), (8, 0.3)])
def test_what_came_before_the_first_byte_is_told(held_s: int, writes_s: float) -> None:
    """Training stands still while its rank receives, and its memory grows; then it writes, for less time or more."""
    stage = Stage(hz=10, trace=True, poll=False)
    stage.process()
    samples: list[tuple[float, Sample]] = []
    ran, wrote_s = 0, 13.0 + held_s
    for at in range(300):
        ran += 0 if 130 <= at < (wrote_s + writes_s) * 10 else 95_000_000
        part = min(max(0, at - 130), held_s * 10) / (held_s * 10)
        moved, size = int(part * 200 * MIB), int(part * 300 * MIB) + 100 * MIB
        samples += [
            (at / 10, ThreadTime(100, 1000, 100, ran, 0, ran // 10_000_000)),
            (at / 10, ProcessStat(100, 1000, "R", at * 7, 0, 0, 0, 1, size, MIB)),
            (at / 10, NicSample("lo", moved, 0, 0, 0, moved, 0, 0, 0)),
        ]
    end_s = wrote_s + writes_s
    samples.append((end_s + 0.05, activity(100, "/ckpt/step_1.pt", wrote_s, end_s, 200 * MIB)))
    (save,) = with_samples(stage, 29, *sorted(samples, key=lambda pair: pair[0]))

    before = told(save).before
    assert before is not None
    assert before.blocked_ns == pytest.approx(held_s * SECOND_NS, rel=0.1)
    assert before.received_bytes == pytest.approx(200 * MIB, rel=0.1)
    assert before.grown_bytes == pytest.approx(300 * MIB, rel=0.1)
    assert before.growing_ns == pytest.approx(held_s * SECOND_NS, rel=0.1)
    assert before.busy == pytest.approx(0.7, abs=0.1)


def test_a_helper_that_waits_for_what_to_write_holds_nobody_before() -> None:
    """It imported its libraries, then slept until it was sent a state; meanwhile others received."""
    stage = Stage(hz=10, trace=True, poll=False)
    stage.process()
    stage.process(107, parent_pid=100)
    samples: list[tuple[float, Sample]] = []
    for at in range(200):
        ran = (at - min(max(0, at - 150), 5)) * 95_000_000, min(at, 60) * 95_000_000 + max(0, at - 150) * 1_000_000
        samples += [
            (at / 10, ThreadTime(pid, ticks, pid, one, 0, one // 10_000_000))
            for pid, ticks, one in zip((100, 107), (1000, 1070), ran, strict=True)
        ]
        samples += [(at / 10, NicSample("lo", at * 3 * MIB, 0, 0, 0, at * 3 * MIB, 0, 0, 0))]
    samples.append((15.55, activity(107, "/ckpt/step_1.pt", 15.0, 15.5, 200 * MIB, tid=107)))
    (save,) = with_samples(stage, 19, *sorted(samples, key=lambda pair: pair[0]))

    assert save.stall_ns == pytest.approx(0.5 * SECOND_NS, abs=SECOND_NS // 5)


@pytest.mark.parametrize("pauses", [0.0, 1.0])
def test_a_trainer_that_goes_on_until_it_writes_or_often_pauses_was_not_held_before(pauses: float) -> None:
    """Collectives and evaluation stand still, too: for as long, again and again."""
    stage = Stage(hz=10, trace=True, poll=False)
    stage.process()
    ran = 0
    samples: list[tuple[float, Sample]] = []
    for at in range(300):
        ran += 0 if at % 30 < pauses * 10 or 180 <= at < 183 else 95_000_000
        samples.append((at / 10, ThreadTime(100, 1000, 100, ran, 0, ran // 10_000_000)))
    samples.append((19.0, activity(100, "/ckpt/step_1.pt", 18.9, 19.0, 200 * MIB)))
    (save,) = with_samples(stage, 29, *sorted(samples, key=lambda pair: pair[0]))

    before = told(save).before
    assert before is None or before.blocked_ns < SECOND_NS


@pytest.mark.parametrize(("ran", "held_s"), [(95_000_000, 1.4), (30_000_000, 2.0)], ids=["trains on", "sends its own"])
def test_what_a_rank_waited_before_it_went_on_is_no_hold(ran: int, held_s: float) -> None:
    """It waits for a slow rank, trains on, and is held then; who runs a little in between is held all the while."""
    stage = Stage(hz=10, trace=True, poll=False)
    for rank in range(2):
        stage.process(100 + rank, environment={**RANK, "WORLD_SIZE": "2", "RANK": str(rank)})
    times_ns = [0, 0]
    samples: list[tuple[float, Sample]] = []
    for at in range(300):
        waits = 180 <= at < 184 or 186 <= at < 203
        times_ns[0] += 95_000_000
        times_ns[1] += ran if at in (184, 185) else 0 if waits else 95_000_000
        samples += [
            (at / 10, ThreadTime(100 + rank, 1000 + 10 * rank, 100 + rank, own, 0, own // 10_000_000))
            for rank, own in enumerate(times_ns)
        ]
        samples += [
            (at / 10, ProcessStat(100 + rank, 1000 + 10 * rank, "R", at * 7, 0, 0, 0, 1, 100 * MIB, MIB))
            for rank in range(2)
        ]
    samples.append((20.3, activity(100, "/ckpt/step_1.pt", 20.0, 20.3, 200 * MIB)))
    (save,) = with_samples(stage, 29, *sorted(samples, key=lambda pair: pair[0]))

    before = told(save).before
    assert before is not None
    assert before.blocked_ns == pytest.approx(held_s * SECOND_NS, abs=SECOND_NS // 5)


def test_who_started_the_ranks_stands_still_for_ever_and_that_is_no_hold() -> None:
    """It was busy as it began; the ranks train until they write."""
    stage = Stage(hz=10, trace=True, poll=False)
    stage.process(50)
    for rank in range(2):
        stage.process(100 + rank, parent_pid=50, environment={"RANK": str(rank), "WORLD_SIZE": "2"})
    samples: list[tuple[float, Sample]] = []
    for at in range(300):
        started = min(at, 30) * 95_000_000
        samples.append((at / 10, ThreadTime(50, 500, 50, started, 0, started // 10_000_000)))
        samples += [(at / 10, ThreadTime(pid, pid * 10, pid, at * 95_000_000, 0, at * 9)) for pid in (100, 101)]
    samples.append((19.0, activity(100, "/ckpt/step_1.pt", 18.9, 19.0, 200 * MIB)))
    (save,) = with_samples(stage, 29, *sorted(samples, key=lambda pair: pair[0]))

    before = told(save).before
    assert before is None or before.blocked_ns < SECOND_NS


def test_what_a_save_held_is_not_held_before_the_next() -> None:
    """Who stands still through two saves was held before the second since the first had ended."""
    stage = Stage(hz=10, trace=True, poll=False)
    stage.process()
    ran = 0
    samples: list[tuple[float, Sample]] = []
    for at in range(400):
        ran += 0 if 150 <= at < 245 else 95_000_000
        samples.append((at / 10, ThreadTime(100, 1000, 100, ran, 0, ran // 10_000_000)))
    samples.append((20.2, activity(100, "/ckpt/step_1.pt", 20.0, 20.2, 200 * MIB, inode=7)))
    samples.append((24.5, activity(100, "/ckpt/step_2.pt", 24.3, 24.5, 200 * MIB, inode=8)))
    saves = with_samples(stage, 39, *sorted(samples, key=lambda pair: pair[0]))

    first, second = (told(save).before for save in saves)
    assert first is not None
    assert first.blocked_ns == pytest.approx(5 * SECOND_NS, rel=0.1)
    assert second is not None
    assert second.blocked_ns == pytest.approx(4.1 * SECOND_NS, rel=0.1)


def test_the_device_is_told_until_the_save_is_durable_if_it_wrote_on() -> None:
    """A buffered save of which the device had nothing by its end, and a sync by somebody else five seconds later."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    samples: list[tuple[float, Sample]] = [
        (0.1, DeviceInfo("sda", 8, 1, "disk", (), True, None, None, None, None, None, None)),  # noqa: FBT003 - a struct of the collectors
        (0.1, MountInfo(1, 8, 1, "/", "/", "ext4", "/dev/sda", "sda", None)),
        (2.4, activity(100, "/ckpt/step_1.pt", 2.0, 2.4, 200 * MIB)),
        (3.5, life("synced", 3.5, duration_s=1.0, path="/ckpt/step_1.pt")),
    ]
    for at in range(100):
        sectors = min(max(0, at - 24), 10) * 40960
        sample = DiskSample("sda", 0, 0, 0, 0, sectors // 1024, 0, sectors, 0, 0, at * 100, at * 100)
        samples.append((at / 10 + 0.01, sample))
    (save,) = with_samples(stage, 15, *sorted(samples, key=lambda pair: pair[0]))

    (device,) = told(save).devices
    assert told(save).mount is not None
    assert device.written_bytes == pytest.approx(200 * MIB, rel=0.05)
    assert device.seconds == pytest.approx(1.5, abs=0.1)


def test_a_day_of_hundreds_of_processes_fits_in_16_mib() -> None:
    """Each keeps its last seconds as they were, and what came before more roughly."""
    book = ProcessUsage()
    for at in range(3000):
        book.observe(at * SECOND_NS, (at - 1) * SECOND_NS, ProcessStat(1, 1, "R", at * 100, 0, at, 0, 1, at * MIB, 0))

    (past,) = book._stats.values()
    assert 512 * 8 * (len(past.times) + len(past._values)) <= 16 * MIB
    assert len(book.resident_growth((1, 1), 2940 * SECOND_NS, 3000 * SECOND_NS) or ()) == 59
    long = book.totals((1, 1), 500 * SECOND_NS, 2900 * SECOND_NS)
    assert long is not None
    assert long.minor_faults == pytest.approx(2400, rel=0.02)


def test_processes_by_the_thousand_are_bounded() -> None:
    """A crowd on a busy host leaves the latest."""
    book = ProcessUsage()
    for pid in range(1024):
        for at in range(3):
            stat = ProcessStat(pid, pid, "R", at * 100, 0, at, at, 1, at * MIB, 0)
            book.observe((pid + at) * SECOND_NS, (pid + at - 1) * SECOND_NS, stat)
        book.record_pause(pid * SECOND_NS, 0, DirtyPause(pid, pid, 1, 1))

    assert books(book) == 2 * 512
    last = 1023
    used = book.totals((last, last), last * SECOND_NS, (last + 2) * SECOND_NS)
    assert used is not None
    assert (used.busy, used.minor_faults, used.grown_bytes) == (1.0, 2, 2 * MIB)
    assert book.totals((last, last), 0, SECOND_NS) is None
    assert book.totals((0, 0), 0, SECOND_NS) is None
    assert book.growing_ns((0, 0), 0, 1, 1) is None
    book.forget_before(10_000 * SECOND_NS)
    assert books(book) == 0
