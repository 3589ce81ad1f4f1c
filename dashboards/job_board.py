"""The board of a job: one or some of its runs over all of their nodes, from agents that export the names of jobs."""

from __future__ import annotations

from panels import (
    AGE_IN_INTERVALS,
    BEGUN,
    BLOCKED,
    BLOCKED_HOURLY,
    DURATION,
    DURATIONS,
    GAIN,
    GPUS,
    HEAT,
    LIMITED,
    LIMITS,
    NODE_TABLE,
)
from queries import INTERVALS, TWICE, UNNAMED, Board, Group, Panel, Query, slowness

_SLOW = (1.5,)

_STATS = (
    Panel(
        "Step to restore",
        "short",
        "The newest step that is complete on every node that saves.",
        (Query("max(run:ckptprof_run_newest_restorable_step:min{RECORDED})", "step"),),
        empty=UNNAMED,
    ),
    Panel(
        "Lost on failure",
        "s",
        "Time since the start of that step: the training that a failure would lose now.",
        (Query(f"max(time() - last_over_time({BEGUN}[$__range]))", "lost"),),
        empty=UNNAMED,
    ),
    Panel(
        "Saves",
        "short",
        "Saves of the run within the time range: one that 64 nodes write together counts once.",
        (Query("round(sum(max by (run) (increase(ckptprof_run_saves_total{RUN}[$__range]))))", "saves"),),
        empty=UNNAMED,
    ),
    Panel(
        "Age of the newest save",
        "suffix:x",
        "Time since the newest save of the node that has been without one for longest, divided by its mean interval "
        "between saves; above 2 a save is overdue.",
        (Query(f"max({INTERVALS})", "intervals"),),
        empty="fewer than two saves",
        steps=TWICE,
    ),
    BLOCKED,
    DURATIONS,
    Panel(
        "Slowest node",
        "suffix:x",
        "Mean duration of the saves of the slowest node within the time range, divided by that of the median node.",
        (Query(f"max({slowness()})", "slowest"),),
        empty=UNNAMED,
        steps=_SLOW,
    ),
    Panel(
        "Nodes of the run",
        "short",
        "Nodes with a part of its checkpoints, by their agents.",
        (Query("count(count by (instance) (ckptprof_run_info{RUN}))", "nodes"),),
        empty=UNNAMED,
    ),
)

_GROUPS = (
    Group(
        "Its checkpoints",
        (
            Panel(
                "Time lost on failure",
                "s",
                "Time since the start of the newest step that is complete on every node that saves, for each run.",
                (Query(f"max by (run) (time() - {BEGUN})", "{{run}}"),),
                empty=UNNAMED,
            ),
            AGE_IN_INTERVALS,
            BLOCKED_HOURLY,
            GPUS,
            LIMITED,
            HEAT,
        ),
    ),
    Group(
        "Its nodes",
        (
            NODE_TABLE,
            Panel(
                "Slow nodes",
                "suffix:x",
                "Mean duration of the saves of a node within the time range, divided by that of the median node of "
                "its run; the ten highest. Nodes that write more bytes, or for other ranks, are listed too: "
                "`ckptprof fleet stragglers` distinguishes them.",
                (Query(f"topk(10, {slowness()})", "{{run}} {{instance}}"),),
                empty=UNNAMED,
                kind="bars",
                steps=_SLOW,
            ),
            LIMITS,
            DURATION,
            GAIN,
        ),
    ),
)

BOARD = Board(
    "ckptprof-job",
    "ckptprof: checkpoints of a job",
    "The checkpoints of a run over all of its nodes. It needs the names of jobs: `job_names` in config.toml of the "
    "agents. Numbers of nodes are of all saves on the nodes of the run.",
    (("job", "ckptprof_build_info"), ("run", "ckptprof_run_info"), ("instance", "ckptprof_run_info")),
    _STATS,
    _GROUPS,
)
