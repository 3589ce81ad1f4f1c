"""The Trainer of transformers: a checkpoint each few steps, two kept, resumed from the newest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from life import Logbook, Options, options
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

STEPS = 4


class Texts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random tokens."""

    def __len__(self) -> int:
        """Return how many there are."""
        return 1000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one text."""
        tokens = torch.randint(0, 1000, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


class Timed(Trainer):
    """A Trainer that logs its own checkpoints; a save's time includes the deletion of an old one at its end."""

    book: Logbook
    restored: tuple[int, Path]

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
        step = self.state.global_step
        with self.book.timed("save", step, Path(self.args.output_dir) / f"checkpoint-{step}"):
            super()._save_checkpoint(*arguments, **named)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *arguments: Any, **named: Any) -> None:
        self.restored = (time.time_ns(), Path(resume_from_checkpoint))
        super()._load_from_checkpoint(resume_from_checkpoint, *arguments, **named)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            start_ns, path = self.restored
            self.book.add("restore", int(path.name.split("-")[1]), path, start_ns, time.time_ns())


class Slow(TrainerCallback):
    """Gives the little model the pace of a large one."""

    def __init__(self, told: Options) -> None:
        """Spread the interval over the steps."""
        self.seconds = told.interval / STEPS

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Take a while."""
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            torch.ones(200, 200) @ torch.ones(200, 200)


def main() -> None:
    """Train to the third checkpoint, or resume and save as often again."""
    told = options()
    torch.set_num_threads(1)
    side = max(64, int((told.size_mb * 1e6 / 12 / 24) ** 0.5) // 8 * 8)  # 12 side^2 parameters in each of two layers
    config = GPT2Config(n_layer=2, n_embd=side, n_head=8, vocab_size=1000, n_positions=32)
    newest = get_last_checkpoint(str(told.dir)) if told.resume else None
    before = int(newest.rpartition("-")[2]) if newest else 0
    arguments = TrainingArguments(
        output_dir=str(told.dir),
        max_steps=before + STEPS * told.saves if told.saves else before + 1,
        save_steps=STEPS,
        save_total_limit=2,
        save_strategy="steps" if told.saves else "no",
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = Timed(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Texts(), callbacks=[Slow(told)])
    trainer.book = Logbook(told, "transformers")
    trainer.train(resume_from_checkpoint=newest)


if __name__ == "__main__":
    main()
