"""A job that is killed three times and started again, with the times of what it does, a JSON line each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

STEP_SECONDS, SAVE_STEPS, LAST_STEP = 0.1, 40, 260
KILLED_AT = (100, 180, 90)  # step, of each life; the third one starts over
IMPORT_SECONDS, COMPILE_SECONDS, WAIT_SECONDS = 2.0, 3.0, 4.0


def log(event: str, step: int) -> None:
    """Write down what happens now."""
    line = json.dumps({"event": event, "step": step, "ns": time.time_ns(), "pid": os.getpid()})
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def train(folder: Path, *, starts_over: bool) -> None:
    """Go on from the newest save, if there is one, and save now and then."""
    log("started", 0)
    import torch  # noqa: PLC0415 # takes seconds: a part of the start

    torch.set_num_threads(1)
    model = torch.nn.Linear(2500, 2500)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(4, 2500)

    def learn_until(end: float) -> None:
        while time.monotonic() < end:
            model(batch).square().mean().backward()

    learn_until(time.monotonic() + IMPORT_SECONDS)
    optimizer.step()
    step, kept = 0, [] if starts_over else sorted(folder.glob("step_*.pt"))
    if kept:
        log("restoring", 0)
        state = torch.load(kept[-1])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        log("restored", step)
        learn_until(time.monotonic() + COMPILE_SECONDS)
    log("resumed", step)
    due = time.monotonic()
    while step < LAST_STEP:
        due += STEP_SECONDS
        learn_until(due)
        step += 1
        log("trained", step)
        if step % SAVE_STEPS == 0:
            log("saving", step)
            part = folder / "part"
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, part)
            part.rename(folder / f"step_{step:04d}.pt")
            due = time.monotonic()


def main(folder: Path, truth: Path) -> None:
    """Start the job four times, kill it when it has trained so far, and write down what it did."""
    folder.mkdir()
    with truth.open("w") as written:
        for last in (*KILLED_AT, None):
            command = [sys.executable, __file__, str(folder), *["over"] * (last == KILLED_AT[-1])]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
                assert job.stdout is not None
                for line in job.stdout:
                    written.write(line)
                    if json.loads(line)["step"] == last and json.loads(line)["event"] == "trained":
                        job.kill()
                        at_ns = time.time_ns()
                        written.write(json.dumps({"event": "ended", "step": last, "ns": at_ns, "pid": job.pid}) + "\n")
                        break
            if last is None and job.returncode:
                raise SystemExit(job.returncode)
            time.sleep(WAIT_SECONDS if last else 0)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[2] != "over":
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        train(Path(sys.argv[1]), starts_over=len(sys.argv) > 2)
