"""Files that are whole, cut at any place, or made to deceive."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from ckptprof_collectors.files.file_facts import FactQuery, find_facts
from ckptprof_collectors.files.process_roots import OWN_PROCESS


def torch_zip() -> bytes:
    """Return an archive as torch.save lays it out: stored, not compressed."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", os.urandom(300))
        archive.writestr("archive/data/0", os.urandom(200_000))
    return made.getvalue()


def safetensors(size: int = 200_000) -> bytes:
    """Return a file of two tensors of `size` bytes each."""
    header = {
        "a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
        "b": {"dtype": "U8", "shape": [size], "data_offsets": [size, 2 * size]},
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + os.urandom(2 * size)


def whole(path: Path, content: bytes) -> bool | None:
    """Return what is told of a file with such content."""
    path.write_bytes(content)
    (fact,) = find_facts(FactQuery(1, 1, OWN_PROCESS, (os.fsencode(path),), (), 0))
    return fact.is_complete


@pytest.mark.parametrize("content", [torch_zip(), safetensors()], ids=["torch.save", "safetensors"])
def test_a_file_that_was_cut_off_is_told_from_a_whole_one(tmp_path: Path, content: bytes) -> None:
    """Wherever it was cut, beyond its first bytes."""
    assert whole(tmp_path / "a.pt", content) is True
    for cut in (64, len(content) // 2, len(content) - 2000):
        assert whole(tmp_path / "a.pt", content[:cut]) is False


@pytest.mark.parametrize(
    "content",
    [b"\x80\x02" + bytes(5000), b"\x93NUMPY" + bytes(5000), (1 << 62).to_bytes(8, "little") + b'{"a":{}}', b"PK", b""],
    ids=["pickle", "npy", "a header longer than any disk", "two bytes", "empty"],
)
def test_what_does_not_tell_its_length_is_neither(tmp_path: Path, content: bytes) -> None:
    """None, never False: a format without an end is not cut off."""
    assert whole(tmp_path / "a.bin", content) is None


def test_numbers_that_no_integer_should_hold_are_only_compared(tmp_path: Path) -> None:
    """A header that claims more data than there is, by far."""
    header = b'{"a":{"data_offsets":[0,99999999999999999999]}}'
    assert whole(tmp_path / "a.safetensors", len(header).to_bytes(8, "little") + header) is False
