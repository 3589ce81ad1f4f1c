/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Files that are mapped into memory, of which pages may come and go by fault. */
#pragma once

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
