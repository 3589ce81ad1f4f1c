"""Ceilings on disk, and which of them speaks for a path."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from ckptprof.diagnose.ceilings import READ, WRITE, Ceilings, Measure, ceiling_for, fastest
from ckptprof.service.probing import stored_ceilings


def found(
    mount_point: str = "/", *, at_ns: int = 1, complete: bool = True, measures: tuple[Measure, ...] = ()
) -> Ceilings:
    """Return what a probe may have found."""
    return Ceilings(
        version="0", host="h", at_ns=at_ns, spent_ns=1, path=mount_point, mount_point=mount_point, fs_type="ext4",
        source="/dev/sda1", device="sda1", server=None, size_bytes=1, phase_seconds=1.0, busy_before=0.0,
        complete=complete, measures=measures,
    )  # fmt: skip


def row(name: str, rate: float | None, workers: int = 1, *, direct: bool = False) -> Measure:
    """Return a measured row."""
    work = READ if name.startswith("r") else WRITE
    return Measure(
        id=name, work=work, operation_bytes=1 << 20, workers=workers, direct=direct, bytes_per_second=rate
    )  # fmt: skip


ROWS = (
    row("buffered", 100), row("buffered-many", 300, 4), row("gone", None), row("direct-many", 250, 4, direct=True),
    row("r-direct", 400, direct=True),
)  # fmt: skip


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    """One file for each mount, the newest last, readable by the owner only, and nothing beside them."""
    first, second = found("/a", at_ns=2, measures=ROWS), found("/b", at_ns=1)
    paths = [stored_ceilings.store_ceilings(tmp_path / "state", one) for one in (first, second, first)]

    assert stored_ceilings.load_ceilings(tmp_path / "state") == (second, first)
    assert {path.stat().st_mode & 0o777 for path in paths if path} == {0o600}
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in (tmp_path / "state" / stored_ceilings.FOLDER).iterdir()) == sorted(
        {path.name for path in paths if path}
    )


def test_nothing_kept_is_nothing(tmp_path: Path) -> None:
    """A state directory that is not there is no error."""
    assert stored_ceilings.load_ceilings(tmp_path / "nowhere") == ()


def test_damaged_files_are_survived(tmp_path: Path) -> None:
    """Torn, empty, foreign, huge, of impossible values or a newer format, links, pipes and directories."""
    path = stored_ceilings.store_ceilings(tmp_path, found())
    assert path is not None
    whole = path.read_bytes()
    bad = {
        "torn": whole[: len(whole) // 2], "empty": b"", "list": b"[]", "binary": bytes(range(256)),
        "deep": b"[" * 100_000, "newer": whole.replace(b'"format": 1', b'"format": 2'),
        "negative": whole.replace(b'"spent_ns": 1', b'"spent_ns": -1'),
        "huge": b" " * (1 << 20) + whole, "text": whole.replace(b'"at_ns": 1', b'"at_ns": "1"'),
    }  # fmt: skip
    for name, data in bad.items():
        assert data != whole
        (path.parent / f"{name}.json").write_bytes(data)
    (path.parent / "link.json").symlink_to(path)
    (path.parent / "folder.json").mkdir()
    os.mkfifo(path.parent / "pipe.json")

    assert stored_ceilings.load_ceilings(tmp_path) == (found(),)
    assert stored_ceilings.store_ceilings(tmp_path, found(at_ns=5)) == path
    assert stored_ceilings.load_ceilings(tmp_path) == (found(at_ns=5),)


def test_a_probe_that_was_broken_off_replaces_no_whole_one(tmp_path: Path) -> None:
    """But it is kept if it is the only one, or the other was broken off, too."""
    assert stored_ceilings.store_ceilings(tmp_path, found(at_ns=1, complete=False)) is not None
    assert stored_ceilings.store_ceilings(tmp_path, found(at_ns=2)) is not None
    assert stored_ceilings.store_ceilings(tmp_path, found(at_ns=3, complete=False)) is None
    assert [one.at_ns for one in stored_ceilings.load_ceilings(tmp_path)] == [2]


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    """The oldest go, and what a killed writer left; a writer at work is left alone."""
    folder = tmp_path / stored_ceilings.FOLDER
    folder.mkdir()
    for number in range(stored_ceilings.MAX_FILES + 5):
        (folder / f"{number:016x}.json").write_text("{}")
        os.utime(folder / f"{number:016x}.json", ns=(number, number))
    (folder / ".x.json.999999999").touch()
    (folder / f".y.json.{os.getppid()}").touch()
    path = stored_ceilings.store_ceilings(tmp_path, found())

    names = sorted(one.name for one in folder.iterdir())
    assert path is not None
    assert path.name in names
    assert len([name for name in names if not name.startswith(".")]) == stored_ceilings.MAX_FILES
    assert f"{5:016x}.json" not in names
    assert f"{6:016x}.json" in names
    assert [name for name in names if name.startswith(".")] == [f".y.json.{os.getppid()}"]


def test_the_state_directory_is_that_of_the_database(tmp_path: Path) -> None:
    """Beside it."""
    assert stored_ceilings.state_directory(str(tmp_path / "x.db")) == tmp_path


@pytest.mark.parametrize(
    ("path", "mount_point", "expected"),
    [
        ("/data/run/ckpt", None, "/data"), ("/data", None, "/data"), ("/database/x", None, "/"), ("/x", None, "/"),
        ("/data/fast/x", None, "/data/fast"), ("/data/fast/x", "/data", "/data"),
        ("/data/other/x", "/data/other", None),
    ],
)  # fmt: skip
def test_the_longest_mount_point_speaks(path: str, mount_point: str | None, expected: str | None) -> None:
    """By whole names, and only for its own mount if that is known."""
    ceilings = [found(point) for point in ("/data", "/", "/data/fast")]
    one = ceiling_for(path, ceilings, mount_point=mount_point)

    assert (None if one is None else one.mount_point) == expected


def test_the_newest_speaks() -> None:
    """Of several for one mount point; and nothing where there is none."""
    newest = ceiling_for("/x", [found(at_ns=1), found(at_ns=3), found(at_ns=2)])

    assert newest is not None
    assert newest.at_ns == 3
    assert ceiling_for("/x", []) is None


def test_the_best_rate_of_a_direction() -> None:
    """Of whatever way; no rate, no answer."""
    best = [fastest(found(measures=ROWS), work) for work in (WRITE, READ)]

    assert [one.id for one in best if one is not None] == ["buffered-many", "r-direct"]
    assert fastest(found(measures=(row("gone", None),)), WRITE) is None


def test_what_an_earlier_version_kept_speaks_too(tmp_path: Path) -> None:
    """Its rows of names, syncs and small operations are the best of nothing."""
    path = stored_ceilings.store_ceilings(tmp_path, found())
    assert path is not None
    rows = [
        {"id": "write-direct", "work": "write", "operation_bytes": 1 << 20, "direct": True, "bytes_per_second": 7.0,
         "operations_per_second": 2.0, "latency_p50_seconds": 0.1, "random": False, "ended": "steady"},
        {"id": "sync", "work": "sync", "operation_bytes": 4096, "direct": None, "bytes_per_second": 9.0},
        {"id": "create", "work": "create", "operation_bytes": None, "direct": None, "operations_per_second": 5.0},
    ]  # fmt: skip
    path.write_text(json.dumps(json.loads(path.read_text()) | {"measures": rows}))
    (one,) = stored_ceilings.load_ceilings(tmp_path)
    best = fastest(one, WRITE)

    assert best is not None
    assert (best.id, best.bytes_per_second) == ("write-direct", 7.0)


def test_a_rate_is_never_nothing() -> None:
    """A file that says 0 bytes per second is damaged: not seen is null."""
    raw = msgspec.json.encode(found(measures=(row("direct", 0.5),))).replace(b"0.5", b"0")

    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Ceilings)
