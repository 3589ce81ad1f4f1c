"""What a save wrote beyond itself, and the reasons for it."""

from __future__ import annotations

from typing import cast

import pytest
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, Stage
from tests.detect.tracer import activity

from ckptprof.detect.describe.overheads import Amplification, measure_amplification
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.transfers.model.traced_transfer import TracedTransfer
from ckptprof.frameworks.file_names import parse_name


def part_of(
    path: str, size: int, *, staged: TracedTransfer | None = None, pid: int = 100, moved: int | None = None
) -> TracedTransfer:
    """Return a transfer of a save: a file that was written."""
    sample = activity(pid, path, 2.0, 3.0, moved or size, size=size, high_offset=size)
    inode = hash(path) & 0xFFFF
    made = TracedTransfer(
        process=(pid, pid * 10), file=(1, inode), writes=True, path=path, first_ns=sample.first_ns,
        last_ns=sample.last_ns, before_ns=sample.first_ns, size=size, name=parse_name(path), start_ns=MONOTONIC_NS,
        end_ns=MONOTONIC_NS + SECOND_NS, bytes=moved or size, staging_file=staged,
    )  # fmt: skip
    made.ingest(sample, sample.first_ns)
    return made


def amplified(*parts: TracedTransfer, writes: bool = True) -> Amplification:
    """Return the amplification of a save of these parts."""
    candidate = Candidate("job", writes)
    for part in parts:
        candidate.add(part)
    return measure_amplification(candidate, cast("Knowledge", None))  # of traced parts nothing else is asked


def reasons(found: Amplification) -> dict[str, int]:
    """Return reason -> bytes, which must explain everything that was written beyond the unique bytes."""
    assert found.written_bytes is not None
    assert found.unique_bytes is not None
    told = {overhead.reason: overhead.bytes for overhead in found.overheads}
    assert found.written_bytes - found.unique_bytes == sum(told.values())
    assert all(overhead.text for overhead in found.overheads)
    return told


def test_a_plain_save_writes_itself() -> None:
    """Shards of equal size, of several processes and of one, are no copies of each other."""
    shards = [part_of(f"/ckpt/step-1/__{rank}_0.distcp", 100 * MIB, pid=100 + rank) for rank in range(4)]
    layers = [part_of(f"/ckpt/step-1/layer_{n}.bin", 100 * MIB) for n in range(4)]
    again = [part_of(f"/ckpt/step-1/{folder}/__0_0.distcp", 100 * MIB) for folder in ("model", "optimizer")]

    found = amplified(*shards, *layers, *again)

    assert (found.written_bytes, found.unique_bytes, reasons(found)) == (1000 * MIB, 1000 * MIB, {})


def test_a_restore_has_none() -> None:
    """Nothing was written."""
    assert amplified(part_of("/ckpt/step-1/model.pt", MIB), writes=False) == Amplification()


def test_staging_writes_everything_twice() -> None:
    """As Lightning does, by way of the folder for temporary files."""
    staged = part_of("/tmp/tmpa1b2c3d4", 100 * MIB)
    found = amplified(part_of("/ckpt/epoch=1-step=10.ckpt", 100 * MIB, staged=staged))

    assert reasons(found) == {"staging": 100 * MIB}
    assert found.unique_bytes == 100 * MIB
    assert "/tmp first" in found.overheads[0].text


@pytest.mark.parametrize(
    "names", [("epoch=1-step=10.ckpt", "last.ckpt"), ("last.ckpt", "epoch=1-step=10.ckpt"), ("last.ckpt", "best.ckpt"),
              ("checkpoint3.pt", "checkpoint_last.pt")],
)  # fmt: skip
def test_a_further_name_in_full_is_a_copy(names: tuple[str, str]) -> None:
    """Once too many, whichever was written first."""
    assert reasons(amplified(*(part_of(f"/ckpt/{name}", 100 * MIB) for name in names))) == {"copy": 100 * MIB}


def test_a_copy_that_holds_another_name_is_one_all_the_same() -> None:
    """torch.save writes the name of the file into it; the state of an optimizer is no copy of the model."""
    first, last = part_of("/ckpt/epoch=0-step=4.ckpt", 60_034_736), part_of("/ckpt/last.ckpt", 60_034_800)
    model, optimizer = part_of("/ckpt/last/model.pt", 60_034_736), part_of("/ckpt/last/optimizer.pt", 60_034_800)

    assert reasons(amplified(first, last)) == {"copy": 60_034_800}
    assert reasons(amplified(first, part_of("/ckpt/last.ckpt", 60_125_000))) == {"copy": 60_125_000}
    assert reasons(amplified(first, part_of("/ckpt/last.ckpt", 60_650_000))) == {}
    assert reasons(amplified(first, part_of("/ckpt/last.ckpt", 60_034_800, pid=7))) == {}
    assert reasons(amplified(model, optimizer)) == {}


def test_staging_and_a_copy_make_four_times_the_bytes() -> None:
    """Lightning with save_last."""
    parts = [
        part_of(f"/ckpt/{name}", 100 * MIB, staged=part_of(f"/tmp/tmp{number}", 100 * MIB))
        for number, name in enumerate(("epoch=1-step=10.ckpt", "last.ckpt"))
    ]
    found = amplified(*parts)

    assert reasons(found) == {"staging": 200 * MIB, "copy": 100 * MIB}
    assert (found.written_bytes, found.unique_bytes) == (400 * MIB, 100 * MIB)


def test_a_second_folder_of_the_same_files_is_a_duplicate() -> None:
    """Equal names and sizes, more than one, by one process."""
    parts = [
        part_of(f"/out/{folder}/{name}", size * MIB)
        for folder in ("checkpoint-10", "export-10")
        for name, size in (("model.safetensors", 100), ("optimizer.pt", 200), ("config.json", 1))
    ]
    assert reasons(amplified(*parts)) == {"duplicate": 301 * MIB}


def test_alike_parts_of_one_checkpoint_are_no_duplicates() -> None:
    """The weights and their average, as diffusers saves them, have the same names and sizes, and other values."""
    parts = [
        part_of(f"/out/checkpoint-10/{folder}/diffusion_pytorch_model-{n:05d}-of-00002.safetensors", 50 * MIB)
        for folder in ("unet", "unet_ema")
        for n in (1, 2)
    ]
    assert reasons(amplified(*parts)) == {}


def test_what_is_written_over_itself_is_a_rewrite() -> None:
    """More bytes than the file has; a header that is filled in at the end is not told."""
    assert reasons(amplified(part_of("/ckpt/a.bin", 100 * MIB, moved=150 * MIB))) == {"rewrite": 50 * MIB}
    assert reasons(amplified(part_of("/ckpt/a.bin", 100 * MIB, moved=100 * MIB + (700 << 10)))) == {}


@pytest.mark.parametrize("trace", [True, False])
def test_a_save_under_two_names_says_so(*, trace: bool) -> None:
    """From the frames to the checkpoint."""
    stage = Stage(trace=trace)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/epoch=1-step=10.ckpt", 2.0, 1.0, 100 * MIB)
    stage.write(trainer, "/ckpt/last.ckpt", 3.1, 1.0, 100 * MIB)

    (found,) = stage.play(20.0)

    assert (found.bytes, found.files) == (200 * MIB, 2)
    assert found.path == "/ckpt/epoch=1-step=10.ckpt"
    assert (found.written_bytes, found.unique_bytes) == (200 * MIB, 100 * MIB)
    assert [overhead.reason for overhead in found.overheads] == ["copy"]
