"""One row, or one name of a rule, decides each of these: without it, the same stream is told as something else.

No recording holds these rows of the decision table yet: each scene is what a job of that kind would show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.detect.stage import MIB, SAFETENSORS, Stage
from tests.detect.tracer import life

NATIVE: dict[str, Any] = {"comm": "train_gpt2", "program": "train_gpt2", "runtimes": ()}
NUMERIC: dict[str, Any] = {"program": "prepare.py", "runtimes": ("numpy",)}
SIZE = 120 * MIB
Told = list[tuple[str, str]]


def told(stage: Stage, until_s: float, **options: Any) -> Told:
    """Return kinds and paths."""
    return [(one.kind.value, one.path or "") for one in stage.play(until_s, **options)]


def format_safetensors() -> Told:
    """Write a file of no known name without any library but numpy: its header makes it a model."""
    stage = Stage()
    stage.write(stage.process(**NUMERIC), "/run/x.st", 2.0, 1.0, SIZE, magic=SAFETENSORS, rename_to="/run/blob.st")
    return told(stage, 70)


def rotates() -> Told:
    """Let a native trainer count its files and keep the last two."""
    stage = Stage(trace=True)
    who = stage.process(**NATIVE)
    for number in range(6):
        stage.write(who, f"/run/{number + 1}00.blob", 6.0 + 8 * number, 0.8, SIZE, magic=None)
        if number > 1:
            gone_s = 7.5 + 8 * number
            stage.extra.append((gone_s, life("unlinked", gone_s, inode=None, path=f"/run/{number - 1}00.blob")))
    return told(stage, 60)


def read_back_made() -> Told:
    """Let a native program map what was seen being saved."""
    stage = Stage()
    stage.map(stage.process(**NATIVE), "/run/model.safetensors", 2.0, 1.0, SIZE)
    return told(stage, 40, saved_paths=("/run/model.safetensors",))


def read_back_moved() -> Told:
    """Send a file by scp whose name alone tells too little; it was seen being saved."""
    stage = Stage()
    stage.read(stage.process(comm="scp", program="scp", runtimes=()), "/run/x.pt", 2.0, 1.0, SIZE)
    return told(stage, 40, saved_paths=("/run/x.pt",))


def data_moved() -> Told:
    """Copy samples of a data set whose name counts as a training does."""
    stage = Stage()
    stage.write(stage.process(comm="cp", program="cp", runtimes=()), "/data/train/sample_step_100.pt", 2.0, 1.0, SIZE)
    return told(stage, 40)


def foreign_moved() -> Told:
    """Copy a database that is named as a file of a checkpoint."""
    stage = Stage()
    who = stage.process(comm="cp", program="cp", runtimes=())
    stage.write(who, "/out/checkpoint-100/optimizer.bin", 2.0, 1.0, SIZE, magic=b"SQLite format 3\0")
    return told(stage, 40)


def nobody_known(*steps: int) -> Told:
    """Write files that are named as a checkpoint's by a process that was over before anybody looked at it."""
    stage = Stage(trace=True, poll=False, described=False)
    who = stage.process(exit_s=2.0 + 8 * len(steps))
    for number, step in enumerate(steps):
        stage.write(who, f"/run/checkpoint-{step}/model.safetensors", 2.0 + 8 * number, 0.8, SIZE, magic=SAFETENSORS)
    return told(stage, 70)


def read_by_nobody_known() -> Told:
    """Read a checkpoint as whole as a loader does, in a process that was over before anybody looked at it."""
    stage = Stage(trace=True, poll=False, described=False)
    stage.read(stage.process(exit_s=3.0), STATE.format(100), 2.0, 0.8, SIZE, call_bytes=SIZE)
    return told(stage, 70)


def packs(path: str, magic: bytes | None, **fields: Any) -> Told:
    """Let a process read two files while it writes one that is a little smaller than both."""
    stage = Stage(trace=True)
    who = stage.process(**fields)
    for number in range(2):
        stage.read(who, f"/in/{number}.blob", 2.0 + number, 1.0, SIZE)
    stage.write(who, path, 2.0, 2.0, SIZE * 2 * 9 // 10, magic=magic)
    return told(stage, 90)


def reads_even_pieces() -> Told:
    """Let a trainer read a .pt from end to end in even pieces, as no loader does, and keep some of it."""
    stage = Stage(trace=True)
    stage.read(stage.process(), "/run/x.pt", 2.0, 1.0, SIZE, kept=0.4)
    return told(stage, 40)


def read_again() -> Told:
    """Let the second run of a native trainer read what the first one wrote."""
    stage = Stage()
    stage.write(stage.process(100, exit_s=9.0, **NATIVE), "/run/model_00001000.bin", 6.0, 1.0, SIZE, magic=None)
    stage.read(stage.process(200, born_s=12.0, **NATIVE), "/run/model_00001000.bin", 13.0, 1.0, SIZE)
    return told(stage, 40)


def recurs() -> Told:
    """Let a native trainer wait for its GPU: nothing but names and that it comes again speaks for it."""
    stage = Stage()
    who = stage.process(busy=0.1, **NATIVE)
    for number in range(3):
        stage.write(who, f"/run/model_0000{number + 1}000.bin", 6.0 + 8 * number, 0.8, SIZE, magic=None)
    return told(stage, 50)


MERGED, NATIVE_STATE = "/out/step_100.safetensors", "/run/model_0000{}000.bin"
STATE = "/run/checkpoint-{}/model.safetensors"
SCENES: dict[str, tuple[Callable[[], Told], Told]] = {
    "row format-safetensors: made": (format_safetensors, [("save", "/run/blob.st")]),
    "row rotates: made": (rotates, [("save", f"/run/{number}00.blob") for number in range(1, 7)]),
    "row read-back: made": (read_back_made, [("restore", "/run/model.safetensors")]),
    "row read-back: moved": (read_back_moved, [("copy", "/run/x.pt")]),
    "row data: moved": (data_moved, []),
    "row foreign: moved": (foreign_moved, []),
    "row copies-in-sum: made": (lambda: packs("/run/bundle.ckpt", None), []),
    "row straight: made": (reads_even_pieces, []),
    "rule 'copied in sum'": (lambda: packs(MERGED, SAFETENSORS, **NUMERIC), [("copy", MERGED)]),
    "rule 'copied in sum': none trains": (lambda: packs(MERGED, SAFETENSORS), [("save", MERGED)]),
    "rule 'read, no libraries': none read-again": (
        read_again,
        [("save", NATIVE_STATE.format(1)), ("restore", NATIVE_STATE.format(1))],
    ),
    "rule 'nobody known'": (lambda: nobody_known(100), [("copy", STATE.format(100))]),
    "rule 'nobody known': none recurs": (
        lambda: nobody_known(100, 200, 300),
        [("save", STATE.format(number)) for number in (100, 200, 300)],
    ),
    "rule 'read, nobody known'": (read_by_nobody_known, [("copy", STATE.format(100))]),
    "rule 'no libraries': none recurs": (recurs, [("save", NATIVE_STATE.format(number)) for number in (1, 2, 3)]),
}


@pytest.mark.parametrize("held", SCENES)
def test_what_one_signal_decides(held: str) -> None:
    """Each is told as it is because of what it is called after here; `make weights` shows that."""
    scene, expected = SCENES[held]

    assert scene() == expected
