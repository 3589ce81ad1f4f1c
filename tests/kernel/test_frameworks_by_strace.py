"""What frameworks do, by strace and by the trace in one and the same run: no byte and no operation apart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kernel import strace
from tests.kernel.order import Order, order_of
from tests.kernel.tracer import Seen, Tracer, difference, order_seen

from ckptprof_collectors.samples import OperationKind

pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("frameworks_program.py")
BEFORE = {  # what has to be there first
    "torch_load": "torch_save_path",
    "torch_load_mapped": "torch_save_path",
    "dcp_load": "dcp_save",
    "safetensors_load": "safetensors_save",
    "numpy_load": "numpy_save",
    "pickled_load": "pickled_save",
    "orbax_load": "orbax_save",
}
WITHOUT_TORCH = ("numpy_save", "numpy_load", "pickled_save", "pickled_load")
WITH_TORCH = (
    "torch_save_path", "torch_save_file", "torch_save_legacy", "torch_load", "dcp_save", "dcp_load", "safetensors_save",
)  # fmt: skip
MAPPED = ("torch_load_mapped", "safetensors_load")
Perform = Callable[[str], tuple[Path, strace.Account, Seen]]


def forget(directory: Path) -> None:
    """Have the files read from the disk again: pages just written are mapped 512 at a time, by no fault each."""
    for path in filter(Path.is_file, directory.rglob("*")):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def perform(on: Callable[[str], Path], tracer: Tracer, program: Callable[[str], str], tmp_path: Path) -> Perform:
    """Give what runs a scenario under strace and the trace at once."""

    def run(scenario: str) -> tuple[Path, strace.Account, Seen]:
        directory = on("ext4")
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        if scenario in BEFORE:
            subprocess.run([sys.executable, PROGRAM, BEFORE[scenario], directory], check=True, env=environment)
            forget(directory)
        job: list[str | Path] = [sys.executable, PROGRAM, scenario, directory]
        seen = tracer.run(strace.command(program("strace"), tmp_path, job), env=environment)
        return directory, strace.account_of(tmp_path), seen

    return run


def compare(directory: Path, account: strace.Account, seen: Seen) -> list[tuple[str, bool]]:
    """Assert that both say the same of every file below the directory; returns the files and directions."""
    of_strace: dict[tuple[str, bool], Order] = {}
    for (path, writes), sessions in account.sessions.items():
        if path.startswith(f"{directory}/"):
            for operations in sessions:
                of_strace[path, writes] = of_strace.get((path, writes), Order()) + order_of(operations)
    of_trace: dict[tuple[str, bool], Order] = {}
    for session in seen.sessions.values():
        if str(session.path).startswith(f"{directory}/") and session.bytes > session.faulted_bytes:
            key = (str(session.path), session.writes)
            of_trace[key] = of_trace.get(key, Order()) + order_seen([session])
    assert set(of_trace) == set(of_strace)
    for key, truth in of_strace.items():
        assert not difference(truth, of_trace[key]), key
    assert not seen.lost
    return list(of_strace)


@pytest.mark.parametrize("scenario", WITHOUT_TORCH)
def test_what_numpy_and_pickle_do_is_seen_as_by_strace(perform: Perform, scenario: str) -> None:
    """Files, bytes, operations and their order are the same."""
    files = compare(*perform(scenario))

    assert len(files) == 2


@pytest.mark.torch
@pytest.mark.parametrize("scenario", WITH_TORCH)
def test_what_torch_does_is_seen_as_by_strace(perform: Perform, scenario: str) -> None:
    """Files, bytes, operations and their order are the same, and so are the syncs."""
    directory, account, seen = perform(scenario)

    assert compare(directory, account, seen)
    synced = sorted(path for path in account.synced if path.startswith(f"{directory}/"))
    assert synced == sorted(
        str(event.path)
        for event in seen.lives
        if event.kind == "synced" and str(event.path).startswith(f"{directory}/")
    )


@pytest.mark.orbax
@pytest.mark.parametrize("scenario", ["orbax_save", "orbax_load"])
def test_what_orbax_does_is_seen_as_by_strace(perform: Perform, scenario: str) -> None:
    """Its many threads, small files and renamed folder: files, bytes, operations and order are the same."""
    files = compare(*perform(scenario))

    assert len(files) >= 3  # how many it merges its arrays into is a matter of its threads


@pytest.mark.torch
@pytest.mark.parametrize("scenario", MAPPED)
def test_a_load_by_mmap_is_seen_by_its_pages(perform: Perform, scenario: str) -> None:
    """What strace can see is equal, and of the pages that it cannot see most are counted, none twice."""
    directory, account, seen = perform(scenario)

    compare(directory, account, seen)
    mapped = [Path(path) for path in account.mapped if path.startswith(f"{directory}/")]
    assert len(mapped) == 1
    sessions = seen.of(mapped[0], writes=False)
    faulted = sum(session.faulted_bytes for session in sessions)
    size = mapped[0].stat().st_size
    assert 0.7 * size <= faulted <= 1.1 * size, sessions
    assert seen.events(mapped[0], "mapped")


@pytest.mark.torch
@pytest.mark.parametrize("scenario", MAPPED)
def test_a_load_from_memory_by_mmap_counts_every_page(on: Callable[[str], Path], tracer: Tracer, scenario: str) -> None:
    """Pages just written are mapped 512 at a time, without a word: the end of the mapping tells how many there were."""
    directory = on("ext4")
    subprocess.run([sys.executable, PROGRAM, BEFORE[scenario], directory], check=True)
    (file,) = [path for path in directory.rglob("*") if path.is_file() and path.stat().st_size > 1 << 20]

    seen = tracer.run([sys.executable, PROGRAM, scenario, directory])

    sessions = [one for one in seen.of(file, writes=False) if one.faulted_bytes]
    assert sum(one.faulted_bytes for one in sessions) == pytest.approx(file.stat().st_size, rel=0.02)
    assert any(one.kinds & OperationKind.UNMAPPED for one in sessions)
    assert all(one.closed_ns is not None for one in sessions)
