/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The maps of the trace, and how an operation is put into its session. */
#pragma once

#include "kernel.h"
#include "layouts.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* since 6.2: a load through what it returns costs an instruction and not a call; a bad address reads as 0 */
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym __weak;

#define CAST(type, pointer) ((type *)bpf_rdonly_cast((pointer), bpf_core_type_id_kernel(type)))

/* Each program exists twice; `typed` is a constant in each, so that only one side of this is left of it. */
#define LOAD(typed, pointer, member)                                                    \
	({                                                                              \
		typeof((pointer)->member) __value;                                      \
		if (typed)                                                              \
			__value = (pointer)->member;                                    \
		else                                                                    \
			bpf_core_read(&__value, sizeof(__value), &(pointer)->member);   \
		__value;                                                                \
	})

/* Whether the current task comes with its type, so that what hangs on it is loaded by an instruction, too. */
#define HAS_TYPED_TASK(typed)                                                                              \
	((typed) || bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))

#define LARGE_BYTES (1 << 20)
#define WINDOW_NS 100000000ULL
#define MAX_DEPTH 128
#define STRING_BYTES 2048 /* of the names that a rename is given */

const volatile struct config config SEC(".rodata.config") = {};

/* set by Python: shed, while so many calls are made that our cost is felt: sizes and times are left out then */
volatile struct control control SEC(".data.control") = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct key);
	__type(value, struct session);
} live SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} ring SEC(".maps");

/* processes that are traced (1), and processes of which only the children are traced (2); used if config.family_only */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} family SEC(".maps");

/* processes that Python watches (1), whose files it follows (2), and those that train (3); used if control.trifle_bytes */
#define ATTENDED_FOLLOWED 2
#define ATTENDED_TRAINS 3

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} attended SEC(".maps");

/* by process: the bytes that it read and wrote of files that are not told of, since Python asked last */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} trifles SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* the system call that each thread is in: a thread that shares its place with another one goes untimed */
struct in_call {
	__u64 since_ns;
	__u32 tid;
};

#define IN_CALL_SLOTS 65536

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, IN_CALL_SLOTS);
	__type(key, __u32);
	__type(value, struct in_call);
} in_calls SEC(".maps");

/* by thread: the file that it is closing */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct closing);
} closings SEC(".maps");

struct scratch {
	struct session_record record;
	char path[PATH_BYTES + 256];
	__u64 file; /* whose path is wanted: through memory a typed pointer becomes a number */
	__u32 used; /* bytes of names: in memory, where the verifier does not follow it through a loop */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

struct operation {
	__s64 offset;
	__u64 bytes;
	__u64 since_ns; /* 0: not timed */
	__u64 until_ns;
	__u32 writes;
	__u32 kind;
	__u64 faulted_bytes;
};

/* OperationKind of samples.py */
#define KIND_READ_WRITE 1
#define KIND_POSITIONED 2
#define KIND_AIO 4
#define KIND_URING 8
#define KIND_SENDFILE 16
#define KIND_SPLICE 32
#define KIND_COPY_RANGE 64
#define KIND_FAULT 128
#define KIND_UNMAPPED 256
#define KIND_APPEND 512

static __always_inline struct counters *own_counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

static __always_inline bool is_ours(__u32 process)
{
#pragma unroll
	for (int i = 0; i < MAX_IGNORED; i++)
		if (i < config.ignored_count && process == config.ignored[i])
			return false;
	if (config.family_only) {
		__u32 *member = bpf_map_lookup_elem(&family, &process);

		return member && *member == 1;
	}
	return true;
}

static __always_inline __u32 log2_of(__u64 value)
{
	__u32 result = 0;

	if (value >> 32)
		return SIZE_BUCKETS - 1;
	if (value >> 16) {
		result += 16;
		value >>= 16;
	}
	if (value >> 8) {
		result += 8;
		value >>= 8;
	}
	if (value >> 4) {
		result += 4;
		value >>= 4;
	}
	if (value >> 2) {
		result += 2;
		value >>= 2;
	}
	return result + (value >> 1);
}

static __always_inline struct task_struct *current_task(const bool typed)
{
	return HAS_TYPED_TASK(typed) ? bpf_get_current_task_btf() : (struct task_struct *)bpf_get_current_task();
}

static __always_inline struct file *file_of(const bool typed, struct task_struct *task, __u32 fd)
{
	struct files_struct *files = LOAD(HAS_TYPED_TASK(typed), task, files);
	struct fdtable *table;
	struct file **files_by_number;
	struct file *file = NULL;

	if (!files)
		return NULL;
	table = LOAD(HAS_TYPED_TASK(typed), files, fdt);
	if (!table || fd >= LOAD(HAS_TYPED_TASK(typed), table, max_fds))
		return NULL;
	files_by_number = LOAD(HAS_TYPED_TASK(typed), table, fd);
	if (typed)
		return CAST(struct file, CAST(struct hlist_head, files_by_number + fd)->first);
	bpf_probe_read_kernel(&file, sizeof(file), files_by_number + fd);
	return file;
}

static __always_inline bool is_regular(const bool typed, struct inode *inode)
{
	return inode && (LOAD(typed, inode, i_mode) & S_IFMT) == S_IFREG;
}

/* Files of the kernel itself and of memory: no checkpoint is there, and some are read all day long. */
static __always_inline bool is_kernels_own(__u64 magic, __u64 flags)
{
	switch (magic) { /* include/uapi/linux/magic.h */
	case 0x9fa0: /* proc */
	case 0x62656572: /* sysfs */
	case 0x27e0eb: /* cgroup */
	case 0x63677270: /* cgroup2 */
	case 0x74726163: /* tracefs */
	case 0x64626720: /* debugfs */
	case 0x73636673: /* securityfs */
	case 0xcafe4a11: /* bpf */
	case 0xf97cff8c: /* selinux */
	case 0xde5e81e4: /* efivarfs */
		return true;
	}
	return flags & SB_KERNMOUNT; /* memfd, System V shared memory */
}

static __always_inline void make_key(const bool typed, struct task_struct *task, struct inode *inode, __u32 writes,
				     struct key *key)
{
	struct super_block *super = LOAD(typed, inode, i_sb);

	key->inode = LOAD(typed, inode, i_ino);
	key->device = LOAD(typed, super, s_dev);
	key->generation = LOAD(typed, inode, i_generation);
	key->tid = LOAD(HAS_TYPED_TASK(typed), task, pid);
	key->tail = ((__u32)(LOAD(HAS_TYPED_TASK(typed), task, start_boottime) >> 20) << 1) | writes;
}

static __always_inline void lose(__u64 operations, __u64 bytes)
{
	struct counters *own = own_counters();

	if (own) {
		own->lost_operations += operations;
		own->lost_bytes += bytes;
	}
}

/* Seldom: once for each file that a thread uses. */
static __noinline struct session *begin(struct key *key, struct operation *operation, unsigned long inode_address,
					unsigned long task_address)
{
	struct inode *inode = (void *)inode_address;
	struct task_struct *task = (void *)task_address;
	struct super_block *super = BPF_CORE_READ(inode, i_sb);
	__u64 magic = BPF_CORE_READ(super, s_magic);
	struct session *session;
	struct scratch *scratch;
	__u32 zero = 0;

	if (is_kernels_own(magic, BPF_CORE_READ(super, s_flags)))
		return NULL;
	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!scratch)
		return NULL;
	session = &scratch->record.session;
	__builtin_memset(session, 0, sizeof(*session));
	session->process = bpf_get_current_pid_tgid() >> 32;
	session->process_start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	session->parent = BPF_CORE_READ(task, real_parent, tgid);
	session->first_ns = operation->since_ns ? operation->since_ns : operation->until_ns;
	session->first_offset = operation->offset;
	session->end_offset = operation->offset;
	session->low_offset = operation->offset;
	session->file_system = magic;
	bpf_get_current_comm(session->comm, sizeof(session->comm));
	if (bpf_map_update_elem(&live, key, session, BPF_NOEXIST)) {
		lose(1, operation->bytes);
		return NULL;
	}
	return bpf_map_lookup_elem(&live, key);
}

static __always_inline void add(struct session *session, struct operation *operation, __u32 flags, __s64 size)
{
	__u64 bytes = operation->bytes;
	__s64 end = operation->offset + bytes;
	__u32 bucket;

	session->operations++;
	session->bytes += bytes;
	if (operation->offset == session->end_offset) {
		session->consecutive_operations++;
		session->consecutive_bytes += bytes;
		session->sequential_operations++;
		session->sequential_bytes += bytes;
		session->run_bytes += bytes;
	} else {
		if (operation->offset > session->end_offset) {
			session->sequential_operations++;
			session->sequential_bytes += bytes;
		}
		session->run_bytes = bytes;
	}
	if (session->run_bytes >= LARGE_BYTES) {
		__u64 before = session->run_bytes - bytes;

		session->large_bytes += before < LARGE_BYTES ? session->run_bytes : bytes;
	}
	if (flags & O_DIRECT)
		session->direct_bytes += bytes;
	if (flags & O_APPEND)
		session->kinds |= KIND_APPEND;
	session->faulted_bytes += operation->faulted_bytes;
	if (operation->since_ns) {
		session->call_ns += operation->until_ns - operation->since_ns;
		session->timed_operations++;
	}
	session->last_ns = operation->until_ns;
	session->end_offset = end;
	if (operation->offset < session->low_offset)
		session->low_offset = operation->offset;
	if (end > session->high_offset)
		session->high_offset = end;
	session->size = size;
	session->kinds |= operation->kind;
	if (control.shed) {
		session->shed_operations++;
		return;
	}
	bucket = log2_of(bytes) & (SIZE_BUCKETS - 1);
	session->sizes_operations[bucket]++;
	session->sizes_bytes[bucket] += bytes;
}
