"""Classes of pattern, seen through positions, sizes and counters only."""

from __future__ import annotations

from functools import partial

import pytest
from tests.detect.calls import LINEAR, calls_of
from tests.detect.observed import history_of
from tests.detect.stage import MIB, SECOND_NS, Stage

from ckptprof.detect.transfers.access_order import measure_layout
from ckptprof.detect.transfers.model.position_samples import PositionSample
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.process_counters import ProcessHistories, ProcessInterval
from ckptprof.model import PatternClass
from ckptprof_collectors.samples import FileFact


@pytest.mark.parametrize("seconds", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("call_bytes", [256 << 10, MIB, 64 * MIB])
def test_one_writer_from_start_to_end_is_sequential_large(seconds: float, call_bytes: int) -> None:
    """Positions that move by what was written follow each other, whatever the size of a call above 64 KiB."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, seconds, 300 * MIB, call_bytes=call_bytes)

    (save,) = stage.play(7 + seconds)

    assert save.pattern.class_ == PatternClass.SEQUENTIAL_LARGE
    assert pytest.approx(save.pattern.sequential_share_bytes, abs=0.02) == 1.0
    assert save.pattern.operations == pytest.approx(-(-300 * MIB // call_bytes), rel=0.02, abs=1)


@pytest.mark.parametrize("call_bytes", [512, 4096, 32 << 10])
def test_small_calls_in_order_are_sequential_small(call_bytes: int) -> None:
    """The median by bytes of an operation is under 64 KiB."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 100 * MIB, call_bytes=call_bytes)

    (save,) = stage.play(8)

    assert save.pattern.class_ == PatternClass.SEQUENTIAL_SMALL
    assert save.pattern.median_operation_bytes == pytest.approx(call_bytes, rel=0.02)


def test_calls_of_64_kib_are_large_whatever_the_last_one_has() -> None:
    """Most are 64 KiB, their mean is a little less."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 0.3, 100 * (64 << 10) + 1000, call_bytes=64 << 10)

    (save,) = stage.play(8)

    assert save.pattern.mean_operation_bytes < 64 << 10
    assert save.pattern.class_ == PatternClass.SEQUENTIAL_LARGE


def test_positions_all_over_the_file_are_random() -> None:
    """Most bytes at offsets that do not follow."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 3.0, 600 * MIB, layout="random")

    (save,) = stage.play(10)

    assert save.pattern.class_ == PatternClass.RANDOM


def test_pwrite_of_a_new_file_is_taken_as_consecutive() -> None:
    """A position that stands still shows nothing; what was born with the writing was written once."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 2.0, 400 * MIB, layout="pwrite")

    (save,) = stage.play(10)

    assert save.pattern.class_ == PatternClass.SEQUENTIAL_LARGE
    assert save.bytes == 400 * MIB


def test_a_file_with_a_large_and_a_random_half_is_mixed_or_less() -> None:
    """Two writers, one in order and one not, are not called sequential."""
    stage = Stage()
    job, other = (
        stage.process(100 + rank, environment={"RANK": str(rank), "WORLD_SIZE": "2", "SLURM_JOB_ID": "1"})
        for rank in range(2)
    )
    stage.write(job, "/run/step-1/__0_0.distcp", 2.0, 2.0, 300 * MIB)
    stage.write(other, "/run/step-1/__1_0.distcp", 2.0, 2.0, 250 * MIB, layout="random")

    (save,) = stage.play(10)

    assert save.pattern.class_ in (PatternClass.MIXED, PatternClass.STRIDED)


def test_a_reader_in_order_is_sequential_large() -> None:
    """The same for a restore."""
    stage = Stage()
    stage.read(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 300 * MIB)

    (restore,) = stage.play(8)

    assert restore.pattern.class_ == PatternClass.SEQUENTIAL_LARGE


@pytest.mark.parametrize(
    ("positions", "back"),
    [((80, 10, 40, 70), 0), ((10, 40, 80, 70, 80), 0), ((10, 40, 70, 40, 80), 0), ((10, 60, 30, 70), 30)],
    ids=["the-directory-first", "the-directory-later", "ahead-and-back", "again"],
)
def test_only_a_position_that_comes_back_shows_another_order(positions: tuple[int, ...], back: int) -> None:
    """Readers of zip files go to the directory at the end, others patch or look up a header: no byte is read twice."""
    order, _ = measure_layout([reading(*(position * MIB for position in positions))], ProcessHistories())

    assert (order.jumped_back, order.consecutive) == (back * MIB, (80 - back) * MIB)


@pytest.mark.parametrize(("moved", "inferred"), [(103 * MIB, 80 * MIB), (120 * MIB, 0)])
def test_large_operations_move_a_file_in_order_if_they_move_it_once(moved: int, inferred: int) -> None:
    """Positions show nothing of pread; who reads more than there is goes back, or reads something else, too."""
    moved = moved * 80 // 100
    transfer = reading(0, 0)
    history = history_of([ProcessInterval(1, 2, reads=4, returned_bytes=moved)])

    order, _ = measure_layout([transfer], {(1, 1): history})

    assert order.inferred == inferred


def test_files_that_nobody_was_seen_at_are_not_held_against_each_other() -> None:
    """Of thousands of them, each takes as many calls."""
    few, many = (
        calls_of(partial(measure_layout, [credited(at) for at in range(files)], ProcessHistories()))
        for files in (100, 400)
    )

    assert many / 400 < LINEAR * few / 100


def credited(at: int) -> Transfer:
    """Return the writing of a file that was found in its folder."""
    at_ns = at * SECOND_NS
    return Transfer(
        (1, 1), (1, at), writes=True, path=f"/ckpt/{at}.npz", first_ns=at_ns, last_ns=at_ns, before_ns=at_ns,
        start_ns=at_ns, end_ns=at_ns, bytes=MIB, observed_by="directory",
    )  # fmt: skip


def reading(*positions: int) -> Transfer:
    """Return the transfer of who read 80 MB, and where it stood at some looks."""
    transfer = Transfer(
        (1, 1), (1, 1), writes=False, path="/ckpt/a.npz", first_ns=1, last_ns=2, before_ns=1, start_ns=1, end_ns=2
    )
    transfer.bytes = transfer.size = 80 * MIB
    transfer.samples = [PositionSample(at_ns, position, 80 * MIB) for at_ns, position in enumerate(positions, 1)]
    return transfer


def test_a_file_that_two_fill_tells_of_neither_that_it_went_in_order() -> None:
    """By calls that name their offset: the file is born with both."""
    ranks = [filling(1), filling(2)]

    shared, _ = measure_layout(ranks, ProcessHistories())
    own, _ = measure_layout(ranks[:1], ProcessHistories())

    assert (shared.known_bytes, own.inferred) == (0, 80 * MIB)


@pytest.mark.parametrize(("sizes", "seen"), [((20, 40, 80), 80), ((80, 80, 80), 0), ((0, 0, 0), 0)])
def test_a_file_that_grows_as_it_is_written_goes_in_order(sizes: tuple[int, ...], seen: int) -> None:
    """By calls that name their offset: one that has its size from the begin, or shows none yet, tells nothing."""
    transfer = filling(1)
    transfer.samples = [PositionSample(at_ns, 0, size * MIB) for at_ns, size in enumerate(sizes, 3)]

    assert measure_layout([transfer], ProcessHistories())[0].observed_bytes == seen * MIB


def filling(process: int) -> Transfer:
    """Return the transfer of who wrote 80 MB of a new file by pwrite."""
    transfer = Transfer(
        (process, 1), (1, 1), writes=True, path="/ckpt/a.bin", first_ns=2, last_ns=8, before_ns=1, start_ns=1, end_ns=9
    )
    transfer.bytes = transfer.size = 80 * MIB
    transfer.samples = [PositionSample(at_ns, 0, 80 * MIB) for at_ns in range(3, 7)]
    stamps = {"birth_ns": 1, "modified_ns": 9, "changed_ns": 9, "accessed_ns": None}
    transfer.fact = FileFact(1, 1, 1, 1, transfer.path, transfer.size, is_directory=False, **stamps, magic=None)
    return transfer


def test_shares_are_shares() -> None:
    """Buffered, direct and mapped bytes add up to one."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 300 * MIB)

    pattern = stage.play(8)[0].pattern

    assert (pattern.buffered_share_bytes, pattern.direct_share_bytes, pattern.mapped_share_bytes) == (1.0, 0.0, 0.0)
    assert pattern.size_histogram is None  # poll level cannot see it, and says so by None


def test_a_second_descriptor_that_never_moves_changes_nothing() -> None:
    """Python's mmap keeps one beside the one that is read from."""
    stage = Stage()
    job = stage.process()
    stage.read(job, "/ckpt/step_1.pt", 2.0, 2.0, 300 * MIB, inode=5)
    still = stage.read(job, "/ckpt/step_1.pt", 2.0, 2.0, 300 * MIB, inode=5, layout="pwrite")
    still.bytes = 0

    (restore,) = stage.play(8)

    assert (restore.pattern.class_, restore.bytes) == (PatternClass.SEQUENTIAL_LARGE, 300 * MIB)
