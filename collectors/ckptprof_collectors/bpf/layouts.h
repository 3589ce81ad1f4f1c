/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Written by `python -m ckptprof_collectors.ebpf.layouts` from layouts.py: change it there. */
#pragma once

#define SIZE_BUCKETS 32
#define LATENCY_BUCKETS 40
#define COMM_BYTES 16
#define PATH_BYTES 4096
#define MAX_IGNORED 8

enum record_kind {
	RECORD_SESSION = 1,
	RECORD_SEEN = 2,
	RECORD_CREATED = 3,
	RECORD_SYNCED = 4,
	RECORD_MAPPED = 5,
	RECORD_RENAMED = 6,
	RECORD_UNLINKED = 7,
	RECORD_CLOSED = 8,
	RECORD_EMPTIED = 9,
};

enum path_kind {
	PATH_NONE = 0,
	PATH_NAMES = 1,
	PATH_CUT = 2,
	PATH_STRINGS = 3,
};

struct key {
	__u64 inode;
	__u32 device;
	__u32 generation;
	__u32 tid;
	__u32 tail;
};

struct session {
	__u64 process_start_ns;
	__u64 operations;
	__u64 bytes;
	__u64 consecutive_operations;
	__u64 consecutive_bytes;
	__u64 sequential_operations;
	__u64 sequential_bytes;
	__u64 large_bytes;
	__u64 direct_bytes;
	__u64 faulted_bytes;
	__u64 call_ns;
	__u64 timed_operations;
	__u64 first_ns;
	__u64 last_ns;
	__u64 closed_ns;
	__s64 first_offset;
	__s64 end_offset;
	__s64 low_offset;
	__s64 high_offset;
	__s64 size;
	__u64 run_bytes;
	__s64 window_offset;
	__u64 failed_ns;
	__u32 failed_operations;
	__u32 error;
	__u32 file_system;
	__u32 parent;
	__u32 process;
	__u32 kinds;
	__u32 told;
	__u32 shed_operations;
	char comm[16];
	__u32 sizes_operations[32];
	__u64 sizes_bytes[32];
};

struct head {
	__u32 kind;
	__u32 path_state;
	__u32 path_bytes;
	__u32 process;
	__u64 process_start_ns;
	__u64 at_ns;
	__u64 duration_ns;
	__s64 size;
	__u64 flags;
	__u64 file_system;
	struct key key;
};

struct session_record {
	struct head head;
	struct session session;
};

struct closing {
	struct key key;
	__s64 size;
	__u32 file_system;
	__u32 written;
};

struct pauses {
	__u64 process_start_ns;
	__u64 pauses;
	__u64 paused_jiffies;
};

struct counters {
	__u64 operations;
	__u64 untimed_operations;
	__u64 lost_operations;
	__u64 lost_bytes;
	__u64 lost_sessions;
	__u64 lost_events;
	__u64 socket_calls;
	__u64 window_ns;
	__u64 window_small;
	__u64 window_small_reads;
	__u64 jiffies;
	__u64 jiffies_ns;
};

struct config {
	__u32 family_only;
	__u32 small_bytes;
	__u32 small_per_window;
	__u32 small_read_bytes;
	__u32 small_reads_per_window;
	__u32 ignored_count;
	__u32 ignored[8];
};

struct control {
	__u32 shed;
	__u32 dirty_seen;
	__u32 trifle_bytes;
};

struct connection_key {
	__u64 cookie;
	__u32 process;
	__u32 nothing;
};

struct way {
	__u64 bytes;
	__u64 calls;
	__u64 began_ns;
	__u64 last_ns;
	__u64 run_from;
	__u64 parts;
	__u64 parts_bytes;
	__u64 largest_part_bytes;
};

struct connection {
	__u64 process_start_ns;
	struct way sent;
	struct way received;
	__u32 remote[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 family;
	__u32 tid;
};

struct block_key {
	__u32 device;
	__u32 writes;
};

struct block {
	__u64 requests;
	__u64 bytes;
	__u64 issued;
	__u64 issued_bytes;
	__u64 sequential_bytes;
	__u64 sizes[32];
	__u64 latencies[40];
};
