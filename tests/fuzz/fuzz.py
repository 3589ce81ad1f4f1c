"""Feed what reads foreign bytes with damaged ones, and keep each input that it does not bear.

    python tests/fuzz/fuzz.py [TARGET...] [--seconds N | --runs N] [--seed N]    each target so long, or so often
    python tests/fuzz/fuzz.py TARGET FILE...                                     these inputs once, as they are

The law for each target (targets.py): an input ends in an answer or in the error that is documented, as one line that a
person can read; within 20 seconds and 1 GiB; with nothing written outside its own folder, no program started and no
connection made. With --seconds, Atheris (libFuzzer) looks for inputs that reach new code; with --runs, or where there
is no Atheris, the changes of mutation.py are made in an order that only the seed decides. What breaks the law is
written to corpus/TARGET/found-*, which every later run begins with.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gzip
import hashlib
import importlib.util
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CORPUS = HERE / "corpus"
REACHED = ROOT / ".build" / "fuzz"  # where Atheris keeps what reached new code
EACH_SECONDS = 20
MEMORY_BYTES = 1 << 30  # beside what a target has in use when it begins
LONGEST_LINE = 4096  # of an error
PACKED = ".gz"  # such a file of the corpus is packed, to be small in the repository
# Events of Python (sys.audit) that no input may cause, whatever it says
FORBIDDEN = frozenset(
    {
        "subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.kill",
        "os.killpg", "socket.connect", "socket.bind", "pty.spawn",
    }
)  # fmt: skip
WRITES = frozenset(
    {
        "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
        "os.chown",
        "os.utime", "shutil.rmtree", "os.setxattr", "os.removexattr", "os.mknod",
    }
)  # fmt: skip


class Broken(Exception):  # noqa: N818 - a verdict
    """The law is broken."""


class Fence:
    """Refuses what an input must not cause, and remembers it; there is one for the life of a process."""

    def __init__(self, folder: Path) -> None:
        """Allow writes below `folder` only, from now on."""
        self._folder = os.fsencode(folder.resolve())
        self.closed = False
        self.told: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.closed:
            return
        if event in FORBIDDEN or (event in WRITES and not all(map(self._inside, _paths(event, arguments)))):
            self._refuse(event, arguments)
        if event == "open":
            path, _, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) and not self._inside(path):
                self._refuse(event, arguments)
        if event == "sqlite3.connect" and not self._inside(
            os.fsdecode(arguments[0]).partition("?")[0].removeprefix("file:")
        ):
            self._refuse(event, arguments)

    def _inside(self, path: Any) -> bool:
        if isinstance(path, int) or path in (os.devnull, ":memory:", ""):
            return True  # a descriptor that is open already
        with contextlib.suppress(TypeError, ValueError):
            whole = os.path.normpath(os.path.join(os.fsencode(os.getcwd()), os.fsencode(path)))
            return whole == self._folder or whole.startswith(self._folder + b"/")
        return False

    def _refuse(self, event: str, arguments: tuple[Any, ...]) -> NoReturn:
        self.told.append(f"{event}{arguments!r:.300}")
        raise PermissionError(1, "not in a test by damaged input")


def _paths(event: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what an event writes to: of a link not what it leads to."""
    return {"os.symlink": arguments[1:2], "os.rename": arguments[:2], "os.link": arguments[1:2]}.get(
        event, arguments[:1]
    )


class Feeder:
    """One target in this process, with its limits."""

    def __init__(self, name: str, folder: Path) -> None:
        """Import and make ready what the target needs."""
        import targets  # noqa: PLC0415 - under Atheris what is imported from here on is watched

        self.target = targets.TARGETS[name]
        self.fence = Fence(folder)
        self._input = folder / "input"
        inside = folder / "inside"
        inside.mkdir()
        os.chdir(inside)
        self._run = self.target.make(inside)
        status = Path("/proc/self/statm").read_text(encoding="ascii").split()
        used = int(status[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))

    def feed(self, data: bytes) -> None:
        """Hold one input to the law; raises what breaks it."""
        self._input.write_bytes(data)  # for who looks after a crash
        faulthandler.dump_traceback_later(EACH_SECONDS, exit=True)
        self.fence.closed = True
        try:
            self._run(data)
        except self.target.refusals as error:
            line = str(error)
            if not line.strip() or len(line) > LONGEST_LINE or "\n" in line:
                raise Broken(f"no clear line: {line!r:.500}") from error
            if "MemoryError" in line:
                raise Broken(line) from error
        finally:
            self.fence.closed = False
            faulthandler.cancel_dump_traceback_later()
        if self.fence.told:
            raise Broken(f"refused: {self.fence.told}")


def inputs(name: str) -> Iterator[tuple[Path, bytes]]:
    """Yield the corpus of a target."""
    for path in sorted((CORPUS / name).iterdir()):
        data = path.read_bytes()
        yield path, gzip.decompress(data) if path.suffix == PACKED else data


def child(arguments: argparse.Namespace, folder: Path) -> None:
    """Feed one target; ends this process with 0 if the law held."""
    name = arguments.names[0]
    if arguments.seconds and importlib.util.find_spec("atheris"):
        _by_atheris(name, arguments, folder)
    feeder = Feeder(name, folder)
    seeds = [data for _, data in inputs(name)]
    for data in seeds:
        feeder.feed(data)
    from mutation import mutate  # noqa: PLC0415 - beside this file

    chance = Random(f"{name} {arguments.seed}")  # noqa: S311 - damage, no secret
    end = time.monotonic() + arguments.seconds
    number = 0
    while number < arguments.runs or time.monotonic() < end:
        number += 1
        feeder.feed(mutate(chance.choice(seeds), chance, seeds))
    sys.stdout.write(f"{name}: {len(seeds)} inputs kept, {number} made\n")


def _by_atheris(name: str, arguments: argparse.Namespace, folder: Path) -> NoReturn:
    import atheris  # noqa: PLC0415 - for x86-64 and some Pythons only
    from mutation import mutate  # noqa: PLC0415 - beside this file

    with atheris.instrument_imports(include=["ckptprof", "ckptprof_collectors"]):
        feeder = Feeder(name, folder)
    kept, reached = folder / "corpus", REACHED / name
    kept.mkdir()
    reached.mkdir(parents=True, exist_ok=True)
    seeds = []
    for path, data in inputs(name):
        (kept / path.name).write_bytes(data)
        seeds.append(data)

    def change(data: bytes, longest: int, seed: int) -> bytes:
        if seed & 1:
            return bytes(atheris.Mutate(data, longest))
        return mutate(data, Random(seed), seeds)[:longest]  # noqa: S311 - damage, no secret

    options = {"max_total_time": arguments.seconds, "timeout": EACH_SECONDS, "rss_limit_mb": 0, "max_len": 1 << 18}
    options |= {"artifact_prefix": f"{folder}/", "seed": arguments.seed + 1, "verbosity": 0, "print_final_stats": 1}
    flags = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, str(reached), str(kept)], feeder.feed, custom_mutator=change)
    atheris.Fuzz()
    sys.exit(0)


def replay(name: str, files: list[str], folder: Path) -> None:
    """Feed one target with these files, and say what came of each."""
    wanted = [(Path(file), Path(file).read_bytes()) for file in files]
    feeder = Feeder(name, folder)
    for path, data in wanted:
        feeder.feed(gzip.decompress(data) if path.suffix == PACKED else data)
        sys.stdout.write(f"{path}: borne\n")


def watch(name: str, arguments: argparse.Namespace) -> bool:
    """Feed one target in a process of its own; keep what broke the law. Returns whether it held."""
    command = [sys.executable, sys.argv[0], "--child", name, f"--seed={arguments.seed}"]
    command += [f"--seconds={arguments.seconds}", f"--runs={arguments.runs}"]
    with tempfile.TemporaryDirectory(prefix="ckptprof-fuzz-", dir=_memory()) as folder:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CKPTPROF_")}
        environment |= {"FUZZ_FOLDER": folder, "HOME": folder, "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode == 0:
            lines = [line for line in done.stdout.splitlines() if line] or [
                f"{name}: {line}" for line in done.stderr.splitlines() if "number_of_executed_units" in line
            ]
            sys.stdout.write("\n".join(lines[-1:]) + "\n")
            return True
        sys.stdout.write(f"{name}: broken, exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}\n")
        data = (Path(folder) / "input").read_bytes() if (Path(folder) / "input").exists() else None
    if data is not None:
        place = (
            Path(arguments.found) if arguments.found else CORPUS / name
        ) / f"found-{hashlib.sha256(data).hexdigest()[:10]}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        sys.stdout.write(f"{data[:300]!r}\nReplay it: {shlex.join([sys.executable, sys.argv[0], name, str(place)])}\n")
    return False


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    """Run one command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="targets (all), or one and files to replay")
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--found", help="keep findings in this folder instead of the corpus")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    known = sorted(path.name for path in CORPUS.iterdir())
    if arguments.child:
        child(arguments, Path(os.environ["FUZZ_FOLDER"]))
        return 0
    if len(arguments.names) > 1 and arguments.names[1] not in known:
        with tempfile.TemporaryDirectory(prefix="ckptprof-fuzz-", dir=_memory()) as folder:
            try:
                replay(arguments.names[0], arguments.names[1:], Path(folder))
            except Exception:  # noqa: BLE001 - that is what is looked for
                traceback.print_exc()
                return 1
        return 0
    held = [watch(name, arguments) for name in arguments.names or known]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
