"""The Trainer of Hugging Face: a folder is renamed, older ones are deleted; at the end the best is loaded."""

from __future__ import annotations

import json
import random
import shutil

import torch
from fitted import Fitted
from lives import Life
from safetensors.torch import load_file, save_file


def main() -> None:
    """Train, save four times, keep two."""
    life, fitted = Life(__doc__), Fitted(10)
    kept = []
    for step in (500, 1000, 1500, 2000):
        fitted.train(2.5)
        target = life.folder / f"checkpoint-{step}"
        with life.save(target, step=step) as row, row.part("write"):
            part = life.folder / f"tmp-checkpoint-{step}"
            part.mkdir()
            (part / "config.json").write_text(json.dumps({"architectures": ["Mlp"], "hidden_size": 1024}))
            save_file(fitted.model.state_dict(), part / "model.safetensors")
            torch.save({"lr": 1e-4}, part / "training_args.bin")
            torch.save(fitted.optimizer.state_dict(), part / "optimizer.pt")
            torch.save({"last_epoch": step}, part / "scheduler.pt")
            torch.save({"python": random.getstate(), "cpu": torch.random.get_rng_state()}, part / "rng_state.pth")
            (part / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
            part.rename(target)
            kept.append(target)
            if len(kept) > 2:
                shutil.rmtree(kept.pop(0))
    fitted.train(1)
    best = kept[0] / "model.safetensors"
    with life.restore(best, optional=True):  # nothing goes on from it but the evaluation
        fitted.model.load_state_dict(load_file(best))
    with life.save(life.folder / "final", optional=True):  # trainer.save_model()
        (life.folder / "final").mkdir()
        save_file(fitted.model.state_dict(), life.folder / "final/model.safetensors")
    fitted.train(1)


if __name__ == "__main__":
    main()
