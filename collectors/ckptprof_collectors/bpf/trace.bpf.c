// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who reads and writes which file, and how: counted in maps, by system call, not streamed.
 *
 * Every hook is here in variants. Python loads the first that the kernel takes: `_typed` needs tp_btf and
 * bpf_rdonly_cast, `_portable` reads everything with helpers.
 */
#include "trace.h"
#include "calls.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#if defined(__TARGET_ARCH_x86)
#define CALL_NUMBER(typed, regs) LOAD(typed, regs, orig_ax)
#define ARGUMENT_1(typed, regs) LOAD(typed, regs, di)
#define ARGUMENT_2(typed, regs) LOAD(typed, regs, si)
#define ARGUMENT_3(typed, regs) LOAD(typed, regs, dx)
#define ARGUMENT_4(typed, regs) LOAD(typed, regs, r10)
#define ARGUMENT_5(typed, regs) LOAD(typed, regs, r8)
#else
#define CALL_NUMBER(typed, regs) LOAD(typed, regs, syscallno)
#define ARGUMENT_1(typed, regs) LOAD(typed, regs, orig_x0)
#define ARGUMENT_2(typed, regs) LOAD(typed, regs, regs[1])
#define ARGUMENT_3(typed, regs) LOAD(typed, regs, regs[2])
#define ARGUMENT_4(typed, regs) LOAD(typed, regs, regs[3])
#define ARGUMENT_5(typed, regs) LOAD(typed, regs, regs[4])
#endif

#define PROT_WRITE 2
#define PROT_EXEC 4
#define MAP_TYPE 0xf
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

static __always_inline __u32 kind_of(__u64 number)
{
	return number < CALLS ? kind_of_call[number] : CALL_NONE;
}

/* --- calls that are seen as they begin: what is timed, and what is closed --- */

static __always_inline void close_of(const bool typed, __u32 fd)
{
	struct task_struct *task = current_task(typed);
	struct file *file = file_of(typed, task, fd);
	struct session *session;
	struct inode *inode;
	struct key key;
	__u32 mode;

	if (!file)
		return;
	inode = LOAD(typed, file, f_inode);
	if (!is_regular(typed, inode))
		return;
	mode = LOAD(typed, file, f_mode);
	make_key(typed, task, inode, 1, &key);
	if (mode & FMODE_WRITE) {
		session = bpf_map_lookup_elem(&live, &key);
		if (session && !session->closed_ns)
			finish(&key, session, (unsigned long)file);
	}
	if (mode & FMODE_READ) {
		key.tail &= ~1;
		session = bpf_map_lookup_elem(&live, &key);
		if (session && !session->closed_ns)
			finish(&key, session, (unsigned long)file);
	}
}

static __always_inline int on_enter(const bool typed, struct pt_regs *regs, __u64 number)
{
	__u32 kind = kind_of(number);
	struct in_call *slot;
	__u32 tid, index;
	__u64 own;

	if (kind == CALL_NONE)
		return 0;
	own = bpf_get_current_pid_tgid();
	if (!is_ours(own >> 32))
		return 0;
	if (kind >= CALL_CLOSE) {
		close_of(typed, kind == CALL_CLOSE ? ARGUMENT_1(typed, regs) : ARGUMENT_2(typed, regs));
		return 0;
	}
	if (control.shed && kind <= CALL_PWRITE)
		return 0;
	tid = own;
	index = tid & (IN_CALL_SLOTS - 1);
	slot = bpf_map_lookup_elem(&in_calls, &index);
	if (slot) {
		slot->kind = kind;
		slot->tid = tid;
		slot->since_ns = bpf_ktime_get_ns();
	}
	return 0;
}

SEC("tp_btf/sys_enter")
int call_enter_typed(__u64 *context)
{
	return on_enter(true, (void *)context[0], context[1]);
}

SEC("raw_tp/sys_enter")
int call_enter_portable(struct bpf_raw_tracepoint_args *context)
{
	return on_enter(false, (void *)context->args[0], context->args[1]);
}

/* --- calls that are seen as they end --- */

static __always_inline __u64 since(__u32 tid)
{
	__u32 index = tid & (IN_CALL_SLOTS - 1);
	struct in_call *slot = bpf_map_lookup_elem(&in_calls, &index);

	if (!slot || slot->tid != tid)
		return 0;
	slot->tid = 0;
	return slot->since_ns;
}

static __always_inline void used(const bool typed, __u32 fd, struct operation *operation)
{
	struct task_struct *task = current_task(typed);
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
	used(false, fd, operation);
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

static __always_inline void submit(struct pt_regs *regs, long count, __u64 now_ns)
{
	__u64 blocks = ARGUMENT_3(false, regs);
	__u64 block;

	for (int i = 0; i < MAX_IOCBS && i < count; i++) {
		if (bpf_probe_read_user(&block, sizeof(block), (__u64 *)blocks + i))
			break;
		submitted(block, now_ns);
	}
	if (count > MAX_IOCBS)
		lose(count - MAX_IOCBS, 0);
}

static __always_inline void mapped_file(struct pt_regs *regs, struct key *key, struct file *file)
{
	struct mapped_key pages = { .inode = key->inode, .device = key->device };
	__u64 length = ARGUMENT_2(false, regs), mode = MAPPED_READ;
	__u64 protection = ARGUMENT_3(false, regs), flags = ARGUMENT_4(false, regs);

	if (protection & PROT_EXEC || flags & MAP_DENYWRITE || length < LARGE_BYTES)
		return; /* code, what the dynamic linker maps, and what is too small to be a checkpoint */
	if (protection & PROT_WRITE && (flags & MAP_TYPE) != MAP_PRIVATE)
		mode = MAPPED_WRITE;
	bpf_map_update_elem(&mapped, &pages, &mode, BPF_ANY);
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
	__u32 fd;

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
	case CALL_OPEN:
		fd = result;
		break;
	case CALL_MMAP:
		if (ARGUMENT_4(false, regs) & MAP_ANONYMOUS)
			return;
		fd = ARGUMENT_5(false, regs);
		break;
	default:
		fd = ARGUMENT_1(false, regs);
	}
	if (result < 0 && result >= -4095)
		return;
	file = file_of(false, task, fd);
	if (!file)
		return;
	inode = BPF_CORE_READ(file, f_inode);
	if (!is_regular(false, inode))
		return;
	make_key(false, task, inode, 1, &key);
	if (kind == CALL_OPEN && BPF_CORE_READ(file, f_mode) & FMODE_CREATED)
		tell_file(RECORD_CREATED, &key, (unsigned long)file, duration_ns, 0);
	else if (kind == CALL_SYNC_FILE)
		tell_file(RECORD_SYNCED, &key, (unsigned long)file, duration_ns, 0);
	else if (kind == CALL_MMAP)
		mapped_file(regs, &key, file);
}

static __noinline void seldom(unsigned long regs_address, long result, __u32 kind, __u64 since_ns)
{
	struct pt_regs *regs = (void *)regs_address;
	struct operation operation = { .bytes = result, .since_ns = since_ns };

	if (result <= 0)
		return;
	operation.until_ns = bpf_ktime_get_ns();
	if (kind == CALL_IO_SUBMIT)
		submit(regs, result, operation.until_ns);
	else
		two_files(kind, regs, &operation);
}

static __always_inline int on_exit(const bool typed, struct pt_regs *regs, long result)
{
	__u32 kind = kind_of(CALL_NUMBER(typed, regs));
	struct operation operation = {};
	__u64 own;

	if (kind == CALL_NONE || kind >= CALL_CLOSE)
		return 0;
	own = bpf_get_current_pid_tgid();
	if (!is_ours(own >> 32))
		return 0;
	operation.since_ns = since(own);
	if (kind > CALL_PWRITE) {
		if (kind >= CALL_SYNC_FILE)
			rarely((unsigned long)regs, result, kind, operation.since_ns);
		else if (kind != CALL_URING_ENTER)
			seldom((unsigned long)regs, result, kind, operation.since_ns);
		return 0;
	}
	if (result <= 0)
		return 0;
	operation.until_ns = bpf_ktime_get_ns();
	operation.bytes = result;
	operation.writes = kind == CALL_WRITE || kind == CALL_PWRITE;
	if (kind == CALL_PREAD || kind == CALL_PWRITE) {
		operation.offset = ARGUMENT_4(typed, regs);
		operation.kind = KIND_POSITIONED;
	} else {
		operation.offset = -1;
		operation.kind = KIND_READ_WRITE;
	}
	used(typed, ARGUMENT_1(typed, regs), &operation);
	return 0;
}

SEC("tp_btf/sys_exit")
int call_exit_typed(__u64 *context)
{
	return on_exit(true, (void *)context[0], context[1]);
}

SEC("raw_tp/sys_exit")
int call_exit_portable(struct bpf_raw_tracepoint_args *context)
{
	return on_exit(false, (void *)context->args[0], context->args[1]);
}

/* --- io_uring: counted as it is submitted, by whoever submits it --- */

#define URING_READV 1
#define URING_WRITEV 2
#define URING_READ_FIXED 4
#define URING_WRITE_FIXED 5
#define URING_READ 22
#define URING_WRITE 23
#define URING_FIXED_FILE 1

static __always_inline struct file *registered_file(struct io_kiocb *request, __u32 index)
{
	struct io_ring_ctx *ring_context = BPF_CORE_READ(request, ctx);
	struct io_file_table *table = (void *)ring_context + bpf_core_field_offset(struct io_ring_ctx, file_table);
	unsigned long pointer = 0;

	if (bpf_core_field_exists(struct io_file_table, data)) {
		struct io_rsrc_node **nodes = BPF_CORE_READ(table, data.nodes), *node = NULL;

		bpf_probe_read_kernel(&node, sizeof(node), nodes + index);
		pointer = BPF_CORE_READ(node, file_ptr);
	} else {
		struct io_file_table___files *older = (void *)table;
		struct io_fixed_file *files = BPF_CORE_READ(older, files);

		bpf_probe_read_kernel(&pointer, sizeof(pointer), files + index);
	}
	return (struct file *)(pointer & ~7UL);
}

static __always_inline int on_submit(struct io_kiocb *request)
{
	struct task_struct *task = current_task(false);
	struct operation operation = { .kind = KIND_URING };
	__u8 opcode = BPF_CORE_READ(request, opcode), flags = 0;
	struct inode *inode;
	struct io_rw *call;
	struct file *file;

	switch (opcode) {
	case URING_WRITEV:
	case URING_WRITE_FIXED:
	case URING_WRITE:
		operation.writes = 1;
	case URING_READV:
	case URING_READ_FIXED:
	case URING_READ:
		break;
	default:
		return 0;
	}
	if (!is_ours(bpf_get_current_pid_tgid() >> 32))
		return 0;
	if (bpf_core_field_exists(struct io_kiocb___rw, rw)) {
		call = (void *)request + bpf_core_field_offset(struct io_kiocb___rw, rw);
		file = BPF_CORE_READ(request, file);
	} else {
		__u32 fd = BPF_CORE_READ(request, cqe.fd);

		call = (void *)request + bpf_core_field_offset(struct io_kiocb, cmd);
		bpf_probe_read_kernel(&flags, sizeof(flags), __builtin_preserve_access_index(&request->flags));
		file = flags & URING_FIXED_FILE ? registered_file(request, fd) : file_of(false, task, fd);
	}
	if (!file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	if (!is_regular(false, inode))
		return 0;
	operation.offset = BPF_CORE_READ(call, kiocb.ki_pos);
	operation.bytes = BPF_CORE_READ(call, len);
	if (opcode == URING_READV || opcode == URING_WRITEV)
		operation.bytes = sum_of(BPF_CORE_READ(call, addr), operation.bytes);
	if (operation.offset < 0)
		operation.offset = BPF_CORE_READ(file, f_pos);
	operation.until_ns = bpf_ktime_get_ns();
	account(false, task, file, inode, &operation);
	return 0;
}

SEC("raw_tp/io_uring_submit_req") /* since 6.4 */
int uring_submit_request(struct bpf_raw_tracepoint_args *context)
{
	return on_submit((void *)context->args[0]);
}

SEC("raw_tp/io_uring_submit_sqe") /* until 5.18: (ring, request, opcode, ...); a kernel with fewer arguments refuses */
int uring_submit_ring(struct bpf_raw_tracepoint_args *context)
{
	return context->args[3] == -1 ? 0 : on_submit((void *)context->args[1]);
}

SEC("raw_tp/io_uring_submit_sqe") /* 5.19 to 6.3: (request, ...) */
int uring_submit_entry(struct bpf_raw_tracepoint_args *context)
{
	return on_submit((void *)context->args[0]);
}

/* --- pages of mapped files; what gets dirty is listened to only while such a file is mapped to be written to --- */

/*
 * Pages of a mapped file were touched. A window of pages is mapped around a fault, perhaps again around the next one: what
 * lies in the window before does not count again.
 */
static __always_inline void faulted(struct inode *inode, __u64 first_page, __u64 pages, __u32 hook)
{
	struct task_struct *task = current_task(false);
	struct operation operation = { .kind = KIND_FAULT };
	struct mapped_key file = {};
	struct session *session;
	struct key key;
	__u64 *mode;
	__s64 end;

	make_key(false, task, inode, 0, &key);
	file.inode = key.inode;
	file.device = key.device;
	mode = bpf_map_lookup_elem(&mapped, &file);
	if (!mode)
		return;
	if (hook == FAULT_DIRTY) {
		control.dirty_seen = 1;
		operation.writes = 1;
	} else if (*mode == MAPPED_WRITE) {
		/* touched to be written to: told by its getting dirty, as soon as that is listened to */
		if (control.dirty_seen || hook == FAULT_AROUND)
			return;
		operation.writes = 1;
	}
	key.tail |= operation.writes;
	operation.offset = first_page << 12;
	operation.until_ns = bpf_ktime_get_ns();
	session = bpf_map_lookup_elem(&live, &key);
	if (!session)
		session = begin(&key, &operation, (unsigned long)inode, (unsigned long)task);
	if (!session)
		return;
	operation.bytes = pages << 12;
	end = operation.offset + operation.bytes;
	if (!operation.writes && session->kinds & KIND_FAULT && operation.offset >= session->window_offset &&
	    operation.offset < session->end_offset) {
		if (end <= session->end_offset)
			return;
		operation.bytes = end - session->end_offset;
		operation.offset = session->end_offset;
	}
	session->window_offset = first_page << 12;
	operation.faulted_bytes = operation.bytes;
	add(session, &operation, 0, BPF_CORE_READ(inode, i_size));
}

/* Whether the current thread touches mapped memory itself. */
static __always_inline bool touches(void)
{
	struct task_struct *task = current_task(false);

	return !(BPF_CORE_READ(task, flags) & (PF_IO_WORKER | PF_KTHREAD)) && is_ours(bpf_get_current_pid_tgid() >> 32);
}

/* The same, of pages made dirty: those of a write are counted as such. */
static __always_inline bool dirties(void)
{
	__u32 tid = bpf_get_current_pid_tgid(), index = tid & (IN_CALL_SLOTS - 1);
	struct in_call *slot = bpf_map_lookup_elem(&in_calls, &index);

	return !(slot && slot->tid == tid) && touches();
}

SEC("raw_tp/writeback_dirty_folio") /* since 5.18 */
int fault_dirty(struct bpf_raw_tracepoint_args *context)
{
	struct folio *folio = (void *)context->args[0];
	struct address_space *mapping = (void *)context->args[1];
	__u64 flags, pages = 1;

	if (!dirties() || !mapping)
		return 0;
	if (bpf_core_field_exists(struct folio___wrapped, flags.f))
		flags = BPF_CORE_READ((struct folio___wrapped *)folio, flags.f);
	else
		flags = BPF_CORE_READ(folio, flags);
	if (bpf_core_enum_value_exists(enum pageflags, PG_head) &&
	    flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1) {
		if (bpf_core_field_exists(struct folio, _nr_pages))
			pages = BPF_CORE_READ(folio, _nr_pages);
		else if (bpf_core_field_exists(struct folio___old, _folio_nr_pages))
			pages = BPF_CORE_READ((struct folio___old *)folio, _folio_nr_pages);
	}
	faulted(BPF_CORE_READ(mapping, host), BPF_CORE_READ(folio, index), pages, FAULT_DIRTY);
	return 0;
}

SEC("raw_tp/writeback_dirty_page") /* until 5.17 */
int fault_dirty_page(struct bpf_raw_tracepoint_args *context)
{
	struct page *page = (void *)context->args[0];
	struct address_space *mapping = (void *)context->args[1];

	if (dirties() && mapping)
		faulted(BPF_CORE_READ(mapping, host), BPF_CORE_READ(page, index), 1, FAULT_DIRTY);
	return 0;
}

SEC("raw_tp/mm_filemap_map_pages") /* since 6.12: pages that were in memory, around a fault */
int fault_around(struct bpf_raw_tracepoint_args *context)
{
	struct address_space *mapping = (void *)context->args[0];
	__u64 first = context->args[1], last = context->args[2];

	if (touches() && last >= first)
		faulted(BPF_CORE_READ(mapping, host), first, last - first + 1, FAULT_AROUND);
	return 0;
}

SEC("raw_tp/mm_filemap_fault") /* since 6.12 */
int fault_page(struct bpf_raw_tracepoint_args *context)
{
	struct address_space *mapping = (void *)context->args[0];

	if (touches())
		faulted(BPF_CORE_READ(mapping, host), context->args[1], 1, FAULT_PAGE);
	return 0;
}

/* --- writers that are held back because too much is dirty --- */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct pauses);
} paused SEC(".maps");

static __always_inline int on_pause(long jiffies)
{
	struct task_struct *task = current_task(false);
	__u32 process = bpf_get_current_pid_tgid() >> 32;
	struct pauses *pauses, none = {};

	if (jiffies <= 0 || !is_ours(process))
		return 0;
	pauses = bpf_map_lookup_elem(&paused, &process);
	if (!pauses) {
		none.process_start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
		bpf_map_update_elem(&paused, &process, &none, BPF_NOEXIST);
		pauses = bpf_map_lookup_elem(&paused, &process);
		if (!pauses)
			return 0;
	}
	__sync_fetch_and_add(&pauses->pauses, 1);
	__sync_fetch_and_add(&pauses->paused_jiffies, jiffies);
	return 0;
}

SEC("raw_tp/balance_dirty_pages") /* until 6.12: the pause is argument 10 of 12; a kernel with fewer refuses */
int pause_of_12(struct bpf_raw_tracepoint_args *context)
{
	return context->args[11] == 1 ? 0 : on_pause(context->args[10]);
}

SEC("raw_tp/balance_dirty_pages") /* argument 6 of 8 */
int pause_of_8(struct bpf_raw_tracepoint_args *context)
{
	return on_pause(context->args[6]);
}

/* --- who belongs to a family --- */

SEC("raw_tp/sched_process_fork")
int family_grows(struct bpf_raw_tracepoint_args *context)
{
	struct task_struct *parent = (void *)context->args[0], *child = (void *)context->args[1];
	__u32 process = BPF_CORE_READ(parent, tgid), born = BPF_CORE_READ(child, tgid), member = 1;

	if (config.family_only && process != born && bpf_map_lookup_elem(&family, &process))
		bpf_map_update_elem(&family, &born, &member, BPF_ANY);
	return 0;
}

/* Its number may soon be another's. */
SEC("raw_tp/sched_process_exit")
int family_shrinks(struct bpf_raw_tracepoint_args *context)
{
	struct task_struct *task = (void *)context->args[0];
	__u32 process = BPF_CORE_READ(task, tgid);

	if (config.family_only && process == (__u32)BPF_CORE_READ(task, pid))
		bpf_map_delete_elem(&family, &process);
	return 0;
}

/* Run by Python, twice, to learn how long a jiffy is. */
SEC("raw_tp/sys_enter")
int read_clock(struct bpf_raw_tracepoint_args *context)
{
	struct counters *own = own_counters();

	if (own) {
		own->jiffies = bpf_jiffies64();
		own->jiffies_ns = bpf_ktime_get_ns();
	}
	return 0;
}
