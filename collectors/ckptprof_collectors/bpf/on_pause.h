/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Writers that are held back because too much is dirty. */
#pragma once

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
