"""Checkpoints that look whole and may restore wrongly: told where it was seen, and only there."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.detect.stage import MIB, SAFETENSORS, Actor, Stage, changed, play
from tests.detect.tracer import activity, life

from ckptprof.detect.describe.risks import Replacements
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.model import Checkpoint, Kind, Risk, Status
from ckptprof_collectors.samples import FileActivity, ProcessIo, Sample

LEVELS = pytest.mark.parametrize("trace", [True, False], ids=["trace", "poll"])
SIZE = 100 * MIB


class Full(Stage):
    """A stage whose disk has no room left at the end, with a file that is not as long as it was to be."""

    def fact(self, *arguments: Any, **options: Any) -> Any:
        """Return what the file system says."""
        return msgspec.structs.replace(super().fact(*arguments, **options), free_bytes=0)


def ranks(stage: Stage, number: int) -> list[Actor]:
    """Return the ranks of one job."""
    size = str(number)
    return [stage.process(100 + rank, environment={"RANK": str(rank), "WORLD_SIZE": size}) for rank in range(number)]


def told(found: list[Checkpoint]) -> list[tuple[Kind, list[str]]]:
    """Return the risks of each event."""
    return [(one.kind, [risk.kind.value for risk in one.risks]) for one in found]


@LEVELS
def test_ranks_that_write_one_path_at_once_are_told(*, trace: bool) -> None:
    """Each opens the file of the other, and writes all of it: it holds what came last of each of its bytes."""
    stage = Stage(trace=trace)
    for rank in ranks(stage, 2):
        stage.write(rank, "/ckpt/step_1/model.pt", 2.0, 1.0, SIZE, inode=7)

    (found,) = stage.play(20)

    assert told([found]) == [(Kind.SAVE, [Risk.SHARED_PATH.value])]
    assert found.risks[0].text.startswith("ranks 0 and 1 wrote model.pt at the same time")
    assert (found.written_bytes, found.unique_bytes) == (2 * SIZE, SIZE)
    assert [one.reason for one in found.overheads] == ["rewrite"]


@LEVELS
def test_what_ranks_write_later_hides_no_path_that_they_share(*, trace: bool) -> None:
    """Each writes a file of its own after it: that is of none of the bytes that it had written by then."""
    stage = Stage(trace=trace)
    for number, rank in enumerate(ranks(stage, 2)):
        stage.write(rank, "/ckpt/step_1/model.pt", 2.0, 1.0, SIZE, inode=7)
        stage.write(rank, f"/ckpt/step_1/optimizer_{number}.pt", 3.5, 1.0, SIZE)

    (found,) = stage.play(20)

    assert told([found]) == [(Kind.SAVE, [Risk.SHARED_PATH.value])]


@LEVELS
def test_ranks_that_rename_over_one_path_are_told(*, trace: bool) -> None:
    """Each writes a file of its own, under a name of its own: only that of the last is left."""
    stage = Stage(trace=trace)
    for number, rank in enumerate(ranks(stage, 2)):
        stage.write(rank, f"/ckpt/step_1/model.pt.tmp{number}", 2.0, 1.0, SIZE, rename_to="/ckpt/step_1/model.pt")

    (found,) = stage.play(20)

    assert told([found]) == [(Kind.SAVE, [Risk.SHARED_PATH.value])]


@LEVELS
def test_ranks_that_write_one_path_in_turn_are_told(*, trace: bool) -> None:
    """The second of them writes it anew as soon as the first has ended."""
    stage = Stage(trace=trace)
    for number, rank in enumerate(ranks(stage, 2)):
        stage.write(rank, "/ckpt/step_1/model.pt", 2.0 + 1.2 * number, 1.0, SIZE, inode=7)

    *_, found = stage.play(20)

    assert told([found]) == [(Kind.SAVE, [Risk.SHARED_PATH.value])]
    assert found.risks[0].text == "rank 0 wrote model.pt, and rank 1 overwrote it right after"


@LEVELS
def test_ranks_with_a_file_each_are_at_no_risk(*, trace: bool) -> None:
    """However alike the files are."""
    stage = Stage(trace=trace)
    for number, rank in enumerate(ranks(stage, 2)):
        stage.write(rank, f"/ckpt/step_1/model_rank_{number}.pt", 2.0, 1.0, SIZE)

    assert told(stage.play(20)) == [(Kind.SAVE, [])]


def test_a_process_that_inherits_an_open_file_writes_nothing_of_it() -> None:
    """A worker that was forked in the midst of a save has the same descriptor, and its position advances, too."""
    stage = Stage()
    trainer = stage.process()
    worker = stage.process(101, parent_pid=100)
    for who in (trainer, worker):
        stage.write(who, "/ckpt/step_1.pt", 2.0, 1.0, SIZE, inode=7)

    def idle(sample: Sample) -> Sample:
        is_count = isinstance(sample, ProcessIo) and sample.pid == worker.pid
        return msgspec.structs.replace(sample, write_chars=0, write_bytes=0) if is_count else sample

    found = play(stage.header(), changed(stage.frames(20), idle))

    assert found
    assert not any(one.risks for one in found)
    assert not any(one.overheads for one in found)


@pytest.mark.parametrize("offsets", [(0, 50), (0, 1)])
def test_ranks_that_share_a_file_piece_by_piece_are_at_no_risk(offsets: tuple[int, int]) -> None:
    """Each writes its own half of it, or every second block."""
    stage = Stage(trace=True, poll=False)
    for rank, offset in zip(ranks(stage, 2), offsets, strict=True):
        reach = 50 if offset in (0, 50) and offsets[1] == 50 else 99
        stage.extra.append((3.1, activity(
            rank.pid, "/ckpt/step_1/model.pt", 2.0, 3.0, 50 * MIB, offset=offset * MIB,
            high_offset=(offset + reach) * MIB, size=SIZE,
        )))  # fmt: skip

    assert told(stage.play(20)) == [(Kind.SAVE, [])]


@LEVELS
def test_a_disk_without_room_is_told_also_where_the_save_looks_whole(*, trace: bool) -> None:
    """The job caught the error, or the last small file found no room: nothing says that the file is whole."""
    stage = Full(trace=trace)
    stage.write(stage.process(), "/ckpt/step_1.bin", 2.0, 1.0, SIZE)

    (found,) = stage.play(20)

    assert found.status is Status.COMPLETE
    assert told([found]) == [(Kind.SAVE, [Risk.DISK_FULL.value])]


@LEVELS
def test_what_found_room_before_the_disk_was_full_is_at_no_risk(*, trace: bool) -> None:
    """Looked at when the next save had taken the rest: that there was some for it shows that nothing lacks before."""
    stage = Full(trace=trace)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.bin", 2.0, 1.0, SIZE)
    stage.write(trainer, "/ckpt/step_2.bin", 3.2, 1.0, SIZE // 2)

    first, second = stage.play(20)

    assert told([first, second]) == [(Kind.SAVE, []), (Kind.SAVE, [Risk.DISK_FULL.value])]


def failing(stage: Stage, error: int, *, gone_on: bool = False) -> list[Checkpoint]:
    """Return what is told if the last call of each writing of `step_2` fails, or the last but one."""

    def change(sample: Sample) -> Sample:
        if not isinstance(sample, FileActivity) or sample.closed_ns is None or "step_2" not in (sample.path or ""):
            return sample
        failed_ns = sample.last_ns + (-1 if gone_on else 1) * 1_000_000
        return msgspec.structs.replace(sample, failed_operations=1, failed_ns=failed_ns, error=error)

    return play(stage.header(), changed(stage.frames(40), change))


def saving(sizes: tuple[int, ...]) -> Stage:
    """Return a trainer that saves so many bytes each time."""
    stage = Stage(trace=True, poll=False)
    trainer = stage.process()
    for number, size in enumerate(sizes, start=1):
        stage.write(trainer, f"/ckpt/step_{number}.bin", 8.0 * number, 1.0, size)
    return stage


@pytest.mark.parametrize(
    ("error", "risk", "said"),
    [
        (errno.ENOSPC, Risk.DISK_FULL, "no space left on device"),
        (errno.EDQUOT, Risk.DISK_FULL, "disk quota exceeded"),
        (errno.EFBIG, Risk.WRITE_FAILED, "file too large"),
        (errno.EIO, Risk.WRITE_FAILED, "input/output error"),
    ],
)
def test_a_save_that_broke_off_is_told_with_the_reason_that_its_job_was_given(
    error: int, risk: Risk, said: str
) -> None:
    """The job catches it and trains on, whatever it does to the torn file then."""
    first, second, third = failing(saving((SIZE, SIZE // 3, SIZE)), error)

    assert told([first, second, third]) == [(Kind.SAVE, []), (Kind.SAVE, [risk]), (Kind.SAVE, [])]
    assert [one.status for one in (first, second, third)] == [Status.COMPLETE, Status.INCOMPLETE, Status.COMPLETE]
    (hazard,) = second.risks
    (incomplete,) = [one.text for one in second.evidence if one.name == "incomplete"]
    assert hazard.text == f"step_2.bin failed after 35.0 MB: {said}"
    assert incomplete == f"{hazard.text}; it has 35.0 MB, and earlier saves have 105 MB"


def test_a_torn_file_that_is_deleted_at_once_is_told_all_the_same() -> None:
    """Nobody can look at it any more, and what was written later found room."""
    stage = saving((SIZE, SIZE // 3, SIZE))
    stage.extra.append((17.02, life("unlinked", 17.02, inode=None, path="/ckpt/step_2.bin")))

    _, second, _ = failing(stage, errno.ENOSPC)

    assert (second.status, told([second])) == (Status.INCOMPLETE, [(Kind.SAVE, [Risk.DISK_FULL])])


@pytest.mark.parametrize("guessed", [False, True])
def test_a_base_model_is_deleted_in_its_own_folder(*, guessed: bool) -> None:
    """A deletion whose folder is a guess may be of another file of that name."""
    stage = Stage(trace=True)
    based(stage, trains_s=30.0)
    gone = life("unlinked", 28.0, inode=None, path="/run/out/model.safetensors", is_guessed=guessed)
    stage.extra.append((28.0, gone))

    assert bool(stage.play(60)[0].risks) is guessed


def test_the_first_save_needs_no_other_to_be_known_as_broken_off() -> None:
    """No series says how large it was to be."""
    stage = Stage(trace=True, poll=False)
    stage.write(stage.process(), "/ckpt/step_2.bin", 2.0, 1.0, SIZE)

    (found,) = failing(stage, errno.ENOSPC)

    assert (found.status, told([found])) == (Status.INCOMPLETE, [(Kind.SAVE, [Risk.DISK_FULL])])


def test_a_writer_that_got_over_its_failure_is_at_no_risk() -> None:
    """It made room and went on with the same file."""
    found = failing(saving((SIZE, SIZE, SIZE)), errno.ENOSPC, gone_on=True)

    assert [(one.status, one.risks) for one in found] == [(Status.COMPLETE, ())] * 3


def test_a_file_that_is_written_anew_at_once_is_at_no_risk() -> None:
    """Only its first writing failed: of the second nothing lacks."""
    stage = saving((SIZE,))
    stage.write(stage.moves[0].actor, "/ckpt/step_2.bin", 16.0, 0.3, SIZE // 3, inode=8)
    stage.write(stage.moves[0].actor, "/ckpt/step_2.bin", 16.4, 1.0, SIZE, inode=8)
    seen = []

    def change(sample: Sample) -> Sample:
        if isinstance(sample, FileActivity) and sample.closed_ns is not None and sample.bytes == SIZE // 3:
            seen.append(sample)
            return msgspec.structs.replace(
                sample, failed_operations=1, failed_ns=sample.last_ns + 1, error=errno.ENOSPC
            )
        return sample

    *_, found = play(stage.header(), changed(stage.frames(40), change))

    assert seen
    assert (found.status, found.risks) == (Status.COMPLETE, ())


@pytest.mark.parametrize("kind", ["synced", "closed-written"])
@pytest.mark.parametrize(("error", "risks"), [(errno.EIO, [Risk.WRITE_FAILED]), (errno.EINTR, [])])
def test_what_could_not_be_stored_is_no_checkpoint(kind: str, error: int, risks: list[Risk]) -> None:
    """A sync or a close says so though each write succeeded; one that was interrupted says nothing."""
    stage = saving((SIZE,))
    failed = msgspec.structs.replace(life(kind, 9.01, duration_s=0.005, inode=stage.moves[0].inode), error=error)
    stage.extra.append((9.02, failed))
    again = life("synced", 9.1, duration_s=0.005, inode=stage.moves[0].inode)
    stage.extra.append((9.1, again))

    (found,) = stage.play(40)

    assert told([found]) == [(Kind.SAVE, risks)]
    assert (found.status is Status.INCOMPLETE) == bool(risks)
    assert (found.durable_ns is None) == bool(risks)


def based(stage: Stage, *, trains_s: float, source: str = "/models/base/model.safetensors") -> Actor:
    """Return a trainer that copied its base model to where its own is to be, then saved beside it."""
    trainer = stage.process(exit_s=trains_s)
    stage.read(trainer, source, 2.0, 1.0, SIZE)
    stage.write(trainer, "/run/out/model.safetensors", 2.0, 1.0, SIZE, magic=SAFETENSORS)
    for number in (1, 2):
        path = f"/run/out/checkpoint-{number}00/model.safetensors"
        stage.write(trainer, path, 2.0 + 10 * number, 1.0, SIZE, magic=SAFETENSORS)
    return trainer


@LEVELS
def test_a_base_model_that_training_never_replaced_is_told(*, trace: bool) -> None:
    """The job was ended before it wrote its own there: whoever loads that folder loads the base model."""
    stage = Stage(trace=trace)
    based(stage, trains_s=30.0)

    found = stage.play(60)

    assert told(found) == [(Kind.COPY, [Risk.NOT_REPLACED.value]), (Kind.SAVE, []), (Kind.SAVE, [])]
    assert found[0].risks[0].text.startswith("model.safetensors is still the copy of /models/base/model.safetensors")


@LEVELS
def test_a_base_model_that_was_replaced_or_deleted_is_at_no_risk(*, trace: bool) -> None:
    """The last save is written in its place, as late as the job ends."""
    stage = Stage(trace=trace)
    trainer = based(stage, trains_s=30.0)
    stage.write(trainer, "/run/out/model.safetensors", 28.5, 1.0, SIZE, magic=SAFETENSORS)

    assert [one.risks for one in stage.play(60)] == [()] * 4


@LEVELS
def test_a_job_that_goes_on_may_replace_it_yet(*, trace: bool) -> None:
    """While it trains nothing is told."""
    stage = Stage(trace=trace)
    based(stage, trains_s=90.0)

    assert [one.risks for one in stage.play(60)] == [()] * 3


@LEVELS
def test_a_model_that_is_staged_elsewhere_stands_for_nothing(*, trace: bool) -> None:
    """It is copied to a fast disk to be loaded from there, and the saves go elsewhere."""
    stage = Stage(trace=trace)
    trainer = stage.process(exit_s=30.0)
    stage.read(trainer, "/models/base/model.safetensors", 2.0, 1.0, SIZE)
    stage.write(trainer, "/scratch/base/model.safetensors", 2.0, 1.0, SIZE, magic=SAFETENSORS)
    stage.write(trainer, "/run/out/checkpoint-100/model.safetensors", 12.0, 1.0, SIZE, magic=SAFETENSORS)

    assert not any(one.risks for one in stage.play(60))


@LEVELS
def test_a_copy_of_its_own_save_stands_for_itself(*, trace: bool) -> None:
    """The best state is a copy of a save of the same job."""
    stage = Stage(trace=trace)
    trainer = stage.process(exit_s=40.0)
    for number in (1, 2, 3):
        stage.write(trainer, f"/run/out/step_{number}.pt", 10.0 * number, 1.0, SIZE)
    stage.read(trainer, "/run/out/step_2.pt", 24.0, 0.5, SIZE)
    stage.write(trainer, "/run/out/best.pt", 24.0, 0.5, SIZE)

    assert not any(one.risks for one in stage.play(70))


def test_a_run_that_resumes_and_replaces_it_takes_the_risk_back() -> None:
    """What was told of the first run holds no more."""
    stage = Stage()
    based(stage, trains_s=30.0)
    later = stage.process(200, born_s=50.0)
    stage.write(later, "/run/out/model.safetensors", 55.0, 1.0, SIZE, magic=SAFETENSORS)

    detector = Detector(stage.header())
    copies = [one for frame in stage.frames(80) for one in detector.ingest(frame) if one.kind is Kind.COPY]

    assert [[risk.kind.value for risk in one.risks] for one in copies] == [[], [Risk.NOT_REPLACED.value], []]
    assert [one.revision for one in copies] == [0, 1, 2]


def test_each_failed_attempt_is_looked_up_once() -> None:
    """Whatever their number: each of their files is looked at once, and none of them for all the others."""
    looked = 0

    class Counted(Transfer):
        @property
        def stored_size(self) -> int:
            nonlocal looked
            looked += 1
            return SIZE

    def written(path: str, at_ns: int) -> Transfer:
        part = Counted((100, 1), (1, at_ns), writes=True, path=path, first_ns=at_ns, last_ns=at_ns, before_ns=at_ns)
        part.update_name(None)
        part.set_estimate((at_ns, at_ns, SIZE))
        return part

    attempts = [written(f"/ckpt/part-{number}.bin.tmp", number) for number in range(1000)]
    anew = [written(f"/ckpt/part-{number}.bin", 2000 + number) for number in range(500)]
    removals = SimpleNamespace(removed_ns=lambda _path, _since_ns: None)
    known = cast("Knowledge", SimpleNamespace(transfers=SimpleNamespace(removals=removals)))

    later = Replacements([*attempts, *anew])

    assert [later.is_replaced(one, known) for one in attempts] == [True] * 500 + [False] * 500
    assert looked == 1500
