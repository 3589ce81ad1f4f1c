"""Saves that did not come to their end, and those that only look as if they had not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.detect.stage import MIB, NUMPY, Actor, Stage
from tests.detect.tracer import activity, life, mono

from ckptprof.model import CUT_AT_END, Checkpoint, Kind, Status
from ckptprof_collectors.samples import FileEvent, TraceHealth

LEVELS = pytest.mark.parametrize("trace", [True, False], ids=["trace", "poll"])


class Remains(Stage):
    """A stage on which every look at a file says the same of what is left of it."""

    remains: dict[str, dict[str, Any]]

    def fact(self, *arguments: Any, **options: Any) -> Any:
        """Return what the file system says, and what the file itself does."""
        fact = super().fact(*arguments, **options)
        return msgspec.structs.replace(fact, **self.remains.get(fact.path, {}))


def stage_of(*, trace: bool, **remains: dict[str, Any]) -> Remains:
    """Return a stage; `remains` are by file name, its dots as they are."""
    stage = Remains(trace=trace)
    stage.remains = {f"/ckpt/{name}": fields for name, fields in remains.items()}
    return stage


def saves(stage: Stage, until_s: float = 25.0) -> list[Checkpoint]:
    """Return the saves that are found."""
    return [found for found in stage.play(until_s) if found.kind is Kind.SAVE]


def why(checkpoint: Checkpoint) -> str:
    """Return why it is called incomplete; empty if it is not."""
    return "".join(one.text for one in checkpoint.evidence if one.name == "incomplete")


@LEVELS
def test_a_file_that_ends_before_its_format_does_was_cut_off(*, trace: bool) -> None:
    """Its writer was killed in the midst of torch.save, which writes in place."""
    stage = stage_of(trace=trace, **{"step_1.pt": {"is_complete": False}})
    stage.write(stage.process(exit_s=3.0), "/ckpt/step_1.pt", 2.0, 2.0, 100 * MIB)

    (found,) = saves(stage)

    assert found.status is Status.INCOMPLETE
    assert "step_1.pt ends before its format does" in why(found)
    assert found.moments.committed_ns is None
    assert found.bytes < 60 * MIB


@LEVELS
def test_a_disk_that_was_full_cut_it_off_though_its_writer_goes_on(*, trace: bool) -> None:
    """The job caught the error and trains on."""
    stage = stage_of(trace=trace, **{"step_1.pt": {"is_complete": False, "free_bytes": 0}})
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 60 * MIB)

    (found,) = saves(stage)

    assert found.status is Status.INCOMPLETE


@LEVELS
def test_a_file_of_no_known_end_is_held_against_its_series(*, trace: bool) -> None:
    """The third of a series is half as large, and its writer ended with it."""
    stage = stage_of(trace=trace)
    trainer = stage.process(exit_s=22.0)
    for number in range(2):
        stage.write(trainer, f"/ckpt/step_{number}.npy", 2.0 + 10 * number, 1.0, 100 * MIB, magic=NUMPY)
    stage.write(trainer, "/ckpt/step_2.npy", 21.5, 1.0, 100 * MIB, magic=NUMPY)

    *complete, last = saves(stage, 30.0)

    assert [one.status for one in complete] == [Status.COMPLETE] * 2
    assert last.status is Status.INCOMPLETE
    assert "earlier saves have" in why(last)


@LEVELS
@pytest.mark.parametrize(
    ("free_bytes", "status"), [(60 * MIB, Status.INCOMPLETE), (30 * MIB, Status.COMPLETE), (1 << 30, Status.COMPLETE)]
)
def test_a_save_for_which_the_one_before_left_no_room_is_not_whole(
    free_bytes: int, status: Status, *, trace: bool
) -> None:
    """The job deletes older ones at once, so that no look meets the disk full; what takes more room had it."""
    stage = stage_of(trace=trace, **{"step_1.npy": {"free_bytes": free_bytes}, "step_2.npy": {"free_bytes": 1 << 30}})
    trainer = stage.process()
    for number, share in enumerate((1.0, 1.0, 0.5)):
        size = int(100 * MIB * share)
        stage.write(trainer, f"/ckpt/step_{number}.npy", 2.0 + 10 * number, share, size, magic=NUMPY)

    *complete, last = saves(stage, 40.0)

    assert [one.status for one in complete] == [Status.COMPLETE] * 2
    assert last.status is status
    assert (" free" in why(last)) == (status is Status.INCOMPLETE)


@LEVELS
def test_a_temporary_name_that_stayed_is_a_save_that_was_not_committed(*, trace: bool) -> None:
    """Its writer died between the last byte and the rename."""
    stage = stage_of(trace=trace)
    stage.write(stage.process(exit_s=3.05), "/ckpt/step_1.pt.tmp", 2.0, 1.0, 100 * MIB, held_s=2.0,
                rename_to="/ckpt/step_1.pt")  # fmt: skip

    (found,) = saves(stage)

    assert found.status is Status.INCOMPLETE
    assert "never got its final name" in why(found)


@LEVELS
@pytest.mark.parametrize("names", [("step_1.pt.tmp.1", "step_1.pt.tmp.2"), ("tmpab12cd34", "tmpef56gh78")])
def test_an_attempt_that_was_made_again_leaves_the_save_whole(names: tuple[str, str], *, trace: bool) -> None:
    """A writer that met an error deletes what it has, and begins anew under another temporary name."""
    stage = stage_of(trace=trace)
    trainer = stage.process(exit_s=4.5)
    first, second = (f"/ckpt/{name}" for name in names)
    stage.write(trainer, first, 2.0, 0.5, 40 * MIB)
    stage.extra.append((2.61, life("unlinked", 2.6, inode=None, path=first)))
    stage.write(trainer, second, 2.8, 1.0, 100 * MIB, held_s=0.2, rename_to="/ckpt/step_1.pt")

    found = saves(stage)

    assert [(one.status, why(one)) for one in found] == [(Status.COMPLETE, "")]


def test_a_save_in_whose_midst_the_trace_fails_was_seen_in_part() -> None:
    """Nobody tells when its file is closed; one that was closed before is whole."""
    stage = stage_of(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 2.0, 1.0, 100 * MIB)
    stage.extra.append((4.0, health("vfs_write")))
    stage.extra.append((6.0, activity(path="/ckpt/step_2.pt", start_s=5.5, end_s=6.0, inode=77, closed=False)))
    stage.extra.append((6.1, health()))

    whole, cut = saves(stage)

    assert (whole.status, whole.cuts) == (Status.COMPLETE, frozenset())
    assert (cut.status, cut.stall_ns, cut.cuts) == (Status.INCOMPLETE, None, {CUT_AT_END})


def health(*programs: str) -> TraceHealth:
    """Return what a trace says of itself; without programs it has failed."""
    return TraceHealth(1, 0, 0, 0, 0, 0, dict.fromkeys(programs, "typed"), ())


@LEVELS
def test_shards_without_their_metadata_are_no_checkpoint(*, trace: bool) -> None:
    """Of PyTorch DCP, whose ranks all died before the coordinator wrote it."""
    stage = stage_of(trace=trace)
    for rank in range(2):
        environment = {"RANK": str(rank), "WORLD_SIZE": "2"}
        trainer = stage.process(100 + rank, exit_s=4.0, environment=environment)
        stage.write(trainer, f"/ckpt/step-5/__{rank}_0.distcp", 2.0, 1.0, 100 * MIB, held_s=0.2)

    found = saves(stage)

    assert {one.status for one in found} == {Status.INCOMPLETE}
    assert ".metadata was never written" in why(found[0])


@LEVELS
def test_shards_with_their_metadata_are_whole_whenever_their_writers_end(*, trace: bool) -> None:
    """At once, too."""
    stage = stage_of(trace=trace)
    trainer = stage.process(exit_s=3.6)
    stage.write(trainer, "/ckpt/step-5/__0_0.distcp", 2.0, 1.0, 100 * MIB, held_s=0.2)
    stage.write(trainer, "/ckpt/step-5/.metadata.tmp", 3.3, 0.1, 64 << 10, rename_to="/ckpt/step-5/.metadata")

    (found,) = saves(stage)

    assert (found.status, why(found)) == (Status.COMPLETE, "")


@pytest.mark.parametrize(
    ("trace", "guessed", "at_s", "gone"),
    [(True, False, 12.6, True), (True, True, 12.6, False), (False, False, 12.6, True), (False, False, 12.2, False)],
    ids=["trace", "a guess", "poll", "one before it, of no known birth"],
)
def test_a_save_that_was_given_up_and_deleted_is_told(*, trace: bool, guessed: bool, at_s: float, gone: bool) -> None:
    """Smaller than those before it, and gone again; not if the folder is a guess, or it was written after that."""
    stage = stage_of(trace=trace)
    stage.births = False
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.bin", 2.0, 1.0, 100 * MIB)
    stage.write(trainer, "/ckpt/step_2.bin", 12.0, 0.5, 40 * MIB)
    unlinked = life("unlinked", at_s, inode=None, path="/ckpt/step_2.bin", is_guessed=guessed)
    deleted = FileEvent(mono(at_s), "deleted", 0, 0, 0, "/ckpt/step_2.bin")
    stage.extra.append((at_s + 0.01, unlinked if trace else deleted))

    first, second = saves(stage)

    assert (first.status, second.status) == (Status.COMPLETE, Status.INCOMPLETE if gone else Status.COMPLETE)
    assert ("step_2.bin was deleted again" in why(second)) is gone


@LEVELS
@pytest.mark.parametrize("linked", [True, False])
def test_what_is_linked_from_the_save_before_lacks_in_none(*, linked: bool, trace: bool) -> None:
    """What has not changed is a hard link; the job ends with the second save."""
    stage = stage_of(trace=trace)
    trainer = stage.process(exit_s=15.0)
    frozen = stage.write(trainer, "/ckpt/ckpt_1/frozen.npy", 3.0, 0.5, 60 * MIB, magic=NUMPY)
    for step, at_s in ((1, 3.5), (2, 14.0)):
        stage.write(trainer, f"/ckpt/ckpt_{step}/tuned.npy", at_s, 0.5, 40 * MIB, magic=NUMPY)
        if step > 1 and linked:
            fact = msgspec.structs.replace(stage.fact(frozen, at_s + 0.8), path=f"/ckpt/ckpt_{step}/frozen.npy")
            stage.extra += [(at_s + 0.8, stage.fact(frozen, at_s + 0.8)), (at_s + 0.8, fact)]

    assert saves(stage, 40.0)[-1].status is (Status.COMPLETE if linked else Status.INCOMPLETE)


@LEVELS
def test_a_link_beside_it_makes_no_cut_save_whole(*, trace: bool) -> None:
    """`best` is a link to the save before it, in the same folder; the job ended within the third."""
    stage = stage_of(trace=trace)
    trainer = stage.process(exit_s=22.6)
    for step, size in ((1, 100), (2, 100), (3, 50)):
        move = stage.write(trainer, f"/ckpt/ckpt_{step}.npy", 10.0 * step - 8, 0.5, size * MIB, magic=NUMPY)
        if step == 2:
            fact = msgspec.structs.replace(stage.fact(move, 12.8), path="/ckpt/best.npy")
            stage.extra += [(12.8, stage.fact(move, 12.8)), (12.8, fact)]

    assert saves(stage, 40.0)[-1].status is Status.INCOMPLETE


def test_a_note_that_is_deleted_again_ends_no_save() -> None:
    """A smaller save of a job that trains on, whose list of steps was put away: its model stays."""
    stage = stage_of(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1/model.bin", 2.0, 1.0, 100 * MIB)
    stage.write(trainer, "/ckpt/step_2/model.bin", 12.0, 0.5, 40 * MIB)
    stage.write(trainer, "/ckpt/step_2/notes.bin", 12.5, 0.1, 3 * MIB)
    stage.extra.append((12.71, life("unlinked", 12.7, inode=None, path="/ckpt/step_2/notes.bin")))

    assert {one.status for one in saves(stage)} == {Status.COMPLETE}


def writer_of(stage: Stage, trainer: Actor) -> Actor:
    """Return a child that a trainer starts for one save."""
    return stage.process(101, parent_pid=trainer.pid, born_s=1.0, exit_s=3.1)


@LEVELS
def test_a_child_that_ends_after_its_work_leaves_the_commit_to_its_parent(*, trace: bool) -> None:
    """A writer process ended, before the rename and the metadata: what served another has not died."""
    stage = stage_of(trace=trace)
    stage.write(writer_of(stage, stage.process()), "/ckpt/step-5/__0_0.distcp", 2.0, 1.0, 100 * MIB)

    found = saves(stage)

    assert found
    assert {one.status for one in found} == {Status.COMPLETE}


@LEVELS
@pytest.mark.parametrize("free_bytes", [0, 40 << 10], ids=["nothing", "less than a write"])
def test_the_first_save_of_no_known_end_on_a_full_disk_was_its_writers_last(*, trace: bool, free_bytes: int) -> None:
    """Nothing to hold it against, but no room is left and its writer ended with it."""
    stage = stage_of(trace=trace, **{"step_1.npy": {"free_bytes": free_bytes}})
    stage.write(stage.process(exit_s=3.1), "/ckpt/step_1.npy", 2.0, 1.0, 100 * MIB, magic=NUMPY)

    (found,) = saves(stage)

    assert found.status is Status.INCOMPLETE
    assert "its file system is full" in why(found)


@LEVELS
@pytest.mark.parametrize("seen", [{"is_complete": True, "free_bytes": 0}, {"free_bytes": 1 << 30}, {}])
def test_a_whole_save_is_never_called_incomplete(*, trace: bool, seen: dict[str, Any]) -> None:
    """In place, by a script that ends with it: it just fitted, or there was nothing to see."""
    stage = stage_of(trace=trace, **{"step_1.pt": seen})
    stage.write(stage.process(exit_s=9.1), "/ckpt/step_1.pt", 2.0, 7.0, 100 * MIB)

    (found,) = saves(stage)

    assert (found.status, why(found)) == (Status.COMPLETE, "")


def test_a_look_into_a_file_that_is_being_written_says_nothing_of_its_end() -> None:
    """It was not whole then; nobody looked again."""
    stage = Stage(trace=True, facts=False)
    move = stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 4.0, 100 * MIB)
    stage.extra.append((4.0, msgspec.structs.replace(stage.fact(move, 4.0), is_complete=False)))

    (found,) = saves(stage)

    assert found.status is Status.COMPLETE


@LEVELS
def test_a_smaller_save_of_a_job_that_trains_on_is_a_smaller_save(*, trace: bool) -> None:
    """Its disk has room, and nothing died."""
    stage = stage_of(trace=trace)
    trainer = stage.process()
    for number, size in enumerate((100, 100, 40)):
        stage.write(trainer, f"/ckpt/step_{number}.npy", 2.0 + 6 * number, 1.0, size * MIB, magic=NUMPY)

    assert {one.status for one in saves(stage)} == {Status.COMPLETE}


@pytest.mark.parametrize(
    ("written", "status"), [(True, Status.COMPLETE), (False, Status.INCOMPLETE)], ids=["written", "missing"]
)
def test_a_marker_of_which_nobody_knows_the_writer_completes_a_save(*, written: bool, status: Status) -> None:
    """DeepSpeed's `latest` has a few bytes, which the counters of no process show; its file system tells of it.

    The job that could not write it ends some seconds later.
    """
    stage = stage_of(trace=False)
    trainer, other = stage.process(exit_s=26.5), stage.process(200, program="backup", runtimes=())
    for number, at_s in enumerate((2.0, 12.0, 21.5)):
        stage.write(trainer, f"/ckpt/global_step{number + 7}/mp_rank_00_model_states.pt", at_s, 1.0, 100 * MIB)
        if number < 2 or written:
            whose = trainer if number < 2 else other
            stage.write(whose, "/ckpt/latest", at_s + 1.1, 0.01, 12, inode=77, magic=b"global_step7")

    found = saves(stage, 40.0)

    assert [one.status for one in found] == [Status.COMPLETE, Status.COMPLETE, status]


@pytest.mark.parametrize(("marked", "status"), [(True, Status.COMPLETE), (False, Status.INCOMPLETE)])
def test_a_polled_save_of_which_a_file_was_missed_is_whole_if_its_marker_is_there(
    *, marked: bool, status: Status
) -> None:
    """A rank's file was written between two looks, and was nobody's: the coordinator waited for it all the same."""
    stage = stage_of(trace=False)
    trainer = stage.process(exit_s=24.0)
    for number, at_s in enumerate((2.0, 12.0, 22.0)):
        for rank in range(2 if number < 2 else 1):
            stage.write(trainer, f"/ckpt/step-{number + 5}/__{rank}_0.distcp", at_s + rank, 0.9, 100 * MIB)
        if number < 2 or marked:
            stage.write(trainer, f"/ckpt/step-{number + 5}/.metadata", at_s + 1.9, 0.02, 64 << 10)

    found = saves(stage, 40.0)

    assert [one.status for one in found] == [Status.COMPLETE, Status.COMPLETE, status]


def pieces_of(stage: Stage, numbers: range, *, exit_s: float | None = None, **environment: str) -> None:
    """Declare a save of eight ranks of which each writes a file of its own, but for those that are not in `numbers`."""
    for rank in numbers:
        own = {"RANK": str(rank), "WORLD_SIZE": "8", "LOCAL_RANK": str(rank), **environment}
        trainer = stage.process(100 + rank, exit_s=exit_s, environment=own)
        stage.write(trainer, f"/ckpt/step_1/part-0000{rank}-of-00008.pt", 2.0, 1.0, 10 * MIB)


@LEVELS
@pytest.mark.parametrize("count", [5, 8])
def test_files_that_its_names_tell_of_and_nobody_wrote_are_told(count: int, *, trace: bool) -> None:
    """Five of eight were told as a complete save, with nothing out of sight; they may be on another node."""
    stage = stage_of(trace=trace)
    pieces_of(stage, range(count))

    (found,) = saves(stage)

    told = [sentence for sentence in found.limitations if "names imply" in sentence]
    assert found.status is Status.COMPLETE
    assert [sentence.partition(":")[0] for sentence in told] == (
        ["3 of the 8 files that the names imply"] if count == 5 else []
    )


@LEVELS
def test_files_that_ranks_of_this_host_never_wrote_make_it_incomplete(*, trace: bool) -> None:
    """Three ranks of eight died before they wrote; polling may only not have seen them."""
    stage = stage_of(trace=trace)
    pieces_of(stage, range(5), exit_s=4.0, LOCAL_WORLD_SIZE="8")

    (found,) = saves(stage)

    assert found.status is (Status.INCOMPLETE if trace else Status.COMPLETE)
    assert "3 of the 8 files that its names imply were never written" in why(found) or not trace


@LEVELS
def test_files_that_ranks_of_another_host_write_make_nothing_incomplete(*, trace: bool) -> None:
    """Four of eight ranks run here, and have written theirs."""
    stage = stage_of(trace=trace)
    pieces_of(stage, range(4), exit_s=4.0, LOCAL_WORLD_SIZE="4")

    (found,) = saves(stage)

    assert found.status is Status.COMPLETE


@LEVELS
def test_files_of_one_process_are_counted_from_one(*, trace: bool) -> None:
    """As safetensors names them; the last of three was never begun."""
    stage = stage_of(trace=trace)
    trainer = stage.process(exit_s=4.1)
    for number in (1, 2):
        stage.write(trainer, f"/ckpt/checkpoint-5/model-0000{number}-of-00003.safetensors", 1.0 + number, 1.0, 50 * MIB)

    (found,) = saves(stage)

    assert found.status is (Status.INCOMPLETE if trace else Status.COMPLETE)
    assert any("1 of the 3 files that the names imply" in sentence for sentence in found.limitations)


@LEVELS
def test_a_last_state_without_its_optimizer_is_as_whole_as_those_before_it(*, trace: bool) -> None:
    """At the end of a run a fifth is left of the state, in a file that its format calls whole."""
    stage = stage_of(trace=trace, **{"last.pt": {"is_complete": True}})
    trainer = stage.process(exit_s=23.0)
    for number in range(2):
        stage.write(trainer, "/ckpt/last.pt", 2.0 + 10 * number, 1.0, 100 * MIB)
    stage.write(trainer, "/ckpt/last.pt", 21.5, 0.3, 20 * MIB)

    found = saves(stage, 30.0)

    assert [(one.status, why(one)) for one in found] == [(Status.COMPLETE, "")] * 3


@LEVELS
def test_whole_files_are_no_save_where_others_lack(*, trace: bool) -> None:
    """Killed between the first and the second of two shards: what it wrote is whole, and half of it."""
    names = [f"step_{step}/model-{shard}.pt" for step in range(3) for shard in range(2)]
    stage = stage_of(trace=trace, **{name: {"is_complete": True} for name in names})
    trainer = stage.process(exit_s=22.6)
    for step, shard in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0)):
        stage.write(trainer, f"/ckpt/step_{step}/model-{shard}.pt", 2.0 + 10 * step + 0.6 * shard, 0.5, 100 * MIB)

    *complete, last = saves(stage, 30.0)

    assert [one.status for one in complete] == [Status.COMPLETE] * 2
    assert last.status is Status.INCOMPLETE
    assert "earlier saves have" in why(last)


@LEVELS
def test_one_of_two_files_is_held_against_saves_of_one(*, trace: bool) -> None:
    """The best state is kept in some epochs only; the last save has none of its own, and its end nobody looked at."""
    stage = stage_of(trace=trace)
    trainer = stage.process(exit_s=33.0)
    for epoch, names in enumerate((("last", "best"), ("last",), ("last", "best"), ("last",))):
        for at, name in enumerate(names):
            stage.write(trainer, f"/ckpt/{name}.pt", 2.0 + 10 * epoch + 0.4 * at, 0.3, 100 * MIB)

    assert [one.status for one in saves(stage, 45.0)] == [Status.COMPLETE] * 4


@LEVELS
def test_a_copy_is_held_against_no_save(*, trace: bool) -> None:
    """A base model is smaller than the saves that take its place, and is copied as the job ends."""
    stage = stage_of(trace=trace)
    trainer = stage.process(exit_s=24.0)
    for step in (1, 2):
        stage.write(trainer, f"/ckpt/step_{step}/pytorch_model.bin", 10.0 * step - 8, 1.0, 300 * MIB)
    stage.read(trainer, "/base/pytorch_model.bin", 22.0, 0.5, 100 * MIB)
    stage.write(trainer, "/ckpt/step_3/pytorch_model.bin", 22.0, 0.5, 100 * MIB)

    (copy,) = [found for found in stage.play(40.0) if found.kind is Kind.COPY]

    assert (copy.status, why(copy)) == (Status.COMPLETE, "")


def test_a_file_that_was_begun_anew_is_as_long_as_it_is() -> None:
    """Half of it was written twice, each time: the last was written in one go, and is no smaller."""
    stage = stage_of(trace=True)
    trainer = stage.process(exit_s=23.5)
    for step in (1, 2):
        at_s, path = 10.0 * step - 8, f"/ckpt/step_{step}.bin"
        stage.extra.append((at_s + 1.1, activity(
            trainer.pid, path, at_s, at_s + 1.0, 150 * MIB, inode=step, high_offset=100 * MIB, size=100 * MIB,
        )))  # fmt: skip
    stage.write(trainer, "/ckpt/step_3.bin", 22.0, 0.5, 100 * MIB)

    assert [(one.status, why(one)) for one in saves(stage, 40.0)] == [(Status.COMPLETE, "")] * 3


def test_a_save_that_was_begun_again_is_no_measure_of_the_next() -> None:
    """Half of each was written twice: the last one, of as large a file, was told as too small."""
    stage = stage_of(trace=True)
    trainer = stage.process(exit_s=23.5)
    for number in range(2):
        at_s, size = 2.5 + 10 * number, 100 * MIB
        twice = activity(100, f"/ckpt/step_{number}.npy", at_s, at_s + 0.5, size * 3 // 2, inode=50 + number, size=size,
                         high_offset=size, end_offset=size)  # fmt: skip
        stage.extra.append((at_s + 0.6, twice))
    stage.write(trainer, "/ckpt/step_2.npy", 22.5, 0.5, 100 * MIB, magic=NUMPY)

    *_, last = saves(stage, 30.0)

    assert last.status is Status.COMPLETE
