"""Restores: by read and by mmap, with their bytes, edges and blind spots."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.detect.observed import history_of, observed
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, Stage, play

from ckptprof.detect.transfers.edges import estimate_read_edges
from ckptprof.detect.transfers.model.position_samples import PositionSample
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.transfers.transfer_tracker import TransferTracker
from ckptprof.detect.transfers.transferred_bytes import estimate_bytes
from ckptprof.detect.world.process_counters import ProcessHistory, ProcessInterval
from ckptprof.detect.world.thread_histories import ThreadHistories
from ckptprof.model import Kind
from ckptprof_collectors.samples import FileEvent, FileFact, FileScan, ProcessIo


def test_a_restore_by_read_is_found_with_its_edges() -> None:
    """A process that reads what was saved before restores it."""
    stage = Stage()
    stage.read(stage.process(), "/ckpt/step_7.pt", 2.02, 1.0, 300 * MIB)

    (restore,) = stage.play(8, saved_paths=("/ckpt/step_7.pt",))

    assert (
        restore.kind, restore.step, restore.bytes, restore.framework,
    ) == (Kind.RESTORE, 7, 300 * MIB, "torch.save")  # fmt: skip
    assert "read-back" in {reason.name for reason in restore.evidence}
    assert (restore.start_ns - stage.wall(0)) / SECOND_NS == pytest.approx(2.02, abs=0.05)
    assert (restore.end_ns - stage.wall(0)) / SECOND_NS == pytest.approx(3.02, abs=0.05)


def test_a_restore_after_a_save_in_the_same_recording_is_told_apart() -> None:
    """The same file, written and read, is a save and a restore."""
    stage = Stage()
    stage.write(stage.process(100, exit_s=5.0), "/ckpt/step_7.pt", 2.0, 1.0, 300 * MIB)
    stage.read(stage.process(200, born_s=6.0), "/ckpt/step_7.pt", 8.0, 1.0, 300 * MIB, from_disk=False)

    found = stage.play(20)

    assert [checkpoint.kind for checkpoint in found] == [Kind.SAVE, Kind.RESTORE]
    assert [checkpoint.bytes for checkpoint in found] == [300 * MIB] * 2


def test_every_rank_that_reads_is_counted() -> None:
    """Four ranks that read the same file are one restore with four times its bytes."""
    stage = Stage()
    for rank in range(4):
        job = stage.process(100 + rank, environment={"RANK": str(rank), "WORLD_SIZE": "4", "SLURM_JOB_ID": "77"})
        stage.read(job, "/ckpt/step_7.pt", 2.0, 1.0, 100 * MIB, inode=9)

    (restore,) = stage.play(8)

    assert (restore.bytes, restore.files, len(restore.writers), restore.job) == (400 * MIB, 1, 4, "slurm-77")


def test_a_restore_by_mmap_counts_what_was_mapped_and_says_what_it_cannot_see() -> None:
    """Pages that were touched are counted; the order of the faults is a named blind spot."""
    stage = Stage()
    stage.map(stage.process(), "/ckpt/model.safetensors", 2.0, 1.0, 400 * MIB)

    (restore,) = stage.play(8, saved_paths=("/ckpt/model.safetensors",))

    assert (restore.kind, restore.bytes, restore.framework) == (Kind.RESTORE, 400 * MIB, "safetensors")
    assert restore.pattern.mapped_share_bytes == 1.0
    assert restore.pattern.class_ is None
    assert any("page faults" in text for text in restore.limitations)
    assert (restore.end_ns - restore.start_ns) / SECOND_NS == pytest.approx(1.0, abs=0.1)


def test_a_mapping_that_is_touched_slowly_is_restored_since_it_was_met() -> None:
    """Page by page from a slow disk: that a look came late, and met more at once, is no begin."""
    stage = Stage(trace=False)
    stage.map(stage.process(), "/ckpt/model.safetensors", 2.0, 4.0, 16 * MIB, from_disk=True)
    frames = [one for one in stage.frames(20) if not 4.0 < (one.at_ns - MONOTONIC_NS) / 1e9 < 4.6]
    (found,) = play(stage.header(), frames)

    assert found.kind is Kind.RESTORE
    assert found.bytes == pytest.approx(16 * MIB, rel=0.05)
    assert (found.end_ns - found.start_ns) / 1e9 == pytest.approx(4.0, abs=0.3)


def test_a_mapping_of_which_little_is_touched_is_not_counted_whole() -> None:
    """A long look at a tenth of a mapping is a tenth of its bytes."""
    stage = Stage()
    stage.map(stage.process(), "/ckpt/model.safetensors", 2.0, 2.0, 400 * MIB, touched=0.1, unmapped_s=7.0)

    found = stage.play(10, saved_paths=("/ckpt/model.safetensors",))

    assert all(restore.bytes == pytest.approx(40 * MIB, rel=0.1) for restore in found)
    assert len(found) == 1


@pytest.mark.parametrize(("touched", "whole"), [(50 * MIB, True), (20 * MIB, False)])
def test_a_mapping_that_was_met_in_the_midst_and_was_gone_at_the_next_look_was_read(
    touched: int,
    whole: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Cached in large folios it takes some milliseconds and hardly a fault; a look at its header is not that."""
    begun, met, gone = 2_000_000_000, 2_040_000_000, 2_080_000_000
    stream = Transfer((100, 1), (8, 7), False, "/x.safetensors", met, met, begun, gone, mapped_bytes=400 * MIB)  # noqa: FBT003 - it reads
    seen = ProcessInterval(begun, met, resident_bytes=touched, busy=1.0, minor_faults=48)
    history = history_of([seen], None, None, begun)

    assert estimate_bytes(stream, history, (begun, met)) == (400 * MIB if whole else 0)


@pytest.mark.parametrize(("idle_s", "touched", "told"), [(0.2, 28, 40), (0.2, 12, 12), (0.4, 28, 28)])
def test_a_mapping_that_goes_while_it_is_touched_was_read_to_its_end(idle_s: float, touched: int, told: int) -> None:
    """Its last pages went with it before the next look; one that stays for longer shows all that was touched."""
    begun, until = 2 * SECOND_NS, 3 * SECOND_NS
    closed = until + round(idle_s * SECOND_NS)
    stream = Transfer((100, 1), (8, 7), False, "/x", begun, until, begun, closed, mapped_bytes=40 * MIB)  # noqa: FBT003 - it reads
    history = history_of([ProcessInterval(begun, until, resident_bytes=touched * MIB, busy=1.0)])

    assert estimate_bytes(stream, history, (begun, closed)) == told * MIB


@pytest.mark.parametrize(("faults", "told"), [(400, 40 * MIB), (250, 0)])
def test_the_faults_after_the_last_look_at_a_short_mapping_are_its_own(faults: int, told: int) -> None:
    """Nothing had been touched when it was met; it was read and unmapped by the next look, 19 ms later."""
    begun, met, gone = 2_000_000_000, 2_014_000_000, 2_033_000_000
    stream = Transfer((100, 1), (8, 7), False, "/x.safetensors", begun, met, begun, gone, mapped_bytes=40 * MIB)  # noqa: FBT003 - it reads
    quiet = ProcessInterval(begun, met, resident_bytes=MIB // 4, busy=1.0, minor_faults=9)
    busy = ProcessInterval(met, gone, busy=1.0, minor_faults=faults)
    history = history_of([quiet, busy], None, None, begun)

    assert estimate_bytes(stream, history, (begun, begun + 1_000_000)) == told


def test_what_calls_returned_counts_though_as_much_was_fetched_for_a_mapping_before() -> None:
    """The model is mapped, the optimizer's state is read: what came from the device early was the model's."""
    begun, opened, closed = 2 * SECOND_NS, 2_500_000_000, 3 * SECOND_NS
    history = ProcessHistory()
    for at_ns, returned, fetched in ((begun, 0, 0), (opened, 0, 40 * MIB), (closed, 80 * MIB, 120 * MIB)):
        history.observe(at_ns, begun, ProcessIo(100, 1, returned, 0, 0, 0, fetched, 0, 0), None, 100)
    looks = [PositionSample(opened, 4096, 80 * MIB), PositionSample(closed - 1, 20 * MIB, 80 * MIB)]
    stream = Transfer(
        (100, 1),
        (8, 7),
        False,  # noqa: FBT003 - it reads
        "/x.bin",
        opened,
        closed - 1,
        opened,
        closed,
        samples=looks,
        size=80 * MIB,
    )

    assert estimate_bytes(stream, history, (opened + 1, closed)) == 80 * MIB


def estimated(transfer: Transfer, start_ns: int, end_ns: int) -> Transfer:
    """Return a transfer of which 30 MB seem to have been read."""
    transfer.start_ns, transfer.end_ns, transfer.bytes = start_ns, end_ns, 30 * MIB
    return transfer


@pytest.mark.parametrize(("counted_until_s", "told"), [(3.0, MIB), (2.18, 30 * MIB)])
def test_a_look_at_the_end_of_another_ranks_file_is_no_reading_of_all_of_it(counted_until_s: float, told: int) -> None:
    """It was met there once; its process read as much as its own file and a piece. If that was counted to the end."""
    begun, end = 2 * SECOND_NS, round(2.18 * SECOND_NS)
    whole = [PositionSample(begun, 0, 30 * MIB), PositionSample(begun + SECOND_NS // 10, 29 * MIB, 30 * MIB)]
    piece = [PositionSample(end, 29 * MIB, 30 * MIB)]
    parts: list[Transfer] = []
    for inode, looks in ((7, whole), (8, piece)):
        stream = Transfer(
            (100, 1),
            (8, inode),
            False,  # noqa: FBT003 - it reads
            f"/run/step-7/__{inode}_0.distcp",
            begun,
            end,
            begun,
            end,
            samples=looks,
        )
        parts.append(estimated(stream, begun, end))
    counted = ProcessInterval(begun, end, read_bytes=31 * MIB, reads=31, busy=1.0, returned_bytes=31 * MIB)
    history = history_of([counted], None, None, begun, round(counted_until_s * SECOND_NS))

    TransferTracker(observed({(100, 1): history})).estimates.limit_reads(parts)

    assert [part.bytes for part in parts] == [30 * MIB, told]


@pytest.mark.parametrize(("pause_ms", "back_ms"), [(120, 840), (300, 20)])
def test_a_read_from_a_device_with_a_limit_is_reached_back_to_over_its_pauses(pause_ms: int, back_ms: int) -> None:
    """The first look found 14 MiB read; they came in pieces with a tenth of a second between, as a limit lets them."""
    met, piece_ns = 3 * SECOND_NS, 20_000_000
    ends = [met - number * (pause_ms * 1_000_000 + piece_ns) for number in range(7)]
    pieces = [ProcessInterval(end - piece_ns, end, read_bytes=2 * MIB, busy=1.0) for end in reversed(ends)]
    history = history_of(pieces, None, None, pieces[0].start_ns)
    stream = Transfer(
        (100, 1),
        (8, 7),
        False,  # noqa: FBT003 - it reads
        "/run/step_7.pt",
        met,
        met,
        met,
        samples=[PositionSample(met, 14 * MIB, 64 * MIB)],
    )

    begin_ns, _ = estimate_read_edges(
        stream, history, cast("FileOpenings", SimpleNamespace(opened_between=lambda *_: None)), ThreadHistories()
    )

    assert (met - begin_ns) / 1e6 == pytest.approx(back_ms, abs=25)


def test_a_mapping_that_nobody_touches_is_no_restore() -> None:
    """A mapped file costs nothing until it is read."""
    stage = Stage()
    stage.map(stage.process(), "/ckpt/model.safetensors", 2.0, 2.0, 400 * MIB, touched=0.0, unmapped_s=7.0)

    assert stage.play(10, saved_paths=("/ckpt/model.safetensors",)) == []


def test_the_read_of_a_data_set_by_a_trainer_is_no_restore() -> None:
    """Input pipelines read more than any restore, under names of data."""
    stage = Stage()
    job = stage.process()
    for number in range(8):
        stage.read(job, f"/data/train-{number:05d}.npy", 2.0 + number, 0.8, 500 * MIB)
    stage.read(job, "/corpus/tokens.bin", 12.0, 2.0, 900 * MIB)

    assert stage.play(20) == []


def test_a_file_that_is_opened_but_not_read_is_no_restore() -> None:
    """Only the head of an archive was looked at: that is not a restore of it."""
    stage = Stage()
    job = stage.process()
    move = stage.read(job, "/ckpt/step_7.pt", 2.0, 2.0, 300 * MIB, layout="part")
    move.bytes = 8192

    assert stage.play(8, saved_paths=("/ckpt/step_7.pt",)) == []


@pytest.mark.parametrize(("seen", "said"), [(("a", "b"), False), (("a",), True)])
def test_a_restore_of_which_files_were_not_seen_says_so(seen: tuple[str, ...], said: bool) -> None:  # noqa: FBT001 - a case
    """A file may be open for less than the time between two looks: its reader's counters tell that there was more."""
    stage = Stage()
    job = stage.process()
    for number, name in enumerate("ab"):
        stage.read(job, f"/ckpt/step_7/{name}.npy", 2.02 + 0.4 * number, 0.4, 100 * MIB)
    frames = []
    for frame in stage.frames(8):
        samples = [
            msgspec.structs.replace(s, files=tuple(f for f in s.files if f.path[-5] in seen))
            if isinstance(s, FileScan)
            else s
            for s in frame.samples
            if not (isinstance(s, FileEvent | FileFact) and s.path[-5] not in seen)
        ]
        frames.append(msgspec.structs.replace(frame, samples=tuple(samples)))

    (restore,) = play(stage.header(), frames, saved_paths=("/ckpt/step_7/a.npy", "/ckpt/step_7/b.npy"))

    assert restore.bytes == pytest.approx(len(seen) * 100 * MIB, rel=0.02)
    assert any("of what was read" in text for text in restore.limitations) is said


def test_what_is_read_small_and_again_is_of_the_same_restore() -> None:
    """Transformers reads `trainer_state.json` once more when it has built its model, two seconds later."""
    stage = Stage(trace=True, poll=False)
    job = stage.process()
    folder = "/run/checkpoint-12"
    for at_s, name, seconds, size in (
        (2.0, "trainer_state.json", 0.01, 900), (2.02, "model.safetensors", 0.4, 20 * MIB),
        (4.5, "trainer_state.json", 0.01, 900), (4.52, "optimizer.pt", 0.4, 40 * MIB),
    ):  # fmt: skip
        stage.read(job, f"{folder}/{name}", at_s, seconds, size)

    (restore,) = stage.play(12, saved_paths=(folder,))

    assert (restore.path, restore.files) == (folder, 3)
