"""Files with several names: a link that is made later, or unmade, tells nothing of when its file was written."""

from __future__ import annotations

import msgspec
import pytest
from tests.detect.stage import MIB, NUMPY, SECOND_NS, Move, Stage

from ckptprof_collectors.samples import FileFact

RUN = "/run/checkpoints"
SIZE = 60 * MIB


def named(stage: Stage, move: Move, path: str, at_s: float, changed_s: float) -> FileFact:
    """Return what is said of a file under a name, once its links were changed."""
    return msgspec.structs.replace(stage.fact(move, at_s), path=path, changed_ns=stage.stamp(changed_s))


def unchanged_and_written(*, seen_open: bool) -> Stage:
    """Return a job that links what has not changed into the folder of each step, and writes what has."""
    stage = Stage()
    trainer = stage.process()
    frozen = stage.write(trainer, f"{RUN}/ckpt_1/frozen.npy", 3.0, 0.4, SIZE, magic=NUMPY, seen_open=seen_open)
    names = [frozen.path]
    for step in range(1, 4):
        at_s = 3.0 + 3 * (step - 1)
        tuned = stage.write(trainer, f"{RUN}/ckpt_{step}/tuned.npy", at_s + 0.4, 0.2, SIZE // 2, magic=NUMPY,
                            seen_open=seen_open)  # fmt: skip
        if step > 1:
            names.append(f"{RUN}/ckpt_{step}/frozen.npy")
        look_s = at_s + 1.2
        stage.extra += [(look_s, named(stage, frozen, name, look_s, at_s if step > 1 else 3.4)) for name in names]
        latest = named(stage, tuned, f"{RUN}/latest.npy", look_s, at_s + 0.61)
        stage.extra += [
            (look_s - 0.3, latest),
            (look_s, named(stage, tuned, tuned.path, look_s, at_s + 0.61)),
            (look_s, latest),
        ]
        later_s = look_s + 2.0  # the link `latest` is of the next one now
        stage.extra.append((later_s, named(stage, tuned, tuned.path, later_s, later_s - 0.2)))
    return stage


@pytest.mark.parametrize("seen_open", [True, False])
def test_links_to_a_file_are_no_part_of_its_writing(seen_open: bool) -> None:  # noqa: FBT001 - a case
    """The first save was told to take until the last link was made, under the folder of that, and all of it blocked."""
    saves = unchanged_and_written(seen_open=seen_open).play(25)

    assert [(save.end_ns - save.start_ns) / SECOND_NS for save in saves] == pytest.approx([0.6, 0.2, 0.2], abs=0.1)
    assert [save.bytes for save in saves] == [SIZE + SIZE // 2, SIZE // 2, SIZE // 2]
    assert [save.path.removeprefix(RUN) for save in saves] == ["/ckpt_1", "/ckpt_2/tuned.npy", "/ckpt_3/tuned.npy"]


@pytest.mark.parametrize("trace", [True, False])
def test_a_copy_of_a_step_under_a_further_name_is_not_what_it_was_written_for(trace: bool) -> None:  # noqa: FBT001 - a case
    """Step 2 was the best: it was told as `best`, and step 2 as what that was staged in."""
    stage = Stage(trace=trace)
    trainer = stage.process()
    for step in (1, 2):
        tuned = stage.write(trainer, f"{RUN}/ckpt_{step}/tuned.npy", 4.1 * step, 0.4, SIZE, magic=NUMPY)
    stage.extra.append((9.6, stage.fact(tuned, 9.6)))
    stage.read(trainer, f"{RUN}/ckpt_2/tuned.npy", 8.7, 0.4, SIZE, from_disk=False)
    stage.write(trainer, f"{RUN}/best.npy", 8.75, 0.4, SIZE, magic=NUMPY)

    first, second = stage.play(25)

    assert [first.path, second.path] == [f"{RUN}/ckpt_{step}/tuned.npy" for step in (1, 2)]
    assert [(one.reason, one.bytes) for one in second.overheads] == [("copy", SIZE)]
