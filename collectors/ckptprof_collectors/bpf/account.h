/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* One operation, into its session: the session is begun with its first, and told of while it lasts if it is large. */
#pragma once

#include "records.h"

static __always_inline void account(const bool typed, struct task_struct *task, struct file *file, struct inode *inode,
				    struct operation *operation)
{
	struct counters *own = own_counters();
	struct session *session;
	struct key key;

	make_key(typed, task, inode, operation->writes, &key);
	session = bpf_map_lookup_elem(&live, &key);
	if (!session) {
		session = begin(&key, operation, (unsigned long)inode, (unsigned long)task);
		if (!session)
			return;
	}
	add(session, operation, LOAD(typed, file, f_flags), LOAD(typed, inode, i_size));
	if (own) {
		own->operations++;
		if (!operation->since_ns)
			own->untimed_operations++;
	}
	if (!session->told && session->bytes >= LARGE_BYTES) {
		session->told = 1;
		tell_file(RECORD_SEEN, &key, (unsigned long)file, 0, 0);
	}
}
