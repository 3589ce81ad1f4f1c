/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Files that are mapped into memory, of which pages may come and go by fault. */
#pragma once

struct mapped_key {
	__u64 inode;
	__u64 device;
};

#define FAULT_DIRTY 1 /* a page became dirty */
#define FAULT_AROUND 2 /* pages that were in memory were mapped around a fault */
#define FAULT_PAGE 3 /* a page was not mapped */

#define MAPPED_READ 1
#define MAPPED_WRITE 2

/* files of which pages may come and go by fault */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct mapped_key);
	__type(value, __u64);
} mapped SEC(".maps");

/* a mapping that is read, by where it begins */
struct mapping_key {
	__u64 address;
	__u64 process;
};

struct mapping {
	struct key key; /* of the session of who mapped it */
	__u64 file; /* held by the mapping */
	__u64 length;
	__u64 since_ns;
	__s64 file_pages; /* that its process had then */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct mapping_key);
	__type(value, struct mapping);
} mappings SEC(".maps");

/* by process: how many such mappings it has */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} mapping_counts SEC(".maps");

/* the file that a process has mapped to be written to, by where; at address 0 the last one */
struct written_mapping {
	struct mapped_key of;
	__u64 file; /* held by the mapping */
	__u64 address;
	__u64 length;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct mapping_key);
	__type(value, struct written_mapping);
} written_mappings SEC(".maps");

#define MAX_READERS 63

/* the threads of a process that touched a mapped file: each has a session of its own */
struct readers_key {
	__u64 inode;
	__u32 device;
	__u32 process;
};

struct reader {
	__u32 tid;
	__u32 tail; /* of its key: when it began */
};

struct told {
	__u64 bytes;
	__u64 last_ns;
};

struct readers {
	__u64 count;
	struct told before; /* of sessions that have ended with a descriptor while the mapping went on */
	struct reader threads[MAX_READERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct readers_key);
	__type(value, struct readers);
} readers SEC(".maps");

static const struct readers nobody;

#define SILENT_BYTES (4 << 20) /* less is not told from a look at one page of a large folio, or from a library's pages */

static __always_inline void make_readers_key(struct key *key, struct readers_key *of)
{
	of->inode = key->inode;
	of->device = key->device;
	of->process = bpf_get_current_pid_tgid() >> 32;
}

/* A thread has begun to touch a mapped file. */
static __noinline void keep_reader(struct key *key)
{
	struct readers_key of;
	struct readers *known;
	__u64 count;

	make_readers_key(key, &of);
	known = bpf_map_lookup_elem(&readers, &of);
	if (!known) {
		bpf_map_update_elem(&readers, &of, &nobody, BPF_NOEXIST);
		known = bpf_map_lookup_elem(&readers, &of);
		if (!known)
			return;
	}
	count = known->count;
	for (int i = 0; i < MAX_READERS; i++) {
		if (i >= count)
			break;
		if (known->threads[i].tid == key->tid && known->threads[i].tail == key->tail)
			return; /* its session before ended with a descriptor */
	}
	if (count < MAX_READERS) {
		known->threads[count].tid = key->tid;
		known->threads[count].tail = key->tail;
		known->count = count + 1;
	}
}

/* The pages of files that the current process has mapped; off by what each processor keeps back: less than a megabyte. */
static __always_inline __s64 file_pages_of(struct task_struct *task)
{
	struct mm_struct *memory = BPF_CORE_READ(task, mm);
	struct mm_struct___old *old = (void *)memory;

	if (!memory)
		return 0;
	/* not whether the old type exists: of one that the kernel lacks its modules are asked, as CAP_SYS_ADMIN may only */
	if (bpf_core_field_exists(old->rss_stat.count))
		return BPF_CORE_READ(old, rss_stat.count[0].counter);
	return BPF_CORE_READ(memory, rss_stat[0].count);
}

static __noinline void keep_mapping(struct key *key, unsigned long file_address, __u64 address, __u64 length)
{
	__u32 process = bpf_get_current_pid_tgid() >> 32, one = 1;
	struct mapping mapping = { .key = *key, .file = file_address, .length = length };
	struct mapping_key at = { .address = address, .process = process };
	__u32 *count;

	mapping.key.tail &= ~1;
	mapping.since_ns = bpf_ktime_get_ns();
	mapping.file_pages = file_pages_of((void *)bpf_get_current_task());
	if (bpf_map_update_elem(&mappings, &at, &mapping, BPF_NOEXIST))
		return; /* one that went another way than by munmap was here */
	count = bpf_map_lookup_elem(&mapping_counts, &process);
	if (count)
		++*count;
	else
		bpf_map_update_elem(&mapping_counts, &process, &one, BPF_ANY);
}

static __noinline void keep_written_mapping(struct mapped_key *of, unsigned long file_address, __u64 address,
					    __u64 length)
{
	struct mapping_key at = { .address = address, .process = bpf_get_current_pid_tgid() >> 32 };
	struct written_mapping mapping = { .of = *of, .file = file_address, .address = address, .length = length };

	bpf_map_update_elem(&written_mappings, &at, &mapping, BPF_ANY);
	at.address = 0;
	bpf_map_update_elem(&written_mappings, &at, &mapping, BPF_ANY);
}

/* A mapping was waited for until it was stored, or a part of it, which is looked for in the last one only. */
static __noinline void synced_mapping(__u64 address, __u64 duration_ns)
{
	struct mapping_key at = { .address = address, .process = bpf_get_current_pid_tgid() >> 32 };
	struct written_mapping *known = bpf_map_lookup_elem(&written_mappings, &at);
	struct inode *inode;
	struct file *file;
	struct key key;

	if (!known) {
		at.address = 0;
		known = bpf_map_lookup_elem(&written_mappings, &at);
	}
	if (!known || address - known->address >= known->length)
		return;
	file = (void *)known->file;
	inode = BPF_CORE_READ(file, f_inode);
	if (BPF_CORE_READ(inode, i_ino) != known->of.inode)
		return; /* the mapping is gone, and with it the file */
	make_key(false, current_task(false), inode, 1, &key);
	if (key.device == known->of.device)
		tell_file(RECORD_SYNCED, &key, (unsigned long)file, duration_ns, 0);
}

/* A session with faults ends, but not its mapping: a descriptor of the file is closed. */
static __noinline void keep_told(struct key *key, struct session *session)
{
	struct readers *known;
	struct readers_key of;

	make_readers_key(key, &of);
	known = bpf_map_lookup_elem(&readers, &of);
	if (!known)
		return;
	known->before.bytes += session->faulted_bytes;
	known->before.last_ns = session->last_ns;
}

#define TELLING 50 /* the last event tells when the last page came in, if events told of one in so many bytes */

/*
 * Count what came in without an event, as large folios do (mm/memory.c, do_set_pmd): how much more its process has
 * mapped than when the mapping began, beside what was told.
 */
static __noinline void count_silent(struct mapping *mapping, unsigned long inode_address, __u64 touched,
				    struct told *told)
{
	struct inode *inode = (void *)inode_address;
	struct operation operation = { .kind = KIND_FAULT };
	struct session *session;
	__s64 high_offset = 0;
	__u64 last_ns;

	if (touched > mapping->length)
		touched = mapping->length;
	if (touched <= told->bytes)
		return;
	operation.until_ns = bpf_ktime_get_ns();
	operation.bytes = touched - told->bytes;
	operation.faulted_bytes = operation.bytes;
	last_ns = told->bytes * TELLING >= touched ? told->last_ns : operation.until_ns;
	session = bpf_map_lookup_elem(&live, &mapping->key);
	if (session) {
		operation.offset = session->end_offset;
		high_offset = session->high_offset;
	} else {
		operation.since_ns = mapping->since_ns;
		session = begin(&mapping->key, &operation, inode_address, (unsigned long)bpf_get_current_task());
		operation.since_ns = 0;
	}
	if (!session)
		return;
	add(session, &operation, 0, BPF_CORE_READ(inode, i_size));
	session->last_ns = last_ns;
	if (high_offset)
		session->high_offset = high_offset; /* how far they went is not known */
}

/* Add up what the threads were told to have touched of a file. */
static __noinline void told_of(struct key *key, struct told *told)
{
	struct readers *known;
	struct readers_key of;
	struct key own = *key;

	make_readers_key(key, &of);
	known = bpf_map_lookup_elem(&readers, &of);
	if (!known)
		return;
	*told = known->before;
	for (int i = 0; i < MAX_READERS; i++) {
		struct session *session;

		if (i >= known->count)
			break;
		own.tid = known->threads[i].tid;
		own.tail = known->threads[i].tail;
		session = bpf_map_lookup_elem(&live, &own);
		if (!session || session->closed_ns || !(session->kinds & KIND_FAULT))
			continue;
		told->bytes += session->faulted_bytes;
		if (session->last_ns > told->last_ns)
			told->last_ns = session->last_ns;
	}
}

static __always_inline void end_reader(struct key *key, unsigned long file_address, __u32 kinds)
{
	struct session *session = bpf_map_lookup_elem(&live, key);

	if (!session || session->closed_ns || !(session->kinds & KIND_FAULT))
		return;
	session->kinds |= kinds;
	finish(key, session, file_address);
}

/* The sessions of those who touched a file by a mapping end with it. */
static __noinline void end_readers(struct key *key, unsigned long file_address, __u32 kinds)
{
	struct readers *known;
	struct readers_key of;
	struct key own = *key;

	make_readers_key(key, &of);
	known = bpf_map_lookup_elem(&readers, &of);
	if (known) {
		for (int i = 0; i < MAX_READERS; i++) {
			if (i >= known->count)
				break;
			own.tid = known->threads[i].tid;
			own.tail = known->threads[i].tail;
			end_reader(&own, file_address, kinds);
		}
		bpf_map_delete_elem(&readers, &of);
	}
	end_reader(key, file_address, kinds); /* it may have been told of only by count_silent */
}

/* A mapping ends. Its own bytes are known where no other one of its process is left. */
static __noinline void unmapped(__u64 address)
{
	__u32 process = bpf_get_current_pid_tgid() >> 32, *count;
	struct mapping_key at = { .address = address, .process = process };
	struct mapping *kept = bpf_map_lookup_elem(&mappings, &at), mapping;
	struct told told = {};
	struct inode *inode;
	struct file *file;
	__s64 touched;
	bool alone;

	if (!kept)
		return;
	mapping = *kept;
	bpf_map_delete_elem(&mappings, &at);
	count = bpf_map_lookup_elem(&mapping_counts, &process);
	if (count && *count)
		--*count;
	alone = count && !*count;
	file = (void *)mapping.file;
	inode = BPF_CORE_READ(file, f_inode);
	if (BPF_CORE_READ(inode, i_ino) != mapping.key.inode)
		return;
	touched = (file_pages_of((void *)bpf_get_current_task()) - mapping.file_pages) << 12;
	if (alone && touched >= SILENT_BYTES) {
		told_of(&mapping.key, &told);
		count_silent(&mapping, (unsigned long)inode, touched, &told);
	}
	end_readers(&mapping.key, mapping.file, alone ? KIND_UNMAPPED : 0);
}
