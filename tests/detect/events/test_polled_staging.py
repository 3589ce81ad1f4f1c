"""A save that is written to a temporary folder and copied to its target is one save, seen by polling alone as well."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, SECOND_NS, Stage, changed, play

from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.staging import merge_staging_files
from ckptprof.model import Kind
from ckptprof_collectors.samples import FileFact, Frame

TMP = "/tmp/tmp"
SIZE = 80 * MIB


def without_stages(frames: list[Frame]) -> list[Frame]:
    """Leave out what the file system would say of the stages: they are deleted before anybody asks."""
    return changed(frames, lambda one: None if isinstance(one, FileFact) and one.path.startswith(TMP) else one)


@pytest.mark.parametrize("hz", [25.0, 10.0])
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("seconds", [0.15, 0.5, 4.0])
@pytest.mark.parametrize("names", [("epoch=0-step=10.ckpt",), ("epoch=0-step=10.ckpt", "last.ckpt")])
def test_a_stage_that_only_polling_saw_is_no_save_of_its_own(
    *, hz: float, gone: bool, seconds: float, names: tuple[str, ...]
) -> None:
    """Copied by sendfile, which moves no position of the stage; how much it held shows only when it is read."""
    stage = Stage(hz=hz)
    job = stage.process()
    at_s = 2.0
    for number, name in enumerate(names):
        path = f"{TMP}ab12cd3{number}"
        stage.write(job, path, at_s, 0.6, SIZE)
        reading = stage.read(
            job, path, at_s + 0.62, seconds, SIZE, from_disk=False, call_bytes=8 * MIB, layout="pwrite"
        )
        reading.size_before = SIZE
        stage.write(job, f"/run/{name}", at_s + 0.62, seconds, SIZE, call_bytes=8 * MIB)
        at_s = reading.closed_s + 0.05
    frames = stage.frames(30)

    (save,) = play(stage.header(), without_stages(frames) if gone else frames)

    assert (save.kind, save.step, save.files, save.bytes) == (Kind.SAVE, 10, len(names), len(names) * SIZE)
    assert save.start_ns == pytest.approx(stage.wall(2.0), abs=SECOND_NS // 10)
    assert save.end_ns == pytest.approx(stage.wall(at_s - 0.05), abs=SECOND_NS // 10)
    assert {stream.path for stream in save.streams} == {f"/run/{name}" for name in names}


@pytest.mark.parametrize(
    ("percent", "asked", "joined"), [(100, True, True), (98.5, True, False), (60, False, True), (40, False, False)]
)
def test_a_copy_is_as_large_as_its_stage(percent: float, *, asked: bool, joined: bool) -> None:
    """Once its file system was asked, nearly to the byte; what looks saw of it may be a half."""

    def moved(inode: int, path: str, start_s: int, size: int, *, writes: bool = True) -> Transfer:
        at_ns = start_s * SECOND_NS
        ends_ns = at_ns + SECOND_NS
        transfer = Transfer((1, 1), (8, inode), writes, path, at_ns, ends_ns, at_ns, ends_ns, size=size)
        transfer.start_ns, transfer.end_ns, transfer.bytes = at_ns, ends_ns, size
        return transfer

    target = moved(2, "/run/last.ckpt", 2, int(SIZE * percent / 100))
    if asked:
        target.fact = FileFact(1, 1, 8, 2, target.path, target.bytes, False, 0, 0, 0, None, None)  # noqa: FBT003 - a file
    written, _ = merge_staging_files(
        [moved(1, f"{TMP}ab", 1, SIZE), target], [moved(1, f"{TMP}ab", 2, SIZE, writes=False)]
    )

    assert (written == [target]) is joined


@pytest.mark.parametrize(("stage", "joined"), [(f"{TMP}ab12cd34/model.pt", True), ("/work/model.pt", False)])
def test_a_copy_by_threads_at_once_may_show_half_of_what_it_read(stage: str, *, joined: bool) -> None:
    """As Ray Train copies what was written to a temporary folder: the counters of a process are those of all files."""

    def moved(inode: int, path: str, start_s: int, size: int, *, writes: bool = True) -> Transfer:
        at_ns = start_s * SECOND_NS
        transfer = Transfer((1, 1), (8, inode), writes, path, at_ns, at_ns + SECOND_NS, at_ns, size=SIZE)
        transfer.start_ns, transfer.end_ns, transfer.bytes = at_ns, at_ns + SECOND_NS, size
        return transfer

    target = moved(2, "/run/checkpoint_000001/model.pt", 2, SIZE)
    written, _ = merge_staging_files([moved(1, stage, 1, SIZE), target], [moved(1, stage, 2, SIZE // 2, writes=False)])

    assert (written == [target]) is joined
