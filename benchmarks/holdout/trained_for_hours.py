"""All that a training job does beside saving, for hours: data by workers, evaluation, logs, swapping, and a restart."""

from __future__ import annotations

import copy
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from fitted import Fitted
from frame import MB, Life, Row, run
from torch.utils.data import DataLoader, IterableDataset
from torch_beside import Swap

SAVES, LEAST_SECONDS = 160, 12.0  # in all, at most; from one to the next, at least


class Shards(IterableDataset[torch.Tensor]):
    """Reads samples of a MB from 8 files of the data set, slowly: a step waits for its data."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / f"train-{at:05d}.bin" for at in range(8)]

    def prepare(self) -> None:
        """Make the files."""
        self.paths[0].parent.mkdir(parents=True)
        noise = np.random.default_rng()
        for path in self.paths:
            path.write_bytes(noise.standard_normal(16 * MB // 4, dtype=np.float32).data)

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield batches without end."""
        noise = np.random.default_rng()
        while True:
            with self.paths[noise.integers(8)].open("rb") as shard:
                shard.seek(int(noise.integers(16)) * MB)
                sample = np.frombuffer(shard.read(MB), np.float32)
            time.sleep(1.2)
            yield torch.from_numpy(sample.reshape(-1, 8, 1024).mean(0))


class Job:
    """One life of the trainer, which saves by five ways in turn, and keeps the last three of each."""

    def __init__(self, life: Life) -> None:
        self.life, self.fitted, self.step, self.saves = life, Fitted(10), 0, 0
        self.batches = iter(DataLoader(Shards(life.folder.parent / "data"), batch_size=None, num_workers=2))
        self.swap = Swap(life.folder.parent / f"nvme/{os.getpid()}/rank0", 1)
        self.results, logs = life.folder.parent / "predictions", life.folder.parent / "runs"
        for folder in (self.results, logs):
            folder.mkdir(exist_ok=True)
        self.log = (logs.parent / "train.log").open("a", buffering=1)
        self.events = (logs / f"events.out.tfevents.{int(time.time())}.node.{os.getpid()}.0").open("ab", buffering=0)
        self.pending: Callable[[], object] = lambda: None

    def train(self, seconds: float) -> None:
        """Take steps for so long, with what belongs to a step."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.fitted.step(next(self.batches))
            self.step += 1
            print(json.dumps({"step": self.step, "loss": 1 / self.step, "at": time.time()}), file=self.log)
            self.events.write(os.urandom(2 << 10 if self.step % 50 else 300 << 10))
            if self.step % 4 == 0:
                self.swap.step()

    def evaluate(self) -> None:
        """Write what the model says of the validation set."""
        with torch.no_grad():
            logits = torch.cat([self.fitted.model(torch.randn(100, 1024)) for _ in range(20)]).numpy()
        np.savez(self.results / f"step_{self.step}.npz", logits=logits, labels=np.arange(len(logits)))

    def save(self) -> None:
        """Save by the next way, after the last save in the background has ended."""
        way = ("synced", "trainer", "dcp", "dcp_async", "threaded")[self.saves % 5]
        self.saves += 1
        row, suffix = Row(), {"synced": ".pt", "threaded": ".pt"}.get(way, "")
        path = self.life.folder / way / f"checkpoint-{self.step:06d}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with row.part("wait"):
            self.pending()
        self.pending = getattr(self, f"_{way}")(row, path, self.fitted.state(step=self.step)) or (lambda: None)

    def _over(self, row: Row, path: Path) -> None:
        for old in sorted(path.parent.iterdir(), key=lambda one: one.stat().st_mtime_ns)[:-3]:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        self.life.log("save", row, (path,), {"step": int(path.stem.rpartition("-")[2])})

    def _synced(self, row: Row, path: Path, state: dict[str, Any]) -> None:
        part = path.with_suffix(".tmp")
        with part.open("wb") as file:
            with row.part("write"):
                torch.save(state, file)
            with row.part("sync"):
                os.fsync(file.fileno())
        part.rename(path)
        self._over(row, path)

    def _trainer(self, row: Row, path: Path, state: dict[str, Any]) -> None:
        path.mkdir()
        with row.part("write"):
            for name, one in state.items():
                torch.save(one, path / f"{name}.pt")
        self._over(row, path)

    def _dcp(self, row: Row, path: Path, state: dict[str, Any]) -> None:
        dcp.save(state, checkpoint_id=path)
        self._over(row, path)

    def _dcp_async(self, row: Row, path: Path, state: dict[str, Any]) -> Callable[[], object]:
        future: Any = dcp.async_save(state, checkpoint_id=path)
        row.goes_on()
        future.add_done_callback(lambda _: self._over(row, path))
        return future.result  # type: ignore[no-any-return]

    def _threaded(self, row: Row, path: Path, state: dict[str, Any]) -> Callable[[], object]:
        kept = copy.deepcopy(state)

        def write() -> None:
            with path.open("wb") as file:
                torch.save(kept, file)
                os.fsync(file.fileno())
            self._over(row, path)

        writer = threading.Thread(target=write)
        writer.start()
        row.goes_on()
        return writer.join

    def restore(self) -> None:
        """Go on from the newest checkpoint, if there is one."""
        newest = max(self.life.folder.glob("*/*"), key=lambda one: one.stat().st_mtime_ns, default=None)
        if newest is None:
            return
        state = self.fitted.state(step=0)
        with self.life.restore(newest, step=int(newest.stem.rpartition("-")[2])):
            if newest.suffix:
                state = torch.load(newest, weights_only=False)
            elif (newest / "model.pt").exists():
                state = {name: torch.load(newest / f"{name}.pt", weights_only=False) for name in state}
            else:
                dcp.load(state, checkpoint_id=newest)
            self.fitted.load(state)
        self.step = int(state["step"])


def trained_for_hours(life: Life) -> None:
    """Be started, and started again when half of the time is over, in the midst of training."""
    if life.prepare:
        Shards(life.folder.parent / "data").prepare()
    elif not life.again:
        life.start_again()
        life.start_again()
    else:
        job, minutes = Job(life), life.options.minutes
        until, pause = time.monotonic() + 30 * minutes, max(LEAST_SECONDS, 60 * minutes / SAVES)
        job.restore()
        while time.monotonic() + pause < until:
            job.train(pause)
            job.save()
            if job.saves % 4 == 0:
                job.train(2)
                job.evaluate()
        job.train(LEAST_SECONDS)
        job.pending()
        job.train(1)
        os._exit(0)  # as who is preempted


if __name__ == "__main__":
    run(globals())
