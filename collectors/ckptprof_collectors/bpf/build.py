"""Compile the eBPF programs beside this file: `python build.py`; `--check` compares with what is there instead.

NAME.bpf.c becomes NAME.x86_64.bpf.o and NAME.arm64.bpf.o, and CHECKSUMS names them all. The same compiler gives the
same bytes wherever the checkout lies, so everyone can rebuild what the repository and the wheel carry: clang 14 and
libbpf-dev 1.1 of Debian 12. No header of the kernel is needed.
Exit codes: 0 done or the same, 1 different, 2 cannot compile.
"""  # noqa: INP001 - a program for developers, no part of the package

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from ckptprof_collectors.ebpf.libbpf import CHECKSUMS, checksum  # noqa: E402 - runs without being installed

CLANG_MAJOR = 14
TARGETS = {"x86_64": "x86", "arm64": "arm64"}  # in the object's name -> what bpf_tracing.h calls it


class BuildError(Exception):
    """The programs cannot be compiled here; its text says why."""


def compiler() -> tuple[str, str]:
    """Find clang 14 and its llvm-strip; raises BuildError."""
    found = [
        shutil.which(f"{program}-{CLANG_MAJOR}") or shutil.which(program) or "" for program in ("clang", "llvm-strip")
    ]
    install = f"apt install clang-{CLANG_MAJOR} llvm-{CLANG_MAJOR} libbpf-dev"
    if not all(found):
        raise BuildError(f"clang or llvm-strip is not there: {install}")
    for program in found:
        said = run([program, "--version"], HERE)
        version = re.search(r"version (\d+)", said)
        if version is None or int(version[1]) != CLANG_MAJOR:
            raise BuildError(f"{program} is not of version {CLANG_MAJOR}, others give other bytes: {install}")
    return found[0], found[1]


def run(command: list[str], folder: Path) -> str:
    """Run a compiler and return what it printed; raises BuildError with its complaints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - our own list
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def compile_all(sources: Path, into: Path) -> list[str]:
    """Compile each program of `sources` for each target and return the names of the objects; raises BuildError."""
    clang, strip = compiler()
    flags = ["-O2", "-g", "-mcpu=v3", "-target", "bpfel", "-Wall", "-Werror"]
    # Debug information becomes BTF and has file names: without the folder of the build.
    flags += ["-fdebug-compilation-dir=.", f"-ffile-prefix-map={sources}=.", "-I."]
    names = []
    for source in sorted(sources.glob("*.bpf.c")):
        for target, architecture in TARGETS.items():
            name = source.name.replace(".bpf.c", f".{target}.bpf.o")
            output = str(into / name)
            run([clang, *flags, f"-D__TARGET_ARCH_{architecture}", "-c", source.name, "-o", output], sources)
            run([strip, "-g", output], sources)  # DWARF goes, BTF stays
            names.append(name)
    lines = [checksum(name, (into / name).read_bytes()) for name in names]
    (into / CHECKSUMS).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return names


def differences(kept: Path, rebuilt: Path) -> list[str]:
    """List the objects (and CHECKSUMS) that differ between both folders."""
    names = {path.name for folder in (kept, rebuilt) for path in folder.glob("*.bpf.o")} | {CHECKSUMS}
    return sorted(name for name in names if _bytes(kept / name) != _bytes(rebuilt / name))


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def main() -> int:
    """Build or check, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail if the objects are not of the sources"
    )
    parser.add_argument("--folder", type=Path, default=HERE, help="where the programs are (default: here)")
    options = parser.parse_args()
    folder = options.folder.resolve()
    # The objects come into being together: one that does not compile leaves all of them as they were.
    with tempfile.TemporaryDirectory() as work:
        rebuilt = Path(work)
        try:
            names = compile_all(folder, rebuilt)
        except BuildError as error:
            print(error, file=sys.stderr)  # noqa: T201 - a command
            return 2
        different = differences(folder, rebuilt)
        if options.check:
            for name in different:
                print(f"not what its source compiles to: {name}", file=sys.stderr)  # noqa: T201 - a command
            return 1 if different else 0
        for name in different:
            if (rebuilt / name).exists():
                shutil.copyfile(rebuilt / name, folder / name)
            else:
                (folder / name).unlink()
    print(f"{len(names)} objects, {len(different)} files changed")  # noqa: T201 - a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
