/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* System call numbers (asm/unistd_64.h, asm-generic/unistd.h), and what each of them is to us. */
#pragma once

enum call_kind {
	CALL_NONE,
	CALL_READ,
	CALL_WRITE,
	CALL_PREAD, /* the offset is the fourth argument */
	CALL_PWRITE,
	CALL_SENDFILE,
	CALL_SPLICE,
	CALL_COPY_RANGE,
	CALL_IO_SUBMIT,
	CALL_URING_ENTER,
	CALL_SYNC_FILE,
	CALL_SYNC_FS,
	CALL_SYNC_ALL,
	CALL_SYNC_MAPPED,
	CALL_OPEN,
	CALL_MMAP,
	CALL_RENAME,
	CALL_RENAMEAT,
	CALL_UNLINK,
	CALL_UNLINKAT,
	CALL_MKDIR,
	CALL_MKDIRAT,
	CALL_CLOSE,
	CALL_REPLACE, /* dup2: the descriptor that is its second argument is closed */
	CALL_UNMAP,
};

#define CALLS 512

static const __u8 kind_of_call[CALLS] = {
	[425] = CALL_NONE,
	[426] = CALL_URING_ENTER,
	[437] = CALL_OPEN, /* openat2 */
#if defined(__TARGET_ARCH_x86)
	[0] = CALL_READ,
	[1] = CALL_WRITE,
	[2] = CALL_OPEN,
	[3] = CALL_CLOSE,
	[9] = CALL_MMAP,
	[11] = CALL_UNMAP,
	[17] = CALL_PREAD,
	[18] = CALL_PWRITE,
	[19] = CALL_READ, /* readv */
	[20] = CALL_WRITE,
	[26] = CALL_SYNC_MAPPED, /* msync */
	[33] = CALL_REPLACE,
	[40] = CALL_SENDFILE,
	[74] = CALL_SYNC_FILE, /* fsync */
	[75] = CALL_SYNC_FILE, /* fdatasync */
	[82] = CALL_RENAME,
	[83] = CALL_MKDIR,
	[84] = CALL_UNLINK, /* rmdir */
	[85] = CALL_OPEN, /* creat */
	[87] = CALL_UNLINK,
	[162] = CALL_SYNC_ALL, /* sync */
	[209] = CALL_IO_SUBMIT,
	[257] = CALL_OPEN, /* openat */
	[258] = CALL_MKDIRAT,
	[263] = CALL_UNLINKAT,
	[264] = CALL_RENAMEAT,
	[275] = CALL_SPLICE,
	[277] = CALL_SYNC_FILE, /* sync_file_range */
	[292] = CALL_REPLACE, /* dup3 */
	[295] = CALL_PREAD, /* preadv */
	[296] = CALL_PWRITE,
	[306] = CALL_SYNC_FS, /* syncfs */
	[316] = CALL_RENAMEAT, /* renameat2 */
	[326] = CALL_COPY_RANGE,
	[327] = CALL_PREAD, /* preadv2: -1 is the file's own position */
	[328] = CALL_PWRITE,
#elif defined(__TARGET_ARCH_arm64)
	[2] = CALL_IO_SUBMIT,
	[24] = CALL_REPLACE, /* dup3 */
	[34] = CALL_MKDIRAT,
	[35] = CALL_UNLINKAT,
	[38] = CALL_RENAMEAT,
	[56] = CALL_OPEN, /* openat */
	[57] = CALL_CLOSE,
	[63] = CALL_READ,
	[64] = CALL_WRITE,
	[65] = CALL_READ, /* readv */
	[66] = CALL_WRITE,
	[67] = CALL_PREAD,
	[68] = CALL_PWRITE,
	[69] = CALL_PREAD, /* preadv */
	[70] = CALL_PWRITE,
	[71] = CALL_SENDFILE,
	[76] = CALL_SPLICE,
	[81] = CALL_SYNC_ALL, /* sync */
	[82] = CALL_SYNC_FILE, /* fsync */
	[83] = CALL_SYNC_FILE, /* fdatasync */
	[84] = CALL_SYNC_FILE, /* sync_file_range */
	[215] = CALL_UNMAP,
	[222] = CALL_MMAP,
	[227] = CALL_SYNC_MAPPED, /* msync */
	[267] = CALL_SYNC_FS, /* syncfs */
	[276] = CALL_RENAMEAT, /* renameat2 */
	[285] = CALL_COPY_RANGE,
	[286] = CALL_PREAD, /* preadv2 */
	[287] = CALL_PWRITE,
#endif
};

#if defined(__TARGET_ARCH_x86)
#define CALL_NUMBER(typed, regs) LOAD(typed, regs, orig_ax)
#define ARGUMENT_1(typed, regs) LOAD(typed, regs, di)
#define ARGUMENT_2(typed, regs) LOAD(typed, regs, si)
#define ARGUMENT_3(typed, regs) LOAD(typed, regs, dx)
#define ARGUMENT_4(typed, regs) LOAD(typed, regs, r10)
#define ARGUMENT_5(typed, regs) LOAD(typed, regs, r8)
#else
#define CALL_NUMBER(typed, regs) LOAD(typed, regs, syscallno)
#define ARGUMENT_1(typed, regs) LOAD(typed, regs, orig_x0)
#define ARGUMENT_2(typed, regs) LOAD(typed, regs, regs[1])
#define ARGUMENT_3(typed, regs) LOAD(typed, regs, regs[2])
#define ARGUMENT_4(typed, regs) LOAD(typed, regs, regs[3])
#define ARGUMENT_5(typed, regs) LOAD(typed, regs, regs[4])
#endif

static __always_inline __u32 kind_of(__u64 number)
{
	return number < CALLS ? kind_of_call[number] : CALL_NONE;
}
