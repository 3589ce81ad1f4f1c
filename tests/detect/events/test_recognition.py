"""Unknown frameworks are found by how they behave; what behaves as data, caches and databases do is not."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.stage import MIB, NUMPY, SECOND_NS, TORCH_ZIP, Actor, Stage
from tests.detect.tracer import life

from ckptprof.detect.events.decision import decide
from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.event_history import EventHistory, HistoryEvent
from ckptprof.detect.events.signal_values import Signal
from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint, Kind
from ckptprof.report.rows import LOW_CONFIDENCE

LEVELS = pytest.mark.parametrize("trace", [False, True])
ALIEN: dict[str, Any] = {"comm": "train_gpt2", "program": "train_gpt2", "runtimes": ()}


def saves(found: list[Checkpoint]) -> list[str | None]:
    """Return the paths of the saves."""
    return [checkpoint.path for checkpoint in found if checkpoint.kind is Kind.SAVE]


def signs_of(stage: Stage, until_s: float) -> set[str]:
    """Return the names of all signs that were seen in anything that was told or turned down."""
    detector = Detector(stage.header())
    found = [checkpoint for frame in stage.frames(until_s) for checkpoint in detector.ingest(frame)] + detector.finish()
    told = {reason.name for checkpoint in found for reason in checkpoint.evidence}
    return told | {reason.name for entry in detector.rejected for reason in entry.evidence}


def series(stage: Stage, who: Actor, names: list[str], **fields: Any) -> None:
    """Let a process write a file every 8 seconds."""
    for number, name in enumerate(names):
        stage.write(who, name, 6.0 + 8 * number, 0.8, 120 * MIB, **{"magic": None, **fields})


@LEVELS
@pytest.mark.parametrize(("magic", "framework"), [(TORCH_ZIP, "torch.save"), (b"layer0.npy" + bytes(6), None)])
def test_what_torch_saves_as_tar_is_no_archive(magic: bytes, framework: str | None, trace: bool) -> None:  # noqa: FBT001 # a parameter
    """PyTorch's tutorial calls checkpoints so; its first bytes tell it from an archive, which is none."""
    stage = Stage(trace=trace)
    names = [f"/run/model_{step}.tar" for step in (100, 200, 300)]
    trainer = stage.process()
    series(stage, trainer, names, magic=magic)
    for number in range(3):
        stage.read(trainer, f"/data/train-{number:05d}.tar", 30.0 + number, 0.5, 120 * MIB)
    if framework is not None:
        stage.read(stage.process(200), names[-1], 35.0, 0.8, 120 * MIB)

    found = stage.play(50)

    assert saves(found) == (names if framework else [])
    assert [(one.kind, one.path) for one in found[3:]] == [(Kind.RESTORE, names[-1])][: len(found)]
    assert {checkpoint.framework for checkpoint in found} <= {framework}


@LEVELS
@pytest.mark.parametrize(
    "names",
    [
        [f"/run/log124M/model_{step:08d}.bin" for step in (1000, 2000, 3000, 4000)],  # llm.c
        ["/run/checkpoint.pkl"] * 4,
        [f"/run/epoch{number}.jls" for number in range(4)],  # Julia's serialisation
    ],
)
def test_a_trainer_without_any_library_is_found_by_its_series(names: list[str], trace: bool) -> None:  # noqa: FBT001 # a parameter
    """It computes, saves at even times the like of what it saved before, and writes little else: none is missed."""
    stage = Stage(trace=trace)
    series(stage, stage.process(**ALIEN), names)

    found = stage.play(50)

    assert saves(found) == names
    assert len(found) == len(names)
    assert all(0.5 <= checkpoint.confidence <= 0.99 for checkpoint in found)


@LEVELS
@pytest.mark.parametrize(("runtimes", "told"), [(("numpy",), True), ((), False)])
def test_what_is_not_whole_yet_is_no_download_of_who_counts_steps(
    runtimes: tuple[str, ...], *, told: bool, trace: bool
) -> None:
    """Chunks are written under a name that downloads have, too, until they are whole: by a process and its number."""
    stage = Stage(trace=trace)
    who = stage.process(program="fit.py", runtimes=runtimes)
    names = [f"/run/step_{step}.zarr/weight/0.0" for step in (100, 200, 300)]
    for number, name in enumerate(names):
        stage.write(who, f"{name}.00004d2a.partial", 6.0 + 8 * number, 0.8, 120 * MIB, magic=None, rename_to=name)

    assert bool(saves(stage.play(40))) is told


@LEVELS
def test_who_waits_for_a_device_is_found_by_steps_at_even_times(trace: bool) -> None:  # noqa: FBT001 # a parameter
    """Its CPU is not what computes, or others take it: a number that counts training is enough for a series."""
    stage = Stage(trace=trace)
    names = [f"/run/checkpoint-{step}/model.bin" for step in (50, 100, 150)]
    series(stage, stage.process(busy=0.1, **ALIEN), names)

    assert saves(stage.play(50)) == names


@LEVELS
def test_an_unknown_name_needs_care_for_the_file(trace: bool) -> None:  # noqa: FBT001 # a parameter
    """Written aside and renamed over the old one, again and again, by a process that computes: a save of something."""
    stage = Stage(trace=trace)
    who = stage.process(**ALIEN)
    for number in range(4):
        start_s = 6.0 + 8 * number
        stage.write(who, f"/run/out.{number}.tmp", start_s, 0.8, 120 * MIB, magic=None, rename_to="/run/out.blob")

    assert saves(stage.play(50)) == ["/run/out.blob"] * 4


@LEVELS
@pytest.mark.parametrize("forks", [False, True])
@pytest.mark.parametrize(
    ("shares", "busy", "found"),
    [((90,) * 4, 0.2, True), ((30,) * 4, 1.0, False), ((90, 78, 90, 90), 1.0, False), ((90,) * 4, 0.1, False)],
    ids=["its memory", "a part of it", "of one size by chance", "without computing"],
)
def test_a_program_in_any_language_trains_if_it_writes_its_memory_at_even_times(
    shares: tuple[int, ...], busy: float, *, found: bool, forks: bool, trace: bool
) -> None:
    """Results are a part of what a simulation holds, films differ in size, and a database waits for its users."""
    stage, program = Stage(trace=trace), {"comm": "fit", "program": "fit", "runtimes": ()}
    who, fork = stage.process(busy=busy, **program), {**program, "is_fork": True, "parent_pid": 100}
    names = [f"/run/fields_{number:06d}.dat" for number in (500, 1000, 1500, 2000)]
    for number, (name, share) in enumerate(zip(names, shares, strict=True)):
        start_s = 6.0 + 8 * number
        if forks:
            who = stage.process(200 + number, born_s=start_s, exit_s=start_s + 1, **fork)
        stage.write(who, name, start_s, 0.8, share * MIB, magic=None)

    assert saves(stage.play(50)) == (names if found else [])


@LEVELS
@pytest.mark.parametrize(
    ("name", "shares", "busy", "found"),
    [
        ("q_{}.pkl", (35,) * 4, 1.0, True),
        ("q_{}.pkl", (35, 31, 35, 35), 1.0, False),
        ("q_{}.pkl", (35,) * 4, 0.1, False),
        ("results_{}.pkl", (35,) * 4, 1.0, False),
        ("q_{}.dat", (35,) * 4, 1.0, False),
    ],
    ids=["its objects", "of other sizes", "without computing", "results", "no pickle"],
)
def test_objects_pickled_in_one_size_at_even_times_are_a_state(
    name: str, shares: tuple[int, ...], busy: float, *, found: bool, trace: bool
) -> None:
    """An agent in plain Python holds its table in many more bytes than its pickle has: it is left unsure."""
    stage = Stage(trace=trace)
    who = stage.process(busy=busy, program="agent.py", runtimes=())
    paths = [f"/run/{name.format(100 * number)}" for number in range(1, 5)]
    for number, (path, share) in enumerate(zip(paths, shares, strict=True)):
        magic = b"\x80\x04\x95" + bytes(13) if path.endswith(".pkl") else None
        stage.write(who, path, 6.0 + 8 * number, 0.8, share * MIB, magic=magic)

    told = stage.play(50)

    assert saves(told) == (paths if found else [])
    assert all(one.confidence < LOW_CONFIDENCE for one in told)


@pytest.mark.parametrize(
    ("name", "care", "sure"),
    [
        ("activations_{:04d}.npy", "", False),
        ("model_v{}.npy", "word", True),
        ("step_{:04d}.npy", "step", True),
        ("activations_{:04d}.npy", "renamed", True),
        ("activations.npy", "overwrites", True),
        ("activations_{:04d}.npy", "rotates", True),
    ],
)
def test_a_rhythm_alone_leaves_a_save_unsure(name: str, care: str, *, sure: bool) -> None:
    """What evaluations yield is written as the states of a trainer that never cleans up: nothing tells them apart."""
    stage = Stage(trace=True)
    who = stage.process(program="fit.py", runtimes=("numpy",))
    paths = [f"/run/{name.format(number)}" for number in range(4)]
    for number, path in enumerate(paths):
        start_s, target = 6.0 + 8 * number, path if care == "renamed" else None
        stage.write(who, path + ".tmp" * (care == "renamed"), start_s, 0.8, 120 * MIB, magic=NUMPY, rename_to=target)
        if care == "rotates" and number:
            gone_s = start_s + 1
            stage.extra.append((gone_s, life("unlinked", gone_s, inode=None, path=paths[number - 1])))

    found = stage.play(50)

    assert saves(found) == paths
    assert (found[-1].confidence >= LOW_CONFIDENCE) is sure
    assert not care or care in {reason.name for reason in found[-1].evidence}


@pytest.mark.parametrize("guessed", [False, True])
def test_rotation_speaks_for_saves(*, guessed: bool) -> None:
    """The job that wrote them deletes the older ones, in whatever folder."""
    stage = Stage(trace=True)
    who = stage.process(program="fit.py", runtimes=("numpy",))
    names = [f"/run/{number}.blob" for number in (100, 200, 300, 400)]
    series(stage, who, names)
    stage.extra += [(6.0 + 8 * n + 1, life("unlinked", 6.9 + 8 * n, inode=None, path=path, is_guessed=guessed))
                    for n, path in enumerate(names[:3], 1)]  # fmt: skip

    assert "rotates" in signs_of(stage, 50)
    assert saves(stage.play(50)) == names


def test_what_another_job_deletes_is_no_rotation() -> None:
    """A person, or a clean-up job, says nothing of what the files are."""
    stage = Stage(trace=True)
    who = stage.process(program="fit.py", runtimes=("numpy",))
    names = [f"/run/{number}.blob" for number in (100, 200, 300, 400)]
    series(stage, who, names)
    stage.extra += [(15.0, life("unlinked", 15.0, 999, inode=None, path=names[0]))]

    assert "rotates" not in signs_of(stage, 50)


def test_what_the_next_run_of_the_program_reads_at_its_start_was_a_save() -> None:
    """Nothing else spoke for it: then it is told, and the reading with it."""
    stage = Stage()
    stage.write(stage.process(100, exit_s=6.0, **ALIEN), "/run/blob.bin", 4.0, 0.8, 120 * MIB, magic=None)
    reader = stage.process(200, born_s=10.0, **{**ALIEN, "runtimes": ("cuda",)})
    stage.read(reader, "/run/blob.bin", 12.0, 0.8, 120 * MIB)

    found = stage.play(30)

    assert saves(found) == ["/run/blob.bin"]


@LEVELS
@pytest.mark.parametrize("runtimes", [("numpy",), ("torch", "numpy"), ()])
@pytest.mark.parametrize(
    "pattern",
    ["/mnt/out/{n:05d}.pt", "/mnt/out/{n:05d}.npy", "/mnt/out/w{w}/{j:05d}.bin", "/mnt/out/part-{w}-{j}.safetensors"],
)
def test_the_shards_of_workers_are_no_saves(pattern: str, runtimes: tuple[str, ...], trace: bool) -> None:  # noqa: FBT001 # a parameter
    """Eight workers write pieces of one size, each in its own time, under temporary names: a data set."""
    dice = random.Random(5)  # noqa: S311 - the same in every run
    stage = Stage(trace=trace, hz=10)
    stage.process(100, program="prepare.py", runtimes=runtimes)
    for worker in range(8):
        who = stage.process(200 + worker, parent_pid=100, program="prepare.py", runtimes=runtimes)
        start_s, number = 1.0 + dice.random() / 10, 0
        while start_s < 20:
            name = pattern.format(n=worker * 10 + number, w=worker, j=number)
            size = int(20 * MIB * (0.98 + 0.04 * dice.random()))
            stage.write(who, name + ".tmp", start_s, 0.2, size, magic=TORCH_ZIP, rename_to=name)
            start_s += 2 + dice.random()
            number += 1

    assert stage.play(25) == []


def test_pieces_that_only_count_on_are_no_saves() -> None:
    """Parts of something that never begins anew: that they come again says nothing."""
    stage = Stage()
    who = stage.process(program="prepare.py", runtimes=("numpy",))
    series(stage, who, [f"/mnt/out/part-{number:05d}.npy" for number in range(6)], magic=NUMPY)

    assert stage.play(70) == []


def test_a_single_nameless_save_is_told_when_nothing_contradicts_it() -> None:
    """It waits until the process has ended: the next file might have shown that it is data."""
    stage = Stage()
    stage.write(stage.process(exit_s=9.0), "/mnt/out/net.pt", 6.0, 0.8, 120 * MIB)

    assert saves(stage.play(16)) == ["/mnt/out/net.pt"]


@LEVELS
@pytest.mark.parametrize(
    ("path", "magic"),
    [
        ("/tmp/torchinductor_root/ab/cabcdef.bin", None),
        ("/root/.triton/cache/xyz/kernel.bin", None),
        ("/var/lib/postgresql/15/main/base/16384/16385", None),
        ("/usr/lib/python3/site-packages/pkg/model.bin", None),
        ("/work/core.python3.1234", b"\x7fELF" + bytes(12)),
        ("/work/model_dump", b"\x7fELF" + bytes(12)),
        ("/db/state.sst", None),
        ("/db/snapshot.rdb", b"REDIS0011" + bytes(7)),
        ("/run/model_trace.bin", b"\x1f\x8b" + bytes(14)),
        ("/run/best_epoch.mkv", b"\x1a\x45\xdf\xa3" + bytes(12)),
        ("/run/state.parquet", b"PAR1" + bytes(12)),
    ],
)
def test_what_is_something_else_is_no_save(path: str, magic: bytes | None, trace: bool) -> None:  # noqa: FBT001 # a parameter
    """Caches, databases, dumps, films and tables, even by a process with PyTorch, regular and of one size."""
    stage = Stage(trace=trace)
    series(stage, stage.process(), [path] * 3, magic=magic)

    assert stage.play(40) == []


def test_a_writer_that_never_pauses_is_no_trainer() -> None:
    """Video, captures and generators write all the time."""
    stage = Stage()
    who = stage.process(program="capture.py", runtimes=("numpy",))
    for number in range(8):
        stage.write(who, f"/run/take{number}.raw", 2.0 + 5 * number, 4.9, 300 * MIB, magic=None)

    assert saves(stage.play(60)) == []


@LEVELS
def test_a_trainer_that_waits_for_its_last_save_before_the_next_one_is_one(trace: bool) -> None:  # noqa: FBT001 # a parameter
    """Its storage is slower than it trains: each save begins as the one before ends."""
    stage = Stage(trace=trace)
    trainer = stage.process(busy=0.1)
    names = [f"/run/checkpoint-{step}/model.pt" for step in (50, 100, 150, 200)]
    for number, name in enumerate(names):
        stage.write(trainer, name, 6.0 + 5.5 * number, 5.4, 100 * MIB, magic=bytes(16))

    assert saves(stage.play(50)) == names


def test_a_data_set_that_is_read_file_by_file_is_no_restore() -> None:
    """Tensors of one shape in a row, and again in the next epoch."""
    stage = Stage()
    trainer = stage.process()
    for epoch in range(2):
        for number in range(6):
            stage.read(trainer, f"/mnt/pieces/{number:05d}.pt", 2.0 + 6 * epoch + number * 0.8, 0.6, 50 * MIB)

    assert stage.play(30) == []


def test_reads_by_what_builds_serves_or_searches_are_nothing() -> None:
    """A search over a folder of checkpoints, a checksum of one."""
    stage = Stage()
    for pid, comm in enumerate(("grep", "sha256sum", "clamscan"), 100):
        stage.read(stage.process(pid, comm=comm, program=comm, runtimes=()), "/ckpt/step_7.pt", 2.0, 1.0, 300 * MIB)

    assert stage.play(30, saved_paths=("/ckpt/step_7.pt",)) == []


@given(st.permutations([Signal(name, name, "x") for name in ("writes", "step", "runtime-none", "renamed", "foreign")]))
@settings(max_examples=30)
def test_the_order_of_signals_does_not_matter(signals: list[Signal]) -> None:
    """The sum is the same, and how sure an event is lies between a half and nearly one."""
    decision = decide(tuple(signals))

    assert decision.save_or_restore == pytest.approx(-1.25)
    assert decision.hypothesis is Hypothesis.DATA
    assert 0.5 <= decision.confidence <= 0.99


@given(
    st.lists(st.tuples(st.text(max_size=5), st.booleans(), st.text(max_size=8), st.integers(0, 1 << 50)), max_size=300)
)
@settings(max_examples=30)
def test_memory_is_bounded_whatever_comes(happenings: list[tuple[str, bool, str, int]]) -> None:
    """Jobs, events and paths with any names; what vanished is only counted for who wrote it."""
    memory = EventHistory()
    for job, writes, path, size in happenings:
        event = HistoryEvent(0, SECOND_NS, size, frozenset((path,)), frozenset((path,)), frozenset(), frozenset())
        memory.record(job, event, writes=writes)
        memory.record_deletion(path, job)

    assert all(len(memory.events(job, writes=True)) <= 64 for job, *_ in happenings)
    assert all(memory.rotated_count(job, frozenset((path,))) <= 64 for job, _, path, _ in happenings)
