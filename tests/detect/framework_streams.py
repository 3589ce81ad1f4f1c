"""The examples of frameworks as jobs on a stage: two saves and a restore."""

from __future__ import annotations

from tests.detect.stage import MIB, Stage
from tests.frameworks.example_saves import SMALL, ExampleSave, fill_numbers

STEPS = (100, 200)
FIRST_S, EVERY_S, RESTORE_S, END_S = 2.0, 13.0, 28.0, 31.0


def at(text: str, step: int) -> str:
    """Return a path of a step; a hole that is left would give several files one name."""
    path = fill_numbers(text, step=step)
    if "{" in path or "}" in path:
        raise ValueError(path)
    return path


def stage_of(save: ExampleSave, root: str, *, trace: bool) -> Stage:
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
                        rename_to=path if temporary else None, held_s=max(file.sync_seconds, 0.01 if temporary else
                        0.0),
                        call_bytes=MIB if file.mib >= 1 else 4096)  # fmt: skip
            free_s[file.rank] = start_s + seconds + file.sync_seconds + 0.03
    _restore(stage, save, root)
    return stage


def _environment(rank: int, ranks: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "TORCHELASTIC_RUN_ID": "job"} if ranks > 1 else {}


def _restore(stage: Stage, save: ExampleSave, root: str) -> None:
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
