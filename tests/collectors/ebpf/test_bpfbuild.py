"""The eBPF objects of the repository are what their sources compile to, byte for byte."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[3]
BPF = ROOT / "collectors" / "ckptprof_collectors" / "bpf"
PROGRAM = """
__attribute__((section("raw_tp/sys_enter"), used)) int nothing(void *context) { return 0; }
"""

pytestmark = pytest.mark.clang


@pytest.fixture(autouse=True)
def pinned() -> None:
    """Skip where only another compiler is installed: its bytes differ."""
    if shutil.which("clang-14") is None or shutil.which("llvm-strip-14") is None:
        pytest.skip("not installed: clang-14, llvm-strip-14")


def build(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the builder as `make bpf` does."""
    command = [sys.executable, BPF / "build.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)


@pytest.mark.slow
def test_the_objects_are_what_their_sources_compile_to() -> None:
    """Nobody has to trust a binary in the repository: it can be made again."""
    result = build("--check")

    assert (result.returncode, result.stderr) == (0, "")


def test_a_checkout_elsewhere_gives_the_same_bytes(tmp_path: Path) -> None:
    """Neither the folder nor the time of the compilation changes anything."""
    folders = tmp_path / "a", tmp_path / "somewhere" / "else"
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "x.bpf.c").write_text(PROGRAM, encoding="utf-8")

        assert build("--folder", folder).returncode == 0
        assert build("--folder", folder, "--check").returncode == 0

    names = {path.name for path in folders[0].iterdir()}
    assert names == {"x.bpf.c", "x.x86_64.bpf.o", "x.arm64.bpf.o", "CHECKSUMS"}
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
        assert str(tmp_path).encode() not in (folders[0] / name).read_bytes()


def test_what_differs_is_named(tmp_path: Path) -> None:
    """A changed object, one without a source and a source without an object fail the check by name."""
    (tmp_path / "x.bpf.c").write_text(PROGRAM, encoding="utf-8")
    build("--folder", tmp_path)
    with (tmp_path / "x.arm64.bpf.o").open("ab") as changed:
        changed.write(b"x")
    (tmp_path / "gone.arm64.bpf.o").write_bytes(b"")
    (tmp_path / "x.x86_64.bpf.o").unlink()

    result = build("--folder", tmp_path, "--check")

    assert result.returncode == 1
    named = [line.rsplit(" ", 1)[1] for line in result.stderr.splitlines()]
    assert named == ["gone.arm64.bpf.o", "x.arm64.bpf.o", "x.x86_64.bpf.o"]
    assert build("--folder", tmp_path).returncode == 0
    assert not (tmp_path / "gone.arm64.bpf.o").exists()
    assert build("--folder", tmp_path, "--check").returncode == 0


def test_a_program_that_does_not_compile_changes_nothing(tmp_path: Path) -> None:
    """The compiler's words are shown and the objects stay as they were."""
    (tmp_path / "x.bpf.c").write_text(PROGRAM, encoding="utf-8")
    build("--folder", tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.o")}
    (tmp_path / "y.bpf.c").write_text("int x = ;", encoding="utf-8")

    result = build("--folder", tmp_path)

    assert result.returncode == 2
    assert "y.bpf.c:1:9: error" in result.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.o")} == before
