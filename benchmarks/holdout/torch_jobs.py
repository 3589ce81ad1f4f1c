"""Jobs of PyTorch in one process: how they publish, stage, average, copy and pack what they save."""

from __future__ import annotations

import copy
import io
import json
import os
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from fitted import Fitted
from frame import MB, Life, Row, run


def stripped(life: Life) -> None:
    """Detectors as Ultralytics trains them: last and best in place, one kept at times; stripped at the end."""
    fitted, folder = Fitted(9), life.folder / "train/weights"
    folder.mkdir(parents=True)
    last, best = folder / "last.pt", folder / "best.pt"
    for epoch in range(5):
        fitted.train(2)
        files = [last, *([best] if epoch in {0, 1, 3} else []), *([folder / "epoch3.pt"] if epoch == 3 else [])]
        with life.save(*files) as row:
            with row.part("serialize"):
                buffer = io.BytesIO()
                ema = copy.deepcopy(fitted.model).half()
                torch.save({"epoch": epoch, "ema": ema, "optimizer": fitted.optimizer.state_dict()}, buffer)
            with row.part("write"):
                for path in files:
                    path.write_bytes(buffer.getvalue())
            row.known["bytes"] = len(buffer.getvalue()) if epoch < 4 else 0  # the last is stripped at once: not judged
        with (folder.parent / "results.csv").open("a") as results:
            results.write(f"{epoch},0.5,0.4\n")
    for path in (last, best):
        with life.restore(path, optional=True):
            state = torch.load(path, map_location="cpu", weights_only=False)
        state["optimizer"] = None
        with life.save(path, optional=True):
            torch.save(state, path)
    with life.restore(best, optional=True):
        torch.load(best, weights_only=False)
    with life.save(folder / "best.torchscript", optional=True):
        torch.jit.save(torch.jit.trace(fitted.model, torch.randn(1, 1024)), folder / "best.torchscript")
    shutil.copy(best, life.folder / "model_final.pt")
    fitted.train(1)


def averaged_best(life: Life) -> None:
    """The best three of all epochs are averaged at the end, as speech recognition does, and two in the midst."""
    fitted = Fitted(10)

    def averaged(epochs: tuple[int, ...]) -> None:
        target = life.folder / f"checkpoint.avg{len(epochs)}.pt"
        with life.save(target) as row:
            with row.part("read"):
                states = [torch.load(life.folder / f"checkpoint_epoch_{one}.pt")["model"] for one in epochs]
            mean = {name: sum(state[name] for state in states) / len(states) for name in states[0]}
            with row.part("write"):
                torch.save({"model": mean}, target)

    for epoch in range(1, 6):
        fitted.train(2)
        path = life.folder / f"checkpoint_epoch_{epoch}.pt"
        with life.save(path, part="write"):
            torch.save(fitted.state(epoch=epoch), path)
        if epoch == 4:
            fitted.train(2)
            averaged((3, 4))
    fitted.train(2)
    averaged((1, 3, 5))
    fitted.train(1)


def reported(life: Life) -> None:
    """Ray Train: a folder is written where temporary files are, copied by four threads, and forgotten there."""
    fitted, kept = Fitted(8), list[Path]()
    trial = life.folder / "TorchTrainer_2026-11-27_06-00-00/TorchTrainer_4f1c2_00000_0_2026-11-27_06-00-00"
    trial.mkdir(parents=True)
    for number in range(6):
        fitted.train(4)
        folder = trial / f"checkpoint_{number:06d}"
        with life.save(folder, part="write"), tempfile.TemporaryDirectory() as place:
            staged = Path(place)
            torch.save(fitted.model.state_dict(), staged / "model.pt")
            torch.save(fitted.optimizer.state_dict(), staged / "optimizer.pt")
            (staged / "extra_state.json").write_text(json.dumps({"epoch": len(kept)}))
            folder.mkdir(parents=True)
            with ThreadPoolExecutor(4) as pool:
                for one in sorted(staged.iterdir()):
                    pool.submit(shutil.copyfile, one, folder / one.name)
            (folder / ".is_checkpoint").touch()
            kept.append(folder)
            for old in kept[:-3]:
                shutil.rmtree(old)
            del kept[:-3]
        with (trial / "result.json").open("a") as results:
            print(json.dumps({"checkpoint_dir_name": folder.name, "time_total_s": time.monotonic()}), file=results)
    fitted.train(1.5)


def kept_times(life: Life) -> None:
    """Saved to fast scratch, then copied by a copy that keeps the times, one of them of yesterday, over the last."""
    fitted, scratch = Fitted(9), Path(tempfile.mkdtemp(prefix="scratch_"))
    for epoch in range(4):
        fitted.train(2.5)
        target = life.folder / "checkpoint_last.pt"
        with life.save(target, part="write"):
            torch.save(fitted.state(epoch=epoch), scratch / "checkpoint.pt")
            if epoch == 2:
                yesterday = time.time() - 86_400
                os.utime(scratch / "checkpoint.pt", (yesterday, yesterday))
            shutil.copy2(scratch / "checkpoint.pt", target)
    fitted.train(1)


def averaging_thread(life: Life) -> None:
    """The trainer saves its model, and goes on; a second thread writes the average of its weights beside, slowly."""
    fitted, threads = Fitted(9), list[threading.Thread]()
    average = {name: tensor.clone() for name, tensor in fitted.model.state_dict().items()}

    class Slow(io.BufferedWriter):
        def write(self, data: Any) -> int:
            written = super().write(data)
            if len(data) > MB:
                time.sleep(0.1)  # as a throttled writer waits
            return written

    def beside(model: Path, ema: Path, state: dict[str, torch.Tensor], row: Row) -> None:
        with Slow(ema.open("wb", buffering=0)) as slow:
            torch.save(state, slow)
        life.log("save", row, (model, ema), {})

    for step in (1000, 2000, 3000, 4000):
        fitted.train(3)
        for name, tensor in fitted.model.state_dict().items():
            average[name].lerp_(tensor, 0.01)
        row = Row()
        model, ema = life.folder / f"model{step:06d}.pt", life.folder / f"ema_0.9999_{step:06d}.pt"
        state = {name: tensor.clone() for name, tensor in average.items()}
        threads.append(threading.Thread(target=beside, args=(model, ema, state, row)))
        threads[-1].start()
        with row.part("write"):
            torch.save(fitted.state(), model)
        row.goes_on()
    fitted.train(3)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    run(globals())
