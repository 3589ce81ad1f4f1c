"""What the tasks only read: checkpoints, data sets, a repository, packages; made once, before anybody watches."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from tests.patience import PATIENCE_SECONDS

MB = 1 << 20


def make_store(store: Path) -> None:
    """Fill an empty folder with about 700 MB; without a network the packages from outside are left out."""
    store.mkdir(parents=True, exist_ok=True)
    _checkpoints(store)
    _data(store)
    _archives(store)
    _repository(store)
    _packages(store)


def _safetensors(path: Path, megabytes: int) -> None:
    size = megabytes * MB
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + os.urandom(size))


def _torch_zip(path: Path, megabytes: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:  # stored, as torch.save does
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", os.urandom(megabytes * MB))


def _checkpoints(store: Path) -> None:
    trainer = store / "checkpoint-500"
    trainer.mkdir()
    _safetensors(trainer / "model.safetensors", 50)
    _torch_zip(trainer / "optimizer.pt", 70)
    (trainer / "config.json").write_text("{}")
    (trainer / "trainer_state.json").write_text(json.dumps({"global_step": 500}))
    engine = store / "global_step5"
    engine.mkdir()
    _torch_zip(engine / "mp_rank_00_model_states.pt", 30)
    _torch_zip(engine / "zero_pp_rank_0_mp_rank_00_optim_states.pt", 30)
    np.savez(store / "ckpt_00000009.npz", w=np.random.default_rng(1).random(4_000_000))
    (store / "blob.bin").write_bytes(os.urandom(100 * MB))


def _data(store: Path) -> None:
    random = np.random.default_rng(2)
    (store / "shards").mkdir()
    for number in range(8):
        np.save(store / "shards" / f"train_{number:05d}.npy", random.integers(0, 50_000, 2 * MB, dtype=np.uint32))
    import torch  # noqa: PLC0415 - takes seconds

    (store / "latents").mkdir()
    for number in range(8):
        torch.save(torch.rand(MB), store / "latents" / f"{number:05d}.pt")
    (store / "tokens.bin").write_bytes(os.urandom(100 * MB))
    np.save(store / "train_images.npy", random.random(8 * MB, dtype=np.float32))


def _archives(store: Path) -> None:
    with tarfile.open(store / "layer.tar", "w") as archive:
        for number in range(20):
            library = store / "library.so"
            library.write_bytes(b"\x7fELF" + os.urandom(3 * MB))
            archive.add(library, f"usr/lib/lib{number}.so")
        library.unlink()
    with zipfile.ZipFile(store / "release.zip", "w") as release:
        for path in sorted((store / "checkpoint-500").iterdir()):
            release.write(path, f"release/checkpoint-500/{path.name}")


def _repository(store: Path) -> None:
    work, environment = store / "work", {**os.environ, "HOME": str(store), "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *identity, *words], cwd=work, check=True, capture_output=True, env=environment)

    work.mkdir()
    git("init", "-q")
    for branch in ("old", "main"):
        (work / "weights").mkdir(exist_ok=True)
        for number in range(10):
            (work / "weights" / f"model_{number}.bin").write_bytes(os.urandom(2 * MB))
        shutil.copy(store / "global_step5/mp_rank_00_model_states.pt", work / "model.pt")
        git("add", ".")
        git("commit", "-qm", branch)
        git("branch", "-f", "old") if branch == "old" else None
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(store / "models.git")], check=True, env=environment)
    shutil.rmtree(work)


def _packages(store: Path) -> None:
    (store / "wheels").mkdir()
    (store / "debs").mkdir()
    _wheel(store / "wheels" / "weights-1.0-py3-none-any.whl")
    _npm(store)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check"]
    fetches = (
        ([*pip, "--only-binary", ":all:", "-d", str(store / "wheels"), "scipy"], store),
        (["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", "libllvm14"], store / "debs"),
    )
    for command, folder in fetches:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=PATIENCE_SECONDS)


def _wheel(path: Path) -> None:
    """Write a package that carries a model of 40 MB, as some do."""
    meta = "weights-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("weights/__init__.py", "")
        wheel.writestr("weights/model.safetensors", os.urandom(40 * MB))
        wheel.writestr(f"{meta}/METADATA", "Metadata-Version: 2.1\nName: weights\nVersion: 1.0\n")
        wheel.writestr(f"{meta}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{meta}/RECORD", "")


def _npm(store: Path) -> None:
    with tarfile.open(store / "blobs-1.0.0.tgz", "w:gz", compresslevel=1) as archive:
        folder = store / "package"
        folder.mkdir()
        (folder / "package.json").write_text('{"name": "blobs", "version": "1.0.0"}')
        for number in range(6):
            (folder / f"asset{number}.bin").write_bytes(os.urandom(6 * MB))
        archive.add(folder, "package")
        shutil.rmtree(folder)
