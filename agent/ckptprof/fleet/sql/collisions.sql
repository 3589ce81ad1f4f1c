-- Runs that save at the same time on the same storage, the cost, and by how much to shift one of them: the 200 most
-- costly pairs. Where all runs save at once, millions of saves meet: they are compared by numbers, and by minutes.
WITH saves AS (
    SELECT uid, run_key, storage, start_ns, end_ns, seconds, whole.job FROM checkpoints WHERE is_save
), numbers AS (
    SELECT
        storage,
        run_key,
        row_number() OVER (ORDER BY storage, run_key)::INTEGER AS run,
        dense_rank() OVER (ORDER BY storage)::INTEGER AS place
    FROM saves
    WHERE storage NOT IN ('local', 'not known', 'object store')
    GROUP BY storage, run_key
), compared AS (
    SELECT
        run, place, uid, job, start_ns, end_ns, seconds, start_ns // 60000000000 AS first_slice,
        lag(start_ns) OVER placed AS previous_ns,
        coalesce(max(end_ns) OVER (placed ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before_ns
    FROM saves JOIN numbers USING (storage, run_key)
    WINDOW placed AS (PARTITION BY run ORDER BY start_ns, uid)
), islands AS (  -- times in which a run saves: its saves that overlap are one
    SELECT *, sum((start_ns >= before_ns)::INTEGER) OVER (PARTITION BY run ORDER BY start_ns, uid) AS island
    FROM compared
), busy AS (
    SELECT
        run AS other, place, min(start_ns) AS since_ns, max(end_ns) AS until_ns, min(before_ns) AS other_before_ns,
        since_ns // 60000000000 AS other_slice
    FROM islands
    GROUP BY run, place, island
), spread AS (
    SELECT *, unnest(range(first_slice, end_ns // 60000000000 + 1)) AS slice FROM compared
), spread_busy AS (
    SELECT *, unnest(range(other_slice, until_ns // 60000000000 + 1)) AS slice FROM busy
), alone AS (
    SELECT run, CASE WHEN count(*) >= 3 THEN median(seconds) END AS median_alone_seconds
    FROM compared ANTI JOIN (
        SELECT uid AS met
        FROM spread SEMI JOIN spread_busy
            ON spread.place = spread_busy.place AND spread.slice = spread_busy.slice
            AND run <> other AND end_ns > since_ns AND until_ns > start_ns
    ) ON uid = met
    GROUP BY run
), sides AS (  -- a save counts once, however many busy times of the other run it meets
    SELECT
        run,
        other,
        count(*) FILTER (other_before_ns <= start_ns) AS met,
        sum(seconds) FILTER (other_before_ns <= start_ns) AS met_seconds,
        sum(greatest(0, least(end_ns, until_ns) - greatest(start_ns, before_ns, since_ns))) / 1e9 AS overlap_seconds
    FROM spread JOIN spread_busy USING (place, slice)
    WHERE run <> other AND slice = greatest(first_slice, other_slice) AND end_ns > since_ns AND until_ns > start_ns
    GROUP BY run, other
), costs AS (
    SELECT *, met_seconds - met * median_alone_seconds AS cost FROM sides LEFT JOIN alone USING (run)
), pairs AS (
    SELECT
        one.run AS first_run,
        two.run AS second_run,
        one.overlap_seconds,
        CASE
            WHEN one.cost IS NOT NULL OR two.cost IS NOT NULL
                THEN greatest(0, coalesce(one.cost, 0) + coalesce(two.cost, 0))
        END AS cost_seconds
    FROM costs AS one JOIN costs AS two ON one.run = two.other AND one.other = two.run
    WHERE one.run < two.run
    ORDER BY coalesce(cost_seconds, 0) DESC, one.overlap_seconds DESC, first_run, second_run
    LIMIT 200
), directions AS (
    SELECT first_run AS run, second_run AS other FROM pairs UNION ALL SELECT second_run, first_run FROM pairs
), chosen AS MATERIALIZED (  -- or the join below is made first, of all pairs
    SELECT run, other, slice, first_slice, start_ns, end_ns, seconds FROM directions JOIN spread USING (run)
), medians AS (
    SELECT run, other, median(seconds) AS median_met_seconds
    FROM chosen JOIN spread_busy USING (other, slice)
    WHERE slice = greatest(first_slice, other_slice) AND end_ns > since_ns AND until_ns > start_ns
        AND other_before_ns <= start_ns
    GROUP BY run, other
), runs AS (
    SELECT
        run,
        count(*) AS saves,
        arg_max(job, (start_ns, uid)) AS job,
        max(start_ns) AS last_ns,
        median((start_ns - previous_ns) / 1e9) FILTER (start_ns > previous_ns) AS interval_seconds
    FROM compared
    GROUP BY run
), described AS (
    SELECT run AS number, other, storage, last_ns, interval_seconds, {
        run: run_key, job: job, saves: saves, met: met, median_alone_seconds: median_alone_seconds,
        median_met_seconds: median_met_seconds, interval_seconds: interval_seconds
    } AS side
    FROM medians JOIN costs USING (run, other) JOIN runs USING (run) JOIN numbers USING (run)
), answers AS (
    SELECT
        one.storage,
        one.side AS "first",
        two.side AS "second",
        overlap_seconds,
        cost_seconds,
        least(one.interval_seconds, two.interval_seconds) AS shorter,
        CASE
            WHEN abs(one.interval_seconds - two.interval_seconds) <= 0.05 * shorter
                THEN shorter / 2 - (two.last_ns - one.last_ns) / 1e9
        END AS shift,
        shift - floor(shift / shorter) * shorter AS shift_seconds
    FROM pairs
    JOIN described AS one ON one.number = first_run AND one.other = second_run
    JOIN described AS two ON two.number = second_run AND two.other = first_run
)
SELECT
    (SELECT count(*) FROM checkpoints) AS checkpoints,
    (SELECT count(*) FROM saves) - (SELECT count(*) FROM compared) AS elsewhere,
    (
        SELECT coalesce(
            list(one ORDER BY coalesce(cost_seconds, 0) DESC, overlap_seconds DESC, "first".run, "second".run), []
        )
        FROM answers AS one
    ) AS pairs;
