"""Make the pictures of README and docs/page.md: `python examples/pictures.py FOLDER [DATABASE]`; needs chromium.

Without a database it records a job, as root with cgroup v1 (blkio): twenty saves on a loop device in memory, of which
the twelfth is throttled to 100 MB/s, as a cloud volume may be. rich, which draws the terminal, comes with twine.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from demo import EXAMPLES, call, ckptprof

COLUMNS, WIDTH = 104, 1280  # of the terminal, and of the page in pixels
LIMIT = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
THROTTLE = 100_000_000  # bytes per second; 0 is none
SAVES, SLOW_SAVE = 20, 12
IMAGE_BYTES = 1 << 30
_FETCHED = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # the picture loads no external resources
_FAMILY = re.compile(r"font-family: Fira Code, monospace")


@contextlib.contextmanager
def loop_device() -> Iterator[tuple[Path, str]]:
    """Mount a new file system on a loop device; yield its folder and its number."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, tempfile.TemporaryDirectory() as folder:
        image = Path(memory) / "image"
        image.write_bytes(bytes(IMAGE_BYTES))  # a hole would be filled, and slow, at the first save
        call("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", str(image))
        call("mount", "-o", "loop", str(image), folder)
        number = Path(folder).stat().st_dev
        device = f"{os.major(number)}:{os.minor(number)}"
        try:
            yield Path(folder), device
        finally:
            LIMIT.write_text(f"{device} 0")
            call("umount", folder)


def record(directory: Path) -> str:
    """Record the job in a new database, and return its path."""
    database, truth = str(directory / "ckptprof.db"), directory / "truth.jsonl"
    truth.touch()
    with loop_device() as (folder, device):
        call(ckptprof(), "ceiling", str(folder), "--size", "128M", "--db", database)
        job = [sys.executable, str(EXAMPLES / "train_numpy.py"), "--dir", str(folder / "run"), "--truth", str(truth)]
        job += ["--saves", str(SAVES), "--size-mb", "256", "--interval", "4", "--sync", "--format", "safetensors"]
        done = threading.Event()

        def throttle() -> None:
            for saves, limit in ((SLOW_SAVE - 1, THROTTLE), (SLOW_SAVE, 0)):
                while truth.read_bytes().count(b"\n") < saves and not done.wait(0.1):
                    pass
                LIMIT.write_text(f"{device} {limit}")

        watcher = threading.Thread(target=throttle)
        watcher.start()
        try:
            call(ckptprof(), "run", "--db", database, "--", *job)
        finally:
            done.set()
            watcher.join()
    return database


def draw_terminal(database: str, picture: Path) -> None:
    """Draw what `ckptprof report` prints, in its colours."""
    environment = {
        **os.environ,
        "COLUMNS": str(COLUMNS),
        "CLICOLOR_FORCE": "1",
        "PAGER": "cat",
        "CKPTPROF_DB": database,
    }
    command = [ckptprof(), "report"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603 # ours
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="256")
        console.print(Text.from_ansi(done.stdout))
        drawn = console.export_svg(title="ckptprof report", unique_id="ckptprof")
    drawn = _FAMILY.sub("font-family: 'DejaVu Sans Mono', 'Fira Code', Menlo, monospace", _FETCHED.sub("", drawn))
    picture.write_text(drawn, encoding="utf-8")


def draw_page(database: str, picture: Path) -> None:
    """Draw the page of the report, as Chromium shows it."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as directory, sync_playwright() as driver:
        page = Path(directory) / "report.html"
        call(ckptprof(), "report", "--html", str(page), "--db", database)
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        drawn = browser.new_page(viewport={"width": WIDTH, "height": WIDTH}, offline=True)
        drawn.goto(page.as_uri())
        drawn.screenshot(path=picture, full_page=True)
        browser.close()


def main() -> None:
    """Record if no database is given, and draw."""
    folder, *given = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        database = given[0] if given else record(Path(directory))
        draw_terminal(database, Path(folder) / "report.svg")
        draw_page(database, Path(folder) / "report.png")


if __name__ == "__main__":
    main()
