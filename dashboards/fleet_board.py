"""The board of a fleet: which nodes, runs and storage systems need attention; its tables link to the other boards."""

from __future__ import annotations

from panels import AGE_IN_INTERVALS, BEGUN, BLOCKED, HEAT, INCOMPLETE, LIMITED, LONGEST, NODE_TABLE, NODES, SAVED
from queries import INTERVALS, RESPONDS, RUN_STALLED, STALLED, UNNAMED, Board, Group, Panel, Query, grown, hourly

_ALERTS = 'ALERTS{NODE,alertname=~"Ckptprof.+",alertstate="firing"}'
_SEVERITIES = {"critical": (1, 1), "warning": (1,), "info": None}  # red, yellow, no colour
_NONE = "0 * count(ckptprof_build_info{NODE})"
_HELD = [grown(f"checkpoint_{one}_seconds_total", "instance") for one in ("gpu", "stall")]
_ON_STORAGE = "$__range_s * count by (storage) (increase(ckptprof_storage_save_seconds_total{NODE}[$__range]))"

_STATS = (
    NODES,
    Panel(
        "Alerts",
        "short",
        "Alerts of the rules that fire now; they are listed below.",
        tuple(
            Query(f'count({_ALERTS[:-1]},severity="{one}"}}) or {_NONE}', one, steps=steps)
            for one, steps in _SEVERITIES.items()
        ),
        empty="no agent was scraped",
    ),
    Panel(
        "Nodes overdue",
        "short",
        "Nodes that respond, and whose newest save is older than twice their mean interval between saves within the "
        "time range.",
        (Query(f"count({INTERVALS} > 2) or {_NONE}", "nodes"),),
        empty="no agent was scraped",
        steps=(1,),
    ),
    LONGEST,
    INCOMPLETE,
    BLOCKED,
    Panel(
        "GPUs waiting",
        "short",
        "Average number of GPUs that waited for saves in the last hour, and the number of GPUs of the nodes whose "
        "training saves blocked.",
        (
            Query(f"sum({hourly('checkpoint_gpu_seconds_total')})", "on average"),
            Query("round(sum({} / ({} > 0)))".format(*_HELD), "of"),
        ),
        empty="not known",
    ),
    SAVED,
)

_GROUPS = (
    Group(
        "What needs attention",
        (
            Panel(
                "Alerts that fire",
                "short",
                "One line for each alert of the rules that fires now; a click on a node or run shows only that one.",
                (Query(f"sum by (alertname, severity, instance, run) ({_ALERTS})", ""),),
                empty="none fires, or the alert rules are not loaded",
                kind="table",
                height=6,
                width=24,
            ),
            NODE_TABLE,
        ),
    ),
    Group(
        "Training blocked",
        (
            Panel(
                "Runs, by their most blocked node",
                "percentunit",
                "Share of the time range in which saves blocked training, on the worst node of each run; the ten "
                "highest. 5 % is a usual limit.",
                (Query(f"topk(10, {RUN_STALLED})", "{{run}}"),),
                empty=UNNAMED,
                kind="bars",
            ),
            Panel(
                "Nodes, the most blocked first",
                "percentunit",
                "Share of the time range in which saves blocked training; the ten highest. 5 % is a usual limit.",
                (Query(f"topk(10, {STALLED} {RESPONDS})"),),
                kind="bars",
            ),
            Panel(
                "Training blocked by storage",
                "percentunit",
                "Share of the time range in which saves blocked training, by the type of file system that they were "
                "written to; the average of the nodes that saved there.",
                (Query(f"{grown('storage_stall_seconds_total', 'storage')} / ({_ON_STORAGE})", "{{storage}}"),),
                kind="bars",
            ),
            Panel(
                "Mean throughput of saves by storage",
                "Bps",
                "Bytes of saves divided by their duration, within the time range, by the type of file system.",
                (
                    Query(
                        f"{grown('storage_saved_bytes_total', 'storage')} / "
                        f"({grown('storage_save_seconds_total', 'storage')} > 0)",
                        "{{storage}}",
                    ),
                ),
                kind="bars",
            ),
        ),
    ),
    Group(
        "Runs",
        (
            Panel(
                "Runs, the longest without a step to restore first",
                "short",
                "One line for each run, over all of its nodes; a click on its name shows only that run. `lost on "
                "failure`: time since the start of the newest step that is complete on every node that saves. A run "
                "that has ended is listed until the time range has passed.",
                (
                    Query(f"max by (run) (time() - last_over_time({BEGUN}[$__range]))", "lost on failure", "s"),
                    Query(
                        "max by (run) (run:ckptprof_run_newest_restorable_step:min{RECORDED})",
                        "step to restore",
                        "none",
                    ),
                    Query("max by (run) (run:ckptprof_run_saves:increase1h{RECORDED})", "saves in an hour", "none"),
                    Query("count by (run) (ckptprof_run_info{RUN})", "nodes", "none"),
                    Query(RUN_STALLED, "training blocked", "percentunit"),
                ),
                empty=UNNAMED,
                kind="table",
                width=24,
            ),
            Panel(
                "Saves in the last hour, each counted once",
                "short",
                "Saves of all runs: a save that 64 nodes write together counts once.",
                (Query("sum(job:ckptprof_run_saves:increase1h{RECORDED})", "all runs"),),
                empty=UNNAMED,
            ),
            AGE_IN_INTERVALS,
            LIMITED,
            HEAT,
        ),
    ),
)

BOARD = Board(
    "ckptprof-fleet",
    "ckptprof: checkpoints of a fleet",
    "The nodes, runs and storage systems whose checkpoints need attention first.",
    (("job", "ckptprof_build_info"),),
    _STATS,
    _GROUPS,
)
