-- Nodes that the others waited for, over all runs: how often, how long, and what limited them.
WITH several AS (
    SELECT uid, start_ns, whole.job AS job, straggler, is_within_clock_error FROM checkpoints WHERE nodes_observed > 1
), participations AS (
    SELECT host, count(*) AS saves
    FROM cluster_nodes
    WHERE checkpoint IN (SELECT uid FROM several)
        AND host IN (SELECT straggler.host FROM several WHERE straggler IS NOT NULL)
    GROUP BY host
), waits AS (
    SELECT
        straggler.host AS host,
        count(*) AS times,
        sum(straggler.excess_seconds) AS excess_seconds,
        max(straggler.excess_seconds) AS max_seconds,
        sum(straggler.waited_gpu_seconds) AS waited_gpu_seconds,
        mode(straggler."limit" ORDER BY start_ns, uid) AS "limit",
        list_sort(list(DISTINCT job)) AS jobs,
        count(*) FILTER (straggler.is_by_size) AS by_size,
        bool_or(straggler.is_slow) AS is_slow
    FROM several
    WHERE straggler IS NOT NULL
    GROUP BY straggler.host
)
SELECT
    (SELECT count(*) FROM checkpoints) AS checkpoints,
    (SELECT count(*) FROM several) AS of_several,
    (SELECT count(*) FILTER (is_within_clock_error) FROM several) AS within_clock_error,
    (SELECT coalesce(list(one ORDER BY excess_seconds DESC, host), []) FROM (SELECT * FROM waits JOIN participations USING (host)) AS one)
        AS nodes;
