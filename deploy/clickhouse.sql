-- The files of a fleet as views of a ClickHouse server: clickhouse-client --multiquery < clickhouse.sql
-- Put your bucket in the place of https://bucket.s3.amazonaws.com/ckptprof. UNTRIED on a server and with S3: the views
-- were tried over local files by ClickHouse 26.9 inside Python (tests/fleet/chdb_answers.py). Credentials are those of
-- the server (use_environment_credentials). For Grafana: the data source ClickHouse, and these views as its tables.
CREATE DATABASE IF NOT EXISTS ckptprof;

CREATE OR REPLACE VIEW ckptprof.checkpoints AS
SELECT
    whole.uid AS uid, toDate(day) AS day, fromUnixTimestamp64Nano(assumeNotNull(whole.start_ns), 'UTC') AS start_time,
    (whole.end_ns - whole.start_ns) / 1e9 AS duration_seconds, whole.stall_ns / 1e9 AS stall_seconds,
    whole.kind AS kind, whole.status AS status, job_key, run_key, storage, whole.framework AS framework,
    whole.step AS step, whole.bytes AS bytes, nodes_observed, whole.verdict.`limit` AS limited_by,
    whole.cost.gpu_seconds AS gpu_seconds, straggler.host AS last_node, is_restorable
FROM s3('https://bucket.s3.amazonaws.com/ckptprof/v1/cluster_checkpoints/*/cluster_checkpoints.parquet', 'Parquet')
SETTINGS schema_inference_mode = 'union'; -- a column that was added later is in newer files only

CREATE OR REPLACE VIEW ckptprof.nodes AS
SELECT checkpoint AS uid, host, bytes
FROM s3('https://bucket.s3.amazonaws.com/ckptprof/v1/cluster_nodes/*/cluster_nodes.parquet', 'Parquet')
SETTINGS schema_inference_mode = 'union';

-- Example: what saves cost by storage and week
-- SELECT toMonday(day) AS week, storage, count(), sum(stall_seconds), sum(gpu_seconds), topK(1)(limited_by)
-- FROM ckptprof.checkpoints WHERE kind = 'save' GROUP BY week, storage ORDER BY week, storage
