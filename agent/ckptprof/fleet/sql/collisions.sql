-- Runs that save at the same time on the same storage, the cost, and by how much to shift one of them.
-- Saves are compared within 10 minutes: of two that overlap for longer, in the 10 minutes in which they first do.
WITH saves AS (
    SELECT uid, run_key, storage, start_ns, end_ns, seconds, whole.job AS job FROM checkpoints WHERE is_save
), compared AS (
    SELECT * FROM saves WHERE storage NOT IN ('local', 'not known', 'object store')
), spread AS (
    SELECT
        *,
        start_ns // 600000000000 AS first_slice,
        unnest(range(start_ns // 600000000000, end_ns // 600000000000 + 1)) AS slice
    FROM compared
), meetings AS (
    SELECT
        one.storage,
        one.run_key AS first_run,
        two.run_key AS second_run,
        one.uid AS first_uid,
        two.uid AS second_uid,
        greatest(one.start_ns, two.start_ns) AS start_ns,
        least(one.end_ns, two.end_ns) AS until_ns
    FROM spread AS one
    JOIN spread AS two ON one.storage = two.storage AND one.slice = two.slice
    WHERE one.run_key < two.run_key
        AND one.slice = greatest(one.first_slice, two.first_slice)
        AND one.end_ns > two.start_ns
        AND two.end_ns > one.start_ns
), overlapping AS (
    SELECT
        *,
        max(until_ns) OVER (
            PARTITION BY storage, first_run, second_run
            ORDER BY start_ns, until_ns, first_uid, second_uid
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS counted_ns
    FROM meetings
), pairs AS (
    SELECT
        storage,
        first_run,
        second_run,
        sum(greatest(0, until_ns - greatest(start_ns, coalesce(counted_ns, 0)))) / 1e9 AS overlap_seconds
    FROM overlapping
    GROUP BY ALL
), met AS (
    SELECT storage, first_run, second_run, first_run AS run_key, first_uid AS uid FROM meetings
    UNION
    SELECT storage, first_run, second_run, second_run, second_uid FROM meetings
), steps AS (
    SELECT *, lag(start_ns) OVER (PARTITION BY storage, run_key ORDER BY start_ns, uid) AS previous_ns FROM compared
), runs AS (
    SELECT
        storage,
        run_key,
        count(*) AS saves,
        arg_max(job, (start_ns, uid)) AS job,
        max(start_ns) AS last_ns,
        median((start_ns - previous_ns) / 1e9) FILTER (start_ns > previous_ns) AS interval_seconds,
        CASE
            WHEN count(*) FILTER (uid NOT IN (SELECT uid FROM met)) >= 3
                THEN median(seconds) FILTER (uid NOT IN (SELECT uid FROM met))
        END AS median_alone_seconds
    FROM steps
    WHERE run_key IN (SELECT run_key FROM met)
    GROUP BY storage, run_key
), sides AS (
    SELECT
        met.storage,
        first_run,
        second_run,
        run_key AS run,
        any_value(runs.job) AS job,
        any_value(runs.saves) AS saves,
        count(*) AS met,
        any_value(median_alone_seconds) AS median_alone_seconds,
        median(seconds) AS median_met_seconds,
        any_value(interval_seconds) AS interval_seconds,
        any_value(last_ns) AS last_ns,
        sum(seconds - median_alone_seconds) AS cost_seconds
    FROM met
    JOIN runs USING (storage, run_key)
    JOIN compared USING (storage, run_key, uid)
    GROUP BY met.storage, first_run, second_run, run_key
), answers AS (
    SELECT
        pairs.storage,
        one AS "first",
        two AS "second",
        overlap_seconds,
        CASE
            WHEN one.cost_seconds IS NOT NULL OR two.cost_seconds IS NOT NULL
                THEN greatest(0, coalesce(one.cost_seconds, 0) + coalesce(two.cost_seconds, 0))
        END AS cost_seconds,
        least(one.interval_seconds, two.interval_seconds) AS shorter,
        CASE
            WHEN one.interval_seconds IS NOT NULL
                AND two.interval_seconds IS NOT NULL
                AND abs(one.interval_seconds - two.interval_seconds) <= 0.05 * shorter
                THEN shorter / 2 - (two.last_ns - one.last_ns) / 1e9
        END AS shift,
        shift - floor(shift / shorter) * shorter AS shift_seconds
    FROM pairs
    JOIN sides AS one ON one.storage = pairs.storage AND one.first_run = pairs.first_run
        AND one.second_run = pairs.second_run AND one.run = pairs.first_run
    JOIN sides AS two ON two.storage = pairs.storage AND two.first_run = pairs.first_run
        AND two.second_run = pairs.second_run AND two.run = pairs.second_run
)
SELECT
    (SELECT count(*) FROM checkpoints) AS checkpoints,
    (SELECT count(*) FROM saves) - (SELECT count(*) FROM compared) AS elsewhere,
    (
        SELECT coalesce(
            list(
                one
                ORDER BY coalesce(cost_seconds, 0) DESC, overlap_seconds DESC, "first".run, "second".run
            ),
            []
        )
        FROM answers AS one
    ) AS pairs;
