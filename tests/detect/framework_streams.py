"""What each framework does to files when it saves and restores, written by hand from its own source.

A stream is two saves and a restore of a job: the files with their sizes in MiB, by rank, in the order in which the
source writes them. `{step}` stands for the step. Where a real library is run by the tests, docs/frameworks.md says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.detect.stage import MIB, SAFETENSORS, TORCH_ZIP, Magic, Stage

SMALL = 0.01  # MiB: a note beside the weights
STEPS = (100, 200)
FIRST_S, EVERY_S, RESTORE_S, END_S = 2.0, 13.0, 28.0, 31.0


@dataclass(frozen=True)
class Write:
    """One file of a save."""

    path: str  # below the root
    mib: float
    rank: int = 0
    temporary: str | None = None  # the path that it is written under
    magic: Magic = None
    held_s: float = 0.0  # in fsync


@dataclass(frozen=True)
class Save:
    """How a framework saves."""

    framework: str
    files: tuple[Write, ...]
    path: str  # of the checkpoint, below the root
    ranks: int = 1
    program: str = "train.py"
    runtimes: tuple[str, ...] = ("torch", "numpy")
    step: bool = True  # whether its names tell the step
    mapped: bool = False  # restored by mmap
    variant: str = ""
    fields: dict[str, str] = field(default_factory=dict)


def each(path: str, mib: float, ranks: int = 2, **options: object) -> tuple[Write, ...]:
    """Return the same file of every rank; `{rank}` stands for it."""
    return tuple(
        Write(path.replace("{rank}", str(rank)).replace("{rank:05}", f"{rank:05}"), mib, rank=rank, **options)  # type: ignore[arg-type]
        for rank in range(ranks)
    )


def tensor(path: str, mib: float = 40, rank: int = 0, **options: object) -> Write:
    """Return a file of torch.save."""
    return Write(path, mib, rank=rank, magic=TORCH_ZIP, **options)  # type: ignore[arg-type]


def safetensors(path: str, mib: float = 40, **options: object) -> Write:
    """Return a file of safetensors, written under a name of its own and renamed."""
    return Write(path, mib, temporary=path.rpartition("/")[0] + "/.tmpAb3X9k", magic=SAFETENSORS, **options)  # type: ignore[arg-type]


def dcp(folder: str, ranks: int = 2, mib: float = 40) -> tuple[Write, ...]:
    """Return the files of PyTorch DCP: each is synced, .metadata is renamed into place last."""
    metadata = Write(f"{folder}/.metadata", SMALL, temporary=f"{folder}/.metadata.tmp", held_s=0.01)
    return (*each(f"{folder}/__{{rank}}_0.distcp", mib, ranks, held_s=0.05), metadata)


def at(text: str, step: int) -> str:
    """Return a path of a step."""
    for width in ("", ":04", ":07", ":08"):
        text = text.replace(f"{{step{width}}}", format(step, width[1:]))
    return text


def stage_of(save: Save, root: str, *, trace: bool) -> Stage:
    """Return the job on a stage: ranks write one after the other's start, then the next step, then a restore."""
    stage = Stage(trace=trace, hz=5.0 if trace else 25.0)  # the trace is exact however seldom it is read
    ranks = [
        stage.process(
            100 + rank, program=save.program, runtimes=save.runtimes,
            environment=_environment(rank, save.ranks),
        )
        for rank in range(save.ranks)
    ]  # fmt: skip
    for number, step in enumerate(STEPS):
        free_s = [FIRST_S + number * EVERY_S + rank * 0.02 for rank in range(save.ranks)]
        for file in save.files:
            seconds = max(0.01, file.mib / 200)
            path = f"{root}/{at(file.path, step)}"
            temporary = f"{root}/{at(file.temporary, step)}" if file.temporary is not None else None
            start_s = max(free_s) if file.mib == SMALL else free_s[file.rank]
            stage.write(ranks[file.rank], temporary or path, start_s, seconds, int(file.mib * MIB), magic=file.magic,
                        rename_to=path if temporary else None, held_s=max(file.held_s, 0.01 if temporary else 0.0),
                        call_bytes=MIB if file.mib >= 1 else 4096)  # fmt: skip
            free_s[file.rank] = start_s + seconds + file.held_s + 0.03
    _restore(stage, save, root)
    return stage


def _environment(rank: int, ranks: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "TORCHELASTIC_RUN_ID": "job"} if ranks > 1 else {}


def _restore(stage: Stage, save: Save, root: str) -> None:
    free_s = [RESTORE_S] * save.ranks
    for file in save.files:
        if file.mib == SMALL:
            continue
        seconds = file.mib / 200
        path, size, actor = f"{root}/{at(file.path, STEPS[-1])}", int(file.mib * MIB), stage.actors[file.rank]
        if save.mapped:
            stage.map(actor, path, free_s[file.rank], seconds, size)
        else:
            stage.read(actor, path, free_s[file.rank], seconds, size, call_bytes=size // 3)  # a tensor at a time
        free_s[file.rank] += seconds + 0.03
