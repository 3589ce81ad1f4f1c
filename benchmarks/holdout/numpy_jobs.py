"""Jobs of NumPy: how they replace the last save, what they keep, and how they are restarted."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import tempfile
from pathlib import Path

import numpy as np
from frame import MB, Life, chunks, run, sync, until, write


def _layers(count: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, 1024, 1024), dtype=np.float32)


def keras_overwritten(life: Life) -> None:
    """Keras' ModelCheckpoint of the best: `model.weights.h5` over itself; a restart goes on from it."""
    import h5py

    layers, width, noise = 12, 1400, np.random.default_rng(1)
    path = life.folder / "model.weights.h5"
    weights = [noise.standard_normal((width, width), dtype=np.float32) for _ in range(layers)]
    moments = [np.zeros_like(weight) for weight in weights]

    def step() -> None:
        values = noise.standard_normal((16, width), dtype=np.float32)
        for weight in weights:
            values = np.tanh(values @ weight * 0.02)

    if life.again:
        with life.restore(path, part="read"), h5py.File(path, "r") as file:
            for at in range(layers):
                weights[at] = file[f"layers/dense_{at}/vars/0"][...]
                moments[at] = file[f"optimizer/vars/{at}"][...]
    for improved in (True, False, True, True):
        until(2.5, step)
        if improved:
            with life.save(path, part="write"), h5py.File(path, "w") as file:
                for at, (weight, moment) in enumerate(zip(weights, moments, strict=True)):
                    file.create_dataset(f"layers/dense_{at}/vars/0", data=weight)
                    file.create_dataset(f"optimizer/vars/{at}", data=moment)
    life.end(1, step)


def verified(life: Life) -> None:
    """Each checkpoint is synced, read back and hashed before it gets its name; the hash is kept beside it."""
    weights = _layers(24)
    for number in range(1, 5):
        until(2.5, lambda: np.tanh(weights[0] @ weights[1]))
        path = life.folder / f"ckpt-{number:03d}.npy"
        part = path.with_suffix(".npy.part")
        with life.save(path) as row:
            with row.part("write"), part.open("wb") as file:
                np.save(file, weights)
            with row.part("sync"):
                opened = os.open(part, os.O_RDONLY)
                os.fsync(opened)
                os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)  # so that it is read from where it was put
                os.close(opened)
            with row.part("serialize"), part.open("rb") as file:
                found = hashlib.sha512()
                while piece := file.read(MB):
                    found.update(piece)
            path.with_suffix(".sha512").write_text(found.hexdigest())
            part.replace(path)
    until(1, lambda: np.tanh(weights[0] @ weights[1]))


def ever_growing(life: Life) -> None:
    """A replay buffer grows for ever in one `.bin`, some megabytes at a time, beside checkpoints of the agent."""
    weights = _layers(16)
    seen = np.random.default_rng(2).integers(0, 255, 3 << 20, dtype=np.uint8)
    with (life.folder / "replay_buffer.bin").open("ab") as buffer:
        for number in range(3):
            for _ in range(10):
                until(0.3, lambda: np.tanh(weights[0] @ weights[1]))
                buffer.write(seen)
                buffer.flush()
            path = life.folder / f"agent_{number}.pkl"
            with life.save(path, part="write"), path.open("wb") as file:
                pickle.dump({"weights": weights, "episode": number}, file, protocol=4)
        until(2, lambda: np.tanh(weights[0] @ weights[1]))


def retried(life: Life) -> None:
    """A writer that begins again: after half of the second and third file it is truncated, and all written anew."""
    weights = np.random.default_rng(1).standard_normal(30 * MB, dtype=np.float32)
    blob = weights.data.cast("B")

    def step() -> None:
        np.tanh(weights[: MB // 4].reshape(512, 512) @ weights[MB : MB + MB // 4].reshape(512, 512))

    for number in range(4):
        until(2.5, step)
        path = life.folder / f"ckpt_{number}.bin"
        with life.save(path, part="write"), path.open("wb", buffering=0) as file:
            if number in {1, 2}:
                for piece in chunks(blob[: len(blob) // 2]):
                    file.write(piece)
                file.seek(0)
                file.truncate()
            for piece in chunks(blob):
                file.write(piece)
    until(1, step)


def hard_linked(life: Life) -> None:
    """What did not change is a hard link to the last checkpoint's file, what did is written; `latest` is a link."""
    noise = np.random.default_rng(1)
    frozen = noise.standard_normal((16, 1024, 1024), dtype=np.float32)
    tuned = noise.standard_normal((12, 1024, 1024), dtype=np.float32)
    before = None
    for number in range(1, 5):
        until(2.5, lambda: np.tanh(frozen[0] @ tuned[1]))
        folder = life.folder / f"ckpt_{number:04d}"
        with life.save(folder, part="write") as row:
            folder.mkdir()
            if before is None:
                np.save(folder / "frozen.npy", frozen)
            else:
                os.link(before / "frozen.npy", folder / "frozen.npy")
            np.save(folder / "tuned.npy", tuned)
            latest = life.folder / "latest.npy"
            latest.unlink(missing_ok=True)
            os.link(folder / "tuned.npy", latest)
            row.known["bytes"] = tuned.nbytes + (0 if before else frozen.nbytes)
        if number == 2:
            shutil.copy2(folder / "tuned.npy", life.folder / "best.npy")
        before = folder
    until(1, lambda: np.tanh(frozen[0] @ tuned[1]))


def patched(life: Life) -> None:
    """One file that is never truncated: each save writes all of it over, from its begin; the restart reads it."""
    path, weights = life.folder / "params.dat", _layers(20)
    blob = weights.data.cast("B")
    if life.again:
        with life.restore(path, part="read"):
            weights = np.fromfile(path, dtype=np.float32).reshape(weights.shape)
    for _ in range(2 if life.again else 4):
        until(2.5, lambda: np.tanh(weights[0] @ weights[1]))
        with life.save(path) as row:
            opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            with row.part("write"):
                for at in range(0, len(blob), MB):
                    os.pwrite(opened, blob[at : at + MB], at)
            with row.part("sync"):
                os.fdatasync(opened)
            os.close(opened)
    life.end(1, lambda: np.tanh(weights[0] @ weights[1]))


def savez_replaced(life: Life) -> None:
    """`np.savez` to a file of `tempfile`, synced, renamed over the last one; then the folder is synced."""
    noise, path = np.random.default_rng(1), life.folder / "params.npz"
    weights = {f"w{at}": noise.standard_normal((1024, 1024), dtype=np.float32) for at in range(15)}
    for epoch in range(5):
        until(2.5, lambda: np.tanh(weights["w0"] @ weights["w1"]))
        with life.save(path) as row:
            with tempfile.NamedTemporaryFile(dir=life.folder, delete=False) as part:
                with row.part("write"):
                    np.savez(part, epoch=np.array(epoch), **weights)
                with row.part("sync"):
                    part.flush()
                    os.fsync(part.fileno())
            Path(part.name).replace(path)
            with row.part("sync"):
                sync(life.folder)
    until(1, lambda: np.tanh(weights["w0"] @ weights["w1"]))


class Classifier:
    """As scikit-learn's SGDClassifier keeps itself."""

    def __init__(self) -> None:
        noise = np.random.default_rng(1)
        self.coef_ = noise.standard_normal((300, 4000))
        self.average_coef_ = noise.standard_normal((300, 4000))
        self.t_ = 1

    def partial_fit(self, batch: np.ndarray) -> None:
        """Take one step."""
        self.coef_ -= 1e-4 * np.tanh(batch @ self.coef_.T).T @ batch
        self.t_ += len(batch)


def joblib_kept(life: Life) -> None:
    """An estimator that is fitted by batches, and dumped by joblib over the same file, compressed; then loaded."""
    import joblib

    path, noise, model = life.folder / "model.joblib", np.random.default_rng(2), Classifier()
    if life.again:
        with life.restore(path, part="serialize"):
            model = joblib.load(path)
    for _ in range(2 if life.again else 3):
        until(3, lambda: model.partial_fit(noise.standard_normal((64, 4000))))
        with life.save(path, part="serialize"):  # zlib is most of it, piece by piece between the writes
            joblib.dump(model, path, compress=3)
    life.end(1, lambda: model.partial_fit(noise.standard_normal((64, 4000))))


def population(life: Life) -> None:
    """Evolution without gradients: each generation is pickled to a hidden name, linked to its own and unlinked."""
    noise, generation = np.random.default_rng(1), 0
    genomes = [noise.standard_normal(60_000, dtype=np.float32) for _ in range(200)]

    def judged() -> None:
        for genome in genomes[::20]:
            np.tanh(genome[:57_600].reshape(240, 240) @ genome[:57_600].reshape(240, 240)).sum()

    if life.again:
        path = max(life.folder.glob("gen_*.pkl"))
        with life.restore(path, part="read"), path.open("rb") as file:
            generation, genomes, _ = pickle.load(file)
    for _ in range(2 if life.again else 3):
        until(2.5, judged)
        genomes = [genome + noise.standard_normal(60_000, dtype=np.float32) for genome in genomes]
        generation += 10
        path, part = life.folder / f"gen_{generation:05d}.pkl", life.folder / f".gen.{os.getpid()}"
        with life.save(path, part="write"):
            with part.open("wb") as file:
                pickle.dump((generation, genomes, noise.bit_generator.state), file)
            os.link(part, path)
            part.unlink()
    life.end(1, judged)


def _whole(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".tmp1f3a9c0d77e24b58")
    part.write_text(text)
    part.rename(path)


def saver_of_five(life: Life) -> None:
    """The Saver of TensorFlow 1: data, index and graph, a text `checkpoint` that names them, the last five kept."""
    noise, kept = np.random.default_rng(1), list[int]()
    variables = {f"dense_{at}/kernel": noise.standard_normal((1024, 1024), dtype=np.float32) for at in range(10)}
    first, second = list(variables.values())[:2]
    if life.again:
        name = (life.folder / "checkpoint").read_text().split('"')[1]
        data = life.folder / f"{name}.data-00000-of-00001"
        with life.restore(data, part="read"), data.open("rb") as file:
            for variable, values in variables.items():
                variables[variable] = np.frombuffer(file.read(values.nbytes), np.float32).reshape(values.shape)
        until(2, lambda: np.tanh(first @ second))
        return
    for number in range(1, 9):
        until(2, lambda: np.tanh(first @ second))
        name = f"model.ckpt-{number * 100}"
        files = [life.folder / f"{name}{suffix}" for suffix in (".data-00000-of-00001", ".index", ".meta")]
        with life.save(*files, step=number * 100, part="write"):
            part = life.folder / f"{name}_temp_5d1c"
            part.mkdir()
            with (part / "part-00000-of-00001.data-00000-of-00001").open("wb") as file:
                for values in variables.values():
                    file.write(values.data)
            (part / "part-00000-of-00001.index").write_bytes(bytes(4000))
            (part / "part-00000-of-00001.data-00000-of-00001").rename(files[0])
            (part / "part-00000-of-00001.index").rename(files[1])
            part.rmdir()
            kept.append(number * 100)
            names = [f'all_model_checkpoint_paths: "model.ckpt-{one}"' for one in kept[-5:]]
            _whole(life.folder / "checkpoint", "\n".join([f'model_checkpoint_path: "{name}"', *names]))
            for old in kept[:-5]:
                for one in life.folder.glob(f"model.ckpt-{old}.*"):
                    one.unlink()
            del kept[:-5]
            _whole(files[2], "node { op: MatMul }\n" * 30_000)
    life.end(1, lambda: np.tanh(first @ second))


def bare(life: Life) -> None:
    """The bytes of all arrays under a name without a step, hidden until they are all there."""
    noise = np.random.default_rng()
    state = [noise.standard_normal(6 * MB, dtype=np.float32) for _ in range(4)]
    weights = noise.standard_normal((160, 160))

    def step() -> None:
        for _ in range(20):
            np.tanh(weights @ weights)
        until(0.01, lambda: None)

    for number, day in enumerate(("monday", "tuesday", "wednesday"), 1):
        until(3, step)
        path = life.folder / f"net/{day}.bin"
        path.parent.mkdir(exist_ok=True)
        with life.save(path, step=50 * number):
            part = path.with_name("." + path.name)
            write(part, *(one.data.cast("B") for one in state))
            part.replace(path)
    until(3, step)


if __name__ == "__main__":
    run(globals())
