"""Panels that several boards share."""

from __future__ import annotations

from queries import AGE, INTERVALS, RESPONDS, SAVE, STALLED, TWICE, Panel, Query, grown, hourly, limit_number

_SINCE = "max by (instance) (last_over_time(ckptprof_build_info{NODE}[$__range]))"

NODES = Panel(
    "Nodes",
    "short",
    "Nodes whose agent responds now, and nodes whose agent responded within the time range but not now.",
    (
        Query("count(count by (instance) (ckptprof_build_info{NODE}))", "answer"),
        Query(
            f"count({_SINCE} unless on (instance) ckptprof_build_info{{NODE}}) "
            "or 0 * count(ckptprof_build_info{NODE})",
            "silent",
            steps=(1,),
        ),
    ),
    empty="no agent was scraped",
)

INCOMPLETE = Panel(
    "Incomplete saves",
    "short",
    "Saves within the time range that were interrupted or never committed; restore from the save before.",
    (Query('round(sum(increase(ckptprof_incomplete_checkpoints_total{NODE,kind="save"}[$__range])))', "saves"),),
    steps=(1,),
)

LONGEST = Panel(
    "Longest unsaved",
    "s",
    "Time since the end of the newest save of the node, of those that respond, on which it is longest: what would be "
    "lost if training failed now; and how many of its mean intervals between saves that is.",
    (
        Query(f"topk(1, {AGE} {RESPONDS})"),
        Query(f"{INTERVALS} and on (instance) topk(1, {AGE} {RESPONDS})", "intervals", "suffix:x", TWICE),
    ),
    empty="no save yet",
)

BLOCKED = Panel(
    "Most blocked node",
    "percentunit",
    "Share of the time range in which saves blocked training, as far as it was observed, on the node with the "
    "largest share; 5 % is a usual limit.",
    (Query(f"topk(1, {STALLED} {RESPONDS})"),),
)

DURATIONS = Panel(
    "Duration of saves",
    "s",
    "Half of the saves within the time range took at most P50, 95 of 100 at most P95; both are estimated from a "
    "histogram with wide buckets. With few saves P95 is the slowest one.",
    tuple(
        Query(
            f"histogram_quantile({quantile}, sum by (le) "
            f"(increase(ckptprof_checkpoint_duration_seconds_bucket{{{SAVE}}}[$__range]))) >= 0",
            name,
        )
        for quantile, name in ((0.5, "P50"), (0.95, "P95"))  # NaN without saves: none is >= 0
    ),
    empty="no save yet",
)

SAVED = Panel(
    "Saved in the time range",
    "decbytes",
    "Bytes of all saves within the time range, summed over nodes.",
    (Query(f"sum(increase(ckptprof_checkpoint_bytes_total{{{SAVE}}}[$__range]))", "decbytes"),),
)

LIMITS = Panel(
    "Limit of the newest checkpoint",
    "limit",
    "What limited the newest save and restore of each node, until the next one ends; `unclear`: the "
    "evidence is missing or contradictory. The table shows the confidence.",
    (Query(limit_number(), "{{instance}} {{kind}}"),),
    empty="no verdict yet",
    kind="states",
)

LIMITED = Panel(
    "What limited checkpoints",
    "s",
    "Time on the critical path of saves and restores within the time range, by limit, summed over nodes.",
    (Query(grown("checkpoint_limit_seconds_total", "limit"), "{{limit}}"),),
    empty="no verdict yet",
    kind="bars",
)

HEAT = Panel(
    "How long saves take",
    "s",
    "Number of saves by duration, in the column in which they ended: a second band is a second kind of "
    "save, or a slow node.",
    (
        Query(
            f"sum by (le) (increase(ckptprof_checkpoint_duration_seconds_bucket{{{SAVE}}}[$__rate_interval]))",
            "{{le}}",
        ),
    ),
    kind="heat",
)

DURATION = Panel(
    "Duration",
    "s",
    "Duration of the newest save and restore of each node, shown until the next one ends.",
    (Query("ckptprof_last_checkpoint_duration_seconds{NODE}", "{{instance}} {{kind}}"),),
    holds=True,
)

BLOCKED_HOURLY = Panel(
    "Training blocked in the last hour",
    "percentunit",
    "Share of the last hour in which saves blocked training, as far as it was observed; 5 % is a usual "
    "limit. A save counts at its end: over a shorter time one long save would exceed 100 %.",
    (Query(hourly("checkpoint_stall_seconds_total")),),
)

GPUS = Panel(
    "GPUs that waited in the last hour",
    "short",
    "Average number of GPUs that waited for saves in the last hour: the time in which training was "
    "blocked, times its GPUs. Their number comes from NVIDIA's driver, or is one per rank.",
    (Query(hourly("checkpoint_gpu_seconds_total")),),
    empty="no save blocked training yet, or the number of GPUs is not known",
)

GAIN = Panel(
    "The newest save without its limit",
    "s",
    "How long the newest save took, from when training stopped for it if that was observed, and how long "
    "it would have taken without its limit.",
    (
        Query(f"ckptprof_last_checkpoint_path_seconds{{{SAVE}}}", "{{instance}} took"),
        Query(f"ckptprof_last_checkpoint_expected_seconds{{{SAVE}}}", "{{instance}} without its limit"),
    ),
    holds=True,
)

BEGUN = "run:ckptprof_run_newest_restorable_timestamp_seconds:min{RECORDED}"
# Nodes that have not saved yet come last.
_OLDEST = f"and on (instance) topk(100, {AGE} or 0 * max by (instance) (ckptprof_trace_active{{NODE}}))"

NODE_TABLE = Panel(
    "Nodes, the longest without a save first",
    "short",
    "One line for each node, 100 at most; a click on its name shows only that node. `intervals`: time since its newest "
    "save, divided by its mean interval between saves; above 2 a save is overdue. `storage`: the type of file system "
    "that most bytes were written to. What a node saves while its agent is silent is not known.",
    (
        Query(f"topk(100, {AGE} {RESPONDS})", "since the newest save", "s"),
        Query(f"{INTERVALS} {_OLDEST}", "intervals", "suffix:x", TWICE),
        Query(f"max by (instance) (ckptprof_last_checkpoint_duration_seconds{{{SAVE}}}) {_OLDEST}", "newest took", "s"),
        Query(f"max by (instance) (ckptprof_last_checkpoint_bytes{{{SAVE}}}) {_OLDEST}", "newest size", "decbytes"),
        Query(f"max by (instance, limit, confidence) (ckptprof_last_checkpoint_limit{{{SAVE}}}) {_OLDEST}", ""),
        Query(f"topk by (instance) (1, {grown('storage_saved_bytes_total', 'instance, storage')}) {_OLDEST}", ""),
        Query(f"{STALLED} {RESPONDS} {_OLDEST}", "training blocked", "percentunit"),
        Query(f"(max by (instance) (ckptprof_trace_active{{NODE}}) or 0 * {AGE} - 1) {_OLDEST}", "level", "level"),
    ),
    kind="table",
    width=24,
)
AGE_IN_INTERVALS = Panel(
    "Age of the newest save, in intervals",
    "suffix:x",
    "Time since the newest save of each node, divided by its mean interval between saves within the time range: of the "
    "node that is longest without one, of 95 % of nodes at most, and of half of them. Above 2 a save is overdue.",
    (
        Query(f"max({INTERVALS})", "longest"),
        Query(f"quantile(0.95, {INTERVALS})", "P95"),
        Query(f"quantile(0.5, {INTERVALS})", "P50"),
    ),
    empty="fewer than two saves on each node",
    steps=TWICE,
)
