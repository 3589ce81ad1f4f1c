-- The checkpoint each job would resume from if it failed now (the variable now_ns), and its best save interval.
WITH placed AS (
    SELECT
        job_key,
        run_key,
        uid,
        start_ns,
        end_ns,
        is_save,
        is_complete,
        is_restorable,
        stall_seconds,
        whole.kind = 'restore' AS is_restore,
        whole.job AS job,
        whole.step AS step,
        whole.path AS path,
        whole.durable_ns AS durable_ns,
        coalesce(nullif(nodes_expected, 0), nodes_observed + len(waited)) AS nodes,
        lag(start_ns) OVER (PARTITION BY job_key, is_save ORDER BY start_ns, uid) AS previous_ns
    FROM checkpoints
), runs AS (
    SELECT
        job_key,
        run_key,
        min(start_ns) AS start_ns,
        max(nodes) AS nodes,
        (max(end_ns) - min(start_ns)) / 1e9 * max(nodes) AS node_seconds,
        max(end_ns) FILTER (is_restorable) AS restorable_ns,
        min(end_ns) FILTER (is_restore) AS resumed_ns
    FROM placed
    GROUP BY job_key, run_key
), resumed AS (
    SELECT
        job_key,
        (resumed_ns - lag(restorable_ns) OVER (PARTITION BY job_key ORDER BY start_ns, run_key)) / 1e9 AS seconds
    FROM runs
), restarts AS (
    SELECT
        job_key,
        count(*) - 1 AS restarts,
        median(seconds) FILTER (seconds > 0) AS resumed_seconds
    FROM resumed
    GROUP BY job_key
), fleet AS (
    SELECT
        coalesce(sum(node_seconds), 0) AS node_seconds,
        coalesce((SELECT sum(restarts) FROM restarts), 0)::BIGINT AS restarts
    FROM runs
), observed AS (
    SELECT host, least(max(watched.end_ns), getvariable('now_ns')::BIGINT) AS until_ns
    FROM node_states
    WHERE watched.end_ns IS NOT NULL
    GROUP BY host
), clocks AS (
    SELECT job_key, host, arg_max(coalesce(ahead_seconds, 0), (start_ns, uid)) AS ahead_seconds
    FROM (SELECT job_key, uid, start_ns FROM placed) JOIN (SELECT checkpoint, host, ahead_seconds FROM cluster_nodes) ON checkpoint = uid
    GROUP BY job_key, host
), hosts AS (
    SELECT job_key, max(coalesce(until_ns, 0) - round_even(ahead_seconds * 1e9, 0)::BIGINT) AS until_ns
    FROM clocks LEFT JOIN observed USING (host)
    GROUP BY job_key
), jobs AS (
    SELECT
        job_key,
        arg_max(job, (start_ns, uid)) AS job,
        arg_max(run_key, (start_ns, uid)) AS run,
        max(nodes) AS nodes,
        max(end_ns) AS last_ns,
        max({start_ns: start_ns, uid: uid, step: step, path: path, durable_ns: durable_ns}) FILTER (is_restorable) AS newest,
        count(*) FILTER (is_save) AS saves,
        list(start_ns) FILTER (is_save) AS starts,
        count(*) FILTER (is_save AND start_ns > previous_ns) AS intervals,
        median((start_ns - previous_ns) / 1e9) FILTER (is_save AND start_ns > previous_ns) AS usual_seconds,
        median(stall_seconds) FILTER (is_save AND is_complete) AS stall_seconds
    FROM placed
    GROUP BY job_key
), ages AS (
    SELECT
        job,
        run,
        nodes,
        newest.step AS step,
        newest.path AS path,
        newest.start_ns AS saved_ns,
        greatest(last_ns, until_ns) AS observed_until_ns,
        newest.durable_ns <= observed_until_ns AS is_durable,
        (observed_until_ns - saved_ns) / 1e9 AS age_seconds,
        len(list_filter(starts, lambda saved: newest IS NULL OR saved > newest.start_ns)) AS unusable,
        saves,
        CASE WHEN intervals >= 2 THEN usual_seconds END AS interval_seconds,
        age_seconds > 2 * interval_seconds AS is_overdue,
        restarts.restarts,
        resumed_seconds,
        stall_seconds,
        CASE
            WHEN fleet.restarts > 0 AND fleet.node_seconds > 0 THEN fleet.node_seconds / fleet.restarts / nodes
        END AS mttf_seconds,
        nullif(stall_seconds, 0) / mttf_seconds AS d
    FROM jobs JOIN hosts USING (job_key) JOIN restarts USING (job_key) CROSS JOIN fleet
    WHERE saves > 0
), answers AS (  -- Daly's complete model: u + e^-(u+d) = 1 by Newton's method, down from 1
    SELECT
        *,
        CASE
            WHEN d < 1e-12 THEN sqrt(2 * stall_seconds * mttf_seconds)
            ELSE mttf_seconds * (d + list_reduce(
                list_resize([1.0::DOUBLE], 64, 0.0::DOUBLE),
                lambda u, x: u + (u + exp(-(u + d)) - 1) / (exp(-(u + d)) - 1)
            ))
        END AS optimal_interval_seconds
    FROM ages
)
SELECT
    (SELECT count(*) FROM checkpoints) AS checkpoints,
    (SELECT node_seconds FROM fleet) AS node_seconds,
    (SELECT restarts FROM fleet) AS restarts,
    (
        SELECT coalesce(
            list(one ORDER BY age_seconds IS NOT NULL, coalesce(age_seconds, 0) DESC, job, run), []
        )
        FROM answers AS one
    ) AS jobs;
