"""Renew the listings of docs/tutorial.md from real runs of its job on this host: `make tutorial`, best as root.

`show` is taken whole. Of longer output the page chooses the lines: each is replaced by the new one with its label.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"
CKPTPROF = (sys.executable, "-m", "ckptprof")
ROW = re.compile(r" *(\d+) +\d\d:")
LABEL = re.compile(r"(?:  )?[A-Za-z][A-Za-z ]*?(?= {2,}\S|$)| {6,}(?=\S)|\S+ \S+")


def label(line: str) -> str:
    """Return what names a line: the number of a row, else the words before its figures."""
    found = ROW.match(line)
    return found[1] if found else getattr(LABEL.match(line), "group", lambda: line)()


def renewed(listing: str, output: str) -> str:
    """Return the listing with the lines of the output; `...` and empty lines stay."""
    lines = output.splitlines()
    result = []
    for old in listing.splitlines():
        if old in ("", "..."):
            result.append(old)
            continue
        number = next((i for i, line in enumerate(lines) if label(line) == label(old)), None)
        if number is None:
            sys.exit(f"{PAGE.name}: no line of the new output is like {old!r}\n{output}")
        result.append(lines[number])
        del lines[: number + 1]
    return "\n".join(result) + "\n"


def main() -> None:
    """Run the job under `run`, then beside an agent that polls, and rewrite the page."""
    page = PAGE.read_text(encoding="utf-8")
    program = re.findall(r"(?s)```python\n(.*?)```", page)[0]
    environment = os.environ | {"COLUMNS": "118", "NO_COLOR": "1"}
    with tempfile.TemporaryDirectory(prefix="tutorial") as folder:
        Path(folder, "train.py").write_text(program, encoding="utf-8")

        def output(*command: str) -> str:
            run = subprocess.run(  # noqa: S603 - ours
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=True,
                start_new_session=True,  # its job has the pid that it prints
            )
            return (
                run.stdout.decode()
                .replace(folder, "/home/trainer")
                .replace(" --db run.db", "")
                .replace(" --db agent.db", "")
            )

        ran = output(*CKPTPROF, "run", "--db", "run.db", "--", "python3", "train.py")
        shown = output(*CKPTPROF, "show", "1", "--db", "run.db")
        agent = subprocess.Popen(  # noqa: S603 - ours
            [*CKPTPROF, "agent", "--no-metrics", "--level", "poll", "--db", "agent.db"], cwd=folder, env=environment
        )
        time.sleep(5)
        output("sh", "-c", "python3 train.py > trained &")  # a job of its own, as a user's would be
        time.sleep(25)
        trained = Path(folder, "trained").read_text(encoding="utf-8")
        agent.send_signal(signal.SIGTERM)
        agent.wait(60)
        reported = output(*CKPTPROF, "report", "--db", "agent.db", "--job", "train.py-*")  # others may train here
    for command, new in (
        ("$ ckptprof run -- python3 train.py", ran),
        ("$ ckptprof show 1", shown),
        ("trainer$ python3 train.py", trained),
        ("alice$ /opt/ckptprof/bin/ckptprof report", reported),
    ):
        before, _, rest = page.partition(f"{command}\n")
        listing = re.split(r"(?m)^(?:```|\w*[$#] )", rest)[0]
        page = f"{before}{command}\n{new if 'show' in command else renewed(listing, new)}{rest[len(listing) :]}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
