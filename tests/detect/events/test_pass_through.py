"""What only passes through a process was sent or checked, not restored: order, memory, network and its end say so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.detect.sockets import SIZE as SENT_BYTES
from tests.detect.sockets import STORE, TOOK_S, count, look, saved, told
from tests.detect.stage import MIB, Actor, Stage, changed

from ckptprof.detect.events.signals.pass_through import _is_in_even_pieces
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.transfers.model.position_samples import PositionSample
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.process_counters import ProcessInterval
from ckptprof.model import Checkpoint, Kind
from ckptprof_collectors.samples import FileActivity, FileScan, OperationKind, ProcessIo, ProcessStat

LEVELS = pytest.mark.parametrize("trace", [False, True])
FILES = ("model.safetensors", "optimizer.pt")
SIZE = 200 * MIB


def read(stage: Stage, job: Actor, *names: str, **options: Any) -> None:
    """Read files of one checkpoint one after the other, a second each, from 2 s on."""
    for number, name in enumerate(names):
        stage.read(job, f"/ckpt/checkpoint-500/{name}", 2.0 + number, 1.0, SIZE, **options)


def signs(checkpoint: Checkpoint) -> set[str]:
    """Return the names of its evidence."""
    return {reason.name for reason in checkpoint.evidence}


@LEVELS
@pytest.mark.parametrize("call_bytes", [8 << 10, 256 << 10, 320 << 10, MIB])
@pytest.mark.parametrize("names", [FILES, FILES[:1], FILES[1:]])
def test_what_nobody_keeps_was_not_restored(names: tuple[str, ...], call_bytes: int, trace: bool) -> None:  # noqa: FBT001 # a parameter
    """A process with PyTorch loaded reads one file or two from end to end, in pieces of one size: a copy."""
    stage = Stage(trace=trace)
    read(stage, stage.process(), *names, call_bytes=call_bytes, kept=0.0)

    (found,) = stage.play(40)

    assert (found.kind, found.bytes, found.mode) == (Kind.COPY, len(names) * SIZE, None)
    assert {"straight", "unkept"} <= signs(found)


@pytest.mark.parametrize(("pieces", "kind"), [(5, Kind.RESTORE), (10, Kind.COPY)])
def test_a_few_large_pieces_are_no_stream(pieces: int, kind: Kind) -> None:
    """A loader asks for a tensor at a time, and those of a layer have one size; who sends has a small buffer."""
    stage = Stage(trace=True)
    read(stage, stage.process(), FILES[0], call_bytes=SIZE // pieces, kept=0.0)

    assert [one.kind for one in stage.play(40)] == [kind]


@pytest.mark.parametrize(
    ("mean_bytes", "looks", "told"),
    [(256 << 10, 1, True), (250_000, 1, True), (150_000, 1, False), (300_000, 3, False), (300_000, 5, True)],
)
def test_a_buffer_is_a_power_of_two_unless_looks_agree_on_another_size(
    mean_bytes: int, looks: int, *, told: bool
) -> None:
    """The last piece of each file is shorter; whatever else is the mean of a look or two is chance."""
    look = ProcessInterval(0, 9, reads=100, returned_bytes=100 * mean_bytes)
    whole = Transfer((100, 1), (8, 7), False, "/ckpt/a.pt", 1, 2, 0, bytes=SIZE, size=SIZE)  # noqa: FBT003 - it reads
    whole.samples = [PositionSample(1, 1_000_003, SIZE), PositionSample(2, SIZE, SIZE)]

    assert _is_in_even_pieces([whole], [look] * looks, pooled=False, exits_at_once=False) is told


@LEVELS
@pytest.mark.parametrize("call_bytes", [8 << 10, MIB, SIZE])
@pytest.mark.parametrize("names", [FILES, ("trainer_state.pkl",), ("model.bin",)])
def test_who_keeps_what_it_reads_restores_it(names: tuple[str, ...], call_bytes: int, trace: bool) -> None:  # noqa: FBT001 # a parameter
    """From end to end in even pieces, too, as streams are unpickled and files read into a buffer."""
    stage = Stage(trace=trace)
    read(stage, stage.process(), *names, call_bytes=call_bytes, kept=0.95)

    (found,) = stage.play(40, saved_paths=("/ckpt/checkpoint-500",))

    assert found.kind is Kind.RESTORE
    assert not signs(found) & {"straight", "unkept"}


@LEVELS
def test_a_reading_into_memory_that_is_there_is_a_restore_if_it_jumps(trace: bool) -> None:  # noqa: FBT001 # a parameter
    """Nothing is kept, but no upload reads here and there."""
    stage = Stage(trace=trace)
    read(stage, stage.process(), *FILES, layout="random" if trace else "pwrite", kept=0.0)

    (found,) = stage.play(40)

    assert found.kind is Kind.RESTORE


def test_a_rank_that_is_only_polled_is_believed() -> None:
    """Ranks read arrays of one size into memory that is there, in order of the file: that looks like an upload."""
    stage = Stage()
    rank = stage.process(environment={"RANK": "0", "WORLD_SIZE": "1"})
    read(stage, rank, *FILES, call_bytes=4 * MIB, kept=0.0)

    assert [found.kind for found in stage.play(60)] == [Kind.RESTORE]


@LEVELS
@pytest.mark.parametrize(
    ("port", "share", "kind"),
    [(STORE[1], 1.0, Kind.COPY), (STORE[1], 0.3, Kind.RESTORE), (40123, 1.0, Kind.RESTORE)],
    ids=["a-hub", "something-beside", "another-rank"],
)
def test_what_goes_on_to_a_store_was_not_restored(port: int, share: float, kind: Kind, trace: bool) -> None:  # noqa: FBT001 # a parameter
    """A rank hashes its files, then sends them; what it gives to other ranks it has restored."""
    stage = Stage(trace=trace)
    rank = stage.process(environment={"RANK": "0", "WORLD_SIZE": "1"})
    for number, name in enumerate((*FILES, *FILES)):
        stage.read(
            rank, f"/ckpt/checkpoint-500/{name}", 2.0 + number, 1.0, SIZE, layout="random" if trace else "pwrite"
        )
    look(stage, rank, saved(int(share * 2 * SIZE), (4.0,)), 40, port=port)

    assert {one.kind for one in told(stage)} == {kind}


def test_what_goes_on_to_a_store_is_counted_where_nobody_sees_the_sockets() -> None:
    """A container has a network of its own."""
    stage = Stage(trace=True)
    rank = stage.process(environment={"RANK": "0", "WORLD_SIZE": "1"})
    stage.read(rank, f"/ckpt/checkpoint-500/{FILES[0]}", 10.3, TOOK_S, SENT_BYTES, layout="random")
    count(stage, rank, 0, 10.3)

    assert [one.kind for one in told(stage)] == [Kind.COPY]


def test_memory_that_was_touched_and_given_back_was_used() -> None:
    """Polled: between two looks it may have grown and shrunk, and its page faults tell."""
    stage = Stage()
    job = stage.process()
    read(stage, job, *FILES, kept=0.0)
    frames = []
    for frame in stage.frames(40):
        samples = [
            msgspec.structs.replace(sample, minor_faults=stage.moves[0].moved(at_s(frame.at_ns, stage)) // 4096)
            if isinstance(sample, ProcessStat)
            else sample
            for sample in frame.samples
        ]
        frames.append(msgspec.structs.replace(frame, samples=tuple(samples)))
    detector = Detector(stage.header())

    found = [checkpoint for frame in frames for checkpoint in detector.ingest(frame)] + detector.finish()

    assert [one.kind for one in found] == [Kind.RESTORE]


def at_s(at_ns: int, stage: Stage) -> float:
    """Return the time of the stage."""
    return (at_ns - stage.header().at_ns) / 1e9


def test_what_was_over_before_anybody_looked_did_not_restore() -> None:
    """A small program sums a file of a checkpoint in some milliseconds: only the trace sees it."""
    stage = Stage(trace=True, poll=False, described=False)
    read(stage, stage.process(), FILES[1])

    (found,) = stage.play(40)

    assert found.kind is Kind.COPY
    assert "unseen" in signs(found)


@pytest.mark.parametrize(
    "how",
    [
        {"kinds": int(OperationKind.URING)},
        {"kinds": int(OperationKind.AIO)},
        {"direct_bytes": SIZE},
        {"first_offset": MIB},
        {"consecutive_operations": 100},
        {"sizes": ((4096, 60, 60 << 12), (MIB, 140, 140 * MIB))},
        {"faulted_bytes": SIZE},
    ],
)
def test_what_loaders_do_is_not_straight(how: dict[str, Any]) -> None:
    """Direct and asynchronous reading into buffers of one's own, seeking, pieces of many sizes, mappings."""
    stage = Stage(trace=True)
    read(stage, stage.process(), FILES[0], kept=0.0)
    frames = changed(
        stage.frames(40),
        lambda sample: msgspec.structs.replace(sample, **how) if isinstance(sample, FileActivity) else sample,
    )
    detector = Detector(stage.header())

    found = [checkpoint for frame in frames for checkpoint in detector.ingest(frame)] + detector.finish()

    assert [one.kind for one in found] == [Kind.RESTORE]


@pytest.mark.parametrize(("runtimes", "kind"), [(("torch",), Kind.COPY), (("torch", "gpu"), Kind.RESTORE)])
def test_threads_that_share_a_file_send_it_or_fill_a_gpu(runtimes: tuple[str, ...], kind: Kind) -> None:
    """Parts of a file by four threads, as multipart uploads read; streams to a GPU keep nothing on the host, too."""
    stage = Stage(trace=True)
    job = stage.process(runtimes=runtimes)
    read(stage, job, FILES[0], kept=0.0)
    quarter = SIZE // 4
    frames = []
    for frame in stage.frames(40):
        samples: list[Any] = []
        for sample in frame.samples:
            if not isinstance(sample, FileActivity):
                samples.append(sample)
            elif sample.closed_ns is not None:
                samples += [part_of(sample, number, quarter) for number in range(4)]
        frames.append(msgspec.structs.replace(frame, samples=tuple(samples)))
    detector = Detector(stage.header())

    found = [checkpoint for frame in frames for checkpoint in detector.ingest(frame)] + detector.finish()

    assert [one.kind for one in found] == [kind]


def part_of(whole: FileActivity, number: int, size: int) -> FileActivity:
    """Return the session of one of several threads."""
    pieces = size // MIB
    return msgspec.structs.replace(
        whole, session=f"part-{number}", tid=whole.pid + 1 + number, operations=pieces, bytes=size,
        consecutive_operations=pieces, consecutive_bytes=size, sequential_operations=pieces, sequential_bytes=size,
        large_bytes=size, first_offset=number * size, low_offset=number * size, end_offset=(number + 1) * size,
        high_offset=(number + 1) * size, sizes=((MIB, pieces, size),),
    )  # fmt: skip


def on_grid(stage: Stage, seconds: float, piece: int) -> list[Kind]:
    """Play it with descriptors that stand where a piece ends; without counters of calls that would tell."""
    frames = changed(stage.frames(seconds), lambda sample: stood(sample, piece))
    detector = Detector(stage.header())
    found = [checkpoint for frame in frames for checkpoint in detector.ingest(frame)] + detector.finish()
    return [one.kind for one in found]


def stood(sample: Any, piece: int) -> Any:
    """Return a sample with positions rounded down, and calls that libraries make, too."""
    if isinstance(sample, FileScan):
        files = [msgspec.structs.replace(file, position=file.position // piece * piece) for file in sample.files]
        return msgspec.structs.replace(sample, files=tuple(files))
    if isinstance(sample, ProcessIo):
        calls = sample.read_syscalls
        return msgspec.structs.replace(sample, read_syscalls=calls + calls // 16 * 200)
    return sample


@pytest.mark.parametrize(("piece", "kind"), [(MIB, Kind.COPY), (64 << 10, Kind.COPY), (1_000_003, Kind.RESTORE)])
def test_positions_tell_pieces_where_counters_do_not(piece: int, kind: Kind) -> None:
    """A starved process loads its libraries and reads in one interval: the mean of its calls says nothing."""
    stage = Stage()
    read(stage, stage.process(), *FILES, kept=0.0)

    assert on_grid(stage, 40, piece) == [kind]


@pytest.mark.parametrize(("exit_s", "kinds"), [(2.6, [Kind.COPY]), (30.0, [Kind.RESTORE])])
def test_of_a_process_that_was_over_before_the_next_look_nobody_saw_the_end(exit_s: float, kinds: list[Kind]) -> None:
    """What was read in even pieces up to the last look passed through; who goes on may have wanted a part."""
    stage = Stage()
    stage.read(stage.process(exit_s=exit_s), f"/ckpt/checkpoint-500/{FILES[0]}", 2.0, 1.0, SIZE, kept=0.0)
    frames = []
    for frame in stage.frames(40):
        late = at_s(frame.at_ns, stage) > 2.5  # nobody looks at its files any more
        samples = [sample for sample in frame.samples if not (late and isinstance(sample, FileScan | ProcessIo))]
        frames.append(msgspec.structs.replace(frame, samples=tuple(samples)))
    detector = Detector(stage.header())

    found = [checkpoint for frame in frames for checkpoint in detector.ingest(frame)] + detector.finish()

    assert [one.kind for one in found] == kinds
