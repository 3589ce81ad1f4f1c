/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls that are seen as they end. */
#pragma once

#define PROT_WRITE 2
#define PROT_EXEC 4
#define MAP_TYPE 0xf
#define MS_SYNC 4
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 0x20
#define MAP_DENYWRITE 0x800

struct iocb { /* include/uapi/linux/aio_abi.h, little endian */
	__u64 data;
	__u32 key;
	__s32 rw_flags;
	__u16 opcode;
	__s16 priority;
	__u32 fd;
	__u64 buffer;
	__u64 bytes;
	__s64 offset;
};

#define IOCB_PREAD 0
#define IOCB_PWRITE 1
#define IOCB_PREADV 7
#define IOCB_PWRITEV 8
#define MAX_IOCBS 64
#define MAX_IOVECS 16

struct iovec {
	__u64 base;
	__u64 length;
};

static __always_inline __u64 since(__u32 tid)
{
	__u32 index = tid & (IN_CALL_SLOTS - 1);
	struct in_call *slot = bpf_map_lookup_elem(&in_calls, &index);

	if (!slot || slot->tid != tid)
		return 0;
	slot->tid = 0;
	return slot->since_ns;
}

static __always_inline void used(const bool typed, struct task_struct *task, __u32 fd, struct operation *operation)
{
	struct file *file = file_of(typed, task, fd);
	struct inode *inode;

	if (!file)
		return;
	inode = LOAD(typed, file, f_inode);
	if (!is_regular(typed, inode))
		return;
	if (operation->offset < 0) /* where the file's own position was before */
		operation->offset = LOAD(typed, file, f_pos) - operation->bytes;
	account(typed, task, file, inode, operation);
}

static __noinline void used_portable(__u32 fd, struct operation *operation)
{
	used(false, current_task(false), fd, operation);
}

#define EAGAIN 11 /* of sockets mostly, by the thousand */
#define ERESTARTSYS 512 /* include/linux/errno.h: from here on the kernel makes the call again by itself */

static __always_inline bool is_failure(long result)
{
	return result < 0 && result > -ERESTARTSYS && result != -EAGAIN;
}

/* Seldom: a read or write failed, of a file that its thread has moved bytes of. */
static __noinline void failed(__u32 fd, __u32 writes, __u32 error)
{
	struct task_struct *task = current_task(false);
	struct file *file = file_of(false, task, fd);
	struct session *session;
	struct inode *inode;
	struct key key;

	if (!file)
		return;
	inode = BPF_CORE_READ(file, f_inode);
	if (!is_regular(false, inode))
		return;
	make_key(false, task, inode, writes, &key);
	session = bpf_map_lookup_elem(&live, &key);
	if (!session)
		return;
	session->failed_operations++;
	session->error = error;
	session->failed_ns = bpf_ktime_get_ns();
}

/* Where an operation began whose caller keeps the position: it has been moved on by now. */
static __always_inline __s64 callers_offset(__u64 address, __u64 bytes)
{
	__s64 offset = -1;

	if (!address || bpf_probe_read_user(&offset, sizeof(offset), (void *)address))
		return -1;
	return offset - (__s64)bytes;
}

static __always_inline void two_files(__u32 kind, struct pt_regs *regs, struct operation *operation)
{
	__u64 in_fd = ARGUMENT_1(false, regs), out_fd = ARGUMENT_3(false, regs);
	__u64 in_offset = ARGUMENT_2(false, regs), out_offset = ARGUMENT_4(false, regs);

	if (kind == CALL_SENDFILE) {
		out_fd = in_fd;
		in_fd = ARGUMENT_2(false, regs);
		in_offset = ARGUMENT_3(false, regs);
		out_offset = 0;
	}
	operation->kind = kind == CALL_SENDFILE ? KIND_SENDFILE :
			  kind == CALL_SPLICE	? KIND_SPLICE :
						  KIND_COPY_RANGE;
	operation->writes = 0;
	operation->offset = callers_offset(in_offset, operation->bytes);
	used_portable(in_fd, operation);
	operation->writes = 1;
	operation->offset = callers_offset(out_offset, operation->bytes);
	used_portable(out_fd, operation);
}

/* Global, as is the next: what it is called with is only numbers, so that the verifier looks at it once. */
__noinline __u64 sum_of(__u64 address, __u64 count)
{
	struct iovec vector;
	__u64 sum = 0;

	for (int i = 0; i < MAX_IOVECS; i++) {
		if (i >= count || bpf_probe_read_user(&vector, sizeof(vector), (struct iovec *)address + i))
			break;
		sum += vector.length;
	}
	return sum;
}

/* What is submitted goes on after the call: it is not timed. */
__noinline int submitted(__u64 block_address, __u64 now_ns)
{
	struct operation operation = { .until_ns = now_ns, .kind = KIND_AIO };
	struct iocb block;

	if (bpf_probe_read_user(&block, sizeof(block), (void *)block_address))
		return 1;
	operation.bytes = block.bytes;
	operation.offset = block.offset;
	if (block.opcode == IOCB_PREADV || block.opcode == IOCB_PWRITEV)
		operation.bytes = sum_of(block.buffer, block.bytes);
	else if (block.opcode != IOCB_PREAD && block.opcode != IOCB_PWRITE)
		return 0;
	operation.writes = block.opcode == IOCB_PWRITE || block.opcode == IOCB_PWRITEV;
	used_portable(block.fd, &operation);
	return 0;
}

/* Called by the program itself: with one more frame between them the stack would not do. */
static __noinline void submit(unsigned long regs_address, long count)
{
	struct pt_regs *regs = (void *)regs_address;
	__u64 blocks = ARGUMENT_3(false, regs), now_ns = bpf_ktime_get_ns();
	__u64 block;

	for (int i = 0; i < MAX_IOCBS && i < count; i++) {
		if (bpf_probe_read_user(&block, sizeof(block), (__u64 *)blocks + i))
			break;
		submitted(block, now_ns);
	}
	if (count > MAX_IOCBS)
		lose(count - MAX_IOCBS, 0);
}

/* Whether a file is code, or the names of a language: programs map these as they start, by the thousand. */
static __always_inline bool is_known_by_name(struct file *file)
{
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);
	__u32 length = BPF_CORE_READ(dentry, d_name.len);
	const unsigned char *name = BPF_CORE_READ(dentry, d_name.name);
	union {
		char letters[8];
		__u64 number;
	} part = {};
	bool locales = false;

	if (length == sizeof("locale-archive") - 1 && !bpf_probe_read_kernel(&part, sizeof(part), name))
		locales = part.number == *(const __u64 *)"locale-archive";
	if (length < 4 || bpf_probe_read_kernel(part.letters, 4, name + length - 4))
		return false;
	if (part.letters[1] == '.')
		return (part.letters[2] == 's' || part.letters[2] == 'm') && part.letters[3] == 'o';
	if (part.letters[0] == '.')
		return part.letters[1] == 'p' && part.letters[2] == 'y' && part.letters[3] == 'c';
	return locales && part.letters[0] == 'h' && part.letters[1] == 'i' && part.letters[2] == 'v' && part.letters[3] == 'e';
}

/* Not code, nor what the dynamic linker maps, nor what is too small to be a checkpoint. */
static __always_inline bool may_map_data(struct pt_regs *regs)
{
	__u64 flags = ARGUMENT_4(false, regs);

	return !(flags & (MAP_ANONYMOUS | MAP_DENYWRITE)) && ARGUMENT_2(false, regs) >= LARGE_BYTES &&
	       !(ARGUMENT_3(false, regs) & PROT_EXEC);
}

static __always_inline void mapped_file(struct pt_regs *regs, struct key *key, struct file *file, __u64 address)
{
	struct mapped_key pages = { .inode = key->inode, .device = key->device };
	__u64 length = ARGUMENT_2(false, regs), mode = MAPPED_READ;
	__u64 protection = ARGUMENT_3(false, regs), flags = ARGUMENT_4(false, regs);

	if (is_known_by_name(file))
		return;
	if (protection & PROT_WRITE && (flags & MAP_TYPE) != MAP_PRIVATE)
		mode = MAPPED_WRITE;
	bpf_map_update_elem(&mapped, &pages, &mode, BPF_ANY);
	if (mode == MAPPED_READ)
		keep_mapping(key, (unsigned long)file, address, length);
	else
		keep_written_mapping(&pages, (unsigned long)file, address, length);
	tell_file(RECORD_MAPPED, key, (unsigned long)file, 0, protection | flags << 32);
}

/* What happens seldom: opening, syncing, mapping, naming. Portable in both variants. */
static __noinline void rarely(unsigned long regs_address, long result, __u32 kind, __u64 since_ns)
{
	struct pt_regs *regs = (void *)regs_address;
	__u64 duration_ns = since_ns ? bpf_ktime_get_ns() - since_ns : 0;
	struct task_struct *task = current_task(false);
	__u64 folders = 0;
	struct inode *inode;
	struct file *file;
	struct key key;
	__u32 fd, mode;

	switch (kind) {
	case CALL_RENAME:
		if (!result)
			tell_names(RECORD_RENAMED, (void *)ARGUMENT_1(false, regs), (void *)ARGUMENT_2(false, regs),
				   duration_ns, 0xffffff9cffffff9cULL); /* AT_FDCWD, twice */
		return;
	case CALL_RENAMEAT:
		folders = (__u32)ARGUMENT_1(false, regs) | (__u64)ARGUMENT_3(false, regs) << 32;
		if (!result)
			tell_names(RECORD_RENAMED, (void *)ARGUMENT_2(false, regs), (void *)ARGUMENT_4(false, regs),
				   duration_ns, folders);
		return;
	case CALL_UNLINK:
		if (!result)
			tell_names(RECORD_UNLINKED, (void *)ARGUMENT_1(false, regs), NULL, duration_ns, 0xffffff9cULL);
		return;
	case CALL_UNLINKAT:
		if (!result)
			tell_names(RECORD_UNLINKED, (void *)ARGUMENT_2(false, regs), NULL, duration_ns,
				   (__u32)ARGUMENT_1(false, regs));
		return;
	case CALL_MKDIR:
		if (!result)
			tell_names(RECORD_CREATED, (void *)ARGUMENT_1(false, regs), NULL, duration_ns, 0xffffff9cULL);
		return;
	case CALL_MKDIRAT:
		if (!result)
			tell_names(RECORD_CREATED, (void *)ARGUMENT_2(false, regs), NULL, duration_ns,
				   (__u32)ARGUMENT_1(false, regs));
		return;
	case CALL_SYNC_ALL:
		if (!result)
			tell_sync(NULL, duration_ns);
		return;
	case CALL_SYNC_MAPPED:
		if (!result && ARGUMENT_3(false, regs) & MS_SYNC)
			synced_mapping(ARGUMENT_1(false, regs), duration_ns);
		return;
	case CALL_OPEN:
		fd = result;
		break;
	case CALL_MMAP:
		if (!may_map_data(regs))
			return;
		fd = ARGUMENT_5(false, regs);
		break;
	default:
		fd = ARGUMENT_1(false, regs);
	}
	if (result < 0 && result >= -4095 && !(kind == CALL_SYNC_FILE && is_failure(result)))
		return;
	file = file_of(false, task, fd);
	if (!file)
		return;
	mode = BPF_CORE_READ(file, f_mode);
	if (kind == CALL_OPEN && !(mode & FMODE_CREATED) && !(mode & FMODE_WRITE && duration_ns >= SLOW_NS))
		return;
	inode = BPF_CORE_READ(file, f_inode);
	make_key(false, task, inode, 1, &key);
	if (kind == CALL_SYNC_FS) {
		key.inode = 0; /* of all of its device */
		tell_sync(&key, duration_ns);
		return;
	}
	if (!is_regular(false, inode)) {
		if (kind == CALL_SYNC_FILE && !result)
			tell_sync(&key, duration_ns);
		return;
	}
	if (kind == CALL_OPEN && mode & FMODE_CREATED)
		tell_file(RECORD_CREATED, &key, (unsigned long)file, duration_ns, 0);
	else if (kind == CALL_OPEN && !BPF_CORE_READ(inode, i_size))
		tell_file(RECORD_EMPTIED, &key, (unsigned long)file, duration_ns, 0);
	else if (kind == CALL_SYNC_FILE)
		tell_file(RECORD_SYNCED, &key, (unsigned long)file, duration_ns, -result);
	else if (kind == CALL_MMAP)
		mapped_file(regs, &key, file, result);
}

static __noinline void seldom(unsigned long regs_address, long result, __u32 kind, __u64 since_ns)
{
	struct pt_regs *regs = (void *)regs_address;
	struct operation operation = { .bytes = result, .since_ns = since_ns };

	if (result <= 0) {
		if (is_failure(result))
			failed(kind == CALL_SENDFILE ? ARGUMENT_1(false, regs) : ARGUMENT_3(false, regs), 1, -result);
		return;
	}
	operation.until_ns = bpf_ktime_get_ns();
	two_files(kind, regs, &operation);
}

static __always_inline int on_exit(const bool typed, struct pt_regs *regs, long result)
{
	__u32 kind = kind_of(CALL_NUMBER(true, regs));
	struct operation operation = {};
	struct task_struct *task;
	__u32 tid;

	if (kind == CALL_NONE)
		return 0;
	task = current_task(typed);
	if (!is_ours(LOAD(HAS_TYPED_TASK(typed), task, tgid)))
		return 0;
	tid = LOAD(HAS_TYPED_TASK(typed), task, pid);
	operation.since_ns = since(tid);
	if (kind >= CALL_CLOSE) {
		if (operation.since_ns)
			closed(tid, operation.since_ns, is_failure(result) ? -result : 0);
		return 0;
	}
	if (kind > CALL_PWRITE) {
		if (kind >= CALL_SYNC_FILE)
			rarely((unsigned long)regs, result, kind, operation.since_ns);
		else if (kind == CALL_IO_SUBMIT)
			submit((unsigned long)regs, result);
		else if (kind != CALL_URING_ENTER)
			seldom((unsigned long)regs, result, kind, operation.since_ns);
		return 0;
	}
	if (result <= 0) {
		if (is_failure(result))
			failed(ARGUMENT_1(true, regs), kind == CALL_WRITE || kind == CALL_PWRITE, -result);
		return 0;
	}
	operation.until_ns = bpf_ktime_get_ns();
	operation.bytes = result;
	operation.writes = kind == CALL_WRITE || kind == CALL_PWRITE;
	if (kind == CALL_PREAD || kind == CALL_PWRITE) {
		operation.offset = ARGUMENT_4(true, regs);
		operation.kind = KIND_POSITIONED;
	} else {
		operation.offset = -1;
		operation.kind = KIND_READ_WRITE;
	}
	used(typed, task, ARGUMENT_1(true, regs), &operation);
	return 0;
}

SEC("tp_btf/sys_exit")
int call_exit_typed(__u64 *context)
{
	return on_exit(true, (void *)context[0], context[1]);
}

SEC("tp_btf/sys_exit")
int call_exit_portable(__u64 *context)
{
	return on_exit(false, (void *)context[0], context[1]);
}
