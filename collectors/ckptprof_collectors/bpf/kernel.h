/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The members of kernel structures that the programs read. preserve_access_index makes each access a CO-RE relocation:
 * offsets are those of the running kernel's BTF, whatever stands around the members there.
 */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2, BPF_RB_AVAIL_DATA = 0, BPF_RB_RING_SIZE = 1 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r10, r9, r8, dx, si, di, orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 orig_x0;
	__s32 syscallno;
};
#endif

struct qstr {
	__u32 len;
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_flags;
	unsigned long s_magic;
};

struct inode {
	__u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	__s64 i_size;
	__u32 i_generation;
};

struct address_space {
	struct inode *host;
};

struct file {
	__u32 f_mode;
	struct inode *f_inode;
	unsigned int f_flags;
	struct path f_path;
	__s64 f_pos;
};

struct hlist_head {
	void *first; /* typed loads take a pointer out of an array by it */
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct fs_struct {
	struct path root;
};

struct percpu_counter {
	__s64 count;
};

struct mm_struct {
	struct percpu_counter rss_stat[1]; /* since 6.2; the first is of files */
};

typedef struct {
	long counter;
} atomic_long_t;

struct mm_rss_stat {
	atomic_long_t count[1]; /* until 6.1 */
};

struct mm_struct___old {
	struct mm_rss_stat rss_stat;
};

struct task_struct {
	struct mm_struct *mm;
	unsigned int flags;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	__u64 start_boottime;
	struct fs_struct *fs;
	struct files_struct *files;
};

struct kiocb {
	__s64 ki_pos;
};

struct io_rw {
	struct kiocb kiocb;
	__u64 addr;
	__u32 len;
};

struct io_cqe {
	int fd;
};

struct io_rsrc_node {
	unsigned long file_ptr;
};

struct io_rsrc_data {
	unsigned int nr;
	struct io_rsrc_node **nodes;
};

struct io_fixed_file {
	unsigned long file_ptr;
};

struct io_file_table {
	struct io_rsrc_data data; /* since 6.13 */
};

struct io_file_table___files {
	struct io_fixed_file *files; /* until 6.12 */
};

struct io_ring_ctx {
	struct io_file_table file_table;
};

struct io_cmd_data {
	__u8 data[56];
};

struct io_kiocb {
	struct file *file;
	struct io_cmd_data cmd;
	__u8 opcode;
	__u64 flags;
	struct io_cqe cqe;
	struct io_ring_ctx *ctx;
};

struct io_kiocb___rw {
	struct io_rw rw; /* until 5.18 the arguments were a member of their own */
};

enum pageflags {
	PG_head,
};

enum bpf_func_id {
	BPF_FUNC_get_current_task_btf = 158, /* since 5.11 */
};

struct folio {
	unsigned long flags;
	unsigned long index;
	unsigned int _nr_pages;
};

typedef struct {
	unsigned long f;
} memdesc_flags_t;

struct folio___wrapped {
	memdesc_flags_t flags; /* since 6.18 */
};

struct folio___old {
	unsigned int _folio_nr_pages; /* until 6.10 */
};

struct page {
	unsigned long index;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk; /* since 5.17 */
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	__u64 __sector;
	__u64 start_time_ns;
	__u64 io_start_time_ns;
};

struct request___old {
	struct gendisk *rq_disk; /* until 5.16 */
};

struct in6_addr {
	__u32 words[4];
};

struct sock_common {
	__be32 skc_daddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
};

struct tcp_sock {
	__u32 snd_una;
	__u32 write_seq;
};

#pragma clang attribute pop

/* what programs get as context */
struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

/* include/linux/sched.h */
#define PF_IO_WORKER 0x00000010
#define PF_KTHREAD 0x00200000

/* include/uapi/linux/stat.h, include/linux/fs.h */
#define S_IFMT 00170000
#define S_IFREG 0100000
#define FMODE_READ 0x1
#define FMODE_WRITE 0x2
#define FMODE_CREATED 0x100000
#define SB_KERNMOUNT (1 << 22)
#define O_APPEND 02000
#if defined(__TARGET_ARCH_arm64)
#define O_DIRECT 0200000
#else
#define O_DIRECT 040000
#endif
