"""Draw the top of the page of a recording, as Chromium shows it: `python examples/picture.py FILE.png`.

CKPTPROF_DB names the recording.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from demo import ckptprof

WIDTH, MARGIN = 1280, 12


def main() -> None:
    """Make the page and draw it."""
    (path,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "report.html"
        command = [ckptprof(), "report", "--html", page]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 # the command of this environment
        draw(page, Path(path))


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


if __name__ == "__main__":
    main()
