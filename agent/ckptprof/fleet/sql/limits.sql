-- What limits checkpoints on each storage; with the variable split_ns before and after that time.
WITH periods AS (
    SELECT NULL::BIGINT AS since_ns, NULL::BIGINT AS until_ns, 0 AS place WHERE getvariable('split_ns') IS NULL
    UNION ALL
    SELECT NULL, getvariable('split_ns')::BIGINT, 0 WHERE getvariable('split_ns') IS NOT NULL
    UNION ALL
    SELECT getvariable('split_ns')::BIGINT, NULL, 1 WHERE getvariable('split_ns') IS NOT NULL
), placed AS (
    SELECT
        uid,
        storage,
        whole.job AS job,
        whole.verdict."limit" AS "limit",
        coalesce(stall_seconds, CASE WHEN whole.mode = 'async' THEN 0 ELSE seconds END) AS lost_seconds,
        CASE WHEN is_complete THEN seconds END AS seconds,
        CASE WHEN is_complete THEN rate END AS rate,
        greatest(0, whole.verdict.seconds - whole.verdict.expected_seconds) AS gain_seconds,
        whole.verdict.expected_seconds IS NOT NULL AS has_gain,
        coalesce(start_ns >= getvariable('split_ns')::BIGINT, false)::INTEGER AS place
    FROM checkpoints
), hosts AS (
    SELECT place, storage, placed."limit", count(DISTINCT host) AS nodes
    FROM placed JOIN cluster_nodes ON checkpoint = placed.uid
    WHERE cluster_nodes."limit" IS NOT DISTINCT FROM placed."limit"
    GROUP BY place, storage, placed."limit"
), sums AS (
    SELECT
        place,
        storage,
        "limit",
        count(*) AS "count",
        count(DISTINCT job) AS jobs,
        sum(lost_seconds) AS lost_seconds,
        median(seconds) AS median_seconds,
        median(rate) AS bytes_per_second,
        sum(gain_seconds) FILTER (has_gain) AS gain_seconds
    FROM placed
    GROUP BY place, storage, "limit"
), answers AS (
    SELECT
        sums.*,
        coalesce(nodes, 0) AS nodes,
        least(1.0, lost_seconds / nullif(sum(lost_seconds) OVER (PARTITION BY sums.place), 0)) AS lost_share
    FROM sums
    LEFT JOIN hosts
        ON hosts.place = sums.place AND hosts.storage = sums.storage AND hosts."limit" IS NOT DISTINCT FROM sums."limit"
), periods_with_limits AS (
    SELECT
        since_ns,
        until_ns,
        periods.place,
        coalesce(sum("count"), 0)::BIGINT AS "count",
        coalesce(
            list(one ORDER BY lost_seconds DESC, "count" DESC, storage, coalesce("limit", '')) FILTER (one.storage IS NOT NULL), []
        ) AS limits
    FROM periods LEFT JOIN answers AS one ON one.place = periods.place
    GROUP BY ALL
)
SELECT
    (SELECT count(*) FROM checkpoints) AS checkpoints,
    (SELECT list(one ORDER BY place) FROM periods_with_limits AS one) AS periods;
