"""Jobs of PyTorch with several ranks: who writes what, who has more to do, and who waits for whom."""

from __future__ import annotations

import io
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from fitted import Fitted
from frame import Life, run
from torch import distributed, multiprocessing

GROUPS = Path("/sys/fs/cgroup/cpu")


def _rank(layers: int) -> Fitted:
    fitted = Fitted(layers)
    distributed.init_process_group("gloo")
    return fitted


def _over(fitted: Fitted, steps: int) -> None:
    fitted.train_together(steps, waits=False)
    distributed.destroy_process_group()


def _folder(life: Life, name: str) -> Path:
    """Let the first rank make a folder for all."""
    if life.rank == 0:
        (life.folder / name).mkdir()
    distributed.barrier()
    return life.folder / name


def ranks_one_path(life: Life) -> None:
    """Two ranks both save under the same name, as nobody asked which rank it is: the bytes are of both."""
    fitted, path = _rank(12), life.folder / "model_latest.pt"
    for epoch in range(3):
        fitted.train_together(25)
        with life.save(path, risks=["several ranks wrote one path"], part="write"):
            torch.save(fitted.state(epoch=epoch), path)
            distributed.barrier()
    _over(fitted, 10)


def merged_shards(life: Life) -> None:
    """Each rank writes its shard; the first one reads all of them, writes one whole file, and deletes the shards."""
    fitted = _rank(9)
    for step in (100, 200, 300):
        fitted.train_together(25)
        whole = life.folder / f"model_step{step}.pth"
        shards = [life.folder / f"shard_{one}_of_{life.ranks}_step{step}.pth" for one in range(life.ranks)]
        with life.save(whole, step=step) as row:
            torch.save(fitted.state(), shards[life.rank])
            distributed.barrier()
            if life.rank == 0:  # the other rank waits for this one: several words are right for it
                row.known["bytes"] = sum(shard.stat().st_size for shard in shards)
                torch.save([torch.load(shard) for shard in shards], whole)
                row.known["bytes"] += whole.stat().st_size
                for shard in shards:
                    shard.unlink()
            distributed.barrier()
    _over(fitted, 10)


def _consolidated(rank: int, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank)}
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    run({"consolidated": _as_rank})


def _as_rank(life: Life) -> None:
    fitted = Fitted(8)

    def restored(path: Path) -> None:
        with life.restore(path, part="read"):
            fitted.load(torch.load(path, map_location="cpu"))
            distributed.barrier()

    for epoch in range(1, 5):
        fitted.train_together(24, 1 << 18)
        path = life.folder / f"epoch_{epoch}.pth"
        with life.save(path) as row:
            state = fitted.optimizer.state_dict()["state"]
            for name in list(state)[len(state) // 2 :]:
                for moment in ("exp_avg", "exp_avg_sq"):
                    if life.rank:
                        distributed.send(state[name][moment], 0)
                    else:
                        distributed.recv(state[name][moment], 1)
            if life.rank == 0:
                with row.part("write"):
                    torch.save(fitted.state(epoch=epoch), path)
            distributed.barrier()
        if epoch == 2:
            fitted.train_together(15, 1 << 18)
            restored(life.folder / "epoch_1.pth")
    fitted.train_together(15, 1 << 18)
    distributed.destroy_process_group()


def consolidated(_: Life) -> None:
    """Two ranks by `mp.spawn`, the optimizer in halves: rank 0 asks for the other and saves; both load the best."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    multiprocessing.spawn(_consolidated, args=(port,), nprocs=2)


def first_has_more(life: Life, *, uneven: bool = True) -> None:
    """Three ranks save shards; the first one pickles its sampler, too, number by number, and all wait for it."""
    fitted, seen = _rank(3), 1_500_000
    for step in (10, 20, 30, 40):
        fitted.train_together(40)
        folder = _folder(life, f"step-{step}")
        with life.save(folder, step=step):
            torch.save(fitted.state(), folder / f"rank_{life.rank}.pt")
            if uneven and life.rank == 0:
                buffer = io.BytesIO()
                pickle._Pickler(buffer, protocol=4).dump({at: at / seen for at in range(seen)})  # noqa: SLF001 - slow
                (folder / "sampler.pkl").write_bytes(buffer.getbuffer())
            distributed.barrier()
    _over(fitted, 20)


def first_has_more_control(life: Life) -> None:
    """Three ranks save their shards, of one size."""
    first_has_more(life, uneven=False)


def quota(life: Life, *, limited: bool = True) -> None:
    """Two ranks save npz, compressed; the last one has a quota of a quarter of a CPU while it does. Needs root."""
    fitted = _rank(4)
    for step in (10, 20, 30):
        fitted.train_together(50)
        folder = _folder(life, f"step{step}")

        def write(folder: Path = folder) -> None:
            arrays = {name: one.numpy() for name, one in fitted.model.state_dict().items()}
            np.savez_compressed(folder / f"rank{life.rank}.npz", **arrays)  # type: ignore[arg-type]

        with life.save(folder, step=step):
            if limited and life.rank:
                _limited(write)
            else:
                write()
            distributed.barrier()
    _over(fitted, 20)


def _limited(work: Callable[[], None]) -> None:
    lines = (line.split(":") for line in Path("/proc/self/cgroup").read_text().splitlines())
    own = next(GROUPS / path.lstrip("/") for _, controllers, path in lines if "cpu" in controllers.split(","))
    group = own / f"ckptprof-holdout-{os.getpid()}"
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text("100000")
    (group / "cpu.cfs_quota_us").write_text("25000")
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        work()
    finally:
        (own / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def quota_control(life: Life) -> None:
    """The same ranks with the CPUs of the machine."""
    quota(life, limited=False)


if __name__ == "__main__":
    run(globals())
