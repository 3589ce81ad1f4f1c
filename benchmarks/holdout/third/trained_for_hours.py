"""All that a training job does beside saving, for hours: data by workers, evaluation, logs, swapping, and a restart.

It saves by five ways in turn, in the foreground and in the background, and keeps the last three of each. It is ended in
the midst of training when half of the time is over, and its launcher starts it again.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from fitted import Fitted
from lives import Life, Row
from swapped_to_nvme import Swap
from torch.utils.data import DataLoader, IterableDataset

SHARDS, SHARD_BYTES, SAMPLE_BYTES = 8, 16 << 20, 1 << 20
WORKERS, WORK_SECONDS = 2, 1.2  # a step waits for its data for as long as a worker needs, divided by the workers
SAVES, LEAST_SECONDS = 160, 12.0  # in all, at most; from one to the next, at least
KEPT = 3
SWAP_STEPS, HISTOGRAM_STEPS, EVALUATED_SAVES = 4, 50, 4


class Shards(IterableDataset[torch.Tensor]):
    """Reads samples from files of the data set, slowly."""

    def __init__(self, folder: Path) -> None:
        """Remember where they are."""
        self.paths = [folder / f"train-{at:05d}.bin" for at in range(SHARDS)]

    def prepare(self) -> None:
        """Make the files."""
        self.paths[0].parent.mkdir(parents=True)
        random = np.random.default_rng()
        for path in self.paths:
            path.write_bytes(random.standard_normal(SHARD_BYTES // 4, dtype=np.float32).data)

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield batches without end."""
        random = np.random.default_rng()
        while True:
            with self.paths[random.integers(SHARDS)].open("rb") as shard:
                shard.seek(int(random.integers(SHARD_BYTES // SAMPLE_BYTES)) * SAMPLE_BYTES)
                sample = np.frombuffer(shard.read(SAMPLE_BYTES), np.float32)
            time.sleep(WORK_SECONDS)
            yield torch.from_numpy(sample.reshape(-1, 8, 1024).mean(0))


class Job:
    """One life of the trainer."""

    def __init__(self, life: Life) -> None:
        """Build what it trains with."""
        self.life, self.fitted, self.step, self.saves = life, Fitted(10), 0, 0
        self.batches = iter(DataLoader(Shards(life.folder.parent / "data"), batch_size=None, num_workers=WORKERS))
        self.swap = Swap(life.folder.parent / f"nvme/{os.getpid()}/rank0", 1)
        self.results = life.folder.parent / "predictions"
        logs = life.folder.parent / "runs"
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
            self.events.write(os.urandom(2 << 10 if self.step % HISTOGRAM_STEPS else 300 << 10))
            if self.step % SWAP_STEPS == 0:
                self.swap.step()

    def evaluate(self) -> None:
        """Write what the model says of the validation set."""
        with torch.no_grad():
            logits = torch.cat([self.fitted.model(torch.randn(100, 1024)) for _ in range(20)]).numpy()
        np.savez(self.results / f"step_{self.step}.npz", logits=logits, labels=np.arange(len(logits)))

    def save(self) -> None:
        """Save by the next way, after the last save in the background has ended."""
        way = (self.in_one_file, self.in_folder, self.by_dcp, self.by_dcp_beside, self.in_thread)[self.saves % 5]
        self.saves += 1
        row = Row()
        with row.part("wait"):
            self.pending()
        self.pending = way(row, self.fitted.state(step=self.step)) or (lambda: None)

    def _over(self, row: Row, path: Path) -> None:
        """Keep the last three of this way, and log the save."""
        for old in sorted(path.parent.iterdir(), key=lambda one: one.stat().st_mtime_ns)[:-KEPT]:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        self.life.log("save", row, (path,), {"step": int(path.stem.rpartition("-")[2])})

    def _path(self, way: str, suffix: str = "") -> Path:
        path = self.life.folder / way / f"checkpoint-{self.step:06d}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def in_one_file(self, row: Row, state: dict[str, Any]) -> None:
        """Save beside, sync, rename."""
        path = self._path("synced", ".pt")
        part = path.with_suffix(".tmp")
        with part.open("wb") as file:
            with row.part("write"):
                torch.save(state, file)
            with row.part("sync"):
                os.fsync(file.fileno())
        part.rename(path)
        self._over(row, path)

    def in_folder(self, row: Row, state: dict[str, Any]) -> None:
        """Save model and optimizer on their own."""
        path = self._path("trainer")
        path.mkdir()
        with row.part("write"):
            for name, one in state.items():
                torch.save(one, path / f"{name}.pt")
        self._over(row, path)

    def by_dcp(self, row: Row, state: dict[str, Any]) -> None:
        """Save by DCP."""
        path = self._path("dcp")
        dcp.save(state, checkpoint_id=path)
        self._over(row, path)

    def by_dcp_beside(self, row: Row, state: dict[str, Any]) -> Callable[[], object]:
        """Save by DCP in the background."""
        path = self._path("dcp_async")
        future = dcp.async_save(state, checkpoint_id=path)
        assert isinstance(future, Future)
        row.goes_on()
        future.add_done_callback(lambda _: self._over(row, path))
        return future.result

    def in_thread(self, row: Row, state: dict[str, Any]) -> Callable[[], object]:
        """Hand a copy to a thread."""
        path, kept = self._path("threaded", ".pt"), copy.deepcopy(state)

        def run() -> None:
            with path.open("wb") as file:
                torch.save(kept, file)
                os.fsync(file.fileno())
            self._over(row, path)

        writer = threading.Thread(target=run)
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


def main() -> None:
    """Be started, and started again; each life lasts for half of the time."""
    life = Life(__doc__)
    if life.prepare:
        Shards(life.folder.parent / "data").prepare()
    elif not life.again:
        life.start_again()
        life.start_again()
    else:
        job = Job(life)
        until, pause = time.monotonic() + 30 * life.minutes, max(LEAST_SECONDS, 60 * life.minutes / SAVES)
        job.restore()
        while time.monotonic() + pause < until:
            job.train(pause)
            job.save()
            if job.saves % EVALUATED_SAVES == 0:
                job.train(2)
                job.evaluate()
        job.train(LEAST_SECONDS)
        job.pending()
        job.train(1)
        os._exit(0)  # in the midst of it, as who is preempted


if __name__ == "__main__":
    main()
