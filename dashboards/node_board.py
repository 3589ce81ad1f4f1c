"""The node's dashboard as data: rows of panels, each with queries, unit and description.

`generate.py` converts it to Grafana's JSON.
"""

from __future__ import annotations

from queries import Group, Panel, Query, grown, held_share, hourly, limit_number, network, rate, share, slowness

_DEVICE = "{{instance}} {{device}}"
_SAVE = 'NODE,kind="save"'
_HELD = (0.05, 0.12)  # SNIA's limit, and the average in the field
_AMPLIFIED = (1.2, 1.5)
_TWICE = (1.5, 2.0)
_AGE = f"max by (instance) (time() - last_over_time(ckptprof_last_checkpoint_timestamp_seconds{{{_SAVE}}}[$__range]))"
_SAVES = f"sum by (instance) (increase(ckptprof_checkpoint_duration_seconds_count{{{_SAVE}}}[$__range]))"
_SINCE = "max by (instance) (last_over_time(ckptprof_build_info{NODE}[$__range]))"

STATS = (
    Panel(
        "Nodes",
        "short",
        "Nodes whose agent responds now, and nodes whose agent responded within the time range but not now.",
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
        "Saves within the time range, counted on each node: a save that 8 nodes write together counts 8 times.",
        (Query(f"round(sum(increase(ckptprof_checkpoint_duration_seconds_count{{{_SAVE}}}[$__range])))", "saves"),),
    ),
    Panel(
        "Restores on nodes",
        "short",
        "Restores within the time range, counted on each node.",
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
        "Saves within the time range that were interrupted or never committed; restore from the save before.",
        (Query('round(sum(increase(ckptprof_incomplete_checkpoints_total{NODE,kind="save"}[$__range])))', "saves"),),
        steps=(1, 5),
    ),
    Panel(
        "Longest unsaved",
        "s",
        "Longest time since the end of the newest save, over all nodes: what would be lost if training failed now. "
        "A node whose agent is silent counts too; it is in the table below.",
        (Query(f"max({_AGE})", "longest"),),
        empty="no save yet",
    ),
    Panel(
        "Training blocked",
        "percentunit",
        "Share of the time range in which saves blocked training, as far as it was observed, on the node with the "
        "largest share; 5 % is a usual limit.",
        (Query(f"max({share('checkpoint_stall_seconds_total')})", "share"),),
        steps=_HELD,
    ),
    Panel(
        "Duration of saves",
        "s",
        "Half of the saves within the time range took at most P50, 95 of 100 at most P95; both are estimated from a "
        "histogram with wide buckets. With few saves P95 is the slowest one.",
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
        "Bytes of all saves within the time range, summed over nodes.",
        (Query(f"sum(increase(ckptprof_checkpoint_bytes_total{{{_SAVE}}}[$__range]))", "decbytes"),),
    ),
)

_NODES = Panel(
    "Nodes, the longest without a save first",
    "short",
    "One line for each node; a click on its name shows only that node. `intervals`: time since its newest save, "
    "divided by its mean interval between saves; above 2 a save is overdue. An empty cell has no value yet.",
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

_UNNAMED = "these agents do not export the names of jobs (`job_names`), or the recording rules are not loaded"
_BEGUN = "run:ckptprof_run_newest_restorable_timestamp_seconds:min{RUNS}"

# For agents that export job names, from the recording rules: one value per run, each save counted once.
RUNS = Group(
    "Runs",
    (
        Panel(
            "Runs, the longest without a step to restore first",
            "short",
            "One line for each run, over all of its nodes. `lost on failure`: time since the start of the newest step "
            "that is complete on every node that saves. A run that has ended is listed until the time range has "
            "passed.",
            (
                Query(f"max by (run) (time() - last_over_time({_BEGUN}[$__range]))", "lost on failure", "s"),
                Query("max by (run) (run:ckptprof_run_newest_restorable_step:min{RUNS})", "step to restore", "none"),
                Query("max by (run) (run:ckptprof_run_saves:increase1h{RUNS})", "saves in the last hour", "none"),
                Query("count by (run) (ckptprof_run_info{NODE})", "nodes", "none"),
                Query(held_share(), "training blocked", "percentunit", _HELD),
            ),
            empty=_UNNAMED,
            kind="table",
            width=24,
        ),
        Panel(
            "Time lost on failure",
            "s",
            "Time since the start of the newest step that is complete on every node that saves, for each run.",
            (Query(f"max by (run) (time() - {_BEGUN})", "{{run}}"),),
            empty=_UNNAMED,
        ),
        Panel(
            "Saves in the last hour, each counted once",
            "short",
            "Saves of all runs and of each run: a save that 64 nodes write together counts once.",
            (
                Query("sum(job:ckptprof_run_saves:increase1h{RUNS})", "all runs"),
                Query("max by (run) (run:ckptprof_run_saves:increase1h{RUNS})", "{{run}}"),
            ),
            empty=_UNNAMED,
        ),
        Panel(
            "Slow nodes",
            "suffix:x",
            "Mean duration of the saves of a node within the time range, divided by that of the median node of its "
            "run; the ten highest. Nodes that write more bytes, or for other ranks, are listed too: "
            "`ckptprof fleet stragglers` distinguishes them.",
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
                "slow, `unclear`: the evidence is missing or contradictory. The table shows the confidence.",
                (Query(limit_number(), "{{instance}} {{kind}}"),),
                empty="no verdict yet",
                kind="states",
            ),
            Panel(
                "What limited checkpoints",
                "s",
                "Time on the critical path of saves and restores within the time range, by limit, summed over nodes.",
                (Query(grown("checkpoint_limit_seconds_total", "limit"), "{{limit}}"),),
                empty="no verdict yet",
                kind="bars",
            ),
            Panel(
                "How long saves take",
                "s",
                "Number of saves by duration, in the column in which they ended: a second band is a second kind of "
                "save, or a slow node.",
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
                "Training blocked in the last hour",
                "percentunit",
                "Share of the last hour in which saves blocked training, as far as it was observed; 5 % is a usual "
                "limit. A save counts at its end: over a shorter time one long save would exceed 100 %.",
                (Query(hourly("checkpoint_stall_seconds_total")),),
                steps=_HELD,
            ),
            Panel(
                "GPUs that waited in the last hour",
                "short",
                "Average number of GPUs that waited for saves in the last hour: the time in which training was "
                "blocked, times its GPUs. Their number comes from NVIDIA's driver, or is one per rank.",
                (Query(hourly("checkpoint_gpu_seconds_total")),),
                empty="no save blocked training yet, or the number of GPUs is not known",
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
                "How long the newest save took, from when training stopped for it if that was observed, and how long "
                "it would have taken without its limit.",
                (
                    Query(f"ckptprof_last_checkpoint_path_seconds{{{_SAVE}}}", "{{instance}} took"),
                    Query(f"ckptprof_last_checkpoint_expected_seconds{{{_SAVE}}}", "{{instance}} without its limit"),
                ),
                holds=True,
            ),
            Panel(
                "At risk after the commit",
                "s",
                "How long the newest save was marked complete before it was on stable storage. Known if its files were "
                "synced and the agent traces, or if the agent may query the page cache (Linux 6.5, as root or as the "
                "owner of the files). The installed service is neither: at level poll this panel stays empty.",
                (Query("ckptprof_last_checkpoint_at_risk_seconds{NODE}"),),
                empty="not known: at level poll a service may not query the page cache (see the i)",
                holds=True,
            ),
            Panel(
                "Written for each byte saved",
                "suffix:x",
                "Including staging, copies and rewriting, within the time range; 1: nothing beyond the checkpoints.",
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
                "Checkpoints within the time range by access pattern, weighted by bytes.",
                (Query(grown("checkpoints_total", "kind, pattern"), "{{kind}} {{pattern}}"),),
                kind="bars",
                width=6,
            ),
            Panel(
                "By framework",
                "short",
                "Checkpoints within the time range by framework, where it was recognised.",
                (Query(grown("checkpoints_total", "kind, framework"), "{{kind}} {{framework}}"),),
                kind="bars",
                width=6,
            ),
            Panel(
                "Saves by mode",
                "short",
                "Sync: training waited for the write; async: training continued; within the time range.",
                (Query(grown("checkpoint_saves_total", "mode"), "{{mode}}"),),
                kind="bars",
                width=6,
            ),
            Panel(
                "Restores by source",
                "short",
                "Cold: from a device or the network; warm: from the page cache; within the time range.",
                (Query(grown("checkpoint_restores_total", "cache"), "{{cache}}"),),
                kind="bars",
                width=6,
            ),
            Panel(
                "Jobs",
                "short",
                "Jobs with the newest checkpoints of each node, 16 at most. Empty unless agents export the names of "
                "jobs: `job_names` in config.toml.",
                (Query("max by (instance, training_job, framework, ranks) (ckptprof_training_job_info{NODE})", ""),),
                empty="these agents do not export the names of jobs (see the i), or have recorded no checkpoint yet",
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
                "Bytes written by each block device; stacked devices (md, dm) repeat the bytes of those below.",
                (Query(rate("disk_written_bytes_total"), _DEVICE),),
            ),
            Panel("Read", "Bps", "Bytes read by each block device.", (Query(rate("disk_read_bytes_total"), _DEVICE),)),
            Panel(
                "Busy",
                "percentunit",
                "Share of the time with a request in flight; a parallel device may have free capacity even at 100 %.",
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
                "If the first is above the second, a buffered save is faster than its storage.",
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
                "Reads and writes that the trace counted without their file, because its map was full. An agent that "
                "polls traces nothing and has no line.",
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
