"""The board of a node: what its checkpoints took, and the machine at that time."""

from __future__ import annotations

from panels import (
    BLOCKED,
    BLOCKED_HOURLY,
    DURATION,
    DURATIONS,
    GAIN,
    GPUS,
    HEAT,
    INCOMPLETE,
    LIMITED,
    LIMITS,
    LONGEST,
    NODES,
    SAVED,
)
from queries import SAVE, Board, Group, Panel, Query, grown, network, rate

_DEVICE = "{{instance}} {{device}}"
_AMPLIFIED = (1.5,)

_STATS = (
    NODES,
    Panel(
        "Saves on nodes",
        "short",
        "Saves within the time range, counted on each node: a save that 8 nodes write together counts 8 times.",
        (Query(f"round(sum(increase(ckptprof_checkpoint_duration_seconds_count{{{SAVE}}}[$__range])))", "saves"),),
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
    INCOMPLETE,
    LONGEST,
    BLOCKED,
    DURATIONS,
    SAVED,
)

_GROUPS = (
    Group(
        "Checkpoints",
        (
            LIMITS,
            LIMITED,
            HEAT,
            DURATION,
            BLOCKED_HOURLY,
            GPUS,
            Panel(
                "Size",
                "decbytes",
                "Bytes of the newest save and restore of each node, shown until the next one ends.",
                (Query("ckptprof_last_checkpoint_bytes{NODE}", "{{instance}} {{kind}}"),),
                holds=True,
            ),
            GAIN,
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
                "Cold: from a disk or the network; warm: from the page cache; within the time range.",
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
    Group(
        "Disks",
        (
            Panel(
                "Written",
                "Bps",
                "Bytes written by each disk; stacked ones (md, dm) repeat the bytes of those below.",
                (Query(rate("disk_written_bytes_total"), _DEVICE),),
            ),
            Panel("Read", "Bps", "Bytes read by each disk.", (Query(rate("disk_read_bytes_total"), _DEVICE),)),
            Panel(
                "Busy",
                "percentunit",
                "Share of the time with a request in flight; a parallel disk may have free capacity even at 100 %.",
                (Query(rate("disk_io_time_seconds_total"), _DEVICE),),
                maximum=1,
                steps=(0.95,),
            ),
            Panel(
                "Requests in flight",
                "short",
                "Mean length of the disk's queue.",
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
            Panel("Store", "decbytes", "Size of the node's database.", (Query("ckptprof_store_size_bytes{NODE}"),)),
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

BOARD = Board(
    "ckptprof-node",
    "ckptprof: checkpoints of a node",
    "Every save and restore of training on a node, with the activity of the machine at that time.",
    (("job", "ckptprof_build_info"), ("instance", "ckptprof_build_info")),
    _STATS,
    _GROUPS,
)
