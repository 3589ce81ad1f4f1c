"""As the Saver of TensorFlow 1: data, index and graph, a text `checkpoint` that names them, and the last five kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from lives import Life, until

KEPT = 5


def whole(path: Path, text: str) -> None:
    """Write a text beside, and rename it over the last."""
    part = path.with_name(path.name + ".tmp1f3a9c0d77e24b58")
    part.write_text(text)
    part.rename(path)


def main() -> None:
    """Train, save eight times; the restart takes the last."""
    life = Life(__doc__)
    random = np.random.default_rng(1)
    variables = {f"dense_{at}/kernel": random.standard_normal((1024, 1024), dtype=np.float32) for at in range(10)}
    first, second = list(variables.values())[:2]
    state = life.folder / "checkpoint"
    kept: list[int] = []

    def step() -> None:
        np.tanh(first @ second)

    if life.again:
        name = state.read_text().split('"')[1]
        data = life.folder / f"{name}.data-00000-of-00001"
        with life.restore(data) as row, row.part("read"), data.open("rb") as file:
            for variable, values in variables.items():
                variables[variable] = np.frombuffer(file.read(values.nbytes), np.float32).reshape(values.shape)
        until(2, step)
        return
    for number in range(1, 9):
        until(2, step)
        name = f"model.ckpt-{number * 100}"
        files = [life.folder / f"{name}{suffix}" for suffix in (".data-00000-of-00001", ".index", ".meta")]
        with life.save(*files, step=number * 100) as row, row.part("write"):
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
            names = [f'all_model_checkpoint_paths: "model.ckpt-{one}"' for one in kept[-KEPT:]]
            whole(state, "\n".join([f'model_checkpoint_path: "{name}"', *names]))
            for old in kept[:-KEPT]:
                for one in life.folder.glob(f"model.ckpt-{old}.*"):
                    one.unlink()
            del kept[:-KEPT]
            whole(files[2], "node { op: MatMul }\n" * 30_000)
    until(1, step)
    life.start_again()


if __name__ == "__main__":
    main()
