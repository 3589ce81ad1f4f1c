-- The checkpoints that every question is about: saves and restores that match the variables since_ns, until_ns, job
-- (a name, or a pattern with * and ?), kind, and oldest_ns and oldest_uid (of the oldest one); NULL: no restriction.
-- Tables: cluster_checkpoints, cluster_nodes (a row for each node of one) and node_states; columns: docs/cluster.md.
CREATE OR REPLACE TEMP VIEW matching AS
SELECT *
FROM cluster_checkpoints
WHERE whole.kind <> 'copy'
    AND whole.end_ns >= coalesce(getvariable('since_ns')::HUGEINT, whole.end_ns)
    AND whole.start_ns <= coalesce(getvariable('until_ns')::HUGEINT, whole.start_ns)
    AND whole.kind = coalesce(getvariable('kind')::VARCHAR, whole.kind)
    AND (
        getvariable('job')::VARCHAR IS NULL
        OR whole.job = getvariable('job')::VARCHAR
        OR whole.job GLOB getvariable('job')::VARCHAR
    );

CREATE OR REPLACE TEMP VIEW checkpoints AS
SELECT
    *,
    whole.uid AS uid,
    whole.start_ns AS start_ns,
    whole.end_ns AS end_ns,
    whole.kind = 'save' AS is_save,
    whole.status <> 'incomplete' AS is_complete,
    greatest(0, whole.end_ns - whole.start_ns) / 1e9 AS seconds,
    CASE WHEN whole.stall_ns >= 0 THEN whole.stall_ns / 1e9 END AS stall_seconds,
    CASE WHEN whole.end_ns > whole.start_ns THEN whole.bytes * 1e9 / (whole.end_ns - whole.start_ns) END AS rate
FROM matching
WHERE getvariable('oldest_ns') IS NULL
    OR (whole.start_ns, whole.uid) >= (getvariable('oldest_ns')::BIGINT, getvariable('oldest_uid')::VARCHAR);
