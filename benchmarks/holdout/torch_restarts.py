"""Jobs of PyTorch that are started again, or end in the midst, and what they go on from."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fitted import Fitted, resumed
from frame import MB, Life, Row, numbered, run, size, sync, until


def base_copied(life: Life) -> None:
    """The base model's folder is copied, then its weights are written over; the job ends between both."""
    from safetensors.torch import load_file, save_file

    fitted, base = Fitted(20), life.folder / "base"
    if life.prepare:
        base.mkdir()
        (base / "config.json").write_text("{}")
        (base / "tokenizer.json").write_text("{}" * 100_000)
        save_file(fitted.model.state_dict(), base / "model.safetensors")
        return
    with life.restore(base, optional=True):
        fitted.model.load_state_dict(load_file(base / "model.safetensors"))
    for step in (200, 400, 600):
        fitted.train(3)
        target = life.folder / f"output/step-{step}"
        known = {"risks": ["the base model, not overwritten"], "optional": True, "status": None} if step == 600 else {}
        with life.save(target, part="write", step=step, **known):
            shutil.copytree(base, target)
            if step != 600:
                state = {name: tensor.clone() for name, tensor in fitted.model.state_dict().items()}
                save_file(state, target / "model.safetensors")
                torch.save(fitted.optimizer.state_dict(), target / "optimizer.pt")
    os._exit(0)  # as a job whose time is over


def in_memory(life: Life) -> None:
    """A fast copy in memory, over itself in place, from which the restart goes on."""
    fitted, path = Fitted(12), life.folder / "last.ckpt"
    if life.again:
        resumed(life, fitted, path)
    for step in range(3):
        fitted.train(2.5)
        with life.save(path, part="write"):
            torch.save(fitted.state(step=step), path)
    life.end(1, fitted.step)


class Tokens:
    """The data set, mapped anew for each batch, as nanoGPT does against a leak."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.random = folder, np.random.default_rng(1)
        if not folder.exists():
            folder.mkdir()
            for name, length in (("train", 48 * MB), ("val", 8 * MB)):
                (folder / f"{name}.bin").write_bytes(self.random.integers(0, 50257, length // 2, dtype=np.uint16).data)

    def batch(self, name: str) -> torch.Tensor:
        """Return blocks from anywhere."""
        data = np.memmap(self.folder / f"{name}.bin", np.uint16, "r")
        starts = self.random.integers(len(data) - 1024, size=8)
        return torch.from_numpy(np.stack([data[at : at + 1024].astype(np.float32) for at in starts])) / 50257


def best_so_far(life: Life) -> None:
    """As nanoGPT: batches from a mapped file, an evaluation, `ckpt.pt` over the last if the loss is less; resumed."""
    fitted, tokens = Fitted(7), Tokens(life.folder.parent / "data")
    path, first, losses, best = life.folder / "ckpt.pt", 0, (0.9, 0.7, 0.75, 0.6, 0.5), 1.0
    if life.again:
        first, losses = resumed(life, fitted, path, map_location="cpu")["iter_num"], (0.45, 0.4)
    for number, loss in enumerate(losses, first // 250 + 1):
        until(2.5, lambda: fitted.step(tokens.batch("train")))
        with torch.no_grad():
            for name in ("train", "val"):
                until(0.7, lambda name=name: fitted.model(tokens.batch(name)))
        if loss > best:
            continue
        best = loss
        state = fitted.state(iter_num=250 * number, best_val_loss=loss, model_args={"n_layer": 7, "block_size": 128})
        with life.save(path, part="write"):
            torch.save(state, path)
    life.end(1.5, lambda: fitted.step(tokens.batch("train")))


def limit_of_two(life: Life) -> None:
    """As diffusers: the oldest goes, then shards, an index, the average, the optimizer and states; then resumed."""
    from safetensors.torch import load_file, save_file

    fitted, generator, step = Fitted(8), np.random.default_rng(1), 0
    average = copy.deepcopy(fitted.model)

    def save_pretrained(folder: Path, weights: dict[str, torch.Tensor]) -> None:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel", "sample_size": 64}))
        names, index = sorted(weights), dict[str, str]()
        for at in range(3):
            shard = f"diffusion_pytorch_model-{at + 1:05d}-of-00003.safetensors"
            save_file({name: weights[name] for name in names[at::3]}, folder / shard, metadata={"format": "pt"})
            index |= dict.fromkeys(names[at::3], shard)
        text = json.dumps({"metadata": {"total_size": 0}, "weight_map": index}, indent=2)
        (folder / "diffusion_pytorch_model.safetensors.index.json").write_text(text)

    def loaded(folder: Path) -> dict[str, torch.Tensor]:
        weights: dict[str, torch.Tensor] = {}
        for shard in sorted(folder.glob("*.safetensors")):
            weights |= load_file(shard)
        return weights

    if life.again:
        newest = numbered(life.folder, "checkpoint-*")[-1]
        step = int(newest.name.partition("-")[2])
        with life.restore(newest, step=step, part="read"):
            average.load_state_dict(loaded(newest / "unet_ema"))
            fitted.load({"model": loaded(newest / "unet"), "optimizer": torch.load(newest / "optimizer.bin")})
            pickle.loads((newest / "random_states_0.pkl").read_bytes())
    for _ in range(2 if life.again else 4):
        fitted.train(3.5)
        step += 500
        folder = life.folder / f"checkpoint-{step}"
        with life.save(folder, step=step) as row:
            for old in numbered(life.folder, "checkpoint-*")[:-1]:
                shutil.rmtree(old)
            with row.part("write"):
                save_pretrained(folder / "unet", fitted.model.state_dict())
                save_pretrained(folder / "unet_ema", average.state_dict())
                torch.save(fitted.optimizer.state_dict(), folder / "optimizer.bin")
                torch.save({"last_epoch": step}, folder / "scheduler.bin")
                states = (step, random.getstate(), generator.bit_generator.state, torch.get_rng_state())
                (folder / "random_states_0.pkl").write_bytes(pickle.dumps(states))
    life.end(1.5, fitted.step)


class Buffer:
    """What an agent has seen, in arrays of a fixed size."""

    def __init__(self) -> None:
        self.observations = np.zeros((8000, 1024), np.float32)
        self.next_observations = np.zeros((8000, 1024), np.float32)
        self.rewards, self.at = np.zeros(8000, np.float32), 0

    def add(self, seen: np.ndarray) -> None:
        """Keep some transitions over the oldest."""
        rows = np.arange(self.at, self.at + len(seen)) % 8000
        self.observations[rows] = seen
        self.next_observations[rows] = seen + 1
        self.at = (self.at + len(seen)) % 8000


def replay_buffer(life: Life) -> None:
    """As Stable-Baselines3: a zip of policy, optimizer and JSON, and the replay buffer, pickled; then loaded again."""
    fitted, buffer, noise, steps = Fitted(3), Buffer(), np.random.default_rng(1), 0

    def step() -> None:
        seen = noise.standard_normal((64, 1024), dtype=np.float32)
        with torch.no_grad():
            fitted.model(torch.from_numpy(seen))
        buffer.add(seen)
        fitted.step(torch.from_numpy(buffer.observations[noise.integers(8000, size=8)]))

    def files() -> tuple[Path, Path]:
        names = (f"rl_model_{steps}_steps.zip", f"rl_model_replay_buffer_{steps}_steps.pkl")
        return life.folder / names[0], life.folder / names[1]

    parts = (("policy", fitted.model), ("policy.optimizer", fitted.optimizer))
    if life.again:
        steps = 40_000
        policy, replay = files()
        with life.restore(policy, replay, step=steps, part="read"):
            with zipfile.ZipFile(policy) as archive:
                for name, one in parts:
                    with archive.open(f"{name}.pth") as file:
                        one.load_state_dict(torch.load(file))
            with replay.open("rb") as file:
                buffer = pickle.load(file)
    for _ in range(2 if life.again else 4):
        until(3.5, step)
        steps += 10_000
        policy, replay = files()
        with life.save(policy, replay, step=steps, part="write"):
            with zipfile.ZipFile(policy, "w") as archive:
                archive.writestr("data", json.dumps({"policy_class": "MlpPolicy", "learning_rate": 3e-4, "n_envs": 4}))
                for name, one in parts:
                    with archive.open(f"{name}.pth", "w", force_zip64=True) as file:
                        torch.save(one.state_dict(), file)
                archive.writestr("_stable_baselines3_version", "2.3.2")
            with replay.open("wb") as file:
                pickle.dump(buffer, file, protocol=pickle.HIGHEST_PROTOCOL)
    life.end(1.5, fitted.step)


def sweep(life: Life) -> None:
    """As Hydra: a process and a folder for each run, which keeps best and last; the last begins with the first's."""
    runs = ("lr=0.1", "lr=0.01", "lr=0.001", "lr=0.01,warm=true")
    root = life.folder / "multirun/2026-11-27/06-15-00"
    if not life.again:
        for number in range(len(runs)):
            life.start_again(RUN=str(number))
        return
    fitted, number = Fitted(10), int(os.environ["RUN"])
    folder = root / f"{number}_{runs[number]}/checkpoints"
    folder.mkdir(parents=True)
    if "warm" in runs[number]:
        path = root / f"0_{runs[0]}/checkpoints/best.ckpt"
        with life.restore(path, part="read"):
            fitted.model.load_state_dict(torch.load(path)["model"])
    for name in ("best", "last"):
        fitted.train(4)
        path = folder / f"{name}.ckpt"
        with life.save(path, part="write"):
            torch.save(fitted.state(overrides=runs[number]), path)


def preempted(life: Life) -> None:
    """On a cluster that preempts: at SIGTERM all is saved, synced and renamed; the next life goes on from it."""
    if not life.again:
        for _ in range(5):
            life.start_again()
        return
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    fitted, step = Fitted(9), 0
    kept = sorted(life.folder.glob("hpc_ckpt_*.ckpt"))
    if kept:
        step = resumed(life, fitted, kept[-1])["global_step"]
    scheduler = threading.Timer(5.0, lambda: os.kill(os.getpid(), signal.SIGTERM))
    scheduler.start()
    while not told.is_set():
        fitted.step()
        step += 1
    path = life.folder / f"hpc_ckpt_{len(kept) + 1}.ckpt"
    part = path.with_suffix(".ckpt.part")
    with life.save(path) as row:
        with part.open("wb") as file:
            with row.part("write"):
                torch.save(fitted.state(global_step=step), file)
            with row.part("sync"):
                os.fsync(file.fileno())
        part.rename(path)
    scheduler.join()


def killed(life: Life) -> None:
    """Killed in a save that has its last name at once; the restart finds it broken, and moves it away."""
    if not life.again:
        for _ in range(2):
            life.start_again(check=False)
        return

    class Slow(io.FileIO):
        left = 10  # slices, after which the job is killed

        def write(self, data: Any) -> int:
            for at in range(0, len(data), 4 * MB):
                if not self.left:
                    os.kill(os.getpid(), signal.SIGKILL)
                    threading.Event().wait()
                self.left -= 1
                super().write(data[at : at + 4 * MB])
            return len(data)

    fitted, begun = Fitted(9), 0
    first = not list(life.folder.glob("epoch_*.pt"))
    for path in sorted(life.folder.glob("epoch_*.pt"), reverse=True):
        row = Row()
        try:
            with row.part("read"):
                state = torch.load(path)
                fitted.load(state)
        except (RuntimeError, OSError, EOFError):
            life.log("restore", row, (path,), {"optional": True})
            path.rename(path.with_suffix(".corrupt"))
            continue
        life.log("restore", row, (path,), {})
        begun = int(state["epoch"])
        break
    for epoch in range(begun + 1, begun + 5 if first else begun + 3):
        fitted.train(4)
        path = life.folder / f"epoch_{epoch}.pt"
        if first and epoch == 4:
            known = {"step": None, "bytes": 40 * MB, "status": "incomplete", "optional": True}
            life.log("save", Row(), (path,), known)
            torch.save(fitted.state(epoch=epoch), Slow(path, "wb"))
        with life.save(path, part="write"):
            torch.save(fitted.state(epoch=epoch), path)
    fitted.train(1.5)


def in_turns(life: Life) -> None:
    """Two models are saved in turns: in memory, then in pieces of 64 KB; synced, in the place of the last; resumed."""
    models = {"generator": Fitted(8), "discriminator": Fitted(4)}
    paths = {name: life.folder / f"{name}.pth" for name in models}
    if life.again:
        with life.restore(*paths.values(), part="read"):
            for name, one in models.items():
                one.load(torch.load(paths[name]))
    for _ in range(1 if life.again else 3):
        for name, path in paths.items():
            for _ in range(6):
                for each in models.values():
                    each.train(0.25)
            with life.save(path) as row:
                part, buffer = path.with_suffix(".pth.new"), io.BytesIO()
                with row.part("write"):
                    torch.save(models[name].state(), buffer)
                    blob = buffer.getbuffer()
                    with part.open("wb", buffering=0) as file:
                        for at in range(0, len(blob), 64 << 10):
                            file.write(blob[at : at + (64 << 10)])
                with row.part("sync"):
                    sync(part)
                    part.replace(path)
    life.end(1.5, models["generator"].step)


def split_volumes(life: Life) -> None:
    """`torch.save` into a pipe, which `split` cuts into volumes, two kept; a restart reads what `cat` joins."""
    fitted, steps = Fitted(7), [100, 200, 300, 400]

    def volumes(step: int) -> list[Path]:
        return sorted(life.folder.glob(f"state_{step}.pt.part-*"))

    if life.again:
        files = volumes(steps[-1])
        with life.restore(*files, step=steps[-1], path=str(life.folder), part="read"):
            joined = subprocess.run(["cat", *map(str, files)], capture_output=True, check=True).stdout
            fitted.load(torch.load(io.BytesIO(joined)))
        steps = [500, 600]
    for at, step in enumerate(steps):
        fitted.train(3.5)
        with life.save(life.folder, step=step, path=str(life.folder)) as row:
            command = ["split", "-b", "20M", "-", str(life.folder / f"state_{step}.pt.part-")]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as split:
                torch.save(fitted.state(step=step), split.stdin)
            row.known["bytes"] = sum(map(size, volumes(step)))
            for old in volumes(steps[at - 2]) if at >= 2 else ():
                old.unlink()
    life.end(1.5, fitted.step)


if __name__ == "__main__":
    run(globals())
