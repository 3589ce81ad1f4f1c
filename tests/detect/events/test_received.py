"""What came in by the network while a file was written: a download, if nothing says that the job saved it."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, MONOTONIC_NS, NUMPY, SAFETENSORS, SECOND_NS, Stage

from ckptprof.detect.world.host.devices import Devices
from ckptprof.model import Kind

SIZE = 200 * MIB
PART = "/models/x/model-00001-of-00002.safetensors"
STEP = "/run/checkpoint-500/model.safetensors"
ARRAY = 24_641_544  # bytes of one array of a model


def found(stage: Stage, path: str, call_bytes: int = ARRAY) -> set[Kind]:
    """Return what a file is that was written by a process with PyTorch, from 2 s to 3 s."""
    stage.write(stage.process(exit_s=6.0), path, 2.0, 1.0, SIZE, magic=SAFETENSORS, call_bytes=call_bytes)
    return {one.kind for one in stage.play(90)}


@pytest.mark.parametrize(
    ("path", "came_bytes", "kinds"),
    [(PART, SIZE, {Kind.COPY}), (PART, 3 * SIZE, {Kind.SAVE}), (PART, None, {Kind.SAVE}), (STEP, SIZE, {Kind.SAVE})],
    ids=["as-much", "three-times-as-much", "not-seen", "a-step"],
)
def test_as_much_from_the_network_is_a_download_unless_the_name_counts_training(
    monkeypatch: pytest.MonkeyPatch, path: str, came_bytes: int | None, kinds: set[Kind]
) -> None:
    """The network may serve anybody: beside a job that saves, too."""
    monkeypatch.setattr(Devices, "received_bytes", lambda *_: came_bytes)

    assert found(Stage(), path) == kinds


@pytest.mark.parametrize(
    ("path", "call_bytes", "came_bytes", "trace", "kind"),
    [
        (PART, MIB, 3 * SIZE, False, Kind.COPY),
        (PART, MIB, 3 * SIZE, True, Kind.COPY),
        (PART, 64 << 10, 3 * SIZE, False, Kind.COPY),
        (PART, 10 * MIB, 3 * SIZE, True, Kind.COPY),
        (PART, MIB, SIZE // 2, True, Kind.SAVE),
        (PART, ARRAY, 3 * SIZE, True, Kind.SAVE),
        (PART, 50 * MIB, 3 * SIZE, True, Kind.SAVE),
        (PART, 300_000, 3 * SIZE, False, Kind.SAVE),
        (PART, 300_000, 3 * SIZE, True, Kind.SAVE),
        (STEP, MIB, 3 * SIZE, False, Kind.SAVE),
    ],
)
def test_where_others_receive_too_the_pieces_tell(  # parameters
    monkeypatch: pytest.MonkeyPatch, *, path: str, call_bytes: int, came_bytes: int, trace: bool, kind: Kind
) -> None:
    """What comes in pieces is written in pieces, all of one size; arrays of a model are none."""
    monkeypatch.setattr(Devices, "received_bytes", lambda *_: came_bytes)

    assert found(Stage(trace=trace), path, call_bytes) == {kind}


@pytest.mark.parametrize("trace", [False, True])
def test_what_waited_in_buffers_came_before_the_file_was_there(monkeypatch: pytest.MonkeyPatch, *, trace: bool) -> None:
    """The client opens its file when the answer has begun to come, a starved one late."""

    def came(_: Devices, start_ns: int, end_ns: int, __: str) -> int:
        return SIZE if end_ns - start_ns > 1.5 * SECOND_NS else int(0.8 * SIZE)

    monkeypatch.setattr(Devices, "received_bytes", came)

    assert found(Stage(trace=trace), PART, MIB) == {Kind.COPY}


def test_numbered_files_that_numpy_saves_again_and_again_are_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the second of them had as much come in by the network beside it."""
    monkeypatch.setattr(
        Devices,
        "received_bytes",
        lambda _, start_ns, *__: SIZE if 8 < (start_ns - MONOTONIC_NS) / SECOND_NS < 11 else 0,
    )
    stage = Stage()
    trainer = stage.process(runtimes=("numpy",))
    for number in range(3):
        stage.write(trainer, f"/run/checkpoints/step_{number}.npy", 5.0 + 5 * number, 0.3, SIZE, magic=NUMPY)

    assert [save.step for save in stage.play(25)] == [0, 1, 2]


@pytest.mark.parametrize(("came_bytes", "kinds"), [(3 * SIZE, {Kind.COPY}), (None, {Kind.COPY}), (MIB, {Kind.SAVE})])
def test_what_has_the_name_of_a_download_came_by_the_network(
    monkeypatch: pytest.MonkeyPatch, came_bytes: int | None, kinds: set[Kind]
) -> None:
    """Whole files are renamed so by whoever cares for them: while nothing comes in, a process with numpy saves."""
    monkeypatch.setattr(Devices, "received_bytes", lambda *_: came_bytes)
    stage = Stage()
    who = stage.process(program="fit.py", runtimes=("numpy",))
    for number in range(3):
        path = f"/run/table-v{number}.safetensors"
        stage.write(who, f"{path}.incomplete", 6.0 + 8 * number, 1.0, SIZE, magic=SAFETENSORS, rename_to=path)

    assert {one.kind for one in stage.play(60)} == kinds
