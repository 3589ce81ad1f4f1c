/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What goes through the ring: sessions that are over, paths, and what happens to files beside reading and writing. */
#pragma once

#include "trace.h"

#define AFTER_HEAD 0 /* where in the scratch the names go */
#define AFTER_SESSION 1

/*
 * Write the names of a file, from its own up to the root that its process sees; returns PathState << 16 | bytes.
 *
 * A global function with a number for its argument: the verifier looks at its loop once, and not at each place it is used.
 */
__noinline int walk(int place)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct dentry *root = BPF_CORE_READ(task, fs, root.dentry), *dentry;
	struct vfsmount *root_view = BPF_CORE_READ(task, fs, root.mnt), *view;
	unsigned long inside = bpf_core_field_offset(struct mount, mnt);
	struct scratch *scratch;
	struct mount *mount;
	struct file *file;
	__u32 zero = 0;
	char *out;

	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!scratch)
		return 0;
	file = (void *)scratch->file;
	dentry = BPF_CORE_READ(file, f_path.dentry);
	view = BPF_CORE_READ(file, f_path.mnt);
	mount = (void *)view - inside;
	out = place == AFTER_HEAD ? (char *)&scratch->record.session : scratch->path;
	scratch->used = 0;
	for (int i = 0; i < MAX_DEPTH; i++) {
		struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
		__u32 used = scratch->used;
		long length;

		if (dentry == root && view == root_view)
			return PATH_NAMES << 16 | (used & 0x1fff);
		if (dentry == BPF_CORE_READ(view, mnt_root) || dentry == parent) {
			struct mount *above = BPF_CORE_READ(mount, mnt_parent);

			if (above == mount || !above)
				return PATH_NAMES << 16 | (used & 0x1fff);
			dentry = BPF_CORE_READ(mount, mnt_mountpoint);
			mount = above;
			view = (void *)mount + inside;
			continue;
		}
		if (used > PATH_BYTES - 256)
			break;
		length = bpf_probe_read_kernel_str(out + (used & (PATH_BYTES - 1)), 256,
						   BPF_CORE_READ(dentry, d_name.name));
		if (length <= 0)
			break;
		scratch->used = used + length;
		dentry = parent;
	}
	return PATH_CUT << 16 | (scratch->used & 0x1fff);
}

static __always_inline __u64 wakeup(void)
{
	__u64 waiting = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);

	return waiting * 2 > bpf_ringbuf_query(&ring, BPF_RB_RING_SIZE) ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

static __always_inline bool send(void *record, __u64 size, __u64 flags)
{
	if (size > sizeof(struct scratch) || bpf_ringbuf_output(&ring, record, size, flags)) {
		struct counters *own = own_counters();

		if (own)
			own->lost_events++;
		return false;
	}
	return true;
}

/* Whether one more small matter may be told of: so many in a tenth of a second and processor. The caller counts others. */
static __always_inline bool may_tell(__u64 now_ns, bool reads)
{
	struct counters *own = own_counters();

	if (!own)
		return false;
	if (now_ns - own->window_ns > WINDOW_NS) {
		own->window_ns = now_ns;
		own->window_small = 0;
		own->window_small_reads = 0;
	}
	if (reads)
		return ++own->window_small_reads <= config.small_reads_per_window;
	return ++own->window_small <= config.small_per_window;
}

static __always_inline bool is_small(struct key *key, struct session *session)
{
	return session->bytes < (key->tail & 1 ? config.small_bytes : config.small_read_bytes);
}

/* The same for an event; what is not told is counted here. */
static __always_inline bool may_tell_event(__u64 now_ns)
{
	struct counters *own = own_counters();

	if (may_tell(now_ns, false))
		return true;
	if (own)
		own->lost_events++;
	return false;
}

static __always_inline void fill_head(struct head *head, __u32 kind, struct key *key, __u64 at_ns)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	head->kind = kind;
	head->path_state = PATH_NONE;
	head->path_bytes = 0;
	head->process = bpf_get_current_pid_tgid() >> 32;
	head->process_start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	head->at_ns = at_ns;
	head->duration_ns = 0;
	head->size = 0;
	head->flags = 0;
	head->file_system = 0;
	head->key = *key;
}

static __always_inline bool is_attended(__u32 process, __u32 least)
{
	__u32 *attended_as = bpf_map_lookup_elem(&attended, &process);

	return attended_as && *attended_as >= least;
}

/* Whether the process that runs is not followed, and its parents do not train: its small files are only summed up. */
static __noinline bool is_stranger(void)
{
	struct task_struct *task = (void *)bpf_get_current_task(), *parent = BPF_CORE_READ(task, real_parent);

	return control.trifle_bytes && !is_attended(bpf_get_current_pid_tgid() >> 32, ATTENDED_FOLLOWED) &&
	       !is_attended(BPF_CORE_READ(parent, tgid), ATTENDED_TRAINS) &&
	       !is_attended(BPF_CORE_READ(parent, real_parent, tgid), ATTENDED_TRAINS);
}

#define WAITED_NS 100000000ULL /* a call that waits for so long is told of, whoever makes it: it may begin a save */

static __always_inline bool is_of_stranger(__u32 kind, __u64 duration_ns)
{
	return (kind == RECORD_CREATED || kind == RECORD_EMPTIED || kind == RECORD_UNLINKED) &&
	       duration_ns < WAITED_NS && is_stranger();
}

/* Tell of a file by its path: that it is being used, was created, synced or mapped. */
static __noinline void tell_file(__u32 kind, struct key *key, unsigned long file_address, __u64 duration_ns,
				 __u64 flags)
{
	struct file *file = (void *)file_address;
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct super_block *super = BPF_CORE_READ(inode, i_sb);
	__u64 now_ns = bpf_ktime_get_ns();
	struct scratch *scratch;
	__u32 zero = 0, path;
	struct head *head;

	if (is_of_stranger(kind, duration_ns) || (kind != RECORD_SEEN && !may_tell_event(now_ns)))
		return;
	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!scratch)
		return;
	head = &scratch->record.head;
	fill_head(head, kind, key, now_ns);
	head->duration_ns = duration_ns;
	head->flags = flags;
	head->size = BPF_CORE_READ(inode, i_size);
	head->file_system = BPF_CORE_READ(super, s_magic);
	scratch->file = file_address;
	path = walk(AFTER_HEAD);
	head->path_state = path >> 16;
	head->path_bytes = path & 0xffff;
	/* of a mapping Python is to know at once: only then it has its faults counted */
	send(scratch, sizeof(*head) + (path & 0x1fff), kind == RECORD_MAPPED ? BPF_RB_FORCE_WAKEUP : wakeup());
}

/* Whether next to nothing was transferred, by a process that is not followed and none that trains has started. */
static __always_inline bool is_trifle(struct session *session)
{
	return session->bytes < control.trifle_bytes && !is_attended(session->process, ATTENDED_FOLLOWED) &&
	       !is_attended(session->parent, ATTENDED_TRAINS) && is_stranger();
}

static __always_inline void add_trifle(__u32 process, __u64 bytes)
{
	__u64 *sum = bpf_map_lookup_elem(&trifles, &process);

	if (sum)
		__sync_fetch_and_add(sum, bytes);
	else
		bpf_map_update_elem(&trifles, &process, &bytes, BPF_ANY);
}

/* End a session: what it came to goes through the ring, or stays in the map, marked, for the next reading of it. */
static __noinline void finish(struct key *key, struct session *session, unsigned long file_address)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct scratch *scratch;
	__u32 zero = 0, path;

	if (is_trifle(session)) { /* its operations have been counted */
		add_trifle(session->process, session->bytes);
		bpf_map_delete_elem(&live, key);
		return;
	}
	if (is_small(key, session) && !may_tell(now_ns, !(key->tail & 1))) {
		struct counters *own = own_counters();

		if (own)
			own->lost_sessions++;
		lose(session->operations, session->bytes);
		bpf_map_delete_elem(&live, key);
		return;
	}
	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!scratch)
		return;
	fill_head(&scratch->record.head, RECORD_SESSION, key, now_ns);
	scratch->record.head.file_system = session->file_system;
	scratch->record.head.size = session->size;
	__builtin_memcpy(&scratch->record.session, session, sizeof(*session));
	scratch->file = file_address;
	scratch->record.session.closed_ns = now_ns;
	path = walk(AFTER_SESSION);
	scratch->record.head.path_state = path >> 16;
	scratch->record.head.path_bytes = path & 0xffff;
	if (send(scratch, sizeof(scratch->record) + (path & 0x1fff), wakeup()))
		bpf_map_delete_elem(&live, key);
	else
		session->closed_ns = now_ns;
}

#define SLOW_NS 16384 /* a local open or close takes about one microsecond, one that asks a server more than this */

/* A close has ended: of a file that its thread wrote, or one in which it waited, for a server mostly, or that failed. */
static __noinline void closed(__u32 tid, __u64 since_ns, __u32 error)
{
	struct closing *closing = bpf_map_lookup_elem(&closings, &tid);
	__u64 now_ns = bpf_ktime_get_ns();
	struct scratch *scratch;
	__u32 zero = 0;

	if (!closing)
		return;
	if (!error && closing->size < control.trifle_bytes && is_stranger()) {
		bpf_map_delete_elem(&closings, &tid);
		return;
	}
	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (scratch && (closing->written || error || now_ns - since_ns >= SLOW_NS) && may_tell_event(now_ns)) {
		fill_head(&scratch->record.head, RECORD_CLOSED, &closing->key, now_ns);
		scratch->record.head.duration_ns = now_ns - since_ns;
		scratch->record.head.size = closing->size;
		scratch->record.head.flags = error;
		scratch->record.head.file_system = closing->file_system;
		send(scratch, sizeof(struct head), wakeup());
	}
	bpf_map_delete_elem(&closings, &tid);
}

/* Tell of a sync that is not of a regular file: of what the key tells, else of a file system or the host. */
static __noinline void tell_sync(struct key *of, __u64 duration_ns)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct key key = of ? *of : (struct key){};
	struct scratch *scratch;
	__u32 zero = 0;

	if (!may_tell_event(now_ns))
		return;
	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!scratch)
		return;
	key.tid = (__u32)bpf_get_current_pid_tgid();
	fill_head(&scratch->record.head, RECORD_SYNCED, &key, now_ns);
	scratch->record.head.duration_ns = duration_ns;
	send(scratch, sizeof(struct head), wakeup());
}

/* Tell of names that a call was given: an old and a new one, or one. */
static __noinline void tell_names(__u32 kind, const char *old_name, const char *new_name, __u64 duration_ns,
				  __u64 folders)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct scratch *scratch;
	struct key key = {};
	__u32 zero = 0, used = 0;
	long length;
	char *out;

	if (is_of_stranger(kind, duration_ns) || !may_tell_event(now_ns))
		return;
	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!scratch)
		return;
	fill_head(&scratch->record.head, kind, &key, now_ns);
	scratch->record.head.duration_ns = duration_ns;
	scratch->record.head.flags = folders;
	scratch->record.head.key.tid = (__u32)bpf_get_current_pid_tgid();
	scratch->record.head.path_state = PATH_STRINGS;
	out = (char *)&scratch->record.session;
	length = bpf_probe_read_user_str(out, STRING_BYTES, old_name);
	if (length <= 0)
		return;
	used = length;
	if (new_name) {
		length = bpf_probe_read_user_str(out + (used & (PATH_BYTES - 1)), STRING_BYTES, new_name);
		if (length <= 0)
			return;
		used += length;
	}
	scratch->record.head.path_bytes = used;
	send(scratch, sizeof(struct head) + (used & 0x1fff), wakeup());
}
