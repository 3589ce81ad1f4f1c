"""A capture of somebody's own becomes one of the corpus."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from ckptprof.recording import FileWriter, read_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from adopt import adopt  # noqa: E402 - found by the line above
from told import STREAMS, SUFFIX  # noqa: E402


@pytest.mark.parametrize(("source", "made"), [("data-set", "mine"), ("cp.trace", "mine.trace")])
def test_a_capture_gets_its_label_and_its_golden_text_and_loses_its_host(
    tmp_path: Path, source: str, made: str
) -> None:
    """The frames stay; the label says that there is no checkpoint in it; a second one of the name is refused."""
    header, frames = read_file(STREAMS / f"{source}{SUFFIX}")
    with (tmp_path / "own.gz").open("wb") as stream:
        writer = FileWriter(stream, msgspec.structs.replace(header, host="secret", note="mine"))
        for frame in frames:
            writer.write(frame)
        writer.close()
    (tmp_path / "labels.json").write_text('{"old": {"truth": []}}')

    path = adopt(tmp_path / "own.gz", "mine", "cp a b", streams=tmp_path, golden=tmp_path)

    labels = json.loads((tmp_path / "labels.json").read_text())
    adopted, kept = read_file(path)
    assert path.name == f"{made}{SUFFIX}"
    assert (adopted.host, adopted.note) == ("recorded", "corpus")
    assert list(kept) == list(read_file(STREAMS / f"{source}{SUFFIX}")[1])
    assert set(labels) == {"old", made}
    assert (labels[made]["command"], labels[made]["truth"], labels[made]["level"]) == ("cp a b", [], header.level)
    golden = STREAMS.parents[1] / "golden" / "captures" / f"{source}.txt"
    assert (tmp_path / f"{made}.txt").read_text() == golden.read_text()
    logged = {"kind": "save", "path": "/x", "step": 1, "framework": "pickle", "bytes": 1, "start_ns": 1, "end_ns": 2}
    adopt(tmp_path / "own.gz", "logged", "train", [logged], streams=tmp_path, golden=tmp_path)
    labels = json.loads((tmp_path / "labels.json").read_text())
    assert labels[made.replace("mine", "logged")]["truth"] == [logged]
    with pytest.raises(FileExistsError):
        adopt(tmp_path / "own.gz", "mine", "cp a b", streams=tmp_path, golden=tmp_path)
