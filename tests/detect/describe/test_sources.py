"""Where the bytes of a restore came from, and who read them, on a stage where the truth is declared."""

from __future__ import annotations

import msgspec
import pytest
from tests.detect.stage import MIB, Actor, Stage

from ckptprof.model import Checkpoint
from ckptprof_collectors.samples import MountInfo, ProcessStat

DISK = MountInfo(1, 8, 1, "/", "/", "ext4", "/dev/vda1", "vda1", None)
NFS = MountInfo(1, 0, 40, "/", "/ckpt", "nfs4", "filer:/x", None, "filer")
FUSE = MountInfo(1, 0, 41, "/", "/ckpt", "fuse.s3fs", "s3fs", None, None)
MEMORY = MountInfo(1, 0, 42, "/", "/ckpt", "tmpfs", "tmpfs", None, None)
PATH = "/ckpt/step_7.pt"
UNKNOWN = "which of the bytes came from the page cache"


def _stage(mount: MountInfo | None, *, trace: bool = False) -> Stage:
    stage = Stage(trace=trace)
    if mount is not None:
        stage.extra.append((0.01, mount))
    return stage


def _play(stage: Stage, until_s: float = 8) -> Checkpoint:
    (restore,) = stage.play(until_s, saved_paths=(PATH,))
    return restore


@pytest.mark.parametrize("trace", [False, True])
def test_a_cold_and_a_warm_restore_are_told_apart(trace: bool) -> None:  # noqa: FBT001 # a parameter of the test
    """By what the reader had fetched while it read, against the distinct bytes."""
    for from_disk, expected in ((True, (300 * MIB, "cold")), (False, (0, "warm"))):
        stage = _stage(DISK, trace=trace)
        stage.read(stage.process(), PATH, 2.02, 1.0, 300 * MIB, from_disk=from_disk)
        restore = _play(stage)

        assert (restore.storage_bytes, restore.cache) == expected
        assert restore.unique_bytes == 300 * MIB
        assert not any(UNKNOWN in text for text in restore.limitations)


@pytest.mark.parametrize(
    ("mount", "expected"), [(NFS, (0, "warm")), (MEMORY, (0, "warm")), (FUSE, (None, None)), (None, (None, None))]
)
def test_nothing_fetched_is_warm_only_where_fetching_is_counted(
    mount: MountInfo | None, expected: tuple[int | None, str | None]
) -> None:
    """The clients of most remote storage fetch in threads of their own: that is not the page cache."""
    stage = _stage(mount)
    stage.read(stage.process(), PATH, 2.0, 1.0, 300 * MIB, from_disk=False)
    restore = _play(stage)

    assert (restore.storage_bytes, restore.cache) == expected
    assert restore.unique_bytes == 300 * MIB
    assert any(UNKNOWN in text for text in restore.limitations) == (expected[1] is None)


def test_what_was_fetched_is_believed_on_any_mount() -> None:
    """Bytes that were counted came from somewhere."""
    stage = _stage(FUSE)
    stage.read(stage.process(), PATH, 2.0, 1.0, 300 * MIB)
    restore = _play(stage)

    assert (restore.storage_bytes, restore.cache) == (300 * MIB, "cold")


@pytest.mark.parametrize("trace", [False, True])
def test_ranks_that_read_the_same_file_read_its_bytes_once(trace: bool) -> None:  # noqa: FBT001 # a parameter
    """The first to come has them fetched, the others find them in the cache: cold, and four times what is there."""
    stage = _stage(DISK, trace=trace)
    for rank in range(4):
        job = stage.process(100 + rank, environment={"RANK": str(rank), "WORLD_SIZE": "4", "SLURM_JOB_ID": "77"})
        stage.read(job, PATH, 2.0 + 0.2 * rank, 1.0, 100 * MIB, inode=9, from_disk=rank == 0)
    restore = _play(stage)

    assert (restore.bytes, restore.unique_bytes, restore.storage_bytes) == (400 * MIB, 100 * MIB, 100 * MIB)
    assert restore.cache == "cold"
    slowest = max(restore.writers, key=lambda writer: writer.end_ns or 0)
    assert slowest.rank == 3
    assert slowest.role == "trainer" or not trace
    assert slowest.start_ns is not None
    assert (slowest.start_ns - stage.wall(2.6)) / 1e9 == pytest.approx(0, abs=0.06)


def test_ranks_that_read_a_part_each_read_all_of_them() -> None:
    """Files of their own add up."""
    stage = _stage(DISK)
    for rank in range(2):
        job = stage.process(100 + rank, environment={"RANK": str(rank), "WORLD_SIZE": "2", "SLURM_JOB_ID": "77"})
        stage.read(job, f"/ckpt/step_7/__{rank}_0.distcp", 2.0, 1.0, 100 * MIB, from_disk=rank == 0)
    (restore,) = stage.play(8, saved_paths=("/ckpt/step_7",))

    assert (restore.bytes, restore.unique_bytes, restore.storage_bytes) == (200 * MIB, 200 * MIB, 100 * MIB)
    assert restore.cache == "partly"


@pytest.mark.parametrize(("faults", "expected"), [(20, "warm"), (2, "partly")])
def test_code_that_is_paged_in_meanwhile_makes_no_restore_cold(
    faults: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first use of a library in the middle of a warm restore: as many page faults as explain what was fetched."""
    stage = _stage(DISK)
    job = stage.process()
    stage.read(job, PATH, 2.0, 1.0, 100 * MIB, from_disk=False)
    stage.read(job, "/usr/lib/libtorch_cpu.so", 2.4, 0.1, 25 * MIB)
    plain = stage._stat

    def faulting(actor: Actor, at_s: float) -> ProcessStat:
        return msgspec.structs.replace(plain(actor, at_s), major_faults=faults if at_s > 2.45 else 0)

    monkeypatch.setattr(stage, "_stat", faulting)
    (restore,) = stage.play(8, saved_paths=(PATH,))

    assert (restore.storage_bytes, restore.cache) == (25 * MIB, expected)


def test_a_reader_that_was_seen_only_at_its_end_says_nothing_of_its_source() -> None:
    """What it had fetched before the first look is not known."""
    stage = _stage(DISK, trace=True)
    stage.poll = False
    stage.read(stage.process(), PATH, 2.0, 1.0, 300 * MIB)
    restore = _play(stage)

    assert (restore.storage_bytes, restore.cache, restore.unique_bytes) == (None, None, 300 * MIB)


def test_saves_have_no_source() -> None:
    """Their unique bytes are those of their files."""
    stage = _stage(DISK)
    stage.write(stage.process(), PATH, 2.0, 1.0, 300 * MIB)
    (save,) = stage.play(8)

    assert (save.storage_bytes, save.cache, save.unique_bytes) == (None, None, 300 * MIB)
    assert (save.writers[0].start_ns, save.writers[0].end_ns) == (save.start_ns, save.end_ns)
