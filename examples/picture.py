"""Renew the picture of the README: run the demo, make the page of its recording, and have Chromium draw its top.

`make picture` calls it; `--db` takes a recording that is there already.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from demo import ckptprof

EXAMPLES = Path(__file__).resolve().parent
PICTURE = EXAMPLES.parent / "docs" / "report.png"
WIDTH, MARGIN = 1280, 12


def record(directory: Path) -> Path:
    """Run the demo and return the database that it kept."""
    subprocess.run([sys.executable, EXAMPLES / "demo.py", "--work", directory], check=True)  # noqa: S603 # ours
    return next(directory.glob("*/ckptprof.db"))


def draw(page: Path, picture: Path) -> None:
    """Have Chromium draw a page, down to where the time went."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        drawn = browser.new_page(viewport={"width": WIDTH, "height": WIDTH}, offline=True)
        drawn.goto(page.as_uri())
        last = drawn.locator("#accounts").bounding_box() or {"y": 0, "height": WIDTH}
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": last["y"] + last["height"] + MARGIN}
        drawn.screenshot(path=picture, clip=clip, full_page=True)
        browser.close()
    print(f"{picture}: {picture.stat().st_size:,} bytes")


def main() -> None:
    """Read the command line and renew the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", type=Path, help="a recording of the demo; without it the demo is run")
    parser.add_argument("--output", type=Path, default=PICTURE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        database = options.db or record(directory)
        page = directory / "report.html"
        command = [ckptprof(), "report", "--html", "-o", page, "--db", database]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 # the command beside this Python
        draw(page, options.output.resolve())


if __name__ == "__main__":
    main()
