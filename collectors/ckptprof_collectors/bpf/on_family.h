/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Who belongs to a family. */
#pragma once

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
