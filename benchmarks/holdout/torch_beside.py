"""Jobs of PyTorch that write and read other large things beside what they save, or save nothing at all."""

from __future__ import annotations

import copy
import hashlib
import json
import mmap
import multiprocessing
import os
import pickle
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from fitted import Fitted, resumed
from frame import MB, Life, run, until
from torch import distributed
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

FORK = multiprocessing.get_context("fork")


class Cached(Dataset[torch.Tensor]):
    """Makes a sample once, and reads it from then on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        """Return how many there are."""
        return 400

    def __getitem__(self, at: int) -> torch.Tensor:
        """Return one."""
        path = self.folder / f"sample_{at:06d}.pt"
        if path.exists():
            tokens: torch.Tensor = torch.load(path)["input_ids"]
        else:
            tokens = torch.randint(50_000, (40_000,))
            with tempfile.TemporaryDirectory(dir=self.folder) as part:
                torch.save({"input_ids": tokens}, Path(part) / "sample.pt")
                (Path(part) / "sample.pt").replace(path)
        return tokens[:1024].float() / 50_000


def token_cache(life: Life) -> None:
    """Loader workers keep each tokenised sample as `.pt`, out of a temporary folder; in the next epoch it is read."""
    fitted, cache = Fitted(8), life.folder / "cache/train"
    cache.mkdir(parents=True)
    for epoch in range(2):
        for batch in DataLoader(Cached(cache), batch_size=8, num_workers=2, shuffle=True):
            fitted.train(0.1)
            fitted.model(batch)
        path = life.folder / f"model_epoch{epoch}.pt"
        with life.save(path, part="write"):
            torch.save(fitted.state(epoch=epoch), path)
    fitted.train(1)


def study(life: Life) -> None:
    """Trials of a search: SQLite keeps what each one reports, some of it large, beside checkpoints of the trials."""
    fitted, predictions = Fitted(9), np.random.default_rng(1)
    database = sqlite3.connect(life.folder / "study.db")
    database.execute("CREATE TABLE reports (trial INTEGER, step INTEGER, value REAL, predictions BLOB)")
    for trial in range(4):
        for step in range(8):
            fitted.train(0.4)
            blob = predictions.standard_normal(400_000, dtype=np.float32).tobytes()
            with database:
                database.execute("INSERT INTO reports VALUES (?, ?, ?, ?)", (trial, step, 1 / (step + 1), blob))
        path = life.folder / f"trial_{trial}/model.pt"
        path.parent.mkdir()
        with life.save(path, part="write"):
            torch.save(fitted.state(lr=10.0**-trial), path)
        if trial == 2:
            fitted.train(1)
            with database:  # what lost is forgotten
                database.execute("DELETE FROM reports WHERE trial < 2")
            database.execute("VACUUM")
    fitted.train(1)
    database.close()


class Swap:
    """One file for each state of each layer, read and written past the page cache where that can be."""

    def __init__(self, folder: Path, layers: int) -> None:
        folder.mkdir(parents=True)
        states = ("fp32", "exp_avg", "exp_avg_sq")
        self.paths = [folder / f"{layer}_{state}.tensor.swp" for layer in range(layers) for state in states]
        self.buffer = mmap.mmap(-1, 4 * MB)
        self.tensor = torch.frombuffer(self.buffer, dtype=torch.float32)
        for path in self.paths:  # which have the same size from then on
            self.move(path, writes=True)

    def move(self, path: Path, *, writes: bool) -> None:
        """Write the buffer to a file, or read it."""
        try:
            opened = os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o644)
        except OSError:  # tmpfs
            opened = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        for at in range(0, 4 * MB, MB):
            part = memoryview(self.buffer)[at : at + MB]
            if writes:
                os.pwrite(opened, part, at)
            else:
                os.preadv(opened, [part], at)
        os.close(opened)

    def step(self) -> None:
        """Take each state in, change it, and put it back."""
        for path in self.paths:
            self.move(path, writes=False)
            self.tensor.mul_(0.999)
            self.move(path, writes=True)


def offloaded(life: Life) -> None:
    """Weights that do not fit are on disk, and mapped in every step; only the adapter is trained, and saved."""
    fitted, folder, index = Fitted(3), life.folder.parent / "offload", {}
    folder.mkdir(parents=True)
    for layer in range(20):
        path = folder / f"model.layers.{layer}.mlp.weight.dat"
        mapped = np.memmap(path, np.float32, "w+", shape=(1024, 1024))
        mapped[:] = torch.randn(1024, 1024).numpy()
        mapped.flush()
        index[path.stem] = {"dtype": "float32", "shape": [1024, 1024]}
    (folder / "index.json").write_text(json.dumps(index))
    layers = [np.memmap(path, np.float32, "r", shape=(1024, 1024)) for path in sorted(folder.glob("*.dat"))]
    for step in (8, 16, 24, 32):
        for _ in range(8):
            hidden = torch.randn(8, 1024)
            for one in layers:
                hidden = torch.tanh(hidden @ torch.from_numpy(np.array(one)))
            fitted.train(0.3)
        folder = life.folder / f"checkpoint-{step}"
        with life.save(folder, step=step, part="write"):
            folder.mkdir()
            torch.save(fitted.model.state_dict(), folder / "adapter_model.bin")
            (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 16}))
            torch.save(fitted.optimizer.state_dict(), folder / "optimizer.pt")
    fitted.train(1)


def scored(life: Life) -> None:
    """After each epoch what the model says of the validation set is kept for an ensemble; what improved is saved."""
    fitted, results = Fitted(10), life.folder / "oof"
    results.mkdir()
    labels = np.random.default_rng(1).integers(0, 1024, 8000)
    for epoch, loss in enumerate((0.9, 0.7, 0.8, 0.6, 0.65, 0.61)):
        fitted.train(2.5)
        logits = _told(fitted, 80)
        np.savez(results / f"fold0_epoch{epoch}.npz", logits=logits, labels=labels)
        fitted.train(1)
        if loss in {0.9, 0.7, 0.6}:
            path = life.folder / "fold0_best.pth"
            with life.save(path, part="write"):
                torch.save(fitted.state(epoch=epoch, loss=loss), path)
    fitted.train(1)
    np.save(life.folder / "submission_probs.npy", logits)
    fitted.train(1)


def _told(fitted: Fitted, batches: int) -> np.ndarray:
    with torch.no_grad():
        return torch.cat([fitted.model(torch.randn(100, 1024)) for _ in range(batches)]).numpy()


def features(life: Life) -> None:
    """A trained network is loaded, and the features of two sets are kept by `torch.save` for a neighbour's score."""
    fitted, path = Fitted(8), life.folder / "checkpoint.pth"
    if not life.again:
        for epoch in range(2):
            fitted.train(2.5)
            with life.save(path, part="write"):
                torch.save(fitted.state(epoch=epoch), path)
        life.end(1, fitted.step)
        return
    resumed(life, fitted, path)
    folder = life.folder / "features"
    folder.mkdir()
    for name, batches in (("train", 120), ("test", 40)):
        torch.save(torch.from_numpy(_told(fitted, batches)), folder / f"{name}feat.pth")
        torch.save(torch.randint(0, 1000, (100 * batches,)), folder / f"{name}labels.pth")
    fitted.train(2)


class Augmented(IterableDataset[torch.Tensor]):
    """Pictures that cost a CPU."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield batches without end."""
        noise = np.random.default_rng()
        while True:
            spectrum = np.fft.ifft2(np.fft.fft2(noise.standard_normal((64, 64, 64))) * np.hanning(64)).real
            yield torch.from_numpy(spectrum.reshape(256, 1024)[:8].astype(np.float32))


def recovery_points(life: Life) -> None:
    """As timm, beside two workers that augment: `last` is replaced, links keep the best, a recovery within an epoch."""
    fitted, kept = Fitted(6), list[Path]()
    average = copy.deepcopy(fitted.model)
    batches = iter(DataLoader(Augmented(), batch_size=None, num_workers=2))
    recovery: Path | None = None

    def step() -> None:
        fitted.step(next(batches))
        with torch.no_grad():
            for mean, now in zip(average.parameters(), fitted.model.parameters(), strict=True):
                mean.lerp_(now, 0.01)

    for epoch in range(4):
        until(3, step)
        path = life.folder / f"recovery-{epoch}-40.pth.tar"
        more = {"epoch": epoch, "arch": "vit", "state_dict_ema": average.state_dict(), "version": 2}
        with life.save(path) as row:
            with row.part("write"):
                torch.save(fitted.state(**more), path)
            if recovery is not None:
                recovery.unlink()
            recovery = path
        until(3, step)
        part, last = life.folder / "tmp.pth.tar", life.folder / "last.pth.tar"
        with life.save(last) as row:
            with row.part("write"):
                torch.save(fitted.state(**more), part)
            part.replace(last)
            kept.append(life.folder / f"checkpoint-{epoch}.pth.tar")
            kept[-1].hardlink_to(last)
            for worse in kept[:-2]:
                worse.unlink()
            del kept[:-2]
            best = life.folder / "model_best.pth.tar"
            best.unlink(missing_ok=True)
            best.hardlink_to(kept[-1])
    until(1.5, step)


class Read(IterableDataset[torch.Tensor]):
    """Samples of shards, each of which is read as a whole."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / f"train-{at:05d}-of-00012.bin" for at in range(12)]
        folder.mkdir(exist_ok=True)
        noise = np.random.default_rng(1)
        for path in self.paths:
            path.write_bytes(noise.standard_normal(25 * MB // 4, dtype=np.float32).tobytes())

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield batches without end."""
        worker, length = get_worker_info(), 8 * 1024 * 4
        while True:
            for path in self.paths[worker.id :: worker.num_workers] if worker else self.paths:
                blob = path.read_bytes()
                for at in range(0, len(blob), 40 * length):
                    yield torch.frombuffer(bytearray(blob[at : at + length]), dtype=torch.float32).view(8, 1024)


def adapters(life: Life) -> None:
    """An adapter of 10 MB is saved often, and all at each fifth time; four workers read shards all the time."""
    from safetensors.torch import save_file

    fitted = Fitted(7)
    batches = iter(DataLoader(Read(life.folder.parent / "data"), batch_size=None, num_workers=4))
    adapter = {f"base_model.layers.{at}.lora_{of}": torch.randn(320, 1024) for at in range(4) for of in "AB"}
    for step in range(50, 501, 50):
        until(2.5, lambda: fitted.step(next(batches)))
        folder = life.folder / f"checkpoint-{step}"
        with life.save(folder, step=step, part="write"):
            folder.mkdir()
            save_file(adapter, folder / "adapter_model.safetensors")
            (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 320}))
            if step % 250 == 0:
                torch.save(fitted.state(global_step=step), folder / "full_state.pt")
    until(1.5, lambda: fitted.step(next(batches)))


def tables(life: Life) -> None:
    """As Weights & Biases keeps a run: history, pictures, predictions, the data set as an artifact; no saves."""
    fitted, noise = Fitted(6), np.random.default_rng(1)
    data = life.folder / "data/val.npz"
    data.parent.mkdir()
    np.savez(data, images=noise.integers(0, 255, (2000, 3, 64, 64), dtype=np.uint8))
    here = life.folder / "wandb/run-20261127_061500-4k2j9x1p"
    for kind in ("images", "table"):
        (here / "files/media" / kind).mkdir(parents=True)
    with (here / "run-4k2j9x1p.wandb").open("ab", buffering=0) as history:
        for step in range(1, 31):
            fitted.train(1.0)
            history.write(os.urandom(40 << 10))
            summary = {"loss": 1 / step, "_step": step, "_timestamp": time.time()}
            (here / "files/wandb-summary.json").write_text(json.dumps(summary))
            if step == 3:  # the data set is an artifact: hashed, staged, and in the cache by its hash
                staged = life.folder / "wandb/artifacts/staging/tmp4x1_2k9v"
                staged.parent.mkdir(parents=True)
                shutil.copyfile(data, staged)
                name = hashlib.md5(staged.read_bytes(), usedforsecurity=False).hexdigest()
                cached = life.folder / f"wandb/artifacts/obj/md5/{name[:2]}/{name[2:]}"
                cached.parent.mkdir(parents=True)
                staged.rename(cached)
            if step % 6:
                continue
            table = {"columns": [f"score_{one}" for one in range(100)], "data": noise.random((3000, 100)).tolist()}
            (here / f"files/media/table/val_predictions_{step}_8d2f1c.table.json").write_text(json.dumps(table))
            for picture in range(32):
                (here / f"files/media/images/samples_{step}_{picture}.png").write_bytes(os.urandom(200 << 10))
    fitted.train(1.5)
    life.nothing()


def _played(folder: Path, actor: int) -> None:
    noise = np.random.default_rng(actor)
    board = noise.standard_normal((300, 300))
    until(2, lambda: np.tanh(board @ board))
    np.savez(
        folder / f"actor_{actor}.npz",
        states=noise.standard_normal((3000, 1024), dtype=np.float32),
        policies=noise.random((3000, 362), dtype=np.float32),
        values=noise.random(3000, dtype=np.float32),
    )


def self_play(life: Life) -> None:
    """Two actors play and keep games; the learner reads those of the last iterations, older ones go; no saves."""
    fitted, folders = Fitted(6), list[Path]()
    for iteration in range(8):
        folder = life.folder / f"self_play/iter_{iteration:04d}"
        folder.mkdir(parents=True)
        actors = [FORK.Process(target=_played, args=(folder, at)) for at in range(2)]
        for actor in actors:
            actor.start()
        for actor in actors:
            actor.join()
        folders.append(folder)
        for old in folders[:-2]:
            shutil.rmtree(old)
        del folders[:-2]
        games = [np.load(path)["states"] for one in folders for path in sorted(one.glob("*.npz"))]
        newest = torch.from_numpy(games[-1])
        until(2, lambda newest=newest: fitted.step(newest[torch.randint(3000, (8,))]))
        with (life.folder / "elo.csv").open("a") as elo:
            print(iteration, 1000 + iteration, sep=",", file=elo)
    life.nothing()


def memory_snapshots(life: Life) -> None:
    """As torchtitan with its profilers: each rank pickles a snapshot of its memory and writes a trace; no saves."""
    fitted = Fitted(6)
    distributed.init_process_group("gloo")
    frames = [{"filename": "torch/nn/modules/linear.py", "name": "forward", "line": line} for line in range(40)]
    for step in range(20, 101, 20):
        fitted.train_together(20, waits=False)
        folder = life.folder / f"memory_snapshot/iteration_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"rank{life.rank}_memory_snapshot.pickle").open("wb") as file:
            blocks = [
                {"address": at << 9, "size": at, "state": "active", "frames": frames[at % 40 :]} for at in range(60_000)
            ]
            history = [{"action": "alloc", "addr": at << 9, "time_us": at, "stream": 0} for at in range(180_000)]
            pickle.dump({"segments": [{"device": 0, "blocks": blocks}], "device_traces": [history]}, file)
        distributed.barrier()
        if step % 40:
            continue
        folder = life.folder / f"profile_traces/iteration_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        events = [{"ph": "X", "cat": "cpu_op", "name": f"aten::{at}", "ts": at, "dur": 3} for at in range(40_000)]
        (folder / f"rank{life.rank}_trace.json").write_text(json.dumps({"traceEvents": events}))
        distributed.barrier()
    distributed.destroy_process_group()
    life.nothing()


if __name__ == "__main__":
    run(globals())
