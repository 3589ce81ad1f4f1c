-- Differences between nodes (version, level, kernel, clock), and nodes that are silent while others of their run save.
WITH placed AS (SELECT uid, start_ns, end_ns, run_key FROM checkpoints), parts AS (
    SELECT run_key, uid, start_ns, end_ns, host, ahead_seconds, clock_bound_seconds
    FROM placed JOIN (SELECT checkpoint, host, ahead_seconds, clock_bound_seconds FROM cluster_nodes) ON checkpoint = uid
), offsets AS (
    SELECT host, max_by({ahead: ahead_seconds, bound: clock_bound_seconds}, (start_ns, uid)) AS last
    FROM parts
    WHERE ahead_seconds IS NOT NULL
    GROUP BY host
), ahead AS (
    SELECT host, last.ahead AS ahead_seconds FROM offsets WHERE abs(last.ahead) > coalesce(last.bound, 0)
), observed AS (
    SELECT host, max(watched.end_ns) AS until_ns FROM node_states GROUP BY host
), ends AS (
    SELECT run_key, max(end_ns) AS last_ns FROM placed GROUP BY run_key
), present AS (
    SELECT run_key, host, arg_max(coalesce(ahead_seconds, 0), (start_ns, uid)) AS ahead_seconds
    FROM parts
    GROUP BY run_key, host
), silent AS (
    SELECT
        host,
        max((last_ns - coalesce(until_ns, last_ns) + round_even(ahead_seconds * 1e9, 0)::BIGINT) / 1e9) AS silent_seconds
    FROM present JOIN ends USING (run_key) LEFT JOIN observed USING (host)
    GROUP BY host
    HAVING silent_seconds > 1800 -- a node ships every 15 minutes
), usual AS (
    SELECT
        mode(version) AS version,
        mode(level) AS level,
        mode(kernel) AS kernel,
        count(version) / 2 AS half
    FROM node_states
), different AS (
    SELECT
        node_states.*,
        (SELECT count(*) > usual.half FROM node_states AS other WHERE other.version = usual.version)
            AND node_states.version <> usual.version AS is_version,
        (SELECT count(*) > usual.half FROM node_states AS other WHERE other.level = usual.level)
            AND node_states.level <> usual.level AS is_level,
        (SELECT count(*) > usual.half FROM node_states AS other WHERE other.kernel = usual.kernel)
            AND node_states.kernel <> usual.kernel AS is_kernel
    FROM node_states CROSS JOIN usual
), answers AS (
    SELECT
        host,
        "database",
        version,
        level,
        kernel,
        clock.synchronised AS is_clock_synchronised,
        CASE WHEN clock.synchronised THEN clock.bound_ns / 1e9 END AS clock_bound_seconds,
        ahead_seconds,
        watched.end_ns AS observed_until_ns,
        coalesce(len(watched.gaps), 0) AS gaps,
        checkpoints,
        silent_seconds,
        list_filter(
            [
                CASE WHEN is_version THEN 'version' END,
                CASE WHEN is_level THEN 'level' END,
                CASE WHEN is_kernel THEN 'kernel' END,
                CASE WHEN ahead_seconds IS NOT NULL OR clock.synchronised = false THEN 'clock' END
            ],
            lambda word: word IS NOT NULL
        ) AS odd
    FROM different LEFT JOIN ahead USING (host) LEFT JOIN silent USING (host)
)
SELECT
    (SELECT count(*) FROM checkpoints) AS checkpoints,
    (SELECT count(*) FILTER (is_partial) FROM checkpoints) AS "partial",
    (
        SELECT coalesce(list(one ORDER BY silent_seconds IS NULL, len(odd) DESC, host, "database"), [])
        FROM answers AS one
    ) AS nodes;
