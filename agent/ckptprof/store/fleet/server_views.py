"""Fleet questions in SQL: the views that the second step of the server's schema creates.

They use columns that the server derives from shipped data. Clocks are not compared, which needs all of a run at once:
`ckptprof fleet` does that, and each view names its limits. A view runs as its owner, who sees all nodes, so that only
readers may query it.
"""

from __future__ import annotations

from ckptprof.frameworks.placekeys import KINDS
from ckptprof.model import Risk

_PATH_KEYED_KINDS = ", ".join(sorted(f"'{one.name}'" for one in KINDS.values() if one.by_path))
_RISK_FILTER = " || ".join(f'@ == "{one.value}"' for one in Risk)
_STORAGE_NAME = f"""CASE WHEN detail->>'sent' IS NOT NULL THEN 'object store'
    WHEN (detail#>>'{{place,shared}}')::boolean IS NULL THEN 'not known'
    WHEN NOT (detail#>>'{{place,shared}}')::boolean THEN 'local'
    WHEN split_part(detail#>>'{{place,key}}', ':', 1) IN ({_PATH_KEYED_KINDS})
        THEN regexp_replace(detail#>>'{{place,key}}', ':/.*$', '')
    ELSE regexp_replace(detail#>>'{{place,key}}', ':[^:]*$', '') END"""
_RUN_NAME = """coalesce(detail#>>'{run,key}' || CASE
    WHEN (detail#>>'{run,restart}')::bigint > 0
        AND strpos(detail#>>'{run,key}', '+' || (detail#>>'{run,restart}')) = 0
    THEN '+' || (detail#>>'{run,restart}') ELSE '' END, node || '/' || (detail->>'job'))"""
_IS_RESTORABLE = f"""detail->>'kind' = 'save' AND coalesce(detail->>'status', 'complete') = 'complete'
    AND NOT coalesce(jsonb_path_exists(detail, '$.evidence[*].name ? ({_RISK_FILTER})'), false)"""
_IS_JOINED = "detail#>>'{run,key}' IS NOT NULL AND detail->>'step' IS NOT NULL"
_GENERATED_COLUMNS = (
    ("run", 'text COLLATE "C"', _RUN_NAME),
    (
        "apart",
        "text",
        f"CASE WHEN {_IS_JOINED} THEN '' ELSE uid END",
    ),  # distinguishes it from others of its run and step
    ('"user"', "text", "detail#>>'{run,user}'"),
    ("account", "text", "detail#>>'{run,account}'"),
    ('"partition"', "text", "detail#>>'{run,partition}'"),
    ("run_nodes", "bigint", "(detail#>>'{run,nodes}')::bigint"),
    ("mode", "text", "detail->>'mode'"),
    ("storage", "text", _STORAGE_NAME),
    ("written_bytes", "bigint", "(detail->>'written_bytes')::bigint"),
    ("unique_bytes", "bigint", "(detail->>'unique_bytes')::bigint"),
    ("is_restorable", "boolean", _IS_RESTORABLE),
)

# One row for each save and restore. The slowest part is the longest by the clock of its own node.
_CHECKPOINTS_BY_STEP = """CREATE VIEW ckptprof.checkpoints_by_step AS
SELECT run, kind, step, parts, run_nodes, is_joined, started,
    (started AT TIME ZONE 'UTC')::date AS day, job, "user", account, "partition",
    framework, mode, storage, bytes, written_bytes, unique_bytes, slowest_seconds, others_seconds,
    bytes / nullif(slowest_seconds, 0) AS bytes_per_second, stall_seconds, stalls_unknown, gpu_seconds, is_restorable,
    nullif(slowest[2], '') AS "limit", slowest[3] AS slowest_node
FROM (
    SELECT run, kind, step, count(*) AS parts, max(run_nodes) AS run_nodes, apart = '' AS is_joined,
        min(started) AS started, max(job) AS job, max("user") AS "user", max(account) AS account,
        max("partition") AS "partition", max(framework) AS framework, max(mode) AS mode, max(storage) AS storage,
        sum(bytes)::bigint AS bytes, sum(written_bytes)::bigint AS written_bytes,
        sum(unique_bytes)::bigint AS unique_bytes, max(end_ns - start_ns) / 1e9::float8 AS slowest_seconds,
        (sum(end_ns - start_ns) - max(end_ns - start_ns))::float8 / 1e9 / nullif(count(*) - 1, 0) AS others_seconds,
        max(stall_seconds) AS stall_seconds, count(*) - count(stall_seconds) AS stalls_unknown,
        sum(gpu_seconds) AS gpu_seconds, bool_and(is_restorable) AS is_restorable,
        max(ARRAY[lpad((end_ns - start_ns)::text, 20, '0') COLLATE "C", coalesce("limit", ''), node]) AS slowest
    FROM ckptprof.checkpoints WHERE kind IN ('save', 'restore') GROUP BY run, kind, step, apart
) AS whole"""
_COSTS = """CREATE VIEW ckptprof.costs_by_day AS
SELECT day, job, run, "user", account, "partition", framework, mode, storage,
    count(*) FILTER (WHERE kind = 'save') AS saves, count(*) FILTER (WHERE kind = 'restore') AS restores,
    count(*) FILTER (WHERE NOT is_joined) AS not_joined, max(parts) AS most_parts,
    sum(stall_seconds) AS stall_seconds, count(*) FILTER (WHERE stalls_unknown > 0) AS stalls_unknown,
    sum(gpu_seconds) AS gpu_seconds, sum(bytes)::bigint AS bytes, max(bytes_per_second) AS best_bytes_per_second,
    (sum(written_bytes) / nullif(sum(unique_bytes), 0))::float8 AS amplification
FROM ckptprof.checkpoints_by_step GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9"""
_LIMITS = """CREATE VIEW ckptprof.limits_by_day AS
SELECT day, storage, kind, "limit", count(*) AS checkpoints, count(DISTINCT job) AS jobs,
    sum(CASE WHEN stall_seconds IS NOT NULL THEN stall_seconds WHEN mode = 'async' THEN 0 ELSE slowest_seconds END)
        AS lost_seconds,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY slowest_seconds) AS median_seconds
FROM ckptprof.checkpoints_by_step GROUP BY 1, 2, 3, 4"""
_NEWEST = """CREATE VIEW ckptprof.newest_by_run AS
WITH save AS (
    SELECT *, is_restorable AND parts >= coalesce(lag(parts) OVER by_start, 0) AS is_whole,
        extract(epoch FROM started - lag(started) OVER by_start)::float8 AS apart_seconds
    FROM ckptprof.checkpoints_by_step WHERE kind = 'save' WINDOW by_start AS (PARTITION BY run ORDER BY started)
)
SELECT run, max(job) AS job, count(*) AS saves, count(*) FILTER (WHERE NOT is_joined) AS not_joined,
    max(parts) AS most_parts, max(run_nodes) AS run_nodes, max(started) AS last_started,
    max(started) FILTER (WHERE is_whole) AS whole_started,
    (array_agg(step ORDER BY started DESC) FILTER (WHERE is_whole))[1] AS whole_step,
    extract(epoch FROM now() - max(started) FILTER (WHERE is_whole))::float8 AS age_seconds,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY apart_seconds) AS interval_seconds,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY stall_seconds) AS stall_seconds
FROM save GROUP BY run"""
_SLOWEST = """CREATE VIEW ckptprof.slowest_nodes AS
SELECT slowest_node AS node, count(*) AS times, sum(slowest_seconds - others_seconds) AS excess_seconds,
    max(slowest_seconds - others_seconds) AS worst_seconds, mode() WITHIN GROUP (ORDER BY "limit") AS "limit",
    count(DISTINCT run) AS runs
FROM ckptprof.checkpoints_by_step WHERE parts > 1 AND is_joined GROUP BY 1"""
_NODES = """CREATE VIEW ckptprof.node_states AS
SELECT node, last_seen, extract(epoch FROM now() - last_seen)::float8 AS unseen_seconds, lost, version, level, kernel
FROM (SELECT node, max(last_seen) AS last_seen, sum(lost)::bigint AS lost FROM ckptprof.nodes GROUP BY node) AS known
LEFT JOIN (
    SELECT DISTINCT ON (node) node, version, level, kernel FROM ckptprof.sessions ORDER BY node, end_ns DESC
) AS newest USING (node)"""

_VIEW_COMMENTS = {
    "checkpoints_by_step": "A save or restore of a run on all its nodes, joined by run, kind and step alone. Clocks are"
    " not compared: seconds are those of the node that took longest by its own clock. A step that a run saves twice is"
    " one, with the parts of both; a part without run or step stands alone (is_joined). Blocked time is that of the"
    " node that was blocked longest, GPU time of all",
    "costs_by_day": "What checkpoints cost by the day (UTC) in which they began; each counts once on however many"
    " nodes. not_joined: of these nothing tells which are one",
    "limits_by_day": "What limits checkpoints on each storage, as the node says that took longest",
    "newest_by_run": "The newest save of each run that is whole: may be restored on all nodes, which are no fewer than"
    " those of the save before. Whether a run has ended it does not know",
    "slowest_nodes": "How often a node took longest by its own clock, and how much longer than the others took on the"
    " average. A node that begins late is not seen, and one is always the slowest: times tell little, seconds do",
    "node_states": "Of each node what it sent last; after 10 minutes unseen, it is away, or saves for that long",
}
SECOND_STEP = (
    "ALTER TABLE ckptprof.checkpoints "
    + ", ".join(f"ADD COLUMN {name} {kind} GENERATED ALWAYS AS ({of}) STORED" for name, kind, of in _GENERATED_COLUMNS),
    _CHECKPOINTS_BY_STEP,
    _COSTS,
    _LIMITS,
    _NEWEST,
    _SLOWEST,
    _NODES,
    *(f"COMMENT ON VIEW ckptprof.{view} IS '{text}'" for view, text in _VIEW_COMMENTS.items()),
    f"GRANT SELECT ON {', '.join(f'ckptprof.{view}' for view in _VIEW_COMMENTS)} TO ckptprof_reader",
)
VIEWS = tuple(_VIEW_COMMENTS)
