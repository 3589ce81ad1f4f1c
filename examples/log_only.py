"""A job that saves nothing: it writes logs of several MB/s and prints. ckptprof must find nothing in it."""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

LINE_BYTES = 200


def main() -> None:
    """Append to `train.log` and a table of metrics, as training jobs do, for so many seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="where the logs go")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--mb-per-second", type=float, default=5)
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.seconds
    step = 0
    with (options.dir / "train.log").open("a") as log, (options.dir / "metrics.jsonl").open("a") as metrics:
        while (now := time.monotonic()) < end:
            step += 1
            line = f"step {step} loss {random.random():.6f} ".ljust(LINE_BYTES - 1, ".") + "\n"
            log.write(line * int(options.mb_per_second * 1e6 / 10 / LINE_BYTES))
            metrics.write(f'{{"step": {step}, "loss": {random.random():.6f}}}\n')
            if step % 10 == 0:
                print(f"step {step}", flush=True)
            time.sleep(max(0.0, now + 0.1 - time.monotonic()))
    print(f"wrote {(options.dir / 'train.log').stat().st_size / 1e6:.0f} MB of log", flush=True)


if __name__ == "__main__":
    main()
