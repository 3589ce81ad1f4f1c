"""The statements of `statements`, as SQL of SQLite. Generated: CKPTPROF_UPDATE_GOLDEN=1 regenerates it."""

TABLES = {
    "checkpoints": """CREATE TABLE checkpoints ( id INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL, kind TEXT NOT
NULL, job TEXT NOT NULL, framework TEXT, step INTEGER, ranks INTEGER, start_ns INTEGER NOT NULL, end_ns INTEGER NOT
NULL, durable_ns INTEGER, bytes INTEGER NOT NULL, files INTEGER NOT NULL, path TEXT, mode TEXT, stall_ns INTEGER, level
TEXT NOT NULL, confidence REAL NOT NULL, pattern_class TEXT, pattern TEXT NOT NULL, verdict TEXT, limitations TEXT NOT
NULL, timeline BLOB NOT NULL, status TEXT DEFAULT 'complete' NOT NULL, moments TEXT DEFAULT '{}' NOT NULL, metadata TEXT
DEFAULT '{}' NOT NULL, written_bytes INTEGER, unique_bytes INTEGER, overheads TEXT DEFAULT '[]' NOT NULL, storage_bytes
INTEGER, cache TEXT, cost TEXT, measures TEXT, blocked TEXT DEFAULT '[]' NOT NULL, committed_ns INTEGER, "limit" TEXT,
limit_seconds REAL, limit_confidence REAL, expected_seconds REAL, gpu_seconds REAL, progress BLOB, progress_left_out
INTEGER DEFAULT 0 NOT NULL, sent TEXT, run TEXT, place TEXT, clock TEXT, owner INTEGER, stored_bytes INTEGER DEFAULT
5600 NOT NULL, UNIQUE (uid) )""",
    "entities": """CREATE TABLE entities ( id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, observed_ns INTEGER
NOT NULL, UNIQUE (name) )""",
    "layouts": """CREATE TABLE layouts ( id INTEGER, fields TEXT NOT NULL, PRIMARY KEY (id), UNIQUE (fields) )""",
    "pending": """CREATE TABLE pending ( uid TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (uid) ) WITHOUT ROWID""",
    "sessions": """CREATE TABLE sessions ( id INTEGER, uid TEXT NOT NULL, host TEXT NOT NULL, boot_id TEXT NOT NULL,
kernel TEXT NOT NULL, version TEXT NOT NULL, level TEXT NOT NULL, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
clean INTEGER NOT NULL, dropped_frames INTEGER NOT NULL, PRIMARY KEY (id), UNIQUE (uid) )""",
    "devices": """CREATE TABLE devices ( checkpoint_id INTEGER NOT NULL, ordinal INTEGER NOT NULL, device TEXT NOT NULL,
kind TEXT NOT NULL, read_bytes INTEGER NOT NULL, written_bytes INTEGER NOT NULL, busy_seconds REAL, under TEXT, requests
INTEGER, mean_request_bytes REAL, sequential_share_bytes REAL, latency_p50_seconds REAL, latency_p99_seconds REAL,
max_in_flight INTEGER, PRIMARY KEY (checkpoint_id, ordinal), FOREIGN KEY(checkpoint_id) REFERENCES checkpoints (id) ON
DELETE CASCADE ) WITHOUT ROWID""",
    "evidence": """CREATE TABLE evidence ( checkpoint_id INTEGER NOT NULL, ordinal INTEGER NOT NULL, name TEXT NOT NULL,
weight REAL NOT NULL, text TEXT NOT NULL, PRIMARY KEY (checkpoint_id, ordinal), FOREIGN KEY(checkpoint_id) REFERENCES
checkpoints (id) ON DELETE CASCADE ) WITHOUT ROWID""",
    "outbox": """CREATE TABLE outbox ( change INTEGER PRIMARY KEY AUTOINCREMENT, checkpoint_id INTEGER NOT NULL,
revision INTEGER NOT NULL, first_start_ns INTEGER NOT NULL, UNIQUE (checkpoint_id), FOREIGN KEY(checkpoint_id)
REFERENCES checkpoints (id) ON DELETE CASCADE )""",
    "streams": """CREATE TABLE streams ( checkpoint_id INTEGER NOT NULL, ordinal INTEGER NOT NULL, pid INTEGER NOT NULL,
comm TEXT NOT NULL, path TEXT NOT NULL, bytes INTEGER NOT NULL, size INTEGER, start_ns INTEGER NOT NULL, end_ns INTEGER
NOT NULL, class TEXT, observed_by TEXT NOT NULL, PRIMARY KEY (checkpoint_id, ordinal), FOREIGN KEY(checkpoint_id)
REFERENCES checkpoints (id) ON DELETE CASCADE ) WITHOUT ROWID""",
    "writers": """CREATE TABLE writers ( checkpoint_id INTEGER NOT NULL, ordinal INTEGER NOT NULL, pid INTEGER NOT NULL,
comm TEXT NOT NULL, bytes INTEGER NOT NULL, rank INTEGER, start_ns INTEGER, end_ns INTEGER, role TEXT, PRIMARY KEY
(checkpoint_id, ordinal), FOREIGN KEY(checkpoint_id) REFERENCES checkpoints (id) ON DELETE CASCADE ) WITHOUT ROWID""",
}
BLOCK_TABLE = """CREATE TABLE {0} ( id INTEGER, layout INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (id) )"""
INDEXES = {
    "checkpoints_by_start": """CREATE INDEX checkpoints_by_start ON checkpoints (start_ns)""",
    "checkpoints_by_owner": """CREATE INDEX checkpoints_by_owner ON checkpoints (owner, start_ns, stored_bytes)""",
}
SESSIONS = """SELECT sessions.uid, sessions.host, sessions.boot_id, sessions.kernel, sessions.version, sessions.level,
sessions.start_ns, sessions.end_ns, sessions.clean, sessions.dropped_frames FROM sessions ORDER BY sessions.start_ns,
sessions.id"""
PUT_SESSION = """INSERT INTO sessions (uid, host, boot_id, kernel, version, level, start_ns, end_ns, clean,
dropped_frames) VALUES (:uid, :host, :boot_id, :kernel, :version, :level, :start_ns, :end_ns, :clean, :dropped_frames)
ON CONFLICT (uid) DO UPDATE SET uid = excluded.uid, host = excluded.host, boot_id = excluded.boot_id, kernel =
excluded.kernel, version = excluded.version, level = excluded.level, start_ns = excluded.start_ns, end_ns =
excluded.end_ns, clean = excluded.clean, dropped_frames = excluded.dropped_frames"""
EXTEND_SESSION = """UPDATE sessions SET end_ns=max(sessions.end_ns, :newest_ns) WHERE sessions.uid = :session"""
REPLACE_CHECKPOINT = """UPDATE checkpoints SET uid=:uid, kind=:kind, job=:job, framework=:framework, step=:step,
ranks=:ranks, start_ns=:start_ns, end_ns=:end_ns, durable_ns=:durable_ns, bytes=:bytes, files=:files, path=:path,
mode=:mode, stall_ns=:stall_ns, level=:level, confidence=:confidence, pattern_class=:pattern_class, pattern=:pattern,
verdict=:verdict, limitations=:limitations, timeline=:timeline, status=:status, moments=:moments, metadata=:metadata,
written_bytes=:written_bytes, unique_bytes=:unique_bytes, overheads=:overheads, storage_bytes=:storage_bytes,
cache=:cache, cost=:cost, measures=:measures, blocked=:blocked, committed_ns=:committed_ns, "limit"=:limit,
limit_seconds=:limit_seconds, limit_confidence=:limit_confidence, expected_seconds=:expected_seconds,
gpu_seconds=:gpu_seconds, progress=:progress, progress_left_out=:progress_left_out, sent=:sent, run=:run, place=:place,
clock=:clock, owner=:owner, stored_bytes=:stored_bytes WHERE checkpoints.uid = :known_uid RETURNING id"""
ADD_CHECKPOINT = """INSERT INTO checkpoints (uid, kind, job, framework, step, ranks, start_ns, end_ns, durable_ns,
bytes, files, path, mode, stall_ns, level, confidence, pattern_class, pattern, verdict, limitations, timeline, status,
moments, metadata, written_bytes, unique_bytes, overheads, storage_bytes, cache, cost, measures, blocked, committed_ns,
"limit", limit_seconds, limit_confidence, expected_seconds, gpu_seconds, progress, progress_left_out, sent, run, place,
clock, owner, stored_bytes) VALUES (:uid, :kind, :job, :framework, :step, :ranks, :start_ns, :end_ns, :durable_ns,
:bytes, :files, :path, :mode, :stall_ns, :level, :confidence, :pattern_class, :pattern, :verdict, :limitations,
:timeline, :status, :moments, :metadata, :written_bytes, :unique_bytes, :overheads, :storage_bytes, :cache, :cost,
:measures, :blocked, :committed_ns, :limit, :limit_seconds, :limit_confidence, :expected_seconds, :gpu_seconds,
:progress, :progress_left_out, :sent, :run, :place, :clock, :owner, :stored_bytes) RETURNING id"""
RECORD_CHANGE = """INSERT OR REPLACE INTO outbox (checkpoint_id, revision, first_start_ns) VALUES (:changed,
(coalesce((SELECT anon_1.revision FROM (SELECT outbox.change AS change, outbox.checkpoint_id AS checkpoint_id,
outbox.revision AS revision, outbox.first_start_ns AS first_start_ns FROM outbox WHERE outbox.checkpoint_id = :changed)
AS anon_1), 0) + 1), coalesce((SELECT anon_1.first_start_ns FROM (SELECT outbox.change AS change, outbox.checkpoint_id
AS checkpoint_id, outbox.revision AS revision, outbox.first_start_ns AS first_start_ns FROM outbox WHERE
outbox.checkpoint_id = :changed) AS anon_1), :began_ns))"""
ID_OF = """SELECT checkpoints.id FROM checkpoints WHERE checkpoints.uid = :known_uid"""
CLEAR_CHILDREN = {
    "writers": """DELETE FROM writers WHERE writers.checkpoint_id = :of_checkpoint""",
    "evidence": """DELETE FROM evidence WHERE evidence.checkpoint_id = :of_checkpoint""",
    "streams": """DELETE FROM streams WHERE streams.checkpoint_id = :of_checkpoint""",
    "devices": """DELETE FROM devices WHERE devices.checkpoint_id = :of_checkpoint""",
}
ADD_CHILD = {
    "writers": """INSERT INTO writers (checkpoint_id, ordinal, pid, comm, bytes, rank, start_ns, end_ns, role) VALUES
(:checkpoint_id, :ordinal, :pid, :comm, :bytes, :rank, :start_ns, :end_ns, :role)""",
    "evidence": """INSERT INTO evidence (checkpoint_id, ordinal, name, weight, text) VALUES (:checkpoint_id, :ordinal,
:name, :weight, :text)""",
    "streams": """INSERT INTO streams (checkpoint_id, ordinal, pid, comm, path, bytes, size, start_ns, end_ns, class,
observed_by) VALUES (:checkpoint_id, :ordinal, :pid, :comm, :path, :bytes, :size, :start_ns, :end_ns, :class,
:observed_by)""",
    "devices": """INSERT INTO devices (checkpoint_id, ordinal, device, kind, read_bytes, written_bytes, busy_seconds,
under, requests, mean_request_bytes, sequential_share_bytes, latency_p50_seconds, latency_p99_seconds, max_in_flight)
VALUES (:checkpoint_id, :ordinal, :device, :kind, :read_bytes, :written_bytes, :busy_seconds, :under, :requests,
:mean_request_bytes, :sequential_share_bytes, :latency_p50_seconds, :latency_p99_seconds, :max_in_flight)""",
}
PENDING = """SELECT pending.uid, pending.data FROM pending"""
ADD_PENDING = """INSERT INTO pending (uid, data) VALUES (:uid, :data)"""
FORGET_PENDING = """DELETE FROM pending WHERE pending.uid = :known_uid"""
PATHS = """SELECT checkpoints.path FROM checkpoints WHERE checkpoints.path IS NOT NULL GROUP BY checkpoints.path ORDER
BY max(checkpoints.start_ns) DESC LIMIT :most OFFSET 0"""
INTERRUPTED_SAVES = """SELECT json_object('id', checkpoints.id, 'uid', checkpoints.uid, 'kind', checkpoints.kind, 'job',
checkpoints.job, 'framework', checkpoints.framework, 'step', checkpoints.step, 'ranks', checkpoints.ranks, 'start_ns',
checkpoints.start_ns, 'end_ns', checkpoints.end_ns, 'durable_ns', checkpoints.durable_ns, 'bytes', checkpoints.bytes,
'files', checkpoints.files, 'path', checkpoints.path, 'mode', checkpoints.mode, 'stall_ns', checkpoints.stall_ns,
'level', checkpoints.level, 'confidence', json(CASE WHEN (typeof(checkpoints.confidence) IN ('real', 'integer')) THEN
printf('%!.17g', checkpoints.confidence) ELSE json_quote(checkpoints.confidence) END), 'status', checkpoints.status,
'written_bytes', checkpoints.written_bytes, 'unique_bytes', checkpoints.unique_bytes, 'storage_bytes',
checkpoints.storage_bytes, 'cache', checkpoints.cache, 'owner', checkpoints.owner, 'limitations',
json(checkpoints.limitations), 'pattern', json(checkpoints.pattern), 'moments', json(checkpoints.moments), 'metadata',
json(checkpoints.metadata), 'overheads', json(checkpoints.overheads), 'blocked', json(checkpoints.blocked), 'sent',
json(checkpoints.sent), 'run', json(checkpoints.run), 'place', json(checkpoints.place), 'clock',
json(checkpoints.clock), 'verdict', json(checkpoints.verdict), 'cost', json(checkpoints.cost), 'measures',
json(checkpoints.measures), 'writers', json((SELECT json_group_array(json_object('pid', anon_1.pid, 'comm', anon_1.comm,
'bytes', anon_1.bytes, 'rank', anon_1.rank, 'start_ns', anon_1.start_ns, 'end_ns', anon_1.end_ns, 'role', anon_1.role))
AS json_group_array_1 FROM (SELECT writers.checkpoint_id AS checkpoint_id, writers.ordinal AS ordinal, writers.pid AS
pid, writers.comm AS comm, writers.bytes AS bytes, writers.rank AS rank, writers.start_ns AS start_ns, writers.end_ns AS
end_ns, writers.role AS role FROM writers WHERE writers.checkpoint_id = checkpoints.id ORDER BY writers.ordinal) AS
anon_1)), 'evidence', json((SELECT json_group_array(json_object('name', anon_2.name, 'weight', json(CASE WHEN
(typeof(anon_2.weight) IN ('real', 'integer')) THEN printf('%!.17g', anon_2.weight) ELSE json_quote(anon_2.weight) END),
'text', anon_2.text)) AS json_group_array_2 FROM (SELECT evidence.checkpoint_id AS checkpoint_id, evidence.ordinal AS
ordinal, evidence.name AS name, evidence.weight AS weight, evidence.text AS text FROM evidence WHERE
evidence.checkpoint_id = checkpoints.id ORDER BY evidence.ordinal) AS anon_2)), 'streams', json((SELECT
json_group_array(json_object('pid', anon_3.pid, 'comm', anon_3.comm, 'path', anon_3.path, 'bytes', anon_3.bytes, 'size',
anon_3.size, 'start_ns', anon_3.start_ns, 'end_ns', anon_3.end_ns, 'class', anon_3.class, 'observed_by',
anon_3.observed_by)) AS json_group_array_3 FROM (SELECT streams.checkpoint_id AS checkpoint_id, streams.ordinal AS
ordinal, streams.pid AS pid, streams.comm AS comm, streams.path AS path, streams.bytes AS bytes, streams.size AS size,
streams.start_ns AS start_ns, streams.end_ns AS end_ns, streams.class AS class, streams.observed_by AS observed_by FROM
streams WHERE streams.checkpoint_id = checkpoints.id ORDER BY streams.ordinal) AS anon_3)), 'devices', json((SELECT
json_group_array(json_object('device', anon_4.device, 'kind', anon_4.kind, 'read_bytes', anon_4.read_bytes,
'written_bytes', anon_4.written_bytes, 'busy_seconds', json(CASE WHEN (typeof(anon_4.busy_seconds) IN ('real',
'integer')) THEN printf('%!.17g', anon_4.busy_seconds) ELSE json_quote(anon_4.busy_seconds) END), 'under', anon_4.under,
'requests', anon_4.requests, 'mean_request_bytes', json(CASE WHEN (typeof(anon_4.mean_request_bytes) IN ('real',
'integer')) THEN printf('%!.17g', anon_4.mean_request_bytes) ELSE json_quote(anon_4.mean_request_bytes) END),
'sequential_share_bytes', json(CASE WHEN (typeof(anon_4.sequential_share_bytes) IN ('real', 'integer')) THEN
printf('%!.17g', anon_4.sequential_share_bytes) ELSE json_quote(anon_4.sequential_share_bytes) END),
'latency_p50_seconds', json(CASE WHEN (typeof(anon_4.latency_p50_seconds) IN ('real', 'integer')) THEN printf('%!.17g',
anon_4.latency_p50_seconds) ELSE json_quote(anon_4.latency_p50_seconds) END), 'latency_p99_seconds', json(CASE WHEN
(typeof(anon_4.latency_p99_seconds) IN ('real', 'integer')) THEN printf('%!.17g', anon_4.latency_p99_seconds) ELSE
json_quote(anon_4.latency_p99_seconds) END), 'max_in_flight', anon_4.max_in_flight)) AS json_group_array_4 FROM (SELECT
devices.checkpoint_id AS checkpoint_id, devices.ordinal AS ordinal, devices.device AS device, devices.kind AS kind,
devices.read_bytes AS read_bytes, devices.written_bytes AS written_bytes, devices.busy_seconds AS busy_seconds,
devices.under AS under, devices.requests AS requests, devices.mean_request_bytes AS mean_request_bytes,
devices.sequential_share_bytes AS sequential_share_bytes, devices.latency_p50_seconds AS latency_p50_seconds,
devices.latency_p99_seconds AS latency_p99_seconds, devices.max_in_flight AS max_in_flight FROM devices WHERE
devices.checkpoint_id = checkpoints.id ORDER BY devices.ordinal) AS anon_4)), 'progress_left_out',
checkpoints.progress_left_out) AS json_object_1, checkpoints.timeline, checkpoints.progress FROM checkpoints WHERE
checkpoints.id IN (SELECT checkpoints.id FROM checkpoints WHERE checkpoints.kind = 'save' AND checkpoints.end_ns >=
:since_ns AND checkpoints.start_ns <= :until_ns AND (EXISTS (SELECT evidence.ordinal FROM evidence WHERE
evidence.checkpoint_id = checkpoints.id AND evidence.name = 'cut-at-end'))) ORDER BY checkpoints.start_ns,
checkpoints.id"""
ENTITIES = """SELECT entities.name FROM entities ORDER BY entities.name"""
ADD_ENTITY = """INSERT INTO entities (name, observed_ns) VALUES (:name, :observed_ns) ON CONFLICT DO NOTHING"""
ENTITY = """SELECT entities.id FROM entities WHERE entities.name = :known"""
UPDATE_ENTITY = """UPDATE entities SET observed_ns=max(entities.observed_ns, :newest_ns) WHERE entities.id = :entity"""
EXPIRE_ENTITIES = """DELETE FROM entities WHERE entities.observed_ns < :limit_ns"""
ADD_LAYOUT = """INSERT INTO layouts (fields) VALUES (:fields) ON CONFLICT DO NOTHING"""
LAYOUT = """SELECT layouts.id FROM layouts WHERE layouts.fields = :known"""
LAYOUTS = """SELECT layouts.id, layouts.fields FROM layouts"""
BLOCKS = """SELECT {0}.id, {0}.layout, {0}.data FROM {0} WHERE {0}.id IN (SELECT anon_1.value FROM json_each(:ids) AS
anon_1) ORDER BY {0}.id"""
PUT_BLOCK = """INSERT OR REPLACE INTO {0} (id, layout, data) VALUES (:id, :layout, :data)"""
REMOVE_BLOCK = """DELETE FROM {0} WHERE {0}.id = :block"""
BLOCKS_BEFORE = """SELECT {0}.id FROM {0} WHERE {0}.id < :before"""
REMOVE_BEFORE = """DELETE FROM {0} WHERE {0}.id < :before"""
BLOCK_SPAN = """SELECT (SELECT min({0}.id) AS min_1 FROM {0}) AS anon_1, (SELECT max({0}.id) AS max_1 FROM {0}) AS
anon_2"""
BLOCKS_OF = """SELECT {0}.id FROM {0} WHERE ({0}.id & 4294967295) = :entity AND {0}.id BETWEEN :first AND :last ORDER BY
{0}.id"""
EXPIRE_MEASURES = """UPDATE checkpoints SET measures=NULL WHERE checkpoints.start_ns < :limit_ns AND
checkpoints.measures IS NOT NULL"""
SHRINK_MEASURES = """UPDATE checkpoints SET measures=NULL WHERE checkpoints.id IN (SELECT checkpoints.id FROM
checkpoints WHERE checkpoints.measures IS NOT NULL ORDER BY checkpoints.start_ns LIMIT :most OFFSET 0)"""
SHRINK_CHECKPOINTS = """DELETE FROM checkpoints WHERE checkpoints.id IN (SELECT checkpoints.id FROM checkpoints WHERE
checkpoints.owner IS (SELECT checkpoints.owner FROM checkpoints GROUP BY checkpoints.owner ORDER BY
sum(checkpoints.stored_bytes) DESC LIMIT 1 OFFSET 0) ORDER BY checkpoints.start_ns LIMIT :most OFFSET 0)"""
