"""Clients of remote mounts: asked only where such a mount is, while something trains, and by their own files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.collectors.mounts.mountstats import block, mounted, put

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.mounts import client_counters
from ckptprof_collectors.mounts.client_counters import MAX_DEVICES, RemoteClientReader
from ckptprof_collectors.samples import ClientSample, MountInfo

LOCAL = MountInfo(1, 8, 1, "/", "/", "ext4", "/dev/sda1", "sda1", None)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        """Begin."""
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def passing(self) -> float:
        """Return the time, an hour later each time."""
        self.now += 3600
        return self.now


def test_without_such_a_mount_nothing_is_opened(tmp_path: Path) -> None:
    """Nor where nothing trains."""
    collector = RemoteClientReader(KernelFs(proc=put(tmp_path)))
    (tmp_path / "self/mountstats").unlink()  # who opened it would fail
    collector.set_mounts([LOCAL])
    assert collector.read() is None
    collector.set_mounts([mounted()])
    collector.is_enabled = False
    assert collector.read() is None

    collector.is_enabled = True
    with pytest.raises(FileNotFoundError):
        collector.read()
    collector.close()


def test_what_changed_is_told_once(tmp_path: Path) -> None:
    """Whole, and again after it was mounted anew."""
    clock = Clock()
    collector = RemoteClientReader(KernelFs(proc=put(tmp_path, block())), clock=clock.passing)
    collector.set_mounts([LOCAL, mounted()])
    first, again = collector.read(), collector.read()
    put(tmp_path, block(read_write=(0, 5, 0, 0, 0, 0, 0, 0)))
    second = collector.read()
    collector.set_mounts([LOCAL])
    assert collector.read() is None
    collector.set_mounts([mounted()])
    third = collector.read()
    collector.close()

    assert [len(told or ()) for told in (first, again, second, third)] == [1, 0, 1, 1]
    assert second == third


def test_it_costs_a_hundredth_of_a_core_at_most(tmp_path: Path) -> None:
    """What took 20 ms is not done again for two seconds."""
    clock, spent = Clock(), iter([0.0, 0.02, 1.0, 1.02])
    collector = RemoteClientReader(KernelFs(proc=put(tmp_path, block())), clock=clock, cpu_seconds=lambda: next(spent))
    collector.set_mounts([mounted()])
    assert collector.read() is not None
    clock.now += 1.9
    assert collector.read() is None
    clock.now += 0.2
    assert collector.read() == []
    collector.close()


def test_one_that_fails_keeps_no_other_from_telling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again after a while; that it fails is raised where there is nothing else to tell."""
    closed: list[str] = []

    class Failing:
        def __init__(self, fs: KernelFs) -> None:
            """Open nothing."""

        def read(self, mounts: Sequence[MountInfo]) -> Sequence[ClientSample]:  # noqa: ARG002 - as a client
            raise OSError("gone")

        def close(self) -> None:
            closed.append("failing")

    monkeypatch.setattr(client_counters, "CLIENTS", {"afs": Failing, **client_counters.CLIENTS})
    clock = Clock()
    collector = RemoteClientReader(KernelFs(proc=put(tmp_path, block())), clock=clock, cpu_seconds=float)
    collector.set_mounts([mounted(50, "/l", fs_type="afs"), mounted()])
    assert len(collector.read() or ()) == 1
    clock.now += 20
    assert (collector.read(), closed) == ([], ["failing"])
    clock.now += 20
    with pytest.raises(OSError, match="gone"):
        collector.read()
    collector.close()
    assert closed == ["failing", "failing"]


def test_mounts_are_bounded(tmp_path: Path) -> None:
    """However many homes are mounted."""
    many = [mounted(at, f"/home/{at}", f"filer:/{at}") for at in range(500)]
    texts = [block(point=f"/home/{at}".encode(), source=f"filer:/{at}".encode()) for at in range(500)]
    collector = RemoteClientReader(KernelFs(proc=put(tmp_path, *texts)))
    collector.set_mounts(many)
    assert len(collector.read() or ()) == MAX_DEVICES
    collector.close()


def test_bind_mounts_of_one_volume_do_not_count_each(tmp_path: Path) -> None:
    """However many there are (one for each container), the volume that checkpoints go to is followed, too."""
    binds = [mounted(40, f"/pods/{at}", "filer:/home") for at in range(MAX_DEVICES)]
    ckpt = mounted(41, "/ckpt", "filer:/ckpt")
    texts = [block(point=f"/pods/{at}".encode(), source=b"filer:/home") for at in range(MAX_DEVICES)]
    collector = RemoteClientReader(KernelFs(proc=put(tmp_path, *texts, block(point=b"/ckpt", source=b"filer:/ckpt"))))
    collector.set_mounts([*binds, ckpt])
    assert {one.minor for one in collector.read() or () if isinstance(one, ClientSample)} == {40, 41}
    collector.close()


def test_without_mounts_to_be_seen_it_is_not_made(tmp_path: Path) -> None:
    """On an empty tree."""
    with pytest.raises(UnavailableError, match="mountinfo"):
        RemoteClientReader(KernelFs(proc=tmp_path))
