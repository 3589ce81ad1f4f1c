/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Pages of mapped files; what gets dirty is listened to only while such a file is mapped to be written to. */
#pragma once

/* Whether the current thread touches mapped memory itself. */
static __always_inline bool touches(void)
{
	struct task_struct *task = current_task(false);

	return !(BPF_CORE_READ(task, flags) & (PF_IO_WORKER | PF_KTHREAD)) && is_ours(bpf_get_current_pid_tgid() >> 32);
}

/*
 * Pages of a mapped file were touched. A window of pages is mapped around a fault, perhaps again around the next one: what
 * lies in the window before does not count again.
 */
static __always_inline void faulted(const bool typed, struct inode *inode, __u64 first_page, __u64 pages, __u32 hook)
{
	struct super_block *super = LOAD(typed, inode, i_sb);
	struct operation operation = { .kind = KIND_FAULT };
	struct mapped_key file = {};
	struct task_struct *task;
	struct session *session;
	struct key key;
	__u64 *mode;
	__s64 end;

	file.inode = LOAD(typed, inode, i_ino);
	file.device = LOAD(typed, super, s_dev);
	mode = bpf_map_lookup_elem(&mapped, &file);
	if (!mode || !touches())
		return; /* first what nearly all faults end with: they are of code */
	task = current_task(typed);
	make_key(typed, task, inode, 0, &key);
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
	if (!operation.writes && !(session->kinds & KIND_FAULT))
		keep_reader(&key);
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
	add(session, &operation, 0, LOAD(typed, inode, i_size));
}

/* Whether pages are made dirty by a mapping: those of a write are counted as such. */
static __always_inline bool dirties(void)
{
	__u32 tid = bpf_get_current_pid_tgid(), index = tid & (IN_CALL_SLOTS - 1);
	struct in_call *slot = bpf_map_lookup_elem(&in_calls, &index);

	return !(slot && slot->tid == tid);
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
	faulted(false, BPF_CORE_READ(mapping, host), BPF_CORE_READ(folio, index), pages, FAULT_DIRTY);
	return 0;
}

SEC("raw_tp/writeback_dirty_page") /* until 5.17 */
int fault_dirty_page(struct bpf_raw_tracepoint_args *context)
{
	struct page *page = (void *)context->args[0];
	struct address_space *mapping = (void *)context->args[1];

	if (dirties() && mapping)
		faulted(false, BPF_CORE_READ(mapping, host), BPF_CORE_READ(page, index), 1, FAULT_DIRTY);
	return 0;
}

SEC("tp_btf/mm_filemap_map_pages") /* since 6.12: pages that were in memory, around a fault */
int fault_around(__u64 *context)
{
	struct address_space *mapping = (void *)context[0];
	__u64 first = context[1], last = context[2];

	if (mapping && last >= first)
		faulted(true, mapping->host, first, last - first + 1, FAULT_AROUND);
	return 0;
}

SEC("tp_btf/mm_filemap_fault") /* since 6.12 */
int fault_page(__u64 *context)
{
	struct address_space *mapping = (void *)context[0];

	if (mapping)
		faulted(true, mapping->host, context[1], 1, FAULT_PAGE);
	return 0;
}
