"""Train, evaluate, go on, fine-tune, delete: processes with a JSON line for each save, read and deletion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

STEP_SECONDS, SAVE_STEPS = 0.1, 20


def log(event: str, path: Path, **more: object) -> None:
    """Write down what happened now."""
    line = json.dumps({"event": event, "file": path.name, "ns": time.time_ns(), "pid": os.getpid(), **more})
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def work(role: str, folder: Path, first: Path | None, steps: int) -> None:
    """Load a state, if there is one, and train so many steps; `tune` saves to one file, again and again."""
    import torch  # noqa: PLC0415 # the driver needs none

    torch.set_num_threads(1)
    model = torch.nn.Linear(2500, 2500)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(4, 2500)
    model(batch).square().mean().backward()
    optimizer.step()
    step = 0
    if first is not None:
        log("reading", first, role=role)
        state = torch.load(first)
        log("read", first, role=role)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    due = time.monotonic()
    for _ in range(steps):
        due += STEP_SECONDS
        while time.monotonic() < due:
            model(batch).square().mean().backward()
        step += 1
        if step % SAVE_STEPS == 0:
            path = folder / ("tuned.pt" if role == "tune" else f"step_{step:04d}.pt")
            log("saving", path, step=step)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
            log("saved", path, step=step)
            due = time.monotonic()


def main(folder: Path, truth: Path) -> None:
    """Run one process after the other, and write down what they did."""
    folder.mkdir()
    (folder / "tuned").mkdir()

    def run(role: str, first: int | None = None, steps: int = 0) -> None:
        start = [] if first is None else [str(folder / f"step_{first:04d}.pt")]
        place = folder / "tuned" if role == "tune" else folder
        subprocess.run([sys.executable, __file__, role, str(place), str(steps), *start], stdout=written, check=True)

    with truth.open("w") as written:
        run("train", steps=100)
        run("evaluate", 40)
        with (folder / "step_0060.pt").open("rb") as state:
            os.fsync(state)
            os.posix_fadvise(state.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        run("evaluate", 60)
        run("evaluate", 40)
        run("train", 100, steps=40)
        run("tune", 60, steps=60)
        sys.stdout = written
        for step in (20, 40, 80):
            path = folder / f"step_{step:04d}.pt"
            path.unlink()
            log("deleted", path)
        time.sleep(2)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        work(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[4]) if sys.argv[4:] else None, int(sys.argv[3]))
