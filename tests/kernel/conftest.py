"""What the oracle shares: real file systems and one running trace for each worker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kernel.filesystems import FileSystems

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError


@pytest.fixture(scope="session")
def filesystems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileSystems]:
    """Give the file systems of this worker."""
    made = FileSystems(tmp_path_factory.mktemp("filesystems"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def tracer() -> Iterator[object]:
    """Give a trace of whatever this worker starts; skips, with its reason, where there can be none."""
    from tests.kernel.tracer import Tracer  # noqa: PLC0415 - likewise

    from ckptprof_collectors.ebpf.trace import EbpfTrace  # noqa: PLC0415 - what cannot be imported skips only these tests

    try:
        trace = EbpfTrace(
            KernelFs(), family_of=(os.getpid(),), small_per_window=1_000_000, small_reads_per_window=1_000_000
        )  # every small file, to compare
    except UnavailableError as error:
        pytest.skip(f"no trace on this host: {error}")
    try:
        yield Tracer(trace)
    finally:
        trace.close()


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """Give what finds a program, wherever Debian keeps it; skips if there is none."""

    def found(name: str) -> str:
        path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if path is None:
            pytest.skip(f"not installed: {name}")
        return path

    return found


@pytest.fixture
def on(filesystems: FileSystems, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Path]]:
    """Give what makes a directory of this test's own on a kind of file system; its files go when the test ends."""
    made: list[Path] = []

    def directory(kind: str) -> Path:
        top = filesystems.directory(kind)
        name = f"test-{len(list(top.iterdir()))}-{os.getpid()}"
        made.append(top / name)
        made[-1].mkdir()
        return made[-1]

    yield directory
    for place in made:
        shutil.rmtree(os.fsencode(place), ignore_errors=True)
