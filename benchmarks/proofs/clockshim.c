/* A wall clock that another process sets: the file named by CLOCK_OFFSET holds the seconds by which it is ahead. The
 * monotonic clocks are left alone, as by clock_settime(2). Loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *offset;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("CLOCK_OFFSET");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *place = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*offset), PROT_READ, MAP_SHARED, fd, 0);
	offset = place == MAP_FAILED ? NULL : place;
	if (fd >= 0)
		close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
	int result = syscall(SYS_clock_gettime, clock, at);
	if (!result && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		at->tv_sec += *offset;
	return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
	int result = syscall(SYS_gettimeofday, at, zone);
	if (!result && offset)
		at->tv_sec += *offset;
	return result;
}

time_t time(time_t *at)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}
