"""Makes the tests' own modules `livecommand` and `silentfuse` importable: they are in no package."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machine import need

sys.path[:0] = [str(Path(__file__).resolve().parent)]
sys.path.append(str(Path(__file__).resolve().parents[1]))

from livecommand import Ckptprof  # noqa: E402 - found by the line above


@pytest.fixture
def ckptprof(tmp_path: Path) -> Iterator[Ckptprof]:
    """Return ckptprof with a database of its own; nothing of the outside's settings reaches it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CKPTPROF", "NOTIFY"))}
    made = Ckptprof(tmp_path, {**environment, "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"})
    yield made
    made.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of 1 MiB, in the place of the folder of the service's database."""
    need("mount")
    folder = tmp_path / "state"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
