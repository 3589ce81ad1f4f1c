"""Saves: found with their edges, told apart, joined, and named by what they became."""

from __future__ import annotations

import os

import msgspec
import pytest
from tests.detect.stage import MIB, MONOTONIC_NS, NUMPY, SAFETENSORS, SECOND_NS, TORCH_ZIP, Stage, changed, play
from tests.detect.tracer import mono

from ckptprof.model import Checkpoint, Kind, Status
from ckptprof_collectors.samples import FileEvent, FileFact, FileScan, OpenFile


def edges_s(stage: Stage, checkpoint: Checkpoint) -> tuple[float, float]:
    """Return the edges in seconds of the stage."""
    return (checkpoint.start_ns - stage.wall(0)) / SECOND_NS, (checkpoint.end_ns - stage.wall(0)) / SECOND_NS


def names(found: list[Checkpoint]) -> list[str]:
    """Return the last part of each path."""
    return [(checkpoint.path or "").rpartition("/")[2] for checkpoint in found]


@pytest.mark.parametrize("hz", [5.0, 10.0, 25.0, 50.0])
def test_a_save_is_found_with_the_file_systems_edges(hz: float) -> None:
    """Birth and modification inside the bracket of the looks give edges to the millisecond, at any rate."""
    stage = Stage(hz=hz, jitter=0.3)
    stage.write(stage.process(), "/ckpt/step_7.pt", 2.013, 1.777, 300 * MIB)

    (save,) = stage.play(8)

    assert (save.kind, save.step, save.bytes, save.files, save.path) == (Kind.SAVE, 7, 300 * MIB, 1, "/ckpt/step_7.pt")
    assert save.framework == "torch.save"
    assert edges_s(stage, save) == pytest.approx((2.013, 3.790), abs=0.001)


@pytest.mark.parametrize("trace", [False, True])
def test_of_the_links_to_a_file_the_one_with_a_step_names_it(trace: bool) -> None:  # noqa: FBT001 # a parameter
    """As timm saves: the folder shows one file as `last`, as `checkpoint-7` and as `model_best`."""
    stage = Stage(trace=trace)
    last = {"magic": TORCH_ZIP, "rename_to": "/ckpt/last.pth.tar"}
    stage.write(stage.process(), "/ckpt/tmp.pth.tar", 2.0, 1.0, 300 * MIB, **last)
    frames = []
    for frame in stage.frames(12):
        samples = list(frame.samples)
        for fact in (one for one in frame.samples if isinstance(one, FileFact) and "last" in one.path):
            names = ("/ckpt/checkpoint-7.pth.tar", "/ckpt/last.pth.tar", "/ckpt/model_best.pth.tar")
            samples += [msgspec.structs.replace(fact, path=name) for name in names]
        frames.append(msgspec.structs.replace(frame, samples=tuple(samples)))

    (save,) = play(stage.header(), frames)

    assert (save.path, save.step, save.bytes) == ("/ckpt/checkpoint-7.pth.tar", 7, 300 * MIB)


def test_a_folder_that_was_renamed_has_its_new_name() -> None:
    """Polling saw some of its files only under the temporary name, as of Orbax, and those deep in it."""
    stage = Stage()
    trainer = stage.process()
    folder, final = "/ckpt/checkpoint_3.orbax-checkpoint-tmp", "/ckpt/checkpoint_3"
    stage.write(trainer, f"{folder}/ocdbt.process_0/d/{'0123456789abcdef' * 2}", 2.0, 1.0, 200 * MIB)
    stage.write(trainer, f"{folder}/_METADATA", 3.1, 0.2, 1 * MIB, rename_to=f"{final}/_METADATA")

    (save,) = stage.play(12)

    assert (save.path, save.step, save.bytes, save.framework) == (final, 3, 201 * MIB, "orbax")


@pytest.mark.parametrize("hz", [10.0, 25.0])
def test_without_facts_the_counters_give_the_edges(hz: float) -> None:
    """Where nobody could look at the files, edges are interpolated and bytes lack at most the last tick's."""
    stage = Stage(hz=hz, facts=False)
    stage.write(stage.process(), "/ckpt/step_7.pt", 2.03, 1.51, 300 * MIB)

    (save,) = stage.play(8)

    assert 300 * MIB * (1 - 1 / hz / 1.51) <= save.bytes <= 300 * MIB
    assert edges_s(stage, save) == pytest.approx((2.03, 3.54), abs=1.0 / hz)


def test_without_birth_times_the_start_is_that_of_the_counters() -> None:
    """A file system that keeps no birth time costs one tick of precision, no more."""
    stage = Stage(births=False)
    stage.write(stage.process(), "/ckpt/step_7.pt", 2.03, 1.51, 300 * MIB)

    (save,) = stage.play(8)

    assert edges_s(stage, save) == pytest.approx((2.03, 3.54), abs=0.04)


def test_two_saves_in_a_row_are_two() -> None:
    """Steps that follow each other without a pause keep their own edges."""
    stage = Stage()
    job = stage.process()
    stage.write(job, "/ckpt/step_1.pt", 2.0, 1.0, 200 * MIB)
    stage.write(job, "/ckpt/step_2.pt", 3.0, 1.0, 200 * MIB)

    first, second = stage.play(9)

    assert [first.step, second.step] == [1, 2]
    assert edges_s(stage, first) == pytest.approx((2.0, 3.0), abs=0.01)
    assert edges_s(stage, second) == pytest.approx((3.0, 4.0), abs=0.01)


def test_one_name_written_twice_is_two_saves() -> None:
    """A rewritten file is another save, with a start of its own although the birth time is the first one's."""
    stage = Stage()
    job = stage.process()
    stage.write(job, "/ckpt/latest.pt", 2.0, 1.0, 200 * MIB)
    stage.write(job, "/ckpt/latest.pt", 5.0, 1.0, 200 * MIB)

    first, second = stage.play(12)

    assert edges_s(stage, first) == pytest.approx((2.0, 3.0), abs=0.05)
    assert edges_s(stage, second) == pytest.approx((5.0, 6.0), abs=0.05)
    assert first.uid != second.uid


@pytest.mark.parametrize("gap_s", [1.01, 1.1, 1.5])
def test_one_name_written_twice_without_a_pause_is_two_saves(gap_s: float) -> None:
    """No fact is left of the first one: its bytes lack the last tick's, its edges are the counters'."""
    stage = Stage()
    job = stage.process()
    stage.write(job, "/ckpt/latest.pt", 2.0, 1.0, 200 * MIB)
    stage.write(job, "/ckpt/latest.pt", 2.0 + gap_s, 1.0, 200 * MIB)

    first, second = stage.play(12)

    assert 190 * MIB <= first.bytes <= 200 * MIB
    assert second.bytes == 200 * MIB
    assert edges_s(stage, first) == pytest.approx((2.0, 3.0), abs=0.05)
    assert edges_s(stage, second) == pytest.approx((2.0 + gap_s, 3.0 + gap_s), abs=0.05)
    assert "sequential-large" == first.pattern.class_ == second.pattern.class_


def test_temporary_names_replaced_again_and_again_are_as_many_saves() -> None:
    """Writing beside and renaming over the old one gives the final name each time."""
    stage = Stage()
    job = stage.process()
    for number, start_s in enumerate((2.0, 6.0, 10.0)):
        stage.write(job, f"/ckpt/.tmpAb3X9{number}", start_s, 1.0, 200 * MIB, rename_to="/ckpt/model.safetensors",
                    magic=SAFETENSORS)  # fmt: skip

    found = stage.play(16)

    assert names(found) == ["model.safetensors"] * 3
    assert {"safetensors"} == {save.framework for save in found}
    assert all("renamed" in {reason.name for reason in save.evidence} for save in found)


@pytest.mark.parametrize("pause_s", [0.2, 1.0, 3.0, 8.0])
def test_a_pause_inside_a_save_does_not_split_it(pause_s: float) -> None:
    """Gathering and serialising between two pieces of one file is part of the save."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0 + pause_s, 200 * MIB, pauses=[(2.5, 2.5 + pause_s)])

    (save,) = stage.play(8 + pause_s)

    assert edges_s(stage, save) == pytest.approx((2.0, 3.0 + pause_s), abs=0.01)


@pytest.mark.parametrize("pause_s", [0.0, 0.3, 3.0])
def test_the_files_of_one_step_directory_are_one_save(pause_s: float) -> None:
    """Shards, metadata and the pauses between them join under the directory that carries the step."""
    stage = Stage()
    job = stage.process()
    at_s = 2.0
    for number in range(6):
        stage.write(job, f"/run/step-40/__0_{number}.distcp", at_s, 0.3, 40 * MIB)
        at_s += 0.3 + pause_s
    stage.write(job, "/run/step-40/.metadata.tmp", at_s, 0.01, 4096, rename_to="/run/step-40/.metadata", magic=None)

    (save,) = stage.play(at_s + 6)

    assert (save.path, save.step, save.framework, save.files) == ("/run/step-40", 40, "torch-dcp", 7)
    assert save.bytes == 240 * MIB + 4096


def test_shards_of_all_ranks_are_one_save_with_all_writers() -> None:
    """Ranks that write at once, one of them late, are one save; each writer bears its rank."""
    stage = Stage()
    parent = stage.process(50, comm="torchrun", program="torchrun", runtimes=())
    for rank in range(4):
        job = stage.process(100 + rank, parent_pid=parent.pid, environment={"RANK": str(rank), "WORLD_SIZE": "4"})
        stage.write(job, f"/run/step-8/__{rank}_0.distcp", 2.0 + rank * 0.4, 1.0, 100 * MIB)

    (save,) = stage.play(10)

    assert (save.ranks, save.files, save.bytes) == (4, 4, 400 * MIB)
    assert {0, 1, 2, 3} == {writer.rank for writer in save.writers}
    assert {100 * MIB} == {writer.bytes for writer in save.writers}
    assert edges_s(stage, save) == pytest.approx((2.0, 4.2), abs=0.02)


def test_numbered_parts_at_once_are_one_and_numbered_steps_apart_are_several() -> None:
    """The same names mean parts when they follow at once and steps when training lies between."""
    stage = Stage()
    job = stage.process()
    for number in range(4):
        stage.write(job, f"/a/model_{number}.pt", 2.0 + number * 0.3, 0.3, 50 * MIB)
        stage.write(job, f"/b/model_{number}.pt", 10.0 + number * 4, 0.3, 50 * MIB)

    found = stage.play(30)

    assert [save.files for save in found] == [4, 1, 1, 1, 1]
    assert [save.step for save in found] == [None, 0, 1, 2, 3]


def test_two_jobs_at_once_stay_two() -> None:
    """Jobs that save at the same time into the same folder keep their own bytes."""
    stage = Stage()
    for pid, name in ((100, "a"), (200, "b")):
        stage.write(stage.process(pid, program=f"{name}.py"), f"/ckpt/{name}-step_3.pt", 2.0, 1.0, 100 * MIB)

    found = stage.play(8)

    assert {"a.py-100", "b.py-200"} == {save.job for save in found}
    assert [save.bytes for save in found] == [100 * MIB] * 2


def test_files_too_short_lived_to_be_caught_open_are_found_by_their_times() -> None:
    """A whole save between two ticks is seen in the folder, credited to its writer, and said to be seen so."""
    stage = Stage(hz=5)
    job = stage.process()
    for number in range(5):
        stage.write(job, f"/run/step-9/__0_{number}.distcp", 2.01 + number * 0.03, 0.02, 30 * MIB, seen_open=False)

    (save,) = stage.play(8)

    assert (save.bytes, save.files) == (150 * MIB, 5)
    assert any("not open at any tick" in text for text in save.limitations)
    assert edges_s(stage, save) == pytest.approx((2.01, 2.15), abs=0.02)


def test_a_short_file_right_after_a_long_one_is_not_lost() -> None:
    """What the long one wrote before does not explain the bytes of the short one away."""
    stage = Stage(hz=10)
    job = stage.process()
    stage.write(job, "/run/step-9/model.pt", 2.0, 2.0, 400 * MIB)
    stage.write(job, "/run/step-9/optimizer.pt", 4.02, 0.06, 40 * MIB, seen_open=False)

    (save,) = stage.play(10)

    assert (save.bytes, save.files) == (440 * MIB, 2)


def test_a_file_of_another_process_in_the_same_folder_is_not_credited_to_this_one() -> None:
    """A big file that appears beside a save, and that its process did not write, is not part of it."""
    stage = Stage()
    job, stranger = stage.process(100), stage.process(200, comm="cp", program="cp", runtimes=())
    stage.write(job, "/run/step-9/model.pt", 2.0, 1.0, 100 * MIB)
    other = stage.write(stranger, "/run/step-9/download.bin", 2.1, 0.8, 300 * MIB, seen_open=False)
    stage.extra.append((3.4, msgspec.structs.replace(stage.fact(other, 3.4), pid=100, start_ticks=1000)))

    save = next(save for save in stage.play(10) if save.job == "train.py-100")

    assert (save.bytes, save.files) == (100 * MIB, 1)


def test_the_wait_in_fsync_belongs_to_the_save() -> None:
    """A file that is held open by a process that sleeps after its last byte is being flushed."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 200 * MIB, held_s=1.5)

    (save,) = stage.play(10)

    assert edges_s(stage, save) == pytest.approx((2.0, 4.5), abs=0.06)


def test_a_process_that_dies_in_a_save_leaves_what_it_wrote() -> None:
    """The save ends with the process, with the bytes written so far."""
    stage = Stage()
    job = stage.process(exit_s=2.75)
    stage.write(job, "/ckpt/step_1.pt", 2.0, 1.5, 300 * MIB)

    (save,) = stage.play(8)

    assert save.bytes == pytest.approx(150 * MIB, rel=0.02)
    assert edges_s(stage, save) == pytest.approx((2.0, 2.75), abs=0.05)


def test_a_save_cut_off_by_the_end_of_the_recording_is_told() -> None:
    """What was open when the recording ended is judged as far as it was seen."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 2.0, 400 * MIB)

    (save,) = stage.play(3.0)

    assert save.bytes == pytest.approx(200 * MIB, rel=0.05)
    assert edges_s(stage, save) == pytest.approx((2.0, 3.0), abs=0.05)


def test_an_hour_forward_in_the_middle_of_a_save_leaves_its_duration_alone() -> None:
    """Durations are monotonic: a wall clock that is set during a save changes its label, not its length."""
    stage = Stage(wall_jumps=((2.5, 3600.0),))
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 200 * MIB)

    (save,) = stage.play(8)

    assert (save.end_ns - save.start_ns) / SECOND_NS == pytest.approx(1.0, abs=0.06)


def test_an_hour_back_in_the_middle_of_a_save_leaves_its_duration_alone() -> None:
    """The same when the clock goes back."""
    stage = Stage(wall_jumps=((2.5, -3600.0),))
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 200 * MIB)

    (save,) = stage.play(8)

    assert (save.end_ns - save.start_ns) / SECOND_NS == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("skew_s", [-7200.0, -30.0, -4.0, 4.0, 30.0, 7200.0])
def test_stamps_of_a_skewed_server_are_not_believed(skew_s: float) -> None:
    """A file server with a clock of its own leaves the edges of every save in a series to the counters."""
    stage = Stage(server_skew_s=skew_s)
    job = stage.process()
    for number in range(3):
        stage.write(job, f"/nfs/step_{number}.pt", 2.0 + 4 * number, 1.0, 200 * MIB)

    for number, save in enumerate(stage.play(16)):
        assert edges_s(stage, save) == pytest.approx((2.0 + 4 * number, 3.0 + 4 * number), abs=0.05)


@pytest.mark.parametrize("trace", [True, False])
def test_where_a_job_prints_to_gets_no_bytes_while_it_is_empty(trace: bool) -> None:  # noqa: FBT001 - a parameter
    """Its output goes to a file, which a look at its descriptors met while it wrote a table."""
    stage = Stage(trace=trace)
    job = stage.process(environment={"RANK": "0", "WORLD_SIZE": "1"})
    output = OpenFile(2, 2049, 77, 0, os.O_WRONLY, 0, 0, "/job/checkpoints/stdout")
    for start_s in (3.0, 9.0):
        stage.write(job, f"/job/table_{start_s:.0f}.csv", start_s, 2.0, 200 * MIB, magic=None)
        scans = [(start_s + number / 5, FileScan(job.pid, job.info.start_ticks, (output,), ())) for number in range(9)]
        stage.extra += scans

    assert not stage.play(90)


@pytest.mark.parametrize("saves", [1, 5])
def test_an_empty_file_gets_no_bytes_that_others_got(saves: int) -> None:
    """Its output goes to a file and says nothing; it is looked at beside each save, which may write one file anew."""
    stage = Stage(facts=False)
    job = stage.process()
    output = OpenFile(1, 2049, 77, 0, os.O_WRONLY, 0, 0, "/job/checkpoints/stdout")
    for start_s in (3.0, 12.0, 21.0):
        for number in range(saves):
            stage.write(job, f"/job/ckpt/step_{start_s:.0f}.pt", start_s + 0.2 * number, 0.2, 60 * MIB)
    frames = changed(
        stage.frames(90),
        lambda one: msgspec.structs.replace(one, files=(*one.files, output)) if isinstance(one, FileScan) else one,
    )

    assert set(names(play(stage.header(), frames))) == {"step_3.pt", "step_12.pt", "step_21.pt"}


def test_direct_writes_are_told_as_such() -> None:
    """O_DIRECT in the descriptor's flags makes the bytes direct."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 200 * MIB, flags=os.O_WRONLY | os.O_DIRECT)

    (save,) = stage.play(8)

    assert (save.pattern.direct_share_bytes, save.pattern.buffered_share_bytes) == (1.0, 0.0)


def test_an_unknown_name_that_recurs_is_promoted_with_its_forerunners() -> None:
    """The first of a series is held, and told once the series is one."""
    stage = Stage()
    job = stage.process(runtimes=("numpy",))
    for number in range(4):
        stage.write(job, f"/out/blob{number}.npy", 2.0 + number * 6, 1.0, 64 * MIB, magic=NUMPY)

    found = stage.play(32)

    assert [f"blob{number}.npy" for number in range(4)] == names(found)
    assert all("recurs" in {reason.name for reason in save.evidence} for save in found)


def test_a_single_file_of_unknown_name_is_no_save() -> None:
    """What does not recur and bears no mark is not told."""
    stage = Stage()
    stage.write(stage.process(runtimes=("numpy",)), "/out/blob.npy", 2.0, 1.0, 64 * MIB, magic=NUMPY)

    assert stage.play(10) == []


def test_hostile_names_pass_unharmed() -> None:
    """Escape codes, newlines, markup and bytes that are no UTF-8 stay what they are."""
    name = "/ckpt/\x1b[31m<b>\n\\xff\\xfe'\"; DROP TABLE--/step_3.pt"
    stage = Stage()
    stage.write(stage.process(comm="\x1b]0;x\x07", program="<script>.py"), name, 2.0, 1.0, 100 * MIB)

    (save,) = stage.play(8)

    assert (name, "<script>.py-100", 3) == (save.path, save.job, save.step)
    assert save.writers[0].comm == "\x1b]0;x\x07"


@pytest.mark.parametrize("magic", [b"SQLite format 3\0", b"\x37\x7f\x06\x82\0\x2d\xe2\x18\0\0\x10\0\0\0\0\0"])
def test_a_database_beside_a_save_is_no_part_of_it(magic: bytes) -> None:
    """Our own may lie in the folder that a job saves to, and is written while it saves."""
    stage = Stage()
    trainer = stage.process()
    stage.write(trainer, "/work/step_1.pt", 2.0, 1.0, 200 * MIB, magic=TORCH_ZIP)
    frames = stage.frames(10.0)
    move = stage.write(trainer, "/work/flight-recorder", 2.2, 0.3, 256 << 10, magic=magic)
    fact = msgspec.structs.replace(stage.fact(move, 4.0), path="/work/flight-recorder", magic=magic)
    told = [
        msgspec.structs.replace(frame, samples=(*frame.samples, fact)) if abs(frame.at_ns - mono(4.0)) < 1e8 else frame
        for frame in frames
    ]

    (save,) = play(stage.header(), told)

    assert (save.path, save.files) == ("/work/step_1.pt", 1)


def test_a_file_that_is_written_elsewhere_and_renamed_is_followed() -> None:
    """As Lightning does: nobody looked at it under its last name, but that it came into the folder was heard."""
    stage = Stage(facts=False)
    trainer = stage.process()
    for number in range(3):
        move = stage.write(trainer, f"/tmp/tmpab12cd3{number}", 3.0 + 4 * number, 0.6, 60 * MIB)
        at_ns = MONOTONIC_NS + int((move.closed_s + 0.01) * SECOND_NS)
        path = f"/run/epoch=0-step={number + 1}.ckpt"
        stage.extra.append((move.closed_s + 0.01, FileEvent(at_ns, "renamed", 2049, move.inode, move.bytes, path)))

    saves = stage.play(30)

    assert [(one.path, one.step) for one in saves] == [(f"/run/epoch=0-step={step}.ckpt", step) for step in (1, 2, 3)]
    assert all("renamed" in {reason.name for reason in one.evidence} for one in saves)


@pytest.mark.parametrize(
    ("how", "waited_s", "trace"),
    [
        ("renamed", 1.8, False),
        ("renamed", 6.0, False),
        ("linked", 1.8, False),
        ("linked", 1.8, True),
        ("unobserved", 1.8, False),
    ],
)
def test_a_save_ends_as_its_file_gets_its_name(how: str, waited_s: float, *, trace: bool) -> None:
    """A check of the file runs before; where the name was not observed, a limitation says what is missing."""
    stage = Stage(facts=False, trace=trace)
    move = stage.write(stage.process(), "/ckpt/step_7.pt.tmp", 2.0, 0.5, 300 * MIB)
    at_s, fact, name = move.closed_s + waited_s, stage.fact(move, 3.0), "/ckpt/step_7.pt"
    observed = {
        "renamed": FileEvent(mono(at_s), "renamed", 2049, move.inode, move.bytes, name),
        "linked": msgspec.structs.replace(fact, path=name, changed_ns=stage.wall(at_s)),
        "unobserved": msgspec.structs.replace(fact, is_missing=True),
    }
    stage.extra.append((at_s + 0.01, observed[how]))

    (save,) = stage.play(30)

    until_s = 2.5 if how == "unobserved" else at_s
    assert edges_s(stage, save)[1] == pytest.approx(until_s, abs=0.05)
    assert save.stall_ns == pytest.approx(SECOND_NS * (until_s - 2.0), rel=0.1)
    assert save.status is Status.COMPLETE
    assert any("rename" in one for one in save.limitations) is (how == "unobserved")


def test_a_save_does_not_end_as_its_file_is_moved_away_for_the_next_one() -> None:
    """It had its final name."""
    stage = Stage(facts=False)
    trainer = stage.process()
    for number in range(3):
        move = stage.write(trainer, "/ckpt/last.pt", 3.0 + 2.2 * number, 0.3, 60 * MIB, inode=50 + number)
        moved = FileEvent(mono(move.start_s + 2.2), "renamed", 2049, move.inode, move.bytes, "/ckpt/last-but-one.pt")
        stage.extra.append((move.start_s + 2.21, moved))

    ends = [edges_s(stage, save)[1] for save in stage.play(20)]

    assert ends == pytest.approx([3.3, 5.5, 7.7], abs=0.1)


def test_a_save_ends_with_its_marker_also_after_a_child_that_was_waited_for() -> None:
    """Polled, the counters of the one who waits may be those of the child: of a marker nobody asks them."""
    stage = Stage()
    trainer = stage.process(runtimes=("numpy",), busy=0.0)
    stage.process(200, born_s=2.6, exit_s=4.0, parent_pid=100, comm="check", program="check", runtimes=())
    stage.write(trainer, "/ckpt/step_5/model.npy", 2.0, 0.5, 100 * MIB, magic=NUMPY)
    stage.write(trainer, "/ckpt/latest", 4.02, 0.01, 8, magic=None, seen_open=False)

    (save,) = stage.play(20)

    assert (save.files, edges_s(stage, save)) == (2, pytest.approx((2.0, 4.03), abs=0.05))


def test_a_number_in_a_hidden_folder_is_no_step_of_a_file_that_is_moved_out_of_it() -> None:
    """It is that of the process which writes there until the file is whole."""
    stage = Stage(facts=False)
    trainer = stage.process()
    for step in (100, 200):
        move = stage.write(trainer, f"/run/.ckpt-{trainer.pid}/model.pt", step / 25, 0.6, 60 * MIB)
        at_ns, path = MONOTONIC_NS + int((move.closed_s + 0.01) * SECOND_NS), f"/run/step_{step}/model.pt"
        stage.extra.append((move.closed_s + 0.01, FileEvent(at_ns, "renamed", 2049, move.inode, move.bytes, path)))

    told = [(one.step, one.path) for one in stage.play(30)]

    assert told == [(step, f"/run/step_{step}/model.pt") for step in (100, 200)]


def test_a_file_whose_inode_is_that_of_a_deleted_one_is_no_new_name_of_it() -> None:
    """The oldest checkpoint is deleted right before the next is written: the first inode that is free is its own."""
    stage = Stage(facts=False)
    trainer = stage.process()
    moves = []
    for step, start_s in ((500, 3.0), (1000, 6.0)):
        path = f"/run/checkpoint-{step}/model.safetensors"
        moves.append(move := stage.write(trainer, path, start_s, 0.6, 60 * MIB))
        for number, one in enumerate(moves[:-1]):  # it is not known yet who has written the new one
            at_s = move.closed_s - 0.5 + number / 100
            at_ns = MONOTONIC_NS + int(at_s * SECOND_NS)
            stage.extra.append((at_s, FileEvent(at_ns, "renamed", 2049, one.inode, one.bytes, path)))

    assert [one.step for one in stage.play(30)] == [500, 1000]


def test_a_step_of_which_nothing_was_seen_under_its_last_name_is_told_by_it() -> None:
    """Orbax writes below two temporary folders and renames both; who asks too early sees neither rename."""
    stage = Stage()
    trainer = stage.process(runtimes=("jax", "numpy"))
    for step in (31, 63):
        folder = f"/run/{step}.orbax-checkpoint-tmp/default.orbax-checkpoint-tmp"
        stage.write(trainer, f"{folder}/manifest.ocdbt", step / 10, 0.01, 300, magic=None)
        stage.write(trainer, f"{folder}/ocdbt.process_0/d/6d7ea296", step / 10 + 0.05, 0.4, 20 * MIB, magic=None)

    assert [one.path for one in stage.play(20)] == ["/run/31/default", "/run/63/default"]
