"""File systems that keep no birth times (FUSE, NFS before Linux 6.16, Lustre): what polling tells is the same without.

Real recordings, of which the births are left out: of files that are written over themselves, renamed, small beside
large ones, of several ranks.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.detect.stage import changed, play

from ckptprof.recording import read_file
from ckptprof_collectors.samples import FileFact, Sample

STREAMS = Path(__file__).resolve().parents[1] / "fixtures" / "streams"
TOLERANCE_NS = 250_000_000
NAMES = [
    "ending-staged",
    "example-numpy-npz",
    "framework-accelerator-fsdp",
    "framework-dcp-sync",
    "framework-keras-fit-keras",
    "overwritten-and-averaged",
    "overwritten-last",
]


def bornless(sample: Sample) -> Sample:
    """Return what is said of a file without its birth."""
    if isinstance(sample, FileFact):
        return msgspec.structs.replace(sample, birth_ns=None)
    return sample


@pytest.mark.parametrize("name", NAMES)
def test_what_is_told_is_the_same_without_births(name: str) -> None:
    """As many events, of the same kinds, steps and bytes, that last as long."""
    header, frames = read_file(STREAMS / f"{name}.ckptrec.gz")
    seen = list(frames)
    known = play(header, seen)

    found = play(header, changed(seen, bornless))

    assert [(one.kind, one.step, one.bytes) for one in found] == [(one.kind, one.step, one.bytes) for one in known]
    for one, other in zip(found, known, strict=True):
        assert one.end_ns - one.start_ns == pytest.approx(other.end_ns - other.start_ns, abs=TOLERANCE_NS)
