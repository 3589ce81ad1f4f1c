"""Puts a capture of your own beside the others in tests/fixtures/streams, without the name of its host.

    python tests/recording/adopt.py FILE NAME --command TEXT [--events LOG]

Writes NAME.ckptrec.gz (NAME.trace.ckptrec.gz if it was traced), its golden text, and a label, which says that the
capture holds no checkpoint, or what LOG says: a line of JSON for each save and restore, from the job's own log (`kind`,
`path`, `step`, `framework`, `bytes`, and `start_ns` and `end_ns` since 1970). test_golden_captures.py
holds the capture to it. Names of processes and files stay in the capture: look at them before you publish it.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ckptprof.errors import CkptprofError
from ckptprof.recording import FileWriter, read_file
from ckptprof.service.commands.replaying import replay

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from told import STREAMS, SUFFIX, told  # noqa: E402 - found by the line above

GOLDEN = HERE.parent / "golden" / "captures"
LARGE_BYTES = 150_000  # of one capture: all of them share 10 MB


def adopt(
    file: Path,
    name: str,
    command: str,
    events: Sequence[dict[str, Any]] = (),
    *,
    streams: Path = STREAMS,
    golden: Path = GOLDEN,
) -> Path:
    """Add a capture; return where it is now. Raises RecordingError, and FileExistsError if the name is taken."""
    header, frames = read_file(file)
    name = f"{name}.trace" if header.level == "trace" else name
    path = streams / f"{name}{SUFFIX}"
    if path.exists():
        raise FileExistsError(path)
    plain = io.BytesIO()
    writer = FileWriter(plain, msgspec.structs.replace(header, host="recorded", boot_id="", note="corpus"))
    for frame in frames:
        writer.write(frame)
    writer.close()
    path.write_bytes(plain.getvalue())
    labels = json.loads((streams / "labels.json").read_text(encoding="utf-8"))
    date = time.strftime("%Y-%m-%d", time.gmtime(header.wall_ns / 1e9))
    about = {"date": date, "kernel": header.kernel, "level": header.level, "from": "adopt.py"}
    exact = bool(events) and all("start_ns" in one for one in events)
    labels[name] = {"command": command, "truth": list(events), "told_otherwise": [], "exact": exact, **about}
    (streams / "labels.json").write_text(json.dumps(labels, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (golden / f"{name}.txt").write_text(told(replay(path, None)), encoding="utf-8")
    return path


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file", metavar="FILE", type=Path, help="what `ckptprof capture` wrote")
    arguments.add_argument("name", metavar="NAME", help="a name for it, in words separated by dashes")
    arguments.add_argument("--command", metavar="TEXT", required=True, help="what ran while it was captured")
    arguments.add_argument("--events", metavar="LOG", type=Path, help="what the job itself logged of its checkpoints")
    options = arguments.parse_args()
    try:
        lines = [] if options.events is None else options.events.read_text(encoding="utf-8").splitlines()
        made = adopt(options.file, options.name, options.command, [json.loads(line) for line in lines])
    except (CkptprofError, OSError, ValueError) as error:
        raise SystemExit(f"not adopted: {error}") from None
    size = made.stat().st_size
    large = f": large, captures of under {LARGE_BYTES:,} bytes are kept" if size > LARGE_BYTES else ""
    print(f"{os.path.relpath(made)}, {size:,} bytes{large}")  # noqa: T201 - a tool
