"""What the node's dashboard shows, as data: rows of panels, each with its queries, unit and the sentence of its (i).

`generate.py` beside this file writes it in Grafana's words.
"""

from __future__ import annotations

from queries import Group, Panel, Query, grown, held_share, hourly, limit_number, network, rate, share, slowness

_DEVICE = "{{instance}} {{device}}"
_SAVE = 'NODE,kind="save"'
_HELD = (0.05, 0.12)  # SNIA's limit, and what the field usually loses
_AMPLIFIED = (1.2, 1.5)
_TWICE = (1.5, 2.0)
_AGE = f"max by (instance) (time() - last_over_time(ckptprof_last_checkpoint_timestamp_seconds{{{_SAVE}}}[$__range]))"
_SAVES = f"sum by (instance) (increase(ckptprof_checkpoint_duration_seconds_count{{{_SAVE}}}[$__range]))"
_SINCE = "max by (instance) (last_over_time(ckptprof_build_info{NODE}[$__range]))"

STATS = (
    Panel(
        "Nodes",
        "short",
        "Nodes whose agent answers now, and those whose agent answered within the time shown but does not now.",
        (
            Query("count(count by (instance) (ckptprof_build_info{NODE}))", "answer"),
            Query(
                f"count({_SINCE} unless on (instance) ckptprof_build_info{{NODE}}) "
                "or 0 * count(ckptprof_build_info{NODE})",
                "silent",
            ),
        ),
        empty="no agent was scraped",
    ),
    Panel(
        "Saves on nodes",
        "short",
        "Saves within the time shown, counted on each node: a save that 8 nodes write together counts 8 times.",
        (Query(f"round(sum(increase(ckptprof_checkpoint_duration_seconds_count{{{_SAVE}}}[$__range])))", "saves"),),
    ),
    Panel(
        "Restores on nodes",
        "short",
        "Restores within the time shown, counted on each node.",
        (
            Query(
                'round(sum(increase(ckptprof_checkpoint_duration_seconds_count{NODE,kind="restore"}[$__range])))',
                "restores",
            ),
        ),
    ),
    Panel(
        "Incomplete saves",
        "short",
        "Saves within the time shown that were broken off or never committed; the save before is the one to restore.",
        (Query('round(sum(increase(ckptprof_incomplete_checkpoints_total{NODE,kind="save"}[$__range])))', "saves"),),
        steps=(1, 5),
    ),
    Panel(
        "Longest unsaved",
        "s",
        "Of all nodes the longest time since the end of its newest save: what would be lost if training failed now. "
        "A node whose agent is silent counts too; the table below names it.",
        (Query(f"max({_AGE})", "longest"),),
        empty="no save yet",
    ),
    Panel(
        "Training blocked",
        "percentunit",
        "Share of the time shown in which saves blocked training, as far as it was seen, on the node that lost most; "
        "5 % is a usual limit.",
        (Query(f"max({share('checkpoint_stall_seconds_total')})", "share"),),
        steps=_HELD,
    ),
    Panel(
        "Duration of saves",
        "s",
        "Half of the saves within the time shown took no longer than P50, 95 of 100 no longer than P95; they are "
        "read off a histogram with wide buckets. With few saves P95 is the slowest one.",
        tuple(
            Query(
                f"histogram_quantile({quantile}, sum by (le) "
                f"(increase(ckptprof_checkpoint_duration_seconds_bucket{{{_SAVE}}}[$__range]))) >= 0",
                name,
            )
            for quantile, name in ((0.5, "P50"), (0.95, "P95"))  # NaN without saves: none is >= 0
        ),
        empty="no save yet",
    ),
    Panel(
        "Saved",
        "decbytes",
        "Bytes of all saves within the time shown, summed over nodes.",
        (Query(f"sum(increase(ckptprof_checkpoint_bytes_total{{{_SAVE}}}[$__range]))", "decbytes"),),
    ),
)

_NODES = Panel(
    "Nodes, the longest without a save first",
    "short",
    "One line for each node; a click on its name shows it alone. `intervals` is the time since its newest save in its "
    "own mean intervals between saves: over 2 is overdue. A node without a value in a column has not shown it yet.",
    (
        Query(_AGE, "since the newest save", "s"),
        Query(f"{_AGE} / on (instance) ($__range_s / ({_SAVES} >= 2))", "intervals", "suffix:x", _TWICE),
        Query(f"max by (instance) (ckptprof_last_checkpoint_duration_seconds{{{_SAVE}}})", "duration", "s"),
        Query(f"max by (instance) (ckptprof_last_checkpoint_bytes{{{_SAVE}}})", "size", "decbytes"),
        Query(f"max by (instance, limit, confidence) (ckptprof_last_checkpoint_limit{{{_SAVE}}})", ""),
        Query(share("checkpoint_stall_seconds_total"), "training blocked", "percentunit", _HELD),
        Query("max by (instance) (ckptprof_trace_active{NODE})", "level", "level"),
    ),
    kind="table",
    width=24,
)

_UNNAMED = "these agents are not asked for the names of jobs (`job_names`), or the recording rules are not loaded"
_BEGUN = "run:ckptprof_run_newest_restorable_timestamp_seconds:min{RUNS}"

# Of agents that name their jobs, by the recording rules: what all nodes of a run tell together, each save once.
RUNS = Group(
    "Runs",
    (
        Panel(
            "Runs, the longest without a step to restore first",
            "short",
            "One line for each run, over all of its nodes. `to be lost` is the time since the newest step began that "
            "is whole on each node that saves: what a failure would cost now. A run that has ended is here until the "
            "time shown has passed.",
            (
                Query(f"max by (run) (time() - last_over_time({_BEGUN}[$__range]))", "to be lost", "s"),
                Query("max by (run) (run:ckptprof_run_newest_restorable_step:min{RUNS})", "step to restore", "none"),
                Query("max by (run) (run:ckptprof_run_saves:increase1h{RUNS})", "saves in the hour before", "none"),
                Query("count by (run) (ckptprof_run_info{NODE})", "nodes", "none"),
                Query(held_share(), "training blocked", "percentunit", _HELD),
            ),
            empty=_UNNAMED,
            kind="table",
            width=24,
        ),
        Panel(
            "Time to be lost",
            "s",
            "Of each run the time since the newest step began that is whole on each node that saves.",
            (Query(f"max by (run) (time() - {_BEGUN})", "{{run}}"),),
            empty=_UNNAMED,
        ),
        Panel(
            "Saves in the hour before, each once",
            "short",
            "Saves of all runs, and those of each: one that 64 nodes write together counts once.",
            (
                Query("sum(job:ckptprof_run_saves:increase1h{RUNS})", "all runs"),
                Query("max by (run) (run:ckptprof_run_saves:increase1h{RUNS})", "{{run}}"),
            ),
            empty=_UNNAMED,
        ),
        Panel(
            "Slow nodes",
            "suffix:x",
            "The mean duration of a node's saves within the time shown, over that of the median node of its run; the "
            "ten highest. A node that wrote more is here too, and one whose ranks write for others: which it was "
            "`ckptprof fleet stragglers` tells.",
            (Query(f"topk(10, {slowness()})", "{{run}} {{instance}}"),),
            empty=_UNNAMED,
            kind="bars",
            width=24,
        ),
    ),
    closed=True,
)

GROUPS = (
    Group(
        "Checkpoints",
        (
            _NODES,
            Panel(
                "Limit of the newest checkpoint",
                "limit",
                "What limited the newest save and restore of each node, until the next one ends; `none`: nothing was "
                "slow, `unclear`: the evidence is missing or contradicts itself. How sure it is stands in the table.",
                (Query(limit_number(), "{{instance}} {{kind}}"),),
                empty="no verdict yet",
                kind="states",
            ),
            Panel(
                "What limited checkpoints",
                "s",
                "What the time of the saves and restores within the time shown went to, on their critical path, summed "
                "over nodes.",
                (Query(grown("checkpoint_limit_seconds_total", "limit"), "{{limit}}"),),
                empty="no verdict yet",
                kind="bars",
            ),
            Panel(
                "How long saves take",
                "s",
                "Saves by their duration, as many as ended in each column: a second band is a second kind of save, "
                "or a slow node.",
                (
                    Query(
                        f"sum by (le) (increase(ckptprof_checkpoint_duration_seconds_bucket{{{_SAVE}}}"
                        "[$__rate_interval]))",
                        "{{le}}",
                    ),
                ),
                kind="heat",
            ),
            Panel(
                "Duration",
                "s",
                "Duration of the newest save and restore of each node, shown until the next one ends.",
                (Query("ckptprof_last_checkpoint_duration_seconds{NODE}", "{{instance}} {{kind}}"),),
                holds=True,
            ),
            Panel(
                "Training blocked in the hour before",
                "percentunit",
                "Share of the hour before in which saves blocked training, as far as it was seen; 5 % is a usual limit."
                " A save counts at its end: over a shorter time one long save would be more than all of it.",
                (Query(hourly("checkpoint_stall_seconds_total")),),
                steps=_HELD,
            ),
            Panel(
                "GPUs that waited in the hour before",
                "short",
                "GPUs that waited for saves, in the mean of the hour before: the time in which training was blocked, "
                "times its GPUs. How many these are NVIDIA's driver tells; else each rank has one.",
                (Query(hourly("checkpoint_gpu_seconds_total")),),
                empty="no save blocked training yet, or on how many GPUs it runs is not known",
            ),
            Panel(
                "Size",
                "decbytes",
                "Bytes of the newest save and restore of each node, shown until the next one ends.",
                (Query("ckptprof_last_checkpoint_bytes{NODE}", "{{instance}} {{kind}}"),),
                holds=True,
            ),
            Panel(
                "The newest save without its limit",
                "s",
                "How long the newest save took, from when training stopped for it if that was seen, and how long it "
                "would have taken had its limit not been there.",
                (
                    Query(f"ckptprof_last_checkpoint_path_seconds{{{_SAVE}}}", "{{instance}} took"),
                    Query(f"ckptprof_last_checkpoint_expected_seconds{{{_SAVE}}}", "{{instance}} without its limit"),
                ),
                holds=True,
            ),
            Panel(
                "At risk after the commit",
                "s",
                "How long the newest save counted as complete before it was on stable storage. Known if its files were "
                "synced and the agent traces, or if the agent may ask the kernel (Linux 6.5, as root or as the owner "
                "of the files). The installed service is neither, so at level poll this panel stays empty.",
                (Query("ckptprof_last_checkpoint_at_risk_seconds{NODE}"),),
                empty="not known here: at level poll, a service may not ask the kernel for it (see the i)",
                holds=True,
            ),
            Panel(
                "Written for each byte saved",
                "suffix:x",
                "Staging, copies and rewriting included, within the time shown: 1 is nothing beyond the checkpoints.",
                (
                    Query(
                        "sum by (instance) (increase(ckptprof_checkpoint_written_bytes_total{NODE}[$__range])) / "
                        "(sum by (instance) (increase(ckptprof_checkpoint_unique_bytes_total{NODE}[$__range])) > 0)"
                    ),
                ),
                steps=_AMPLIFIED,
            ),
            Panel(
                "By pattern",
                "short",
                "Checkpoints within the time shown by how their bytes were laid out, decided by bytes.",
                (Query(grown("checkpoints_total", "kind, pattern"), "{{kind}} {{pattern}}"),),
                kind="bars",
                width=6,
            ),
            Panel(
                "By framework",
                "short",
                "Checkpoints within the time shown by who wrote them, as far as it was recognised.",
                (Query(grown("checkpoints_total", "kind, framework"), "{{kind}} {{framework}}"),),
                kind="bars",
                width=6,
            ),
            Panel(
                "Saves by mode",
                "short",
                "Sync: training waited for the bytes; async: it went on meanwhile; within the time shown.",
                (Query(grown("checkpoint_saves_total", "mode"), "{{mode}}"),),
                kind="bars",
                width=6,
            ),
            Panel(
                "Restores by source",
                "short",
                "Cold: from a device or the network; warm: from the page cache; within the time shown.",
                (Query(grown("checkpoint_restores_total", "cache"), "{{cache}}"),),
                kind="bars",
                width=6,
            ),
            Panel(
                "Jobs",
                "short",
                "The jobs of each node whose checkpoints were told last, 16 at most. It is empty unless agents are "
                "asked for the names of jobs: `job_names` in config.toml.",
                (Query("max by (instance, training_job, framework, ranks) (ckptprof_training_job_info{NODE})", ""),),
                empty="these agents are not asked for the names of jobs (see the i), or saw no checkpoint yet",
                kind="table",
                width=24,
            ),
        ),
    ),
    RUNS,
    Group(
        "Devices",
        (
            Panel(
                "Written",
                "Bps",
                "Bytes that each block device wrote; stacked ones (md, dm) show the bytes of those under them again.",
                (Query(rate("disk_written_bytes_total"), _DEVICE),),
            ),
            Panel(
                "Read", "Bps", "Bytes that each block device read.", (Query(rate("disk_read_bytes_total"), _DEVICE),)
            ),
            Panel(
                "Busy",
                "percentunit",
                "Share of the time with a request in flight; a device that works in parallel has room even at 100 %.",
                (Query(rate("disk_io_time_seconds_total"), _DEVICE),),
                maximum=1,
                steps=(0.8, 0.95),
            ),
            Panel(
                "Requests in flight",
                "short",
                "Mean length of the device's queue.",
                (Query(rate("disk_io_time_weighted_seconds_total"), _DEVICE),),
            ),
        ),
    ),
    Group(
        "Network",
        (
            Panel(
                "Sent",
                "Bps",
                "Bytes sent by each interface and RDMA port.",
                (Query(network("transmit", "transmitted"), _DEVICE),),
            ),
            Panel(
                "Received",
                "Bps",
                "Bytes received by each interface and RDMA port.",
                (Query(network("receive", "received"), _DEVICE),),
            ),
        ),
        closed=True,
    ),
    Group(
        "Memory",
        (
            Panel(
                "Waiting for the disk",
                "decbytes",
                "Dirty pages, pages under writeback, and the amount of dirty pages at which the kernel blocks writers.",
                (
                    Query("ckptprof_memory_dirty_bytes{NODE}", "{{instance}} dirty"),
                    Query("ckptprof_memory_writeback_bytes{NODE}", "{{instance}} writeback"),
                    Query("ckptprof_memory_dirty_threshold_bytes{NODE}", "{{instance}} threshold"),
                ),
            ),
            Panel(
                "Page cache made dirty and written back",
                "Bps",
                "Where the first is above the second, a buffered save is faster than the storage under it.",
                (
                    Query(rate("memory_dirtied_bytes_total", "instance"), "{{instance}} dirtied"),
                    Query(rate("memory_written_bytes_total", "instance"), "{{instance}} written back"),
                ),
            ),
        ),
        closed=True,
    ),
    Group(
        "Agent",
        (
            Panel(
                "CPU",
                "percentunit",
                "CPU time of ckptprof itself, in cores.",
                (Query(rate("cpu_seconds_total", "instance, process"), "{{instance}} {{process}}"),),
            ),
            Panel(
                "Resident memory",
                "decbytes",
                "Memory of ckptprof itself.",
                (Query("ckptprof_resident_memory_bytes{NODE}", "{{instance}} {{process}}"),),
            ),
            Panel(
                "Lost",
                "suffix:per second",
                "Frames and writes lost, and ticks that came late: all zero on a healthy node.",
                (
                    Query(rate("sampler_late_ticks_total", "instance"), "{{instance}} late ticks"),
                    Query(rate("sampler_dropped_frames_total", "instance"), "{{instance}} dropped by the sampler"),
                    Query(rate("recorder_dropped_frames_total", "instance"), "{{instance}} dropped by the recorder"),
                    Query(rate("store_errors_total", "instance"), "{{instance}} store errors"),
                ),
            ),
            Panel(
                "Counted without their file",
                "suffix:per second",
                "Reads and writes that the trace counted without their file, for want of room. An agent that polls "
                "traces nothing and has no line.",
                (Query(rate("trace_lost_operations_total", "instance")),),
                empty="these agents poll: nothing is traced",
            ),
            Panel(
                "Collectors that fail",
                "short",
                "Collectors whose last read failed; zero on a healthy node.",
                (Query("sum by (instance) (1 - ckptprof_collector_success{NODE})"),),
            ),
            Panel(
                "Store",
                "decbytes",
                "Size of the node's database.",
                (Query("ckptprof_store_size_bytes{NODE}"),),
            ),
            Panel(
                "Watched processes",
                "short",
                "Processes that are sampled at every tick.",
                (Query("ckptprof_watched_processes{NODE}"),),
            ),
        ),
        closed=True,
    ),
)
