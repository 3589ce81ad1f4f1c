"""What doctor says of GPUDirect Storage: nothing where there is none."""

from __future__ import annotations

from pathlib import Path

from ckptprof.cli.checks import kernel
from ckptprof_collectors.kernelfs import KernelFs


def test_a_driver_past_all_calls_is_a_note(tmp_path: Path) -> None:
    """Where it is loaded."""
    fs = KernelFs(proc=tmp_path)
    assert kernel.gpudirect(fs) == []
    (tmp_path / "driver/nvidia-fs").mkdir(parents=True)
    (told,) = kernel.gpudirect(fs)

    assert (told.status, told.fix) == ("note", None)
    assert "nvidia-fs (GPUDirect Storage) transfers data outside of system calls" in told.text
