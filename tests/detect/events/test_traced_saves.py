"""Saves as the trace tells them: all bytes, exact edges, one save where there is one and two where there are two."""

from __future__ import annotations

import msgspec
import pytest
from tests.detect.stage import MIB, SECOND_NS, Stage
from tests.detect.tracer import activity, life

from ckptprof.model import Checkpoint, Level
from ckptprof_collectors.samples import ProcessExit, Sample

JOB = {"environment": {"SLURM_JOB_ID": "1"}}


def alone(*samples: tuple[float, Sample], described: bool = True) -> Stage:
    """Return a stage on which only the trace sees anything, and that what is given."""
    stage = Stage(trace=True, poll=False, described=described)
    stage.process()
    stage.extra = list(samples)
    return stage


def edges(stage: Stage, checkpoint: Checkpoint) -> tuple[float, float]:
    """Return the edges in seconds of the stage."""
    zero = stage.wall(0)
    return (checkpoint.start_ns - zero) / SECOND_NS, (checkpoint.end_ns - zero) / SECOND_NS


def test_a_file_that_lived_twenty_milliseconds_is_seen_with_all_its_bytes() -> None:
    """One final sample between two ticks is a save with exact bytes and edges, of a process that nobody described."""
    stage = alone((2.03, activity()), described=False)

    (save,) = stage.play(8)

    assert (save.bytes, save.files, save.level, save.path) == (100 * MIB, 1, Level.TRACE, "/ckpt/step_1.pt")
    assert edges(stage, save) == (2.0, 2.02)
    assert [(writer.comm, writer.bytes) for writer in save.writers] == [("python3", 100 * MIB)]
    assert [stream.observed_by for stream in save.streams] == ["trace"]
    assert sum(point.bytes for point in save.timeline) == 100 * MIB
    assert not any("single operations" in sentence for sentence in save.limitations)


def test_two_saves_in_a_row_over_the_same_path_are_two() -> None:
    """A session that begins at 0 after the earlier one closed its file is another save, 10 ms later or not."""
    first = activity(start_s=2.0, end_s=2.02)
    second = activity(start_s=2.03, end_s=2.05)
    stage = alone((2.1, first), (2.1, second), (2.1, life("created", 1.999)))

    saves = stage.play(8)

    assert [(save.bytes, edges(stage, save)) for save in saves] == [
        (100 * MIB, (1.999, 2.02)),
        (100 * MIB, (2.03, 2.05)),
    ]


def test_a_file_that_is_opened_again_to_append_is_one() -> None:
    """What begins within a second where the earlier opening ended is the same save."""
    stage = alone((2.1, activity(start_s=2.0, end_s=2.02)), (2.6, activity(start_s=2.5, end_s=2.52, offset=100 * MIB)))

    (save,) = stage.play(8)

    assert (save.bytes, edges(stage, save)) == (200 * MIB, (2.0, 2.52))
    assert len(save.streams) == 1


def test_threads_that_fill_a_file_together_are_one_consecutive_stream() -> None:
    """Four threads write every fourth block of one file: each leaves gaps, together they leave none."""
    stage = alone(*(
        (3.1, activity(tid=100 + number, start_s=2.0 + number / 100, end_s=3.0, moved=50 * MIB, offset=number * MIB,
                       closed=number == 0, high_offset=(196 + number + 1) * MIB, consecutive_operations=1,
                       consecutive_bytes=MIB, large_bytes=50 * MIB, size=200 * MIB))
        for number in range(4)
    ))  # fmt: skip

    (save,) = stage.play(8)

    assert (save.bytes, len(save.streams)) == (200 * MIB, 1)
    assert save.pattern.class_ is not None
    assert save.pattern.class_.value == "sequential-large"
    assert (save.pattern.consecutive_share_bytes, save.pattern.consecutive_share_operations) == (1.0, 1.0)
    assert any("several threads" in sentence for sentence in save.limitations)


def test_a_save_ends_with_its_fsync_and_is_durable_then() -> None:
    """A sync that began after the last write ends the save; with every file synced, durable_ns is its end."""
    stage = alone((2.6, activity()), (2.6, life("synced", 2.5, duration_s=0.47)))

    (save,) = stage.play(8)

    assert edges(stage, save) == (2.0, 2.5)
    assert save.durable_ns == save.end_ns
    assert not any("stable storage" in sentence for sentence in save.limitations)


def test_a_sync_by_another_program_makes_it_durable_and_no_longer() -> None:
    """Somebody's `sync FILE` two seconds later is no part of the save, but is when it was on stable storage."""
    stage = alone((2.1, activity()), (4.2, life("synced", 4.1, duration_s=0.3, pid=999)))

    (save,) = stage.play(12)

    assert edges(stage, save) == (2.0, 2.02)
    assert save.durable_ns == pytest.approx(stage.wall(4.1), abs=10)


@pytest.mark.parametrize("synced", [None, 2.01])
def test_a_save_that_was_not_synced_after_its_last_write_has_no_durable_time(synced: float | None) -> None:
    """No sync, or one that began before the last write, proves nothing."""
    events = [] if synced is None else [(2.1, life("synced", synced, duration_s=0.005))]
    stage = alone((2.1, activity()), *events)

    (save,) = stage.play(8)

    assert save.durable_ns is None
    assert any("stable storage" in sentence for sentence in save.limitations)


def test_one_of_two_files_synced_is_not_durable() -> None:
    """Every written file must be synced."""
    stage = alone(
        (2.1, activity(path="/c/step-1/model.safetensors")),
        (2.1, activity(path="/c/step-1/optimizer.pt", inode=8)),
        (2.1, life("synced", 2.05, duration_s=0.01)),
    )

    (save,) = stage.play(14)

    assert (save.files, save.durable_ns) == (2, None)


def test_a_temporary_file_takes_its_final_name_and_ends_with_the_rename() -> None:
    """Renamed 0.3 s after its closing: the name is the new one, the rename is the end."""
    stage = alone(
        (2.1, activity(path="/ckpt/step_1.pt.tmp")),
        (2.4, life("renamed", 2.35, inode=None, path="/ckpt/step_1.pt.tmp", new_path="/ckpt/step_1.pt")),
    )

    (save,) = stage.play(8)

    assert (save.path, edges(stage, save)) == ("/ckpt/step_1.pt", (2.0, 2.35))
    assert "renamed" in {reason.name for reason in save.evidence}


@pytest.mark.parametrize("later_s", [0.1, 5.0])
def test_a_renamed_folder_renames_what_is_below_it(later_s: float) -> None:
    """Even when the commit follows seconds later, as after a barrier; by another process, too."""
    at_s = 2.02 + later_s
    stage = alone(
        (2.1, activity(path="/c/checkpoint-5.tmp/a/model.safetensors")),
        (2.1, activity(path="/c/checkpoint-5.tmp/optimizer.pt", inode=8)),
        (2.1, activity(path="/c/checkpoint-50/other.pt", inode=9, moved=10)),
        (at_s + 0.05, life("renamed", at_s, 300, inode=None, path="/c/checkpoint-5.tmp", new_path="/c/checkpoint-5")),
    )

    (save,) = stage.play(25)

    assert {stream.path for stream in save.streams} == {
        "/c/checkpoint-5/a/model.safetensors",
        "/c/checkpoint-5/optimizer.pt",
    }
    assert edges(stage, save) == pytest.approx((2.0, at_s), abs=1e-6)


def test_a_relative_rename_is_matched_within_its_process() -> None:
    """A path that could not be made absolute is one of those that its process wrote."""
    stage = alone(
        (2.1, activity(path="/run/job/last.ckpt.tmp")),
        (2.1, activity(7, path="/other/last.ckpt.tmp", inode=9)),
        (2.1, life("renamed", 2.05, inode=None, path="last.ckpt.tmp", new_path="last.ckpt")),
    )

    saves = stage.play(14)

    assert "/run/job/last.ckpt" in {save.path for save in saves}
    assert "/other/last.ckpt" not in {save.path for save in saves}


def test_rotation_is_no_commit() -> None:
    """A file that makes room for the next one two seconds later keeps the name under which it was saved."""
    stage = alone(
        (2.1, activity(path="/ckpt/last.pt")),
        (4.1, life("renamed", 4.05, inode=None, path="/ckpt/last.pt", new_path="/ckpt/previous.pt")),
    )

    (save,) = stage.play(10)

    assert (save.path, edges(stage, save)) == ("/ckpt/last.pt", (2.0, 2.02))


@pytest.mark.parametrize("trace_only", [True, False])
def test_a_writer_that_pauses_in_the_midst_of_an_open_file_is_one_save(*, trace_only: bool) -> None:
    """Five seconds without an operation, the file open: one save, all bytes."""
    stage = Stage(trace=True, poll=not trace_only)
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 7.0, 400 * MIB, pauses=[(3.0, 8.0)])

    (save,) = stage.play(16)

    assert save.bytes == 400 * MIB
    assert edges(stage, save) == pytest.approx((2.0, 9.0), abs=1e-6)


def test_a_session_that_never_closes_is_told_once_and_never_twice() -> None:
    """Idle for a minute it is told; what it writes after that is another save, without the bytes of the first."""
    before = activity(end_s=3.0, closed=False)
    after = activity(end_s=101.0, moved=250 * MIB, closed=False)
    stage = alone((3.04, before), (101.0, after))
    stage.hz = 5

    saves = stage.play(200)

    assert [save.bytes for save in saves] == [100 * MIB, 150 * MIB]
    assert saves[1].pattern.operations == 150
    assert edges(stage, saves[1]) == pytest.approx((100.8, 101.0), abs=0.01)


def test_the_end_of_a_process_ends_its_files() -> None:
    """What it had open is told at once; a last sample that comes after its end counts once."""
    live = activity(end_s=2.5, moved=80 * MIB, closed=False)
    stage = alone(
        (2.52, live), (2.8, ProcessExit(100, 1000)), (3.0, activity(end_s=2.6, closed_ns=live.last_ns + 200_000_000))
    )

    (save,) = stage.play(8)

    assert save.bytes == 100 * MIB


def test_hostile_names_are_names() -> None:
    """Escape codes, newlines and unknown paths raise nothing and are kept as they are."""
    path = "/ckpt/\x1b[31m\n<b>step_1.pt"
    unknown = activity(path=None, inode=8)
    relative = life("renamed", 2.05, inode=None, path="", new_path="")
    stage = alone((2.1, activity(path=path)), (2.1, unknown), (2.1, relative))

    (save,) = stage.play(8)

    assert save.path == path
    assert msgspec.json.encode(save)


def test_the_path_of_a_live_session_comes_later() -> None:
    """Until it is told, nothing is decided; the temporary name of its creation is remembered."""
    stage = alone(
        (2.0, life("created", 1.99, path="/ckpt/.tmpAbCdEf")),
        (2.2, activity(path=None, end_s=2.2, moved=MIB, closed=False)),
        (3.0, activity(path="/ckpt/model.safetensors", end_s=2.9)),
    )

    (save,) = stage.play(8)

    assert (save.path, edges(stage, save)) == ("/ckpt/model.safetensors", (1.99, 2.9))
    assert "renamed" in {reason.name for reason in save.evidence}


def test_a_reused_inode_is_another_file() -> None:
    """The same inode with another generation begins another stream even where the earlier one ended."""
    stage = alone(
        (2.1, activity(path="/ckpt/step_1.pt")),
        (2.2, activity(path="/ckpt/step_2.pt", start_s=2.15, end_s=2.2, offset=100 * MIB, generation=2)),
    )

    assert [save.path for save in stage.play(8)] == ["/ckpt/step_1.pt", "/ckpt/step_2.pt"]


def test_thousands_of_small_files_are_one_save() -> None:
    """A save of many small files is one save with all of them."""
    stage = alone(*(
        (2.1, activity(path=f"/c/step-1/part_{number}.distcp", inode=number, moved=64 << 10)) for number in range(3000)
    ))  # fmt: skip

    (save,) = stage.play(14)

    assert (save.files, save.bytes) == (3000, 3000 * (64 << 10))
