"""What a crash may cost by the order in which a save was written: told of traced calls, and only where they show it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.detect.stage import MIB, Stage, changed, play
from tests.detect.tracer import DEVICE, life

from ckptprof.model import Checkpoint, Frailty
from ckptprof_collectors.samples import FileFact, FileLifeEvent, MountInfo, Sample

SIZE = 100 * MIB
_NAMES = frozenset(one.value for one in Frailty)


class Dirty(Stage):
    """A stage on a disk, whose kernel has written nothing back when its files are looked at, unless it was synced."""

    def __init__(self, *, trace: bool = True, fs_type: str = "xfs", unwritten_bytes: int | None = SIZE) -> None:
        """Start with a mount of a type."""
        super().__init__(trace=trace)
        self.unwritten_bytes = unwritten_bytes
        mount = MountInfo(1, DEVICE >> 8, DEVICE & 255, "/", "/", fs_type, "/dev/sda1", "sda1", None)
        self.extra.append((0.5, mount))

    def fact(self, *arguments: Any, **options: Any) -> FileFact:
        """Return what the file system says."""
        return msgspec.structs.replace(super().fact(*arguments, **options), unwritten_bytes=self.unwritten_bytes)


def told(found: list[Checkpoint]) -> list[dict[str, str]]:
    """Return the frailties of each save."""
    return [{one.name: one.text for one in save.evidence if one.name in _NAMES} for save in found]


def marked(stage: Stage, marker_s: float, held_s: float = 0.0) -> list[Checkpoint]:
    """Return what is told of a save of one file from 2 to 3 s, synced for `held_s`, whose marker comes at a time."""
    trainer = stage.process()
    stage.write(trainer, "/ckpt/global_step5/mp_rank_00_model_states.pt", 2.0, 1.0, SIZE, held_s=held_s)
    stage.write(trainer, "/ckpt/latest", marker_s, 0.001, 12, magic=None)
    return stage.play(20)


def test_a_marker_before_the_last_byte_is_told() -> None:
    """Training went on, and wrote `latest`, while a thread still wrote what it names."""
    found = marked(Dirty(), 2.5)

    assert told(found) == [{"marker-first": "latest existed 0.50 s before the last byte of "
                            "mp_rank_00_model_states.pt (105 MB)"}]  # fmt: skip
    assert found[0].is_restorable


def test_a_marker_before_the_data_was_synced_is_told() -> None:
    """As something of it was found unwritten later."""
    text = (
        "mp_rank_00_model_states.pt (105 MB) had not been synced when latest was written: "
        "after a loss of power it may be empty or torn"
    )
    assert told(marked(Dirty(), 3.1)) == [{"commit-unsynced": text}]


@pytest.mark.parametrize(
    "stage",
    [Dirty(unwritten_bytes=0), Dirty(unwritten_bytes=None), Dirty(fs_type="nfs4"), Dirty(fs_type="tmpfs"),
     Dirty(fs_type="zfs"), Dirty(trace=False)],
    ids=["O_SYNC", "no-looks", "nfs4", "tmpfs", "zfs", "poll"],
)  # fmt: skip
def test_what_shows_no_unwritten_byte_on_a_disk_is_not_told(stage: Stage) -> None:
    """It was stored as it was written, nobody looked, or the file system stores it in its order, or at closing."""
    assert told(marked(stage, 3.1)) == [{}]


def test_a_save_that_is_synced_before_its_marker_has_no_frailty() -> None:
    """As PyTorch DCP does."""
    assert told(marked(Dirty(), 3.3, held_s=0.2)) == [{}]


def renamed(stage: Stage, *, held_s: float = 0.0) -> list[Checkpoint]:
    """Return what is told of two saves of one file to a temporary name, synced for `held_s` before its rename."""
    trainer = stage.process()
    for start_s in (2.0, 12.0):
        stage.write(trainer, "/ckpt/last.pt.tmp", start_s, 1.0, SIZE, held_s=held_s, rename_to="/ckpt/last.pt")
    return stage.play(30)


def test_a_rename_before_the_sync_is_told() -> None:
    """The name may reach the disk before the data; ext4 and btrfs write back what replaces another file."""
    text = "last.pt (105 MB) had not been synced when it was renamed: after a loss of power it may be empty or torn"

    assert told(renamed(Dirty())) == [{"commit-unsynced": text}] * 2
    assert told(renamed(Dirty(fs_type="ext4"))) == [{"commit-unsynced": text}, {}]
    assert told(renamed(Dirty(), held_s=0.2)) == [{}, {}]


def overwritten(stage: Stage, *others: str, kind: str = "emptied") -> list[Checkpoint]:
    """Return what is told of two saves to one path, of which the second opened it anew, and of others between them."""
    trainer = stage.process()
    for start_s in (2.0, 12.0):
        move = stage.write(trainer, "/ckpt/last.pt", start_s, 1.0, SIZE)
    for path in others:
        stage.write(trainer, path, 7.0, 1.0, SIZE)
    stage.extra.append((11.99, life(kind, 11.99, inode=move.inode, path="/ckpt/last.pt")))
    return stage.play(30)


def test_the_only_copy_that_is_written_over_in_place_is_told() -> None:
    """A job that is killed meanwhile has none left."""
    text = "it overwrote the only copy that was observed: for 1.01 s no complete copy existed"

    assert told(overwritten(Dirty())) == [{}, {"overwritten": text}]


def test_one_of_several_copies_may_be_written_over() -> None:
    """Another one stays whole meanwhile; of a new file nothing was emptied, nor of one where nobody saw it."""
    assert told(overwritten(Dirty(), "/ckpt/best.pt")) == [{}, {}, {}]
    assert told(overwritten(Dirty(), kind="created")) == [{}, {}]
    assert told(overwritten(Dirty(trace=False))) == [{}, {}]


@pytest.mark.parametrize(("path", "guessed"), [("/ckpt/best.pt", False), ("/ckpt/best.pt", True), ("best.pt", False)])
def test_a_copy_in_a_guessed_folder_may_still_exist(path: str, *, guessed: bool) -> None:
    """Only a deletion in a folder that was observed leaves one copy."""
    stage = Dirty()
    stage.extra.append((11.5, life("unlinked", 11.5, inode=None, path=path, is_guessed=guessed)))

    assert bool(told(overwritten(stage, "/ckpt/best.pt"))[-1]) is (path == "/ckpt/best.pt" and not guessed)


def test_what_the_trace_lost_is_not_taken_for_a_missing_sync() -> None:
    """Where it tells of no names, there is no order of them either."""
    stage = Dirty()
    trainer = stage.process()
    stage.write(trainer, "/ckpt/last.pt.tmp", 2.0, 1.0, SIZE, rename_to="/ckpt/last.pt")

    def unnamed(sample: Sample) -> Sample | None:
        return None if isinstance(sample, FileLifeEvent) else sample

    assert told(play(stage.header(), changed(stage.frames(20), unnamed))) == [{}]
