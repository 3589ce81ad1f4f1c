/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* io_uring: counted as it is submitted, by whoever submits it. */
#pragma once

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
