"""Draw what a command of ckptprof prints on a terminal, in its colours: `python examples/terminal.py FILE.svg report`.

What stands after the file is the command, without `ckptprof`. rich, which writes the picture, comes with twine.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from demo import ckptprof

COLUMNS = 104
_FETCHED = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # the picture loads no external resources
_FAMILY = re.compile(r"font-family: Fira Code, monospace")


def main() -> None:
    """Run the command and draw it; CKPTPROF_DB names the record."""
    path, *arguments = sys.argv[1:]
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "CLICOLOR_FORCE": "1", "PAGER": "cat"}
    done = subprocess.run(  # noqa: S603 # the command of this environment
        [ckptprof(), *arguments], check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="standard")
        console.print(Text.from_ansi(done.stdout))
        drawn = console.export_svg(title=shlex.join(["ckptprof", *arguments]), unique_id="ckptprof")
    drawn = _FAMILY.sub("font-family: 'DejaVu Sans Mono', 'Fira Code', Menlo, monospace", _FETCHED.sub("", drawn))
    Path(path).write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
