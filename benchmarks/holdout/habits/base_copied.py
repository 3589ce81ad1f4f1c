"""The base model's folder is copied, then its weights are written over; the job ends between both."""

from __future__ import annotations

import os
import shutil

import torch
from fitted import Fitted
from lives import Life
from safetensors.torch import load_file, save_file


def main() -> None:
    """Fine-tune, save twice whole, and once by half."""
    life, fitted = Life(__doc__), Fitted(20)
    base = life.folder / "base"
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
        with life.save(target, step=step, **known) as row, row.part("write"):
            shutil.copytree(base, target)
            if step != 600:
                save_file(
                    {name: tensor.clone() for name, tensor in fitted.model.state_dict().items()},
                    target / "model.safetensors",
                )
                torch.save(fitted.optimizer.state_dict(), target / "optimizer.pt")
    os._exit(0)  # as a job whose time is over


if __name__ == "__main__":
    main()
