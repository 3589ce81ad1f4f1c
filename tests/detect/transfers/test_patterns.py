"""Classes of pattern, seen through positions, sizes and counters only."""

from __future__ import annotations

from functools import partial

import pytest
from tests.detect.calls import LINEAR, calls_of
from tests.detect.stage import MIB, SECOND_NS, Stage

from ckptprof.detect.transfers.model.looks import Look
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.order import _after_the_probe, _order, layout_of
from ckptprof.detect.world.process_counters import Histories, Interval, ProcessHistory
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


def test_positions_that_run_ahead_of_the_bytes_are_strided() -> None:
    """Forward with gaps: sequential, not consecutive."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 3.0, 600 * MIB, layout="strided")

    (save,) = stage.play(10)

    assert save.pattern.class_ == PatternClass.STRIDED


def test_pwrite_is_followed_by_the_growth_of_the_file() -> None:
    """A position that stands still while the file grows as it is written is a consecutive writer."""
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


@pytest.mark.parametrize("jump", [True, False])
def test_a_directory_at_the_end_that_is_read_first_says_nothing_of_the_rest(*, jump: bool) -> None:
    """Zip files are read so; a position that comes from the end later on is another thing."""
    size = 300 * MIB
    transfer = Transfer(
        (1, 1), (1, 1), writes=False, path="/ckpt/a.npz", first_ns=0, last_ns=7, before_ns=0, end_ns=7, bytes=size
    )
    positions = [size, 40 * MIB, 140 * MIB, 240 * MIB] if jump else [40 * MIB, 140 * MIB, size, 240 * MIB]
    looks = [Look(at, position, size) for at, position in enumerate(positions)]

    assert _after_the_probe(looks) == (looks[1:] if jump else looks)
    transfer.looks = looks
    order = _order(transfer, None, None)
    assert (order.back == 0) is jump


@pytest.mark.parametrize(("counted", "jumped"), [(60 * MIB, 0), (20 * MIB, 20 * MIB)])
def test_a_position_that_is_a_little_ahead_of_the_counters_has_not_jumped(counted: int, jumped: int) -> None:
    """They are read one after the other, and a busy machine comes in between."""
    transfer = reading(0, 80 * MIB)
    history = ProcessHistory([Interval(1, 2, reads=1, returned_bytes=counted)])

    assert _order(transfer, history, None).jumped == jumped


@pytest.mark.parametrize(("moved", "inferred"), [(103 * MIB, 80 * MIB), (120 * MIB, 0)])
def test_large_operations_move_a_file_in_order_if_they_move_it_once(moved: int, inferred: int) -> None:
    """Positions show nothing of pread; who reads more than there is goes back, or reads something else, too."""
    moved = moved * 80 // 100
    transfer = reading(0, 0)
    history = ProcessHistory([Interval(1, 2, reads=4, returned_bytes=moved)])

    order, _ = layout_of([transfer], {(1, 1): history})

    assert order.inferred == inferred


def test_files_that_nobody_was_seen_at_are_not_held_against_each_other() -> None:
    """Of thousands of them, each takes as many calls."""
    few, many = (
        calls_of(partial(layout_of, [credited(at) for at in range(files)], Histories())) for files in (100, 400)
    )

    assert many / 400 < LINEAR * few / 100


def credited(at: int) -> Transfer:
    """Return the writing of a file that was found in its folder."""
    at_ns = at * SECOND_NS
    return Transfer(
        (1, 1), (1, at), writes=True, path=f"/ckpt/{at}.npz", first_ns=at_ns, last_ns=at_ns, before_ns=at_ns,
        start_ns=at_ns, end_ns=at_ns, bytes=MIB, seen_by="directory",
    )  # fmt: skip


def reading(*positions: int) -> Transfer:
    """Return the transfer of who read 80 MB, and where it stood at some looks."""
    transfer = Transfer(
        (1, 1), (1, 1), writes=False, path="/ckpt/a.npz", first_ns=1, last_ns=2, before_ns=1, start_ns=1, end_ns=2
    )
    transfer.bytes = transfer.size = 80 * MIB
    transfer.looks = [Look(at_ns, position, 80 * MIB) for at_ns, position in enumerate(positions, 1)]
    return transfer


def filling(process: int, *sizes: int, position: int = 0) -> Transfer:
    """Return the transfer of who wrote 80 MB of a new file between 1 and 9, and how large it was at looks from 3 on."""
    transfer = Transfer(
        (process, 1), (1, 1), writes=True, path="/ckpt/a.bin", first_ns=2, last_ns=8, before_ns=1, start_ns=1, end_ns=9
    )
    transfer.bytes, transfer.size = 80 * MIB, max(sizes)
    transfer.looks = [Look(at_ns, position, size) for at_ns, size in enumerate(sizes, 3)]
    stamps = {"birth_ns": 1, "modified_ns": 9, "changed_ns": 9, "accessed_ns": None}
    transfer.fact = FileFact(1, 1, 1, 1, transfer.path, transfer.size, is_directory=False, **stamps, magic=None)
    return transfer


def steadily(_: int) -> ProcessHistory:
    """Return the counters of who writes 10 MB at each time."""
    written = {"writes": 40, "written_bytes": 10 * MIB, "wrote_bytes": 10 * MIB}
    return ProcessHistory([Interval(at_ns, at_ns + 1, **written) for at_ns in range(1, 9)])


@pytest.mark.parametrize(("sizes", "jumped"), [((20, 100, 160), True), ((160, 160, 160), False)])
def test_a_file_that_two_fill_tells_of_neither_that_it_went_in_order(sizes: tuple[int, ...], *, jumped: bool) -> None:
    """By calls that name their offset: the file grows by what both write, and may be as large as it gets at once."""
    ranks = [filling(process, *(size * MIB for size in sizes)) for process in (1, 2)]

    order, _ = layout_of(ranks, {one.process: steadily(1) for one in ranks})

    assert order.consecutive == order.inferred == 0
    assert (order.jumped > 0) is jumped


@pytest.mark.parametrize(("position", "inferred"), [(0, 0), (8 * MIB, 80 * MIB)])
def test_who_still_stands_at_the_begin_of_what_he_wrote_may_have_gone_anywhere(position: int, inferred: int) -> None:
    """The file had its size from the begin: only a position that moved tells of an order."""
    order, _ = layout_of([filling(1, *[80 * MIB] * 6, position=position)], {(1, 1): steadily(1)})

    assert order.known == inferred


def test_what_was_begun_anew_before_the_first_look_sends_nobody_back() -> None:
    """A writer that empties its file after half of it has written more by then than it stands at."""
    transfer = filling(1, 80 * MIB)
    transfer.looks = [Look(3, 20 * MIB, 20 * MIB), Look(6, 80 * MIB, 80 * MIB)]
    spans = ((1, 3, 100 * MIB), (3, 6, 60 * MIB))
    history = ProcessHistory([Interval(*span, writes=10, written_bytes=moved) for *span, moved in spans])

    order, _ = layout_of([transfer], {(1, 1): history})

    assert (order.back, order.consecutive) == (0, 80 * MIB)


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
