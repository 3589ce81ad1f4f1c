"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ckptprof_collectors.kernelfs import KernelFs


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., KernelFs]:
    """Return a maker of kernel trees from path -> text."""

    def make(**files: str) -> KernelFs:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return KernelFs(tmp_path / "proc", tmp_path / "sys", tmp_path / "dev")

    return make
