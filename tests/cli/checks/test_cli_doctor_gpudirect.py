"""What doctor says of GPUDirect Storage: nothing where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.collectors.gpus.test_gpudirect import DISABLED, ENABLED, put

from ckptprof.cli.checks import kernel
from ckptprof_collectors.kernelfs import KernelFs


def test_its_statistics_are_told_with_how_to_enable_them(tmp_path: Path) -> None:
    """As it is loaded, the driver counts errors alone."""
    (on,) = kernel.gpudirect(put(tmp_path / "on", ENABLED.format(writes=1, mib=4)))
    (off,) = kernel.gpudirect(put(tmp_path / "off", DISABLED))

    assert (on.status, on.text, on.fix) == (
        "ok",
        "nvidia-fs 2.20.5 counts the bytes that cuFile transfers outside of system calls",
        None,
    )
    assert off.status == "warn"
    assert "nvidia-fs 2.20.5 transfers data outside of system calls, and its statistics are off" in off.text
    assert off.fix == (
        "as root, write 1 into /sys/module/nvidia_fs/parameters/rw_stats_enabled; `options nvidia-fs "
        "rw_stats_enabled=1` in /etc/modprobe.d makes it permanent"
    )


def test_where_there_is_none_nothing_is_said(tmp_path: Path) -> None:
    """And of memory of a GPU that needs no driver that all is seen."""
    fs = KernelFs(proc=tmp_path / "proc", sys=tmp_path / "sys")
    pool = tmp_path / "sys/bus/pci/devices/0000:81:00.0/p2pmem"

    assert kernel.gpudirect(fs) == []
    pool.mkdir(parents=True)
    (pool.parent / "vendor").write_text("0x10de\n")
    (told,) = kernel.gpudirect(fs)
    assert (told.status, told.fix) == ("ok", None)
    assert "ordinary system calls" in told.text


def test_statistics_that_cannot_be_read_are_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason."""

    def fail(_: object) -> bytes:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("ckptprof_collectors.kernelfs.KernelFile.read", fail)
    (told,) = kernel.gpudirect(put(tmp_path, DISABLED))

    assert told.status == "note"
    assert "Operation not permitted" in told.text
