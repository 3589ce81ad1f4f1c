/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls that are seen as they begin: what is timed, and what is closed. */
#pragma once

/* Seldom: of what may be written only. The time counts from the end of what we do ourselves. */
static __noinline void closes(struct key *key, unsigned long inode_address, __u32 written)
{
	struct inode *inode = (void *)inode_address;
	struct super_block *super = BPF_CORE_READ(inode, i_sb);
	__u64 magic = BPF_CORE_READ(super, s_magic);
	struct closing closing = {};
	struct in_call *slot;
	__u32 tid, index;

	if (is_kernels_own(magic, BPF_CORE_READ(super, s_flags)))
		return;
	closing.key = *key;
	closing.size = BPF_CORE_READ(inode, i_size);
	closing.file_system = magic;
	closing.written = written;
	tid = (__u32)bpf_get_current_pid_tgid();
	index = tid & (IN_CALL_SLOTS - 1);
	slot = bpf_map_lookup_elem(&in_calls, &index);
	if (!slot || bpf_map_update_elem(&closings, &tid, &closing, BPF_ANY))
		return;
	slot->tid = tid;
	slot->since_ns = bpf_ktime_get_ns();
}

static __always_inline void close_of(const bool typed, __u32 fd)
{
	struct task_struct *task = current_task(typed);
	struct file *file = file_of(typed, task, fd);
	struct session *session;
	struct inode *inode;
	struct key key;
	__u32 mode, written = 0;

	if (!file)
		return;
	inode = LOAD(typed, file, f_inode);
	if (!is_regular(typed, inode))
		return;
	mode = LOAD(typed, file, f_mode);
	make_key(typed, task, inode, 1, &key);
	if (mode & FMODE_WRITE) {
		session = bpf_map_lookup_elem(&live, &key);
		if (session && !session->closed_ns) {
			written = session->bytes >= config.small_bytes;
			finish(&key, session, (unsigned long)file);
		}
	}
	if (mode & FMODE_READ) {
		key.tail &= ~1;
		session = bpf_map_lookup_elem(&live, &key);
		if (session && !session->closed_ns) {
			if (session->kinds & KIND_FAULT)
				keep_told(&key, session);
			finish(&key, session, (unsigned long)file);
		}
	}
	if (mode & FMODE_WRITE) {
		key.tail |= 1;
		closes(&key, (unsigned long)inode, written);
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
	if (kind == CALL_UNMAP) {
		unmapped(ARGUMENT_1(true, regs));
		return 0;
	}
	if (kind >= CALL_CLOSE) {
		close_of(typed, kind == CALL_CLOSE ? ARGUMENT_1(true, regs) : ARGUMENT_2(true, regs));
		return 0;
	}
	if (control.shed && kind <= CALL_PWRITE)
		return 0;
	tid = own;
	index = tid & (IN_CALL_SLOTS - 1);
	slot = bpf_map_lookup_elem(&in_calls, &index);
	if (slot) {
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

SEC("tp_btf/sys_enter")
int call_enter_portable(__u64 *context)
{
	return on_enter(false, (void *)context[0], context[1]);
}
