// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who reads and writes which file, and how: counted in maps, by system call, not streamed.
 *
 * Every hook is here in variants. Python loads the first that the kernel takes: `_typed` needs tp_btf and
 * bpf_rdonly_cast, `_portable` reads everything with helpers.
 */
#include "account.h"
#include "calls.h"
#include "mapped.h"
#include "on_begin.h"
#include "on_end.h"
#include "on_uring.h"
#include "on_pages.h"
#include "on_pause.h"
#include "on_family.h"
#include "on_sockets.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

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
