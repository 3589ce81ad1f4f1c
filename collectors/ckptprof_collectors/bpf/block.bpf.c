// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What whole disks are asked for and how long they take: sizes, order and latency of requests, counted in maps. */
#include "kernel.h"
#include "layouts.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define REQ_OP_MASK 0xff /* include/linux/blk_types.h */
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1
#define SECTOR_SHIFT 9

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 512);
	__type(key, struct block_key);
	__type(value, struct block);
} blocks SEC(".maps");

/* where the request that was issued last ended: one for all processors, a lost race costs one request's order */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 512);
	__type(key, struct block_key);
	__type(value, __u64);
} next_sectors SEC(".maps");

static const struct block nothing;

static __always_inline __u32 log2_of(__u64 value, __u32 limit)
{
	__u32 result = 0;

#pragma unroll
	for (int shift = 32; shift > 0; shift >>= 1)
		if (value >> shift) {
			result += shift;
			value >>= shift;
		}
	return result < limit ? result : limit - 1;
}

static __always_inline bool key_of(struct request *request, struct block_key *key)
{
	__u32 operation = BPF_CORE_READ(request, cmd_flags) & REQ_OP_MASK;
	struct gendisk *disk;

	if (operation != REQ_OP_READ && operation != REQ_OP_WRITE)
		return false; /* flushes and discards move no data */
	if (bpf_core_field_exists(struct request___old, rq_disk))
		disk = BPF_CORE_READ((struct request___old *)request, rq_disk);
	else
		disk = BPF_CORE_READ(request, q, disk);
	if (!disk)
		return false;
	key->device = (__u32)BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor);
	key->writes = operation;
	return true;
}

static __always_inline struct block *block_of(struct block_key *key)
{
	struct block *block = bpf_map_lookup_elem(&blocks, key);

	if (block)
		return block;
	bpf_map_update_elem(&blocks, key, &nothing, BPF_NOEXIST);
	return bpf_map_lookup_elem(&blocks, key);
}

static __always_inline int on_issue(struct request *request)
{
	__u32 bytes = BPF_CORE_READ(request, __data_len);
	__u64 sector = BPF_CORE_READ(request, __sector), after = sector + (bytes >> SECTOR_SHIFT);
	struct block_key key;
	struct block *block;
	__u64 *next;

	if (!bytes || !key_of(request, &key))
		return 0;
	block = block_of(&key);
	if (!block)
		return 0;
	next = bpf_map_lookup_elem(&next_sectors, &key);
	if (next) {
		if (*next == sector)
			block->sequential_bytes += bytes;
		*next = after;
	} else {
		bpf_map_update_elem(&next_sectors, &key, &after, BPF_ANY);
	}
	block->issued++;
	block->issued_bytes += bytes;
	block->sizes[log2_of(bytes, SIZE_BUCKETS) & (SIZE_BUCKETS - 1)]++;
	return 0;
}

SEC("raw_tp/block_rq_issue") /* before 5.11: (queue, request); a kernel with one argument refuses */
int issue_of_queue(struct bpf_raw_tracepoint_args *context)
{
	return on_issue((void *)context->args[1]);
}

SEC("raw_tp/block_rq_issue")
int issue_of_request(struct bpf_raw_tracepoint_args *context)
{
	return on_issue((void *)context->args[0]);
}

SEC("raw_tp/block_rq_complete")
int complete(struct bpf_raw_tracepoint_args *context)
{
	struct request *request = (void *)context->args[0];
	__u32 bytes = context->args[2], left = BPF_CORE_READ(request, __data_len), bucket;
	__u64 since_ns = BPF_CORE_READ(request, io_start_time_ns);
	struct block_key key;
	struct block *block;

	if (!bytes || !key_of(request, &key))
		return 0;
	block = block_of(&key);
	if (!block)
		return 0;
	block->bytes += bytes;
	if (bytes < left)
		return 0; /* a part of it */
	block->requests++;
	if (!since_ns)
		since_ns = BPF_CORE_READ(request, start_time_ns);
	if (!since_ns)
		return 0;
	bucket = log2_of(bpf_ktime_get_ns() - since_ns, LATENCY_BUCKETS);
	if (bucket < LATENCY_BUCKETS)
		block->latencies[bucket]++;
	return 0;
}
