-- GPU time in which training was blocked, for each value of the variable by: job, run, user, account, partition,
-- framework, mode, storage or week (in the zone zone_seconds east of UTC).
WITH named AS (  -- with what is read of a checkpoint alone: windows sort it
    SELECT
        uid, start_ns, end_ns, run_key, is_save, is_complete, seconds, rate, stall_seconds,
        nodes_observed + len(waited) AS nodes,
        whole.job, whole.written_bytes, whole.unique_bytes,
        whole.cost.gpus, whole.cost.gpu_seconds, whole.cost.bytes_per_second_per_gpu,
        CASE getvariable('by')
            WHEN 'job' THEN job_key
            WHEN 'run' THEN run_key
            WHEN 'user' THEN coalesce(nullif(whole.run."user", ''), '-')
            WHEN 'account' THEN coalesce(nullif(whole.run.account, ''), '-')
            WHEN 'partition' THEN coalesce(nullif(whole.run."partition", ''), '-')
            WHEN 'framework' THEN coalesce(nullif(whole.framework, ''), '-')
            WHEN 'mode' THEN coalesce(whole.mode, '-')
            WHEN 'storage' THEN storage
            WHEN 'week' THEN strftime(
                make_timestamp((start_ns + coalesce(getvariable('zone_seconds')::BIGINT, 0) * 1000000000) // 1000), '%G-W%V'
            )
        END AS name
    FROM checkpoints
), steps AS (
    SELECT
        *,
        lag(start_ns) OVER (PARTITION BY name, run_key, job, is_save ORDER BY start_ns, uid) AS previous_ns
    FROM named
    WHERE name IS NOT NULL
), spans AS (  -- from the first checkpoint of a run to when its next save is due
    SELECT
        name,
        count(*) AS number,
        bool_or(is_save) AS saves,
        min(start_ns) AS start_ns,
        max(end_ns) AS end_ns,
        arg_max(is_save, (start_ns, uid)) AS ends_in_save,
        max(start_ns) AS last_ns,
        median((start_ns - previous_ns) / 1e9) FILTER (is_save AND start_ns > previous_ns) AS interval_seconds,
        sum(stall_seconds) AS stall_seconds,
        count(*) - count(stall_seconds) AS stalls_unknown,
        max(nullif(gpus, 0)) AS gpus
    FROM steps
    GROUP BY name, run_key, job
), runs AS (
    SELECT
        *,
        CASE
            WHEN number > 1 AND saves THEN nullif(greatest(
                (end_ns - start_ns) / 1e9,
                CASE WHEN ends_in_save THEN (last_ns - start_ns) / 1e9 + interval_seconds END,
                stall_seconds,
                0
            ), 0)
        END AS run_seconds
    FROM spans
), shares AS (
    SELECT *, least(1.0, stall_seconds / run_seconds) AS share FROM runs
), of_runs AS (
    SELECT
        name,
        max(gpus) AS gpus,
        sum(stall_seconds) AS stall_seconds,
        sum(stalls_unknown) AS stalls_unknown,
        sum(run_seconds) AS run_seconds,
        sum(run_seconds * gpus) AS allocated_gpu_seconds,
        sum(share * run_seconds) / nullif(sum(run_seconds) FILTER (share IS NOT NULL), 0) AS share,
        sum(share * run_seconds * gpus) / nullif(sum(run_seconds * gpus) FILTER (share IS NOT NULL), 0) AS gpu_share
    FROM shares
    GROUP BY name
), of_checkpoints AS (
    SELECT
        name,
        CASE WHEN count(DISTINCT job) = 1 THEN any_value(job) END AS job,
        count(*) FILTER (is_save) AS saves,
        count(*) FILTER (NOT is_save) AS restores,
        count(*) FILTER (NOT is_complete) AS incomplete,
        max(nodes) AS nodes,
        sum(gpu_seconds) AS gpu_seconds,
        median(seconds) FILTER (is_save AND is_complete) AS median_save_seconds,
        median(rate) FILTER (is_save AND is_complete) AS bytes_per_second,
        median(bytes_per_second_per_gpu) FILTER (is_save AND is_complete) AS bytes_per_second_per_gpu,
        sum(written_bytes) FILTER (is_save AND unique_bytes <> 0)
            / sum(unique_bytes) FILTER (is_save AND written_bytes IS NOT NULL AND unique_bytes <> 0)
            AS amplification
    FROM named
    WHERE name IS NOT NULL
    GROUP BY name
), answers AS (
    SELECT
        *,
        coalesce(gpu_share, share) > 0.05 AS exceeds_snia,
        CASE  -- DGX SuperPOD: bytes written per second and GPU
            WHEN bytes_per_second_per_gpu IS NULL THEN NULL
            WHEN bytes_per_second_per_gpu >= 3e9 THEN 'high'
            WHEN bytes_per_second_per_gpu >= 1.5e9 THEN 'medium'
            WHEN bytes_per_second_per_gpu >= 0.75e9 THEN 'light'
            ELSE 'below'
        END AS tier
    FROM of_checkpoints JOIN of_runs USING (name)
)
SELECT
    getvariable('by') AS "by",
    count(*) AS checkpoints,
    count(*) FILTER (is_partial) AS "partial",
    count(*) FILTER (len(waited) > 0) AS waited,
    (
        SELECT coalesce(
            list(
                one
                ORDER BY
                    CASE WHEN getvariable('by') = 'week' THEN 0 ELSE -coalesce(gpu_seconds, 0) END,
                    CASE WHEN getvariable('by') = 'week' THEN 0 ELSE -coalesce(stall_seconds, 0) END,
                    name
            ),
            []
        )
        FROM answers AS one
    ) AS "rows"
FROM checkpoints;
