"""Processes that are not what they seem: reused pids, counters that go back, names of jobs and ranks."""

from __future__ import annotations

import msgspec
import pytest
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, Stage

from ckptprof.detect.pipeline import Detector
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.process_counters import ProcessHistory, find_runs
from ckptprof.detect.world.world import World
from ckptprof_collectors.samples import Frame, ProcessInfo, ProcessIo, ProcessStat


def info(pid: int, parent_pid: int = 1, start_ticks: int | None = None, **fields: object) -> ProcessInfo:
    """Return a python process."""
    values: dict[str, object] = {
        "pid": pid, "start_ticks": pid if start_ticks is None else start_ticks, "parent_pid": parent_pid, "uid": 0,
        "comm": "python3", "program": "train.py", "runtimes": (), "environment": {}, "cgroup": None, **fields,
    }  # fmt: skip
    return ProcessInfo(**values)  # type: ignore[arg-type]


def io(written: int, read: int = 0) -> ProcessIo:
    """Return counters."""
    return ProcessIo(1, 1, read, written, read >> 20, written >> 20, read, written, 0)


def test_a_reused_pid_is_another_process() -> None:
    """The successor's counters begin at nothing, and its save is its own."""
    stage = Stage()
    first = stage.process(100, start_ticks=1000, exit_s=4.0)
    second = stage.process(100, start_ticks=2000, born_s=4.02, program="other.py")
    stage.write(first, "/ckpt/step_1.pt", 2.0, 1.0, 200 * MIB)
    stage.write(second, "/ckpt/step_2.pt", 6.0, 1.0, 100 * MIB)

    found = stage.play(12)

    assert [(save.job, save.bytes) for save in found] == [("train.py-100", 200 * MIB), ("other.py-100", 100 * MIB)]


def test_a_reused_pid_is_not_the_parent_of_older_processes() -> None:
    """A process cannot descend from one that began after it."""
    book = Jobs()
    book.observe(info(50, start_ticks=9000, program="other.py"))
    book.observe(info(100, parent_pid=50, start_ticks=100))

    assert book.job_of((100, 100)) == "train.py-100"


@pytest.mark.parametrize(("program", "found"), [("train.py", (100, 100)), ("mlflow", None)])
def test_a_tool_is_no_trainer_of_what_it_starts(program: str, found: tuple[int, int] | None) -> None:
    """Whatever libraries it has loaded; a shell between the two has none."""
    world = World(Stage().header())
    for one in (info(100, program=program, comm="", runtimes=("numpy",)), info(101, 100, program="sh", comm="sh")):
        world.jobs.observe(one)
    world.jobs.observe(info(102, 101, program="rsync", comm="rsync"))

    assert next(filter(world.may_save, world.starters((102, 102))), None) == found


def test_counters_that_go_back_give_no_difference() -> None:
    """They are a new start: no negative bytes, no giant ones."""
    history = ProcessHistory()
    for number, written in enumerate((100 * MIB, 150 * MIB, 10 * MIB, 30 * MIB)):
        history.observe((number + 1) * SECOND_NS, number * SECOND_NS, io(written), None, 100)

    assert [interval.written_bytes for interval in history.intervals] == [50 * MIB, 20 * MIB]


def test_what_a_process_did_before_its_first_sample_is_of_the_time_since_its_birth() -> None:
    """Its counters started from zero; not those of one older than the recording, nor of a shell that waited for cp."""
    world, births = World(msgspec.structs.replace(Stage().header(), at_ns=2 * SECOND_NS)), (100, 300, 301)
    for second, written in ((4, 10 * MIB), (5, 12 * MIB)):
        samples = [msgspec.structs.replace(io(written), start_ticks=born) for born in births]
        waited = ProcessStat(1, 301, "S", 0, 0, 0, 0, 1, None, None, 500)
        world.ingest(Frame(second * SECOND_NS, 0, ("processes",), (*samples, waited)))

    wrote = [
        [(one.start_ns // SECOND_NS, one.written_bytes // MIB) for one in world.histories[1, born].intervals]
        for born in births
    ]
    assert wrote == [[(4, 2)], [(3, 10), (4, 2)], [(4, 2)]]


def test_the_counters_of_a_child_that_was_waited_for_are_not_the_parents() -> None:
    """The kernel adds them to the parent's: a job that waits for its writer has not written it all again."""
    stage = Stage()
    stage.process(100, comm="python3")
    child = stage.process(101, parent_pid=100, exit_s=3.5)
    stage.write(child, "/run/step-1/__0_0.distcp", 2.0, 1.0, 200 * MIB)
    frames = []
    for frame in stage.frames(8):
        at_s = (frame.at_ns - MONOTONIC_NS) / SECOND_NS
        raised = 200 * MIB if at_s >= 3.5 else 0
        samples = tuple(
            msgspec.structs.replace(s, write_chars=raised, write_syscalls=raised >> 20, write_bytes=raised)
            if isinstance(s, ProcessIo) and s.pid == 100 else s for s in frame.samples
        )  # fmt: skip
        if raised and at_s < 3.53:
            samples += (ProcessIo(100, 1000, 0, raised, 0, raised >> 20, 0, raised, 0),)
        frames.append(msgspec.structs.replace(frame, samples=samples))
    detector = Detector(stage.header())
    for frame in frames:
        detector.ingest(frame)

    assert sum(interval.written_bytes for interval in detector._world.histories[100, 1000].intervals) == 0
    assert sum(interval.written_bytes for interval in detector._world.histories[101, 1010].intervals) == 200 * MIB


def test_a_child_whose_counters_have_not_come_in_yet_is_waited_for() -> None:
    """It may be a zombie for a while; a process that wrote more itself meanwhile keeps what is its own."""
    history = ProcessHistory()
    history.observe(1 * SECOND_NS, 0, io(10 * MIB), None, 100)
    history.add_child_counters(2 * SECOND_NS, io(100 * MIB))
    for tenth, written in ((20, 12), (32, 13), (38, 116)):
        history.observe(tenth * SECOND_NS // 10, (tenth - 1) * SECOND_NS // 10, io(written * MIB), None, 100)

    assert [interval.written_bytes for interval in history.intervals] == [2 * MIB, MIB, 3 * MIB]
    assert not history.child_counters


def test_the_bytes_of_one_long_write_are_told_once() -> None:
    """Its pages are dirtied while it runs, and counted by the call when it returns."""
    history = ProcessHistory()
    history.observe(1 * SECOND_NS // 10, 0, io(0), None, 100)
    for tenth in range(2, 7):
        dirty = ProcessIo(1, 1, 0, 0, 0, 0, 0, (tenth - 1) * 20 * MIB, 0)
        history.observe(tenth * SECOND_NS // 10, (tenth - 1) * SECOND_NS // 10, dirty, None, 100)
    history.observe(
        7 * SECOND_NS // 10, 6 * SECOND_NS // 10, ProcessIo(1, 1, 0, 101 * MIB, 0, 1, 0, 100 * MIB, 0), None, 100
    )

    assert sum(interval.new_written_bytes for interval in history.intervals) == 101 * MIB
    assert [interval.new_written_bytes for interval in history.intervals][-1] == MIB


def test_what_was_fetched_for_mappings_is_not_taken_off_what_calls_return_later() -> None:
    """A program is loaded from a cold disk, then it reads a file from memory."""
    history = ProcessHistory()
    reads = [(0, 0, 0, 0), (1, MIB, 180 * MIB, 900), (2, 2 * MIB, 181 * MIB, 910), (6, 60 * MIB, 181 * MIB, 910)]
    for tenth, (calls, called, fetched, faults) in enumerate(reads):
        counters = ProcessIo(1, 1, called, 0, calls, 0, fetched, 0, 0)
        stat = ProcessStat(1, 1, "R", 0, 0, 0, faults, 1, None, None)
        history.observe((tenth + 1) * SECOND_NS // 10, tenth * SECOND_NS // 10, counters, stat, 100)

    assert [interval.read_bytes // MIB for interval in history.intervals] == [180, 1, 58]


def test_activity_is_one_run_over_a_short_pause_and_a_log_is_none() -> None:
    """A save pauses for 0.3 s between two files; 0.6 s later the next one begins; a log grows by 10 KB meanwhile."""
    tenths = [(0, 20 * MIB), (1, 20 * MIB), (5, 20 * MIB), (8, 10_000), (12, 20 * MIB)]
    intervals = [(at * SECOND_NS // 10, (at + 1) * SECOND_NS // 10, moved) for at, moved in tenths]

    assert [run.bytes for run in find_runs(intervals)] == [60 * MIB, 20 * MIB]


def test_a_save_survives_counters_that_go_back_in_its_midst() -> None:
    """The file says how big it is; what the counters lost does not matter."""
    stage = Stage()
    job = stage.process()
    stage.write(job, "/ckpt/step_1.pt", 2.0, 2.0, 200 * MIB)
    stage.resets.append((3.0, job))

    (save,) = stage.play(10)

    assert save.bytes == 200 * MIB


def test_a_quiet_tick_is_told_from_a_process_that_was_not_read() -> None:
    """Where nothing moved there is no interval, and the next one begins at the last look, not at the last change."""
    history = ProcessHistory()
    history.observe(1 * SECOND_NS, 0, io(0), None, 100)
    history.observe(2 * SECOND_NS, 1 * SECOND_NS, None, None, 100)
    moved = history.observe(3 * SECOND_NS, 2 * SECOND_NS, io(MIB), None, 100)

    assert moved is not None
    assert (moved.start_ns, moved.end_ns, moved.written_bytes) == (2 * SECOND_NS, 3 * SECOND_NS, MIB)


def test_how_busy_a_process_was_is_none_where_it_was_not_seen() -> None:
    """The first look gives no share of a core; the second does."""
    history = ProcessHistory()
    stats = [
        ProcessStat(pid=1, start_ticks=1, state="R", user_ticks=ticks, system_ticks=0, minor_faults=0, major_faults=0,
                    threads=1, rss_bytes=0, rss_file_bytes=memory)
        for ticks, memory in ((100, 0), (150, 4 * MIB))
    ]  # fmt: skip
    history.observe(1 * SECOND_NS, 0, io(0), stats[0], 100)
    moved = history.observe(2 * SECOND_NS, 1 * SECOND_NS, io(MIB), stats[1], 100)

    assert moved is not None
    assert (moved.busy, moved.resident_bytes) == (0.5, 4 * MIB)


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({}, "train.py-10"),
        ({"SLURM_JOB_ID": "4711", "SLURM_PROCID": "3"}, "slurm-4711"),
        ({"TORCHELASTIC_RUN_ID": "exp-7"}, "train.py-exp-7"),
        ({"TORCHELASTIC_RUN_ID": "none"}, "train.py-10"),
    ],
)
def test_a_job_is_named_by_its_scheduler_else_by_its_root(environment: dict[str, str], job: str) -> None:
    """Slurm's number is best, then torchrun's id, then the process at the top of the tree."""
    book = Jobs(monitor_pids=(1,))
    book.observe(info(10, comm="torchrun", program="torchrun"))
    book.observe(info(11, parent_pid=10, environment=environment))

    assert job == book.job_of((11, 11))


def test_the_order_in_which_processes_are_met_does_not_name_the_job() -> None:
    """Children that were met before their parent belong to the same job."""
    forward, backward = Jobs(), Jobs()
    family = [info(10, program="train.py"), info(11, parent_pid=10), info(12, parent_pid=11)]
    for process in family:
        forward.observe(process)
    for process in reversed(family):
        backward.observe(process)

    assert {"train.py-10"} == {book.job_of((pid, pid)) for book in (forward, backward) for pid in (10, 11, 12)}


def test_a_shell_above_the_job_is_no_part_of_it() -> None:
    """Two jobs that were started from one shell are two."""
    book = Jobs()
    book.observe(info(5, comm="bash", program="bash"))
    book.observe(info(10, parent_pid=5))
    book.observe(info(20, parent_pid=5))

    assert [book.job_of((10, 10)), book.job_of((20, 20))] == ["train.py-10", "train.py-20"]


def test_parents_in_a_circle_do_not_hang() -> None:
    """Samples that contradict each other are survived."""
    book = Jobs()
    book.observe(info(10, parent_pid=11, start_ticks=5))
    book.observe(info(11, parent_pid=10, start_ticks=5))

    assert book.job_of((10, 5)).startswith("train.py-")


def test_a_row_of_forks_makes_no_question_long() -> None:
    """A user may fork thousands in a row: of each no more than 64 are walked."""
    book = Jobs()
    for pid in range(10, 1010):
        book.observe(info(pid, parent_pid=pid - 1))
    last = book.info((1009, 1009))
    assert last is not None

    assert [one.pid for one in book.ancestors(last)] == list(range(1009, 945, -1))


@pytest.mark.parametrize(
    ("environment", "rank", "ranks"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8"}, 3, 8),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "16"}, 5, 16),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2),
        ({"JAX_PROCESS_ID": "0", "JAX_NUM_PROCESSES": "4"}, 0, 4),
        ({"RANK": "-1", "WORLD_SIZE": "\x1b[2J"}, None, None),
        ({"RANK": "\u0663", "WORLD_SIZE": "9" * 40}, None, None),
        ({}, None, None),
    ],
)
def test_ranks_come_from_the_environment_or_not_at_all(
    environment: dict[str, str], rank: int | None, ranks: int | None
) -> None:
    """What is no plain number is no rank."""
    book = Jobs()
    book.observe(info(10, environment=environment))

    assert (rank, ranks) == (book.rank((10, 10)), book.ranks((10, 10)))


def test_the_book_of_jobs_is_bounded() -> None:
    """A host that starts processes for years fills no memory."""
    book = Jobs()
    for pid in range(21_000):
        book.observe(info(pid + 2))

    assert len(book._infos) == len(book._current) == 20_000
