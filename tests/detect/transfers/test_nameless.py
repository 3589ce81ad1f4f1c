"""Files without a name: scratch space, not checkpoints, unless a name is given to them at the end."""

from __future__ import annotations

import os

import msgspec
import pytest
from tests.detect.stage import MIB, NUMPY, Actor, Stage, changed, play
from tests.detect.tracer import life

from ckptprof.model import Checkpoint, Kind
from ckptprof_collectors.samples import FileFact, FileScan, Sample

LEVELS = pytest.mark.parametrize("trace", [True, False], ids=["trace", "poll"])
ROUNDS = 5
UNLINKED = " (deleted)"


def writing(names: list[str], *, trace: bool, first_inode: int = 4000) -> tuple[Stage, Actor]:
    """Return a numpy program that computes, and writes one file after the other with pauses between."""
    stage = Stage(trace=trace)
    program = stage.process(program="pytest", runtimes=("numpy",))
    for number, name in enumerate(names):
        stage.write(program, f"/scratch/{name}", 3.0 + 4 * number, 0.5, 70 * MIB, magic=NUMPY, held_s=0.5,
                    inode=first_inode + number)  # fmt: skip
    return stage, program


def unlinked(stage: Stage, *, names: dict[int, str] | None = None, until_s: float = 30.0) -> list[Checkpoint]:
    """Return what is told if looks find the files without names, and the file system knows them by these, by inode."""

    def look(sample: Sample) -> Sample | None:
        if isinstance(sample, FileScan):
            files = tuple(msgspec.structs.replace(file, path=file.path + UNLINKED) for file in sample.files)
            return msgspec.structs.replace(sample, files=files)
        if isinstance(sample, FileFact):
            name = (names or {}).get(sample.inode)
            return name and msgspec.structs.replace(sample, path=f"/scratch/{name}")
        return sample

    return play(stage.header(), changed(stage.frames(until_s), look))


@LEVELS
def test_files_that_were_made_without_a_name_are_no_checkpoints(*, trace: bool) -> None:
    """A test run with scratch arrays (O_TMPFILE) was told as five saves."""
    stage, _ = writing([f"#{4000 + number}" for number in range(ROUNDS)], trace=trace)

    assert unlinked(stage) == []


def test_files_that_were_deleted_as_soon_as_they_were_made_are_no_checkpoints_as_looks_tell() -> None:
    """As Python's tempfile does where a file system cannot make nameless files."""
    stage, _ = writing([f"state_{number}.npy" for number in range(ROUNDS)], trace=False)

    assert unlinked(stage) == []


def test_files_that_were_deleted_as_soon_as_they_were_made_are_no_checkpoints_as_their_deletion_tells() -> None:
    """It came before the first byte."""
    stage, _ = writing([f"state_{number}.npy" for number in range(ROUNDS)], trace=True)
    for move in stage.moves:
        stage.extra.append((move.start_s, life("unlinked", move.start_s, inode=None, path=move.path)))

    assert stage.play(30) == []


@LEVELS
def test_a_file_of_a_name_that_was_deleted_before_it_was_made_is_one(*, trace: bool) -> None:
    """Who removes the last state before it writes the next one under its name."""
    stage, _ = writing(["state.npy"] * ROUNDS, trace=trace)
    for move in stage.moves:
        gone_s = move.start_s - 0.01
        stage.extra.append((gone_s, life("unlinked", gone_s, inode=None, path=move.path)))

    assert len(stage.play(30)) == ROUNDS


def test_a_file_that_gets_its_name_at_the_end_is_one() -> None:
    """Linked into its place when it is whole (linkat(2), AT_EMPTY_PATH): whoever looks in the folder finds it."""
    stage, _ = writing([f"#{4000 + number}" for number in range(ROUNDS)], trace=False)

    found = unlinked(stage, names={4000 + number: f"state_{number}.npy" for number in range(ROUNDS)})

    assert [save.path for save in found] == [f"/scratch/state_{number}.npy" for number in range(ROUNDS)]


def test_a_file_whose_name_its_file_system_lost_for_a_moment_is_one() -> None:
    """FUSE and NFS drop what they know of a name now and then: the descriptor is said to be of a deleted file."""
    stage, _ = writing([f"state_{number}.npy" for number in range(ROUNDS)], trace=False)
    looks = 0

    def look(sample: Sample) -> Sample | None:
        nonlocal looks
        if isinstance(sample, FileFact):
            return None
        if isinstance(sample, FileScan) and sample.files:
            looks += 1
            lost = UNLINKED if looks % 2 else ""
            files = tuple(msgspec.structs.replace(file, path=file.path + lost) for file in sample.files)
            return msgspec.structs.replace(sample, files=files)
        return sample

    assert len(play(stage.header(), changed(stage.frames(30.0), look))) == ROUNDS


def test_a_restore_from_a_file_that_was_deleted_meanwhile_is_told() -> None:
    """The next save of its job rotated it away while a trainer read it."""
    stage = Stage()
    stage.read(stage.process(), "/ckpt/step_5.pt", 3.0, 2.0, 200 * MIB)

    (found,) = unlinked(stage)

    assert found.kind is Kind.RESTORE


@pytest.mark.parametrize(("flags", "direct"), [(0, 0.0), (0o40000, 1.0)], ids=["buffered", "O_DIRECT"])
def test_the_flag_of_a_nameless_file_is_not_that_of_direct_io(flags: int, direct: float) -> None:
    """O_TMPFILE holds O_DIRECTORY, which is O_DIRECT on arm64."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_5.pt", 3.0, 1.0, 70 * MIB, flags=os.O_WRONLY | os.O_TMPFILE | flags)

    (found,) = stage.play(15)

    assert found.pattern.direct_share_bytes == direct
