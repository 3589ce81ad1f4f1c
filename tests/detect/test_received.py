"""What came in by the network while a file was written: a download, if nothing says that the job saved it."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, SAFETENSORS, Stage

from ckptprof.detect.devices import DeviceBook
from ckptprof.model import Kind

SIZE = 200 * MIB


@pytest.mark.parametrize(
    ("path", "came_bytes", "kinds"),
    [
        ("/models/x/model-00001-of-00002.safetensors", SIZE, {Kind.COPY}),
        ("/models/x/model-00001-of-00002.safetensors", 3 * SIZE, {Kind.SAVE}),
        ("/models/x/model-00001-of-00002.safetensors", None, {Kind.SAVE}),
        ("/run/checkpoint-500/model.safetensors", SIZE, {Kind.SAVE}),
    ],
    ids=["as-much", "three-times-as-much", "not-seen", "a-step"],
)
def test_as_much_from_the_network_is_a_download_unless_the_name_counts_training(
    monkeypatch: pytest.MonkeyPatch, path: str, came_bytes: int | None, kinds: set[Kind]
) -> None:
    """The network may serve anybody: beside a job that saves, too."""
    monkeypatch.setattr(DeviceBook, "received_bytes", lambda *_: came_bytes)
    stage = Stage()
    stage.write(stage.process(exit_s=6.0), path, 2.0, 1.0, SIZE, magic=SAFETENSORS)

    assert {one.kind for one in stage.play(90)} == kinds
