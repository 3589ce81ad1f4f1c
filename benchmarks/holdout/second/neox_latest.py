"""As GPT-NeoX saves: each rank has a shard of the optimizer; the folder is renamed at the end; `latest` names it."""

from __future__ import annotations

import shutil

import torch
from fitted import Fitted
from lives import Life
from torch import distributed


def main() -> None:
    """Train, save four times, keep two."""
    life, fitted = Life(__doc__), Fitted(10)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()

    def saved(step: int) -> None:
        part = life.folder / f"tmp_global_step{step}"
        if rank == 0:
            part.mkdir()
        distributed.barrier()
        if rank == 0:
            state = {"module": fitted.model.state_dict(), "iteration": step, "args": {"hidden-size": 1024}}
            torch.save(state, part / "mp_rank_00_model_states.pt")
        states = {"optimizer_state_dict": fitted.optimizer.state_dict(), "partition_count": 2}
        torch.save(states, part / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")

    for step in (1000, 2000, 3000, 4000):
        for _ in range(25):
            fitted.step()
            distributed.all_reduce(torch.ones(1))
        distributed.barrier()
        if rank:
            saved(step)
            distributed.barrier()
            continue
        with life.save(life.folder / f"global_step{step}", step=step) as row:
            with row.part("write"):
                saved(step)
            distributed.barrier()
            (life.folder / f"tmp_global_step{step}").rename(life.folder / f"global_step{step}")
            (life.folder / "latest").write_text(f"global_step{step}")
            if step > 2000:
                shutil.rmtree(life.folder / f"global_step{step - 2000}")
    for _ in range(10):
        fitted.step()
        distributed.all_reduce(torch.ones(1))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
